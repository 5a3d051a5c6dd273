"""Times the layers that section 4 of Attention Is All You Need compares. Prints tables to keep in README.md.

python -m recipes.benchmarks.layers [SVG]    on a CUDA device, or else on the CPU; SVG: where the curves go

Forward only, a few sentences of n tokens and d channels each. B sentences, N tokens in each, H heads, K
channels of a head, W tokens in a window.
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import click
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.attention.dispatch import attend, implementation
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.layers import SelfAttention
from nmt_cli.ragged import Layout
from recipes.benchmarks.curves import Axis, Look, Panel, picture

OUT = Path(__file__).with_name("layers.svg")
SENTENCES = 2
CHANNELS = (64, 128, 256, 512)
LENGTHS = {"cpu": tuple(2**i for i in range(5, 13)), "cuda": tuple(2**i for i in range(5, 14))}
HEAD_WIDTH = 64
WINDOW = 32
KERNEL = 3
FITTED = 3
"""Exponents of n are fitted to that many of the largest n, where the work outweighs what comes with it."""
CONSTANT_N = 512
"""The n at which exponents of d are fitted."""
SECONDS, LEAST, MOST = 1.0, 3, 15
"""Each n and d gets so many seconds, but no fewer and no more turns."""
TOLERANCE = 1e-4

ATTENTION, LAYER = "self-attention", "self-attention and its projections"
RESTRICTED, BLOCKS = "restricted self-attention, ours", "restricted self-attention, in blocks"
RECURRENT, CONVOLUTION = "recurrent (LSTM)", "convolution"
COSTS = {
    ATTENTION: "n² d",
    LAYER: "n² d + n d²",
    RESTRICTED: "r n d",
    BLOCKS: "r n d",
    RECURRENT: "n d²",
    CONVOLUTION: "k n d²",
}
LOOKS = {
    ATTENTION: Look(0),
    LAYER: Look(0, stroke=1),
    RESTRICTED: Look(2),
    BLOCKS: Look(2, stroke=1),
    RECURRENT: Look(1),
    CONVOLUTION: Look(3),
}

Call = Callable[[], object]


class Point(NamedTuple):
    """A size at which all layers are timed."""

    d: int
    n: int


Times = Mapping[Point, Mapping[str, float]]
"""Milliseconds of each layer for one sentence, in the turn that others on the machine disturbed least."""


@torch.inference_mode()
@click.command()
@click.argument("out", metavar="[SVG]", type=click.Path(dir_okay=False, path_type=Path), default=OUT)
def main(out: Path) -> None:
    """Time, print and draw."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print(f"{date.today()}, {_machine(device)}\n")
    print(f"{SENTENCES} sentences at a time, {HEAD_WIDTH} channels a head, r = {WINDOW}, k = {KERNEL}.")
    difference = _difference(device)
    if difference > TOLERANCE:
        raise SystemExit(f"the two ways to restrict attention differ by {difference:.1e}")
    points = [Point(d, n) for d in CHANNELS for n in LENGTHS[device.type]]
    times = {point: _raced(_contest(point, device), device) for point in points}
    _print_exponents(times)
    _print_crossings(times)
    _print_times(times, CHANNELS[-1])
    panels = [_panel(times, d) for d in CHANNELS]
    axes = Axis("n, tokens of a sentence", 4), Axis("milliseconds a sentence", 10)
    out.write_text(picture(panels, LOOKS, *axes), "utf-8")
    print(f"\nthe curves: {out}")


def _machine(device: torch.device) -> str:
    where = f"CPU, {torch.get_num_threads()} threads"
    if device.type == "cuda":
        where = torch.cuda.get_device_name()
    kernel = implementation(device, HEAD_WIDTH, HEAD_WIDTH, torch.float32)
    return f"{where}, torch {torch.__version__}, float32; our attention is `{kernel}`"


