"""Time the layers that section 4 of Attention Is All You Need compares. Print tables for results.md.

python -m recipes.benchmarks.layers     on a CUDA device, or else on the CPU

Forward pass only, two sentences of n tokens and d channels, 64 channels per head, fp32. Restricted
self-attention has r = 32, convolution k = 3. Times are the best of 3 to 15 turns. The last table has the
smallest n at which the first layer is slower than the second. The paper's rule is n = d.
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from itertools import pairwise
from typing import NamedTuple

import click
import torch
from torch import nn

from nmt_cli.attention.attention import attend_projected, implementation
from nmt_cli.attention.attention_options import Options
from nmt_cli.attention.groups import grouped
from nmt_cli.attention.projections import Heads
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.layers import SelfAttention
from nmt_cli.ragged import Layout
from recipes.benchmarks.gpu.device import device_name, seconds_of, the_device
from recipes.benchmarks.machine import method, print_head, print_row

SENTENCES = 2
CHANNELS = (64, 128, 256, 512)
LENGTHS = {"cpu": tuple(2**i for i in range(5, 13)), "cuda": tuple(2**i for i in range(5, 14))}
HEAD_WIDTH = 64
WINDOW = 32
KERNEL = 3
FITTED = 3
"""Exponents of n are fitted to this number of the largest n, where fixed costs matter least."""
CONSTANT_N = 512
"""Exponents of d are fitted at this n."""
SECONDS, LEAST, MOST = 1.0, 3, 15
"""Time for each n and d, and the minimum and maximum number of turns."""

ATTENTION, LAYER = "self-attention", "self-attention and its projections"
RESTRICTED, RECURRENT, CONVOLUTION = "restricted self-attention", "recurrent (LSTM)", "convolution"
COSTS = {
    ATTENTION: "n² d",
    LAYER: "n² d + n d²",
    RESTRICTED: "r n d",
    RECURRENT: "n d²",
    CONVOLUTION: "k n d²",
}

Call = Callable[[], object]


class Point(NamedTuple):
    """A size at which all layers are timed."""

    d: int
    n: int


Times = Mapping[Point, Mapping[str, float]]
"""Milliseconds per sentence of each layer in its fastest turn."""


@torch.inference_mode()
@click.command(help=method(__doc__))
def main() -> None:
    """Time all layers and print tables."""
    device = the_device()
    kernel = implementation(device, HEAD_WIDTH, HEAD_WIDTH, torch.float32)
    print(f"{date.today()}, {device_name()}, torch {torch.__version__}, float32, attention `{kernel}`\n")
    print(f"{SENTENCES} sentences at a time, {HEAD_WIDTH} channels per head, r = {WINDOW}, k = {KERNEL}.")
    points = [Point(d, n) for d in CHANNELS for n in LENGTHS[device.type]]
    times = {point: _raced(_contest(point, device)) for point in points}
    _print_exponents(times)
    _print_crossings(times)
    _print_times(times, CHANNELS[-1])


def _contest(point: Point, device: torch.device) -> dict[str, Call]:
    """Return a call of each layer, with its own random input, by name."""
    d, n = point
    torch.manual_seed(1)
    x_TD = torch.randn(SENTENCES * n, d, device=device)
    q_k_v = [torch.randn(SENTENCES * n, d, device=device) for _ in range(3)]
    heads = Heads(d // HEAD_WIDTH, HEAD_WIDTH, HEAD_WIDTH)
    layout = grouped(Layout.of([n] * SENTENCES)).to(device)
    layer = SelfAttention(ModelConfig(width=d, heads=d // HEAD_WIDTH), causal=False).to(device).eval()
    lstm = nn.LSTM(d, d, batch_first=True).to(device)
    convolution = nn.Conv1d(d, d, KERNEL, padding="same").to(device)
    x_BND = x_TD.view(SENTENCES, n, d)
    x_BDN = x_BND.mT.contiguous()
    return {
        ATTENTION: lambda: attend_projected(q_k_v, heads, layout, layout),
        LAYER: lambda: layer(x_TD, layout),
        RESTRICTED: lambda: attend_projected(q_k_v, heads, layout, layout, Options(window=WINDOW)),
        RECURRENT: lambda: lstm(x_BND),
        CONVOLUTION: lambda: convolution(x_BDN),
    }


def _raced(contest: Mapping[str, Call]) -> dict[str, float]:
    """Return each layer's least milliseconds per sentence. Time in turns, so that other load affects all."""
    times: dict[str, list[float]] = {name: [] for name in contest}
    end = math.inf
    for turn in range(-1, MOST):
        for name, call in contest.items():
            seconds = seconds_of([call])
            if turn >= 0:
                times[name].append(1000 * seconds / SENTENCES)
        if turn < 0:
            end = time.perf_counter() + SECONDS
        elif turn + 1 >= LEAST and time.perf_counter() > end:
            break
    return {name: min(each) for name, each in times.items()}


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the exponent of a power law fitted to the points by least squares of the logarithms."""
    xs, ys = ([math.log(value) for value in side] for side in zip(*points, strict=True))
    return statistics.linear_regression(xs, ys).slope


def crossing(points: Sequence[tuple[float, float, float]]) -> str:
    """Return the first x at which the first of two curves is above the second."""
    ratios = [(math.log(x), math.log(one / other)) for x, one, other in points]
    if ratios[0][1] > 0:
        return f"below {points[0][0]:,}"
    for (x, ratio), (next_x, next_ratio) in pairwise(ratios):
        if next_ratio > 0:
            return f"{math.exp(x - ratio * (next_x - x) / (next_ratio - ratio)):,.0f}"
    return f"beyond {points[-1][0]:,}"


def _print_exponents(times: Times) -> None:
    lengths = sorted({point.n for point in times})[-FITTED:]
    print(f"\nFitted exponents: of n from {lengths[0]:,} to {lengths[-1]:,}, of d at n = {CONSTANT_N}.\n")
    print_head("layer", "the paper's operations", *(f"n, d = {d}" for d in CHANNELS), "d")
    for name, cost in COSTS.items():
        of_n = [slope([(n, times[Point(d, n)][name]) for n in lengths]) for d in CHANNELS]
        of_d = slope([(d, times[Point(d, CONSTANT_N)][name]) for d in CHANNELS])
        print_row(name, cost, *(f"{exponent:.2f}" for exponent in (*of_n, of_d)))


def _print_crossings(times: Times) -> None:
    lengths = sorted({point.n for point in times})
    rivals = [(one, other) for one in (ATTENTION, LAYER) for other in (RECURRENT, CONVOLUTION)]
    print("\nThe smallest n at which the first is slower than the second. The paper's rule is n = d.\n")
    print_head("d", *(f"{one} : {other}" for one, other in rivals))
    for d in CHANNELS:
        each = {n: times[Point(d, n)] for n in lengths}
        print_row(
            d, *(crossing([(n, each[n][one], each[n][other]) for n in lengths]) for one, other in rivals)
        )


def _print_times(times: Times, d: int) -> None:
    print(f"\nMilliseconds per sentence, d = {d}, the best of {LEAST} to {MOST} turns.\n")
    print_head("n", *COSTS)
    for point, each in times.items():
        if point.d == d:
            print_row(f"{point.n:,}", *(f"{each[name]:.3f}" for name in COSTS))


if __name__ == "__main__":
    main()
