"""How the cost of a token grows with length, batch, vocabulary and threads: tables, and growth.svg.

python -m recipes.benchmarks.growth [--preset NAME] [--repeats N] [--out growth.svg]

Random weights and random tokens on a CPU, in fp32. One thing is changed at a time, the others are as USUAL.
Each point has a process of its own, and all take turns. Training is forward, backward and the optimiser's
step; translation is a beam of 4 in which all sentences run to their limit, twice their source.

What preprocessing costs as corpora grow is `preprocess.py scale`.
"""

import multiprocessing
import os
import resource
import statistics
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import click
import torch
from torch import Tensor

from nmt_cli.cli.main import WAITING
from nmt_cli.config import preset_path
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.engine import ListQueue, translated
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.hypotheses import Sentence
from nmt_cli.loss.dispatch import cross_entropy
from nmt_cli.machine.devices import fast_products
from nmt_cli.machine.threads import available_cores
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.cost import training_flops
from nmt_cli.model.packed import pack
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout
from nmt_cli.text.vocabulary import Vocabulary
from recipes.benchmarks.curves import Axis, Look, Panel, picture

BEAM = 4


@dataclass(frozen=True)
class Point:
    """What is timed: sentences of so many tokens on each side, end marks included."""

    length: int
    batch: int
    """Training: target tokens of a step. Translation: sentences that are searched for at a time."""
    vocabulary: int
    threads: int


USUAL = {"training": Point(32, 4096, 8192, 1), "translation": Point(32, 64, 8192, 1)}
CHANGED: dict[str, dict[str, Sequence[int]]] = {
    "training": {
        "length": (4, 8, 16, 32, 64, 128, 256, 512),
        "batch": (512, 1024, 2048, 4096, 8192, 16384),
        "vocabulary": (1024, 2048, 4096, 8192, 16384, 32768, 65536),
    },
    "translation": {
        "length": (4, 8, 16, 32, 64, 128, 256),
        "batch": (1, 2, 4, 8, 16, 32, 64, 128),
        "vocabulary": (1024, 2048, 4096, 8192, 16384, 32768, 65536),
    },
}
LOOKS = {name: Look(colour) for colour, name in enumerate(("length", "batch", "vocabulary", "threads"))}


@dataclass(frozen=True)
class Cost:
    """What a point took."""

    seconds: float
    """Of one target token, all threads at work."""
    peak_mb: float
    flops: float
    """Of the products of a target token."""


@click.command()
@click.option("--preset", default="small", show_default=True, help="Preset of the model.")
@click.option("--repeats", default=3, show_default=True, help="Rounds in which each point is timed once.")
@click.option("--out", default=Path(__file__).with_suffix(".svg"), type=click.Path(path_type=Path))
def main(preset: str, repeats: int, out: Path) -> None:
    """Print a table of training and one of translation, and draw both."""
    os.environ |= WAITING
    told = tomllib.loads(preset_path(preset).read_text())["model"]
    print(f"{date.today()}, CPU, torch {torch.__version__}, preset `{preset}`, median of {repeats}")
    panels = []
    for what in USUAL:
        rows = {name: _points(what, name) for name in LOOKS}
        points = list(dict.fromkeys(point for each in rows.values() for point in each))
        costs: dict[Point, list[Cost]] = {point: [] for point in points}
        for _ in range(repeats):
            for point in points:
                costs[point].append(_apart(what, told, point))
        middle = {point: _middle(each) for point, each in costs.items()}
        _print_table(what, rows, middle)
        panels.append(_panel(what, rows, middle))
    axes = Axis("times the usual", 2), Axis("cost of a target token, times the usual", 2)
    out.write_text(picture(panels, LOOKS, *axes), "utf-8")


def _points(what: str, name: str) -> list[Point]:
    cores = (1, *(count for count in (2, 4, 8, 16, 32, 64) if count <= available_cores()))
    values = cores if name == "threads" else CHANGED[what][name]
    return [replace(USUAL[what], **{name: value}) for value in values]


def _apart(what: str, told: dict[str, object], point: Point) -> Cost:
    """In new processes, whose memory is their own: one for training, one for each thread of translation."""
    processes = point.threads if what == "translation" else 1
    given = [(ModelConfig(**told), point)] * processes  # type: ignore[arg-type]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        costs = pool.starmap(TIMED[what], given, chunksize=1)
    slowest = max(cost.seconds for cost in costs)
    return replace(costs[0], seconds=slowest / processes, peak_mb=sum(cost.peak_mb for cost in costs))


