"""Time our attention against others for ragged batches. Print a table for results.md.

python -m recipes.benchmarks.attention            on a CUDA device, or else, with small batches, on the CPU
python -m recipes.benchmarks.attention WORD ...   only rows whose names contain all: wmt big causal

Ours runs forward, and forward and backward, in turns with scaled_dot_product_attention on padded tensors
(with and without the cost of padding), varlen_attn, FlexAttention with a document mask, and flash-attn.
Outputs and gradients are compared with ours first. A competitor that fails or differs is named.

Batches have up to 25,000 tokens per side (2,048 on a CPU). alike-short, -middle and -long are cut from
sorted pairs, as in training, after 1/6, 1/2 and 5/6 of all tokens. random is not sorted. multi30k needs
NMT_DATA. wmt has log-normal lengths with a mean of 28 and a maximum of 250.
"""

import statistics
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from importlib.util import find_spec
from os import environ

import click
import numpy as np
import torch
from torch import Tensor

from nmt_cli.attention import attention
from nmt_cli.attention.groups import grouped
from nmt_cli.ragged import Layout
from recipes.benchmarks import contestants
from recipes.benchmarks.contestants import Contestant, Problem
from recipes.benchmarks.gpu.device import device_name
from recipes.benchmarks.lengths import Pairs, batches, multi30k, wmt_like
from recipes.benchmarks.machine import method, print_head, print_row

WIDTH = 64
HEADS = {"base": 8, "big": 16}
CASES = ("self", "causal", "cross")
OURS, PADDED, ALREADY, FLEX = "ours", "padded", "padded already", "FlexAttention"
ANYWHERE: dict[str, Callable[[Problem], Contestant]] = {
    PADDED: contestants.padded,
    ALREADY: contestants.padded_already,
}
ON_CUDA = {
    "varlen_attn": contestants.varlen,
    FLEX: contestants.flex,
    "flash-attn": contestants.flash_attention,
}

Medians = tuple[float, float, float]
"""Milliseconds of the forward pass, of forward and backward, and of the host to launch the latter."""

HEAD_START = 10_000_000
"""Cycles that the device sleeps while the host launches, so that only the time of the device counts."""


@dataclass(frozen=True)
class Bench:
    """The device, and the size and number of the measurements."""

    device: torch.device
    dtype: torch.dtype
    tokens: int
    heads: dict[str, int]
    repeats: int
    tolerance: float
    """Largest allowed difference between contestants, relative to the largest number."""
    scratch: Tensor
    """Larger than any cache."""

    def timed(self, call: Callable[[], object]) -> tuple[float, float]:
        """Return milliseconds of the device, with cold caches, and of the host until the call returns."""
        self.scratch.zero_()
        if self.device.type == "cpu":
            seconds = -time.perf_counter()
            call()
            return (milliseconds := 1000 * (seconds + time.perf_counter())), milliseconds
        start, end = torch.cuda.Event(True), torch.cuda.Event(True)  # type: ignore[no-untyped-call]  # torch's
        torch.cuda._sleep(HEAD_START)  # type: ignore[no-untyped-call]  # torch's
        start.record()
        seconds = -time.perf_counter()
        call()
        seconds += time.perf_counter()
        end.record()
        end.synchronize()
        return start.elapsed_time(end), 1000 * seconds

    def median(self, call: Callable[[], object]) -> float:
        """Return the device's median milliseconds of the call."""
        call()
        return statistics.median(self.timed(call)[0] for _ in range(self.repeats))


