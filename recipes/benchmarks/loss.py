"""Times the loss against PyTorch's logits + cross_entropy, and what each holds. Prints tables for README.md.

python recipes/benchmarks/loss.py            speed and memory, on the GPU where there is one
python recipes/benchmarks/loss.py speed      forward and backward, in turns
python recipes/benchmarks/loss.py memory     the peak at 25,000 tokens and 37,000 entries, 11 GB on a CPU
"""

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.loss.dispatch import cross_entropy
from nmt_cli.loss.reference import IGNORED

GPU = torch.cuda.is_available()
DEVICE, DTYPE = ("cuda", torch.bfloat16) if GPU else ("cpu", torch.float32)
SMOOTHING = 0.1
WMT = (25_000, 37_000, 512)
SPEED_SHAPES = [WMT, (25_000, 37_000, 1024)] if GPU else [(4096, 10_000, 256), (4096, 10_000, 512)]

Batch = tuple[Tensor, Tensor, Tensor]


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Measure the loss, forward and backward."""
    if context.invoked_subcommand is None:
        for command in (speed, memory):
            context.invoke(command)


@main.command()
@click.option("--repeats", default=11)
@click.option("--threads", default=2, help="Of the CPU.")
def speed(repeats: int, threads: int) -> None:
    """Plain, ours, and the three matrix products that both need, in turns."""
    torch.set_num_threads(threads)
    where = torch.cuda.get_device_name() if GPU else f"CPU, {threads} threads"
    print(f"\n| tokens x entries x features, {DTYPE}, {where} | plain ms | ours ms | plain / ours |", end="")
    print(" products ms | their TFLOP/s |\n|---|---|---|---|---|---|")
    for shape in SPEED_SHAPES:
        batch, ways = _batch(*shape), (_plain, _ours, _products)
        for way in ways:
            _seconds(way, batch)
        turns = [[_seconds(way, batch) for way in ways] for _ in range(repeats)]
        plain, ours, products = (statistics.median(column) for column in zip(*turns, strict=True))
        ratios = sorted(turn[0] / turn[1] for turn in turns)
        name = " x ".join(f"{size:,}" for size in shape)
        print(f"| {name} | {1e3 * plain:.1f} | {1e3 * ours:.1f} | {statistics.median(ratios):.2f}", end="")
        print(f" ({ratios[0]:.2f} to {ratios[-1]:.2f}) | {1e3 * products:.1f} |", end="")
        print(f" {6e-12 * shape[0] * shape[1] * shape[2] / products:.2f} |")


@main.command()
def memory() -> None:
    """The most that each holds beyond its inputs, each in a process of its own."""
    print(
        f"\n| {WMT[0]:,} tokens x {WMT[1]:,} entries x {WMT[2]}, {DTYPE}, {DEVICE} | peak MB beyond inputs |"
    )
    print("|---|---|")
    peaks = []
    for name in ("plain", "ours"):
        command = [sys.executable, str(Path(__file__)), "peak", name]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        peaks.append(float(output))
        print(f"| {name} | {peaks[-1]:,.0f} |")
    print(f"\nours holds {100 * peaks[1] / peaks[0]:.1f} % of what plain holds.")


@main.command(hidden=True)
@click.argument("name", type=click.Choice(["plain", "ours"]))
def peak(name: str) -> None:
    """Print the megabytes that one way holds; for a process that has done nothing else."""
    way = {"plain": _plain, "ours": _ours}[name]
    way(_batch(100, 1000, WMT[2]))  # what PyTorch loads and allocates once
    batch = _batch(*WMT)
    before = _held()
    way(batch)
    print((_peak() - before) / 1e6)


def _batch(tokens: int, entries: int, features: int) -> Batch:
    draw = torch.Generator(DEVICE).manual_seed(1)
    x = torch.randn(tokens, features, generator=draw, device=DEVICE).to(DTYPE)
    weight = torch.randn(entries, features, generator=draw, device=DEVICE) * features**-0.5
    targets = torch.randint(entries, (tokens,), generator=draw, device=DEVICE)
    return x.requires_grad_(), weight.requires_grad_(), targets


def _plain(batch: Batch) -> None:
    """What a model does under autocast: the products in half precision, the losses in fp32."""
    x, weight, targets = batch
    logits = F.linear(x, weight.to(x.dtype)).float()
    loss = F.cross_entropy(logits, targets, ignore_index=IGNORED, label_smoothing=SMOOTHING, reduction="sum")
    torch.autograd.grad(loss, (x, weight))


def _ours(batch: Batch) -> None:
    losses = cross_entropy(*batch, smoothing=SMOOTHING)
    torch.autograd.grad(losses.smoothed, batch[:2])


@torch.no_grad()
def _products(batch: Batch) -> None:
    x, weight = batch[0], batch[1].to(DTYPE)
    logits = x @ weight.mT
    logits @ weight, logits.mT @ x


def _seconds(way: Callable[[Batch], None], batch: Batch) -> float:
    _wait()
    start = time.perf_counter()
    way(batch)
    _wait()
    return time.perf_counter() - start


def _wait() -> None:
    if GPU:
        torch.cuda.synchronize()


def _held() -> float:
    if GPU:
        torch.cuda.reset_peak_memory_stats()
        return float(torch.cuda.memory_allocated())
    return int(Path("/proc/self/statm").read_text().split()[1]) * float(resource.getpagesize())


def _peak() -> float:
    if GPU:
        return float(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


if __name__ == "__main__":
    main()