def _contest(point: Point, device: torch.device) -> dict[str, Call]:
    """All layers, each with an input of its own."""
    d, n = point
    torch.manual_seed(1)
    x_TD = torch.randn(SENTENCES * n, d, device=device)
    q, k, v = (torch.randn(SENTENCES * n, d // HEAD_WIDTH, HEAD_WIDTH, device=device) for _ in range(3))
    layout = Layout.of([n] * SENTENCES).grouped().to(device)
    layer = SelfAttention(ModelConfig(width=d, heads=d // HEAD_WIDTH), causal=False).to(device).eval()
    lstm = nn.LSTM(d, d, batch_first=True).to(device)
    convolution = nn.Conv1d(d, d, KERNEL, padding="same").to(device)
    x_BND = x_TD.view(SENTENCES, n, d)
    x_BDN = x_BND.mT.contiguous()
    return {
        ATTENTION: lambda: attend(q, k, v, layout, layout),
        LAYER: lambda: layer(x_TD, layout),
        RESTRICTED: lambda: attend(q, k, v, layout, layout, window=WINDOW),
        BLOCKS: lambda: _in_blocks(q, k, v),
        RECURRENT: lambda: lstm(x_BND),
        CONVOLUTION: lambda: convolution(x_BDN),
    }


def _in_blocks(q_THK: Tensor, k_THK: Tensor, v_THK: Tensor) -> Tensor:
    """What a window can save: a block of tokens sees no more than itself and its neighbours."""
    q_BHNK, k_BHNK, v_BHNK = (
        x.unflatten(0, (SENTENCES, -1)).transpose(1, 2)  # type: ignore[no-untyped-call]  # torch's
        for x in (q_THK, k_THK, v_THK)
    )
    n = q_BHNK.shape[2]
    blocks = n // WINDOW
    q = q_BHNK.unflatten(2, (blocks, WINDOW)).transpose(1, 2)
    k, v = (
        F.pad(x, (0, 0, WINDOW, WINDOW)).unfold(2, 3 * WINDOW, WINDOW).permute(0, 2, 1, 4, 3)
        for x in (k_BHNK, v_BHNK)
    )
    queries = torch.arange(n, device=q.device).view(blocks, WINDOW, 1)
    keys = torch.arange(-WINDOW, 2 * WINDOW, device=q.device) + queries[:, :1]
    near = (keys >= queries - WINDOW // 2) & (keys <= queries + (WINDOW - 1) // 2)
    seen = (near & (keys >= 0) & (keys < n))[:, None]
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    out_THK: Tensor = mixed.transpose(2, 3).reshape(q_THK.shape)
    return out_THK


def _difference(device: torch.device) -> float:
    contest = _contest(Point(2 * HEAD_WIDTH, 4 * WINDOW), device)
    ours, blocks = contest[RESTRICTED](), contest[BLOCKS]()
    assert isinstance(ours, Tensor)
    assert isinstance(blocks, Tensor)
    return float((ours - blocks).abs().max())


def _raced(contest: Mapping[str, Call], device: torch.device) -> dict[str, float]:
    """All take turns, so that whatever else happens on the machine happens to each."""
    times: dict[str, list[float]] = {name: [] for name in contest}
    end = math.inf
    for turn in range(-1, MOST):
        for name, call in contest.items():
            seconds = _seconds(call, device)
            if turn >= 0:
                times[name].append(1000 * seconds / SENTENCES)
        if turn < 0:
            end = time.perf_counter() + SECONDS
        elif turn + 1 >= LEAST and time.perf_counter() > end:
            break
    return {name: min(each) for name, each in times.items()}


def _seconds(call: Call, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The exponent of the power law nearest to the points, by least squares of the logarithms."""
    xs, ys = ([math.log(value) for value in side] for side in zip(*points, strict=True))
    return statistics.linear_regression(xs, ys).slope


def crossing(points: Sequence[tuple[float, float, float]]) -> str:
    """Where, from left to right, the first of two curves comes to be the higher one."""
    ratios = [(math.log(x), math.log(one / other)) for x, one, other in points]
    if ratios[0][1] > 0:
        return f"below {points[0][0]:,}"
    for (x, ratio), (next_x, next_ratio) in pairwise(ratios):
        if next_ratio > 0:
            return f"{math.exp(x - ratio * (next_x - x) / (next_ratio - ratio)):,.0f}"
    return f"beyond {points[-1][0]:,}"


def _print_exponents(times: Times) -> None:
    lengths = sorted({point.n for point in times})[-FITTED:]
    heads = [f"n, d = {d}" for d in CHANNELS]
    print(f"\nFitted exponents: of n from {lengths[0]:,} to {lengths[-1]:,}, of d at n = {CONSTANT_N}.\n")
    _print_row("layer", "the paper's operations", *heads, "d")
    _print_row(*["---"] * (3 + len(heads)))
    for name, cost in COSTS.items():
        of_n = [slope([(n, times[Point(d, n)][name]) for n in lengths]) for d in CHANNELS]
        of_d = slope([(d, times[Point(d, CONSTANT_N)][name]) for d in CHANNELS])
        _print_row(name, cost, *(f"{exponent:.2f}" for exponent in (*of_n, of_d)))


def _print_crossings(times: Times) -> None:
    lengths = sorted({point.n for point in times})
    rivals = [(one, other) for one in (ATTENTION, LAYER) for other in (RECURRENT, CONVOLUTION)]
    print("\nThe n from which on the first is slower than the second; the paper's rule is n = d.\n")
    _print_row("d", *(f"{one} : {other}" for one, other in rivals))
    _print_row(*["---"] * (1 + len(rivals)))
    for d in CHANNELS:
        each = {n: times[Point(d, n)] for n in lengths}
        _print_row(
            d, *(crossing([(n, each[n][one], each[n][other]) for n in lengths]) for one, other in rivals)
        )


def _print_times(times: Times, d: int) -> None:
    print(f"\nMilliseconds a sentence, d = {d}, the best of {LEAST} to {MOST} turns.\n")
    _print_row("n", *COSTS)
    _print_row(*["---"] * (1 + len(COSTS)))
    for point, each in times.items():
        if point.d == d:
            _print_row(f"{point.n:,}", *(f"{each[name]:.3f}" for name in COSTS))


def _print_row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |")


def _panel(times: Times, d: int) -> Panel:
    lengths = [point.n for point in times if point.d == d]
    curves = [(name, [(n, times[Point(d, n)][name]) for n in lengths]) for name in COSTS]
    return Panel(f"d = {d}", curves, mark=d, mark_label="n = d")


if __name__ == "__main__":
    main()