@click.command(help=method(__doc__))
@click.argument("words", nargs=-1)
def main(words: Sequence[str]) -> None:
    """Print a table of all rows whose names contain every word."""
    bench = _bench()
    kernel = attention.implementation(bench.device, WIDTH, WIDTH, torch.float32)
    triton = f"triton {version('triton')}" if find_spec("triton") else "no triton"
    print(
        f"{date.today()}, {device_name()}, torch {torch.__version__}, {triton}, ours is `{kernel}`", end=", "
    )
    print(bench.dtype)
    print(f"\n`{' '.join(['python -m recipes.benchmarks.attention', *words])}`", flush=True)
    bytes_per_ms = _bandwidth(bench)
    print(f"\nA copy reads and writes {bytes_per_ms / 1e6:,.0f} GB/s. The floor is the time to move all")
    print("inputs and outputs once.\n")
    left_out: dict[str, str] = {}
    gains: dict[str, list[tuple[float, float]]] = {"alike": [], "random": []}
    columns: list[str] = []
    for name, problem in _problems(bench, words):
        contest = _contest(bench, problem, left_out)
        if not columns:
            columns = list(contest)
            _print_head(bench, columns)
        medians = _raced(bench, contest)
        prepare = contest[FLEX].prepare if FLEX in contest else None
        mask = bench.median(prepare) if prepare else None
        sizes = f"{len(problem.q.lengths):,}: {len(problem.q.segments):,}, {problem.q.longest}"
        floor = _floor(problem, bytes_per_ms)
        print_row(name, sizes, *_cells(bench, columns, medians, floor, mask))
        gains["random" if "random" in name else "alike"].append(_gains(medians, 1))
    for kind, ratios in gains.items():
        _print_summary(kind, ratios)
    for contestant, reason in left_out.items():
        print(f"\nomitted: {contestant}: {reason}")


def _bench() -> Bench:
    if torch.cuda.is_available():
        scratch = torch.empty(1 << 28, dtype=torch.int8, device="cuda")
        return Bench(torch.device("cuda"), torch.bfloat16, 25_000, HEADS, 20, 2e-2, scratch)
    scratch = torch.empty(1 << 26, dtype=torch.int8)
    return Bench(torch.device("cpu"), torch.float32, 2048, {"base": HEADS["base"]}, 5, 1e-4, scratch)


def _bandwidth(bench: Bench) -> float:
    """Return the bytes per millisecond that a large copy reads and writes."""
    source = torch.ones(4 * len(bench.scratch), dtype=torch.int8, device=bench.device)
    target = torch.zeros_like(source)
    return 2 * len(source) / bench.median(lambda: target.copy_(source))


def _problems(bench: Bench, words: Sequence[str]) -> Iterator[tuple[str, Problem]]:
    corpora = {"multi30k": multi30k() if "NMT_DATA" in environ else None, "wmt": wmt_like()}
    for corpus, pairs in corpora.items():
        if pairs is None:
            print(f"Without NMT_DATA, a folder that holds multi30k/, there are no rows of {corpus}.\n")
            continue
        for batch, cut in batches(pairs, bench.tokens).items():
            for heads, number in bench.heads.items():
                for case in CASES:
                    name = f"{corpus} {batch} {heads} {case}"
                    if all(word in name for word in words):
                        yield name, _problem(bench, cut, number, case)


def _problem(bench: Bench, pairs: Pairs, heads: int, case: str) -> Problem:
    """Return random inputs of `case`: self-attention of encoder or decoder, or attention to the source."""
    source, target = (Layout.of(np.ascontiguousarray(side)) for side in pairs.T)
    # As the loader makes them.
    source, target = grouped(source).to(bench.device), grouped(target, source).to(bench.device)
    q, k = {"self": (source, source), "causal": (target, target), "cross": (target, source)}[case]
    draw = torch.Generator(bench.device).manual_seed(1)

    def drawn(layout: Layout) -> Tensor:
        size = (len(layout.segments), heads, WIDTH)
        return torch.randn(size, generator=draw, device=bench.device).to(bench.dtype)

    return Problem(drawn(q), drawn(k), drawn(k), drawn(q), q, k, case == "causal")


