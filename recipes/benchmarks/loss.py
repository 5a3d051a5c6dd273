"""Time the loss against PyTorch's logits + cross_entropy, and compare memory. Print tables for results.md.

python -m recipes.benchmarks.loss            speed and memory, on a GPU or else on the CPU
python -m recipes.benchmarks.loss speed      forward and backward, in turns
python -m recipes.benchmarks.loss memory     the peak at 25,000 tokens and 37,000 entries, 11 GB on a CPU
"""

import resource
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

import click
import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.loss.chunked_loss import cross_entropy
from nmt_cli.loss.plain_loss import IGNORED
from recipes.benchmarks.gpu.device import device_name, seconds_of
from recipes.benchmarks.machine import method, print_head, print_row

GPU = torch.cuda.is_available()
DEVICE, DTYPE = ("cuda", torch.bfloat16) if GPU else ("cpu", torch.float32)
SMOOTHING = 0.1
WMT = (25_000, 37_000, 512)
SPEED_SHAPES = [WMT, (25_000, 37_000, 1024)] if GPU else [(4096, 10_000, 256), (4096, 10_000, 512)]

Batch = tuple[Tensor, Tensor, Tensor]


@click.group(help=method(__doc__), invoke_without_command=True)
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
    """Time plain, ours, and the three matrix products that both need, in turns."""
    torch.set_num_threads(threads)
    print()
    title = f"tokens x entries x features, {DTYPE}, {device_name()}"
    print_head(title, "plain ms", "ours ms", "plain / ours", "products ms", "their TFLOP/s")
    for shape in SPEED_SHAPES:
        ways = [partial(way, _batch(*shape)) for way in (_plain, _ours, _products)]
        turns = [[seconds_of([way]) for way in ways] for _ in range(repeats + 1)][1:]
        plain, ours, products = (statistics.median(column) for column in zip(*turns, strict=True))
        ratios = sorted(turn[0] / turn[1] for turn in turns)
        name = " x ".join(f"{size:,}" for size in shape)
        ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        rate = f"{6e-12 * shape[0] * shape[1] * shape[2] / products:.2f}"
        print_row(name, f"{1e3 * plain:.1f}", f"{1e3 * ours:.1f}", ratio, f"{1e3 * products:.1f}", rate)


@main.command()
def memory() -> None:
    """Measure the peak memory of plain and ours beyond their inputs, each in its own process."""
    print()
    print_head(
        f"{WMT[0]:,} tokens x {WMT[1]:,} entries x {WMT[2]}, {DTYPE}, {DEVICE}", "peak MB beyond inputs"
    )
    peaks = []
    for name in ("plain", "ours"):
        command = [sys.executable, "-m", "recipes.benchmarks.loss", "peak", name]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        peaks.append(float(output))
        print_row(name, f"{peaks[-1]:,.0f}")
    print(f"\nours needs {100 * peaks[1] / peaks[0]:.1f} % of the memory of plain.")


@main.command(hidden=True)
@click.argument("name", type=click.Choice(["plain", "ours"]))
def peak(name: str) -> None:
    """Print the megabytes that NAME needs beyond its inputs. The process must have done nothing else."""
    way = {"plain": _plain, "ours": _ours}[name]
    way(_batch(100, 1000, WMT[2]))  # PyTorch loads and allocates some things once
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
    """Compute as a model under autocast does: products in half precision, losses in fp32."""
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