def _middle(costs: Sequence[Cost]) -> Cost:
    seconds = statistics.median(cost.seconds for cost in costs)
    return replace(costs[0], seconds=seconds, peak_mb=max(cost.peak_mb for cost in costs))


def _model(config: ModelConfig, point: Point) -> Transformer:
    torch.manual_seed(1)
    entries = Vocabulary(("",) * point.vocabulary, end=0, start=0, unknown=1)
    return Transformer(config, entries, entries, joint=True)


def _training(config: ModelConfig, point: Point) -> Cost:
    """A step, after one that is not timed; several if they are short."""
    torch.set_num_threads(point.threads)
    model = _model(config, point)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    layout = Layout.of(torch.full((point.batch // point.length or 1,), point.length).numpy())
    tokens = torch.randint(2, point.vocabulary, (2, len(layout.segments)))
    with fast_products(torch.device("cpu")):
        _step(model, optimizer, tokens, layout)
        began, steps = time.perf_counter(), 0
        while not steps or time.perf_counter() - began < 1.0:
            _step(model, optimizer, tokens, layout)
            steps += 1
        seconds = (time.perf_counter() - began) / steps
    return _cost(config, point, seconds / len(layout.segments), 1.0)


def _step(model: Transformer, optimizer: torch.optim.Optimizer, tokens: Tensor, layout: Layout) -> None:
    optimizer.zero_grad(set_to_none=False)
    decoded = model(*tokens, layout, layout)
    scale = torch.tensor(1 / len(layout.segments))
    loss = cross_entropy(*model.projected(decoded), tokens[1], smoothing=0.1, grad_scale=scale).smoothed
    loss.backward(scale)  # type: ignore[no-untyped-call]
    optimizer.step()


def _translation(config: ModelConfig, point: Point) -> Cost:
    """As many sentences as are searched for at a time, by a process of `nmt translate`."""
    torch.set_num_threads(1)
    model = _model(config, point).eval()
    pack(model, "fp32")
    length = 2 * point.length
    search = SearchConfig(
        beam=BEAM, min_length=length, max_length=length, cap_ratio=2.0, rows=BEAM * point.batch
    )
    sentences = torch.randint(2, point.vocabulary, (point.batch, point.length - 1)).tolist()
    ensemble, waiting = Ensemble.of([model], search), [Sentence(*each) for each in enumerate(sentences)]
    list(translated(ensemble, search, ListQueue(waiting[:1])))
    began = time.perf_counter()
    found = list(translated(ensemble, search, ListQueue(waiting)))
    seconds = time.perf_counter() - began
    tokens = sum(len(hypotheses[0].tokens) for _, hypotheses in found if hypotheses)
    return _cost(config, point, seconds / tokens, BEAM / 3)


def _cost(config: ModelConfig, point: Point, seconds: float, share: float) -> Cost:
    """`share` is what of the operations of training is computed."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return Cost(seconds, peak, share * training_flops(config, point.vocabulary, 1, 1))


TIMED: dict[str, Callable[[ModelConfig, Point], Cost]] = {"training": _training, "translation": _translation}


def _print_table(what: str, rows: dict[str, list[Point]], costs: dict[Point, Cost]) -> None:
    usual = costs[USUAL[what]]
    print(f"\n**{what}**; the usual: {USUAL[what]}\n")
    print("| changed | value | target tokens/s | cost of a token, times the usual | GFLOP/s | peak MB |")
    print("|---|---|---|---|---|---|")
    for name, points in rows.items():
        for point in points:
            cost = costs[point]
            print(
                f"| {name} | {getattr(point, name):,} | {1 / cost.seconds:,.0f} "
                f"| {cost.seconds / usual.seconds:.2f} | {cost.flops / cost.seconds / 1e9:.0f} "
                f"| {cost.peak_mb:,.0f} |",
                flush=True,
            )


def _panel(what: str, rows: dict[str, list[Point]], costs: dict[Point, Cost]) -> Panel:
    usual = USUAL[what]
    curves = [
        (
            name,
            [
                (getattr(point, name) / getattr(usual, name), costs[point].seconds / costs[usual].seconds)
                for point in points
            ],
        )
        for name, points in rows.items()
    ]
    return Panel(what, curves)


if __name__ == "__main__":
    main()