def _contest(bench: Bench, problem: Problem, left_out: dict[str, str]) -> dict[str, Contestant]:
    """Return contestants that work and agree with ours, by name. Add reasons for others to `left_out`."""
    contest = {OURS: contestants.ours(problem)}
    for name, make in (ANYWHERE | (ON_CUDA if bench.device.type == "cuda" else {})).items():
        if name in left_out:
            continue
        try:
            contestant = make(problem)
            difference = contestant.difference(contest[OURS], problem)
        except Exception as error:  # an error of one of them must not end the benchmark
            left_out[name] = textwrap.shorten(f"{type(error).__name__}: {error}", 160)
            continue
        if difference <= bench.tolerance:
            contest[name] = contestant
        else:
            left_out[name] = f"differs from ours by {difference:.1e} of the largest number"
    return contest


def _raced(bench: Bench, contest: dict[str, Contestant]) -> dict[str, Medians]:
    """Return median times by name. Time all contestants in turns, so that other load affects each."""
    turns: dict[str, list[Medians]] = {name: [] for name in contest}
    for _ in range(bench.repeats + 1):
        for name, contestant in contest.items():
            forward, _ = bench.timed(contestant.forward)
            turns[name].append((forward, *bench.timed(contestant.results)))
    medians = {}
    for name, times in turns.items():
        forward, both, host = (statistics.median(each) for each in zip(*times[1:], strict=True))
        medians[name] = forward, both, host
    return medians


def _gains(medians: dict[str, Medians], which: int) -> tuple[float, float]:
    """Return the times of padding, and of the fastest way that does not pad, relative to ours."""
    ours = medians[OURS][which]
    others = [times[which] for name, times in medians.items() if name not in (OURS, PADDED, ALREADY)]
    padding = medians[PADDED][which] if PADDED in medians else float("nan")
    return padding / ours, min(others, default=float("nan")) / ours


def _floor(problem: Problem, bytes_per_ms: float) -> tuple[float, float]:
    """Return milliseconds to move all data of the forward pass, and of both passes."""
    per_query, per_key = (x.numel() * x.element_size() for x in (problem.q_THK, problem.k_SHK))
    forward = (2 * per_query + 2 * per_key) / bytes_per_ms
    backward = (3 * per_query + 4 * per_key) / bytes_per_ms
    return forward, forward + backward


def _print_head(bench: Bench, columns: list[str]) -> None:
    cells = "forward / forward and backward"
    if bench.device.type == "cuda":
        cells += " / the host's time to launch the latter"
    print(f"Milliseconds, medians of {bench.repeats} in turns: {cells}.\n")
    mask = ["mask of FlexAttention, separately"] if FLEX in columns else []
    ratios = ("padded : ours", "best that does not pad : ours")
    print_head("batch, heads, attention", "segments: tokens, longest", *columns, "floor", *mask, *ratios)


def _cells(
    bench: Bench,
    columns: list[str],
    medians: dict[str, Medians],
    floor: tuple[float, float],
    mask: float | None,
) -> Iterator[str]:
    shown = 3 if bench.device.type == "cuda" else 2
    for times in (*map(medians.get, columns), floor):
        yield " / ".join(f"{time:.3f}" for time in times[:shown]) if times else "omitted"
    if FLEX in columns:
        yield f"{mask:.3f}" if mask is not None else "omitted"
    for forward, both in zip(_gains(medians, 0), _gains(medians, 1), strict=True):
        yield f"{forward:.2f} / {both:.2f}"


def _print_summary(kind: str, ratios: list[tuple[float, float]]) -> None:
    if not ratios:
        return
    print(f"\n{kind}, forward and backward, geometric means of {len(ratios)} rows:")
    for rival, gains in zip(("padded", "the best that does not pad"), zip(*ratios, strict=True), strict=True):
        if (mean := statistics.geometric_mean(gains)) > 0:  # NaN without such a rival
            print(f"ours is {mean:.2f} times as fast as {rival} ({min(gains):.2f} to {max(gains):.2f})")


if __name__ == "__main__":
    main()
