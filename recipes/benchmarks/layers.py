"""Time the layers that section 4 of Attention Is All You Need compares. Print tables for results.md.

python -m recipes.benchmarks.layers     on a CUDA device, or else on the CPU

Forward pass only, two sentences of n tokens and d channels, 64 channels per head, fp32. Restricted
self-attention has r = 32, convolutions k = 3. Times are the best of 3 to 15 turns. One table has the smallest
n at which the first layer is slower than the second. The paper's rule is n = d.

Two tables follow for section 3.2.1 and for the path lengths of Table 1. The first compares scores by dot
product and additive scores, v·tanh(q + k), in time and in the size of the largest tensor. The second counts
the layers of convolutions until the last token sees the first.
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import click
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

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
LONGEST_ADDITIVE = 512
"""Maximum n of additive scores, whose largest tensor has n² d numbers per sentence."""

CONSTANT_N = 512
"""Exponents of d are fitted at this n."""
SECONDS, LEAST, MOST = 1.0, 3, 15
"""Time for each n and d, and the minimum and maximum number of turns."""

ATTENTION, LAYER = "self-attention", "self-attention and its projections"
RESTRICTED, RECURRENT, CONVOLUTION = "restricted self-attention", "recurrent (LSTM)", "convolution"
SEPARABLE = "separable convolution"
COSTS = {
    ATTENTION: "n² d",
    LAYER: "n² d + n d²",
    RESTRICTED: "r n d",
    RECURRENT: "n d²",
    CONVOLUTION: "k n d²",
    SEPARABLE: "k n d + n d²",
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
@click.option(
    "--channels", type=int, multiple=True, default=CHANNELS, help="d of the layers.  [default: all]"
)
@click.option("--longest", type=int, default=1 << 30, help="Leave out larger n.", metavar="N")
def main(channels: Sequence[int], longest: int) -> None:
    """Time all layers and print tables."""
    device = the_device()
    kernel = implementation(device, HEAD_WIDTH, HEAD_WIDTH, torch.float32)
    print(f"{date.today()}, {device_name()}, torch {torch.__version__}, float32, attention `{kernel}`\n")
    print(f"{SENTENCES} sentences at a time, {HEAD_WIDTH} channels per head, r = {WINDOW}, k = {KERNEL}.")
    lengths = [n for n in LENGTHS[device.type] if n <= longest]
    times = {
        point: _raced(_contest(point, device)) for point in (Point(d, n) for d in channels for n in lengths)
    }
    _print_exponents(times)
    _print_crossings(times)
    _print_times(times, channels[-1])
    _print_scores([n for n in lengths if n <= LONGEST_ADDITIVE], device)
    _print_paths()


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
    separable = nn.Sequential(nn.Conv1d(d, d, KERNEL, padding="same", groups=d), nn.Conv1d(d, d, 1)).to(
        device
    )
    x_BND = x_TD.view(SENTENCES, n, d)
    x_BDN = x_BND.mT.contiguous()
    return {
        ATTENTION: lambda: attend_projected(q_k_v, heads, layout, layout),
        LAYER: lambda: layer(x_TD, layout),
        RESTRICTED: lambda: attend_projected(q_k_v, heads, layout, layout, Options(window=WINDOW)),
        RECURRENT: lambda: lstm(x_BND),
        CONVOLUTION: lambda: convolution(x_BDN),
        SEPARABLE: lambda: separable(x_BDN),
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


def _channels(times: Times) -> list[int]:
    return sorted({point.d for point in times})


def _print_exponents(times: Times) -> None:
    lengths, channels = sorted({point.n for point in times}), _channels(times)
    fitted, constant = lengths[-FITTED:], min(CONSTANT_N, lengths[-1])
    print(f"\nFitted exponents: of n from {fitted[0]:,} to {fitted[-1]:,}, of d at n = {constant}.\n")
    print_head("layer", "the paper's operations", *(f"n, d = {d}" for d in channels), "d")
    for name, cost in COSTS.items():
        of_n = [slope([(n, times[Point(d, n)][name]) for n in fitted]) for d in channels]
        of_d = slope([(d, times[Point(d, constant)][name]) for d in channels]) if channels[1:] else math.nan
        print_row(name, cost, *(f"{exponent:.2f}" for exponent in (*of_n, of_d)))


def _print_crossings(times: Times) -> None:
    lengths = sorted({point.n for point in times})
    rivals = [(one, other) for one in (ATTENTION, LAYER) for other in (RECURRENT, CONVOLUTION)]
    print("\nThe smallest n at which the first is slower than the second. The paper's rule is n = d.\n")
    print_head("d", *(f"{one} : {other}" for one, other in rivals))
    for d in _channels(times):
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


Score = Callable[[Tensor, Tensor, Tensor], Tensor]


def dot_product_scores(q_BHND: Tensor, k_BHND: Tensor, v_HD: Tensor) -> Tensor:
    """Return the scores of all pairs of tokens, q·k / sqrt(d)."""
    scores_BHNN: Tensor = q_BHND @ k_BHND.mT / q_BHND.shape[-1] ** 0.5
    return scores_BHNN


def additive_scores(q_BHND: Tensor, k_BHND: Tensor, v_HD: Tensor) -> Tensor:
    """Return the scores of all pairs of tokens, v·tanh(q + k)."""
    sums_BHNND = (q_BHND[:, :, :, None] + k_BHND[:, :, None]).tanh_()
    return (sums_BHNND @ v_HD[:, None, :, None]).squeeze(-1)


class LargestTensor(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Measures the largest tensor of the operations in a `with` block."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and look at its result."""
        result = call(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.bytes = max(self.bytes, result.nbytes)
        return result


def _print_scores(lengths: Sequence[int], device: torch.device) -> None:
    d = CHANNELS[-1]
    print(f"\nScores of all heads, d = {d}: milliseconds, and MB of the largest tensor, per sentence.\n")
    kinds: dict[str, Score] = {"dot product": dot_product_scores, "additive": additive_scores}
    print_head(
        "n",
        *(f"{name}, {unit}" for unit in ("ms", "MB") for name in kinds),
        "times as slow",
        "times as large",
    )
    for n in lengths:
        torch.manual_seed(1)
        q, k = torch.randn(2, SENTENCES, d // HEAD_WIDTH, n, HEAD_WIDTH, device=device).unbind()
        v_HD = torch.randn(d // HEAD_WIDTH, HEAD_WIDTH, device=device)
        raced = _raced({name: partial(score, q, k, v_HD) for name, score in kinds.items()})
        sizes = []
        for score in kinds.values():
            with LargestTensor() as largest:
                score(q, k, v_HD)
            sizes.append(largest.bytes / SENTENCES / 1e6)
        slow, large = raced["additive"] / raced["dot product"], sizes[1] / sizes[0]
        cells = (*(f"{time:.3f}" for time in raced.values()), *(f"{size:.2f}" for size in sizes))
        print_row(f"{n:,}", *cells, f"{slow:.0f}", f"{large:.0f}")


def layers_needed(n: int, kernel: int, dilated: bool) -> int:
    """Return the number of layers of causal convolutions after which the last of `n` tokens sees the first.

    The kernels are `kernel` wide, contiguous or with gaps that grow by the factor `kernel` in each layer.
    """
    seen, layers, gap = torch.zeros(1, 1, n), 0, 1
    seen[0, 0, 0] = 1
    while not seen[0, 0, -1]:
        padded = F.pad(seen, (gap * (kernel - 1), 0))
        seen = F.conv1d(padded, torch.ones(1, 1, kernel), dilation=gap).clamp(max=1)
        layers += 1
        gap *= kernel if dilated else 1
    return layers


def _print_paths() -> None:
    kernels = [(kernel, dilated) for dilated in (False, True) for kernel in (3, 7)]
    print("\nLayers of convolutions until the last of n tokens sees the first. Self-attention needs one.\n")
    print_head("n", *(f"{'dilated' if dilated else 'contiguous'}, k = {k}" for k, dilated in kernels))
    for n in (32, 128, 512):
        print_row(f"{n:,}", *(str(layers_needed(n, k, dilated)) for k, dilated in kernels))


if __name__ == "__main__":
    main()
