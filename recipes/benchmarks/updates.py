"""Validation perplexity at equal updates: `nmt train` with both ways to begin (`model.init`), and fairseq.

python -m recipes.benchmarks.updates --fairseq BIN [--work FOLDER]                      needs NMT_DATA

BIN is the bin folder of fairseq's virtual environment. All train the same models on Multi30k, English to
German, in the same joint pieces, with the same loss, optimiser and schedule and about as many target tokens
an update, one thread each. What a run gave is a line of updates.jsonl, and runs that are there are not done
again; updates.svg has the curves.
"""

import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import islice, product
from pathlib import Path
from typing import Any

import click
import numpy as np

from nmt_cli.config import preset_path, read
from nmt_cli.data.batching.plan import plan_shard
from nmt_cli.data.config import BatchConfig
from nmt_cli.data.dataset import Split, open_dataset
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.tracking.history import read_history
from recipes.benchmarks import training_peers as peers
from recipes.benchmarks.curves import Axis, Look, Panel, Points, picture
from recipes.benchmarks.lengths import Pairs

RESULTS, PICTURE = (Path(__file__).with_name(f"updates.{kind}") for kind in ("jsonl", "svg"))
PIECES = 4_000
VALID_PAIRS = 250
EVERYTHING = 1_000_000
"""More tokens, and pairs, than fairseq can need for all of the validation set in one batch."""

ALIKE = ("model.attention_bias=true", "model.norm_epsilon=1e-5")
"""fairseq has no choice there."""
THREE_LAYERS = (
    *("model.residual_dropout=0.2", "model.embedding_dropout=0.2"),
    *("schedule.kind=inverse-sqrt", "schedule.peak=1e-3", "schedule.warmup=500"),
)
MODELS = {
    "3+3 layers, post-norm": ("small", THREE_LAYERS),
    "3+3 layers, pre-norm": ("small", (*THREE_LAYERS, "model.norm=pre")),
    "tiny": ("tiny", ()),
    "base": ("vaswani2017-base", ("schedule.kind=inverse-sqrt",)),
    "base, high rate": ("vaswani2017-base", THREE_LAYERS),
}
"""By name: a preset, and what is set besides. Tiny and base have their own schedules."""

TRAINERS = {"nmt, xavier": Look(0, stroke=1), "nmt, smaller": Look(0), "fairseq": Look(1)}

Result = Mapping[str, Any]
"""A line of the results: the fields of a Run, and what is measured in `_result`."""


@dataclass(frozen=True)
class Run:
    """One training of one model."""

    model: str
    trainer: str
    seed: int
    updates: int
    tokens: int
    """Most of a batch of ours on either side; fairseq's batches have as many on average."""

    every: int
    """Updates between two validations."""

    @property
    def settings(self) -> list[str]:
        """What `nmt train` is told with `--set`."""
        init = [f"model.init={self.trainer.removeprefix('nmt, ')}"] if self.trainer != "fairseq" else []
        return [*ALIKE, *MODELS[self.model][1], *init]

    @property
    def config(self) -> TrainConfig:
        """Everything about the run, if it is ours."""
        return read(TrainConfig, None, self.settings, {}, preset_path(MODELS[self.model][0]))


@dataclass
class Seen:
    """What the log of a run tells."""

    valid: dict[int, float] = field(default_factory=dict)
    """Nats a target piece of the validation set, by update."""

    seconds: dict[int, float] = field(default_factory=dict)
    """How long the updates took until each validation, which is not counted."""

    train_tokens: list[float] = field(default_factory=list)
    """Real target pieces of each update."""


@click.command(context_settings={"show_default": True})
@click.option("--fairseq", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True)
@click.option(
    "--work", type=click.Path(file_okay=False, path_type=Path), help="To keep datasets and logs in."
)
@click.option("--models", multiple=True, type=click.Choice(list(MODELS)), default=list(MODELS)[:3])
@click.option("--trainers", multiple=True, type=click.Choice(list(TRAINERS)), default=list(TRAINERS))
@click.option("--seeds", multiple=True, type=int, default=[1, 2, 3])
@click.option("--updates", default=600)
@click.option("--tokens", default=1000, help="Most of a batch on either side.")
@click.option("--every", default=100, help="Updates between two validations.")
def main(
    fairseq: Path,
    work: Path | None,
    models: Sequence[str],
    trainers: Sequence[str],
    seeds: Sequence[int],
    updates: int,
    tokens: int,
    every: int,
) -> None:
    """Train what has not been trained yet, one after another; print tables of all results, and draw them."""
    if "NMT_DATA" not in os.environ:
        raise click.ClickException("set NMT_DATA to a folder that holds multi30k/train.en and so on.")
    os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryDirectory(prefix="nmt-benchmark-") as scratch:
        folder = (work or Path(scratch)).resolve()
        _prepare(folder, fairseq)
        _print_batches(folder, tokens)
        for seed, model, trainer in product(seeds, models, trainers):
            run = Run(model, trainer, seed, updates, tokens, every)
            if not any(_covers(result, run) for result in results()):
                with RESULTS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(_result(folder, fairseq, run)) + "\n")
    for model in models:
        _print_table(model, tokens)
    _draw(models, tokens)


def results() -> list[Result]:
    """All runs so far."""
    lines = RESULTS.read_text("utf-8").splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def _covers(result: Result, run: Run) -> bool:
    """Whether it is the same training, to the same update or beyond: no schedule here depends on the last."""
    same = {name: value for name, value in asdict(run).items() if name != "updates"}
    return same.items() <= result.items() and int(result["updates"]) >= run.updates


def _prepare(folder: Path, fairseq: Path) -> None:
    """Make the dataset, and from its pieces that of fairseq, unless they are there."""
    if (folder / "fairseq").exists():
        return
    data, raw = Path(os.environ["NMT_DATA"]) / "multi30k", folder / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for lang in peers.LANGUAGES:
        with (data / f"valid.{lang}").open(encoding="utf-8") as file:
            (raw / f"valid.{lang}").write_text("".join(islice(file, VALID_PAIRS)), "utf-8")
    command = [sys.executable, "-m", "nmt_cli", "preprocess", "--quiet", "--source-lang", "en"]
    command += ["--target-lang", "de", "--train", str(data / "train"), "--valid", str(raw / "valid")]
    command += ["--vocab-size", str(PIECES), "--out", str(folder / "dataset")]
    subprocess.run(command, check=True)
    peers.write_pieces(folder)
    entries = (folder / "entries").read_text("utf-8").splitlines()
    (folder / "dict").write_text("".join(f"{entry} 1\n" for entry in entries), "utf-8")
    prepare = [*peers.fairseq_data(fairseq, folder), "--validpref", folder / "valid"]
    prepare += ["--srcdict", folder / "dict"]
    environment = os.environ | {"PYTHONPATH": str(folder / "stubs" / "fairseq")}
    subprocess.run(list(map(str, prepare)), check=True, capture_output=True, env=environment)


def _result(folder: Path, fairseq: Path, run: Run) -> Result:
    """Train, and say what came of it."""
    out = folder / "runs" / "-".join(map(str, asdict(run).values())).replace(" ", "")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    peer = run.trainer == "fairseq"
    command = _fairseq(folder, fairseq, run) if peer else _nmt(folder, out, run)
    path = folder / "stubs" / "fairseq" if peer else peers.ROOT
    began = time.perf_counter()
    with (out / "printed").open("wb") as printed:
        environment = os.environ | {"PYTHONPATH": str(path)}
        subprocess.run(
            list(map(str, command)), check=True, stdout=printed, stderr=printed, env=environment, cwd=out
        )
    seconds = time.perf_counter() - began
    valid_tokens = len(open_dataset(folder / "dataset").splits["valid"].target.tokens)
    seen = _read_fairseq(out / "printed", valid_tokens) if peer else _read_nmt(out / "run" / "log.jsonl")
    result = asdict(run) | {
        "valid": {str(update): round(nll, 4) for update, nll in seen.valid.items()},
        "seconds_until": {str(update): round(seconds, 1) for update, seconds in seen.seconds.items()},
        "valid_tokens": valid_tokens,
        "target_tokens": round(statistics.mean(seen.train_tokens), 1),
        "deviation": round(statistics.stdev(seen.train_tokens), 1),
        "seconds": round(seconds, 1),
    }
    print(json.dumps(result), file=sys.stderr, flush=True)
    return result


def _nmt(folder: Path, out: Path, run: Run) -> Sequence[object]:
    command = [sys.executable, "-m", "nmt_cli", "train", folder / "dataset", "--out", out / "run", "--quiet"]
    command += ["--preset", MODELS[run.model][0], "--max-steps", run.updates, "--batch-tokens", run.tokens]
    command += ["--seed", run.seed, "--validate-every", run.every, "--set", "validation.sentences=1"]
    return [*command, *(part for setting in run.settings for part in ("--set", setting))]


def _fairseq(folder: Path, bin_folder: Path, run: Run) -> Sequence[object]:
    config = run.config
    schedule, optimizer, norm = config.schedule, config.optimizer, config.model.norm
    train = open_dataset(folder / "dataset").splits["train"]
    command = [bin_folder / "fairseq-train", folder / "fairseq", *peers.fairseq_model(config.model)]
    command += [f"--{side}-normalize-before" for side in ("encoder", "decoder") if norm == "pre"]
    command += ["--criterion", "label_smoothed_cross_entropy", "--label-smoothing", config.loss.smoothing]
    command += ["--optimizer", "adam", "--adam-betas", str((optimizer.beta1, optimizer.beta2))]
    command += ["--adam-eps", optimizer.epsilon, "--lr", schedule.peak, "--lr-scheduler", "inverse_sqrt"]
    command += ["--warmup-updates", schedule.warmup, "--max-update", run.updates, "--seed", run.seed]
    command += ["--max-tokens", _padded_budget(train, run.tokens), "--required-batch-size-multiple", 1]
    command += ["--max-tokens-valid", EVERYTHING, "--batch-size-valid", EVERYTHING, "--no-save"]
    command += ["--validate-interval-updates", run.every, "--validate-interval", EVERYTHING]
    return [*command, "--log-interval", 1, "--log-format", "json"]


def _read_nmt(log: Path) -> Seen:
    seen = Seen()
    for validation in read_history(log).validations:
        seen.valid[validation.at.step] = validation.line["nll"]
        seen.seconds[validation.at.step] = validation.at.hours * 3600
    lines = map(json.loads, log.read_text("utf-8").splitlines())
    seen.train_tokens += [line["target_tokens"] for line in lines if "target_tokens" in line]
    return seen


def _read_fairseq(printed: Path, valid_tokens: int) -> Seen:
    """Its perplexities are of the same pieces: they are as many, end marks counted."""
    seen, seconds, before = Seen(), 0.0, None
    for line in printed.read_text("utf-8", errors="replace").splitlines():
        head, brace, rest = line.partition("{")
        if not head.endswith(("| valid | ", "| train_inner | ")):
            continue
        entry, now = json.loads(brace + rest), datetime.fromisoformat(head[:19])
        if head.endswith("| valid | "):
            update = int(entry["valid_num_updates"])
            seen.valid[update] = float(entry["valid_nll_loss"]) * math.log(2)
            seen.seconds[update] = seconds
            if float(entry["valid_wpb"]) != valid_tokens:
                raise SystemExit(f"fairseq validates on {entry['valid_wpb']} pieces, we on {valid_tokens}")
        else:
            seconds += (now - before).total_seconds() if before else 0.0
            seen.train_tokens.append(float(entry["wpb"]))
        before = now
    return seen


def _lengths(train: Split) -> Pairs:
    return np.stack([np.diff(side.offsets) for side in (train.source, train.target)], axis=1)


def _our_batches(train: Split, tokens: int) -> list[Pairs]:
    """The lengths in each batch of the first epoch."""
    shard = plan_shard(train.source.offsets, train.target.offsets, BatchConfig(tokens=tokens), 1, 0, 0)
    pairs = _lengths(train)
    return [pairs[shard.batch(number)] for number in range(len(shard))]


def _padded_batches(train: Split, budget: int) -> list[Pairs]:
    """The same of fairseq: sorted by source, then by target, and cut where they are too many with filler."""
    pairs = _lengths(train)
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    batches, start, longest = [], 0, 0
    for end, length in enumerate(pairs.max(axis=1).tolist()):
        longest = max(longest, length)
        if longest * (end + 1 - start) > budget:
            batches.append(pairs[start:end])
            start, longest = end, length
    return [*batches, pairs[start:]]


def _padded_budget(train: Split, tokens: int) -> int:
    """The least budget with which fairseq needs no more updates for an epoch than we do."""
    wanted = len(_our_batches(train, tokens))
    low, high = tokens // 2, 4 * tokens
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(_padded_batches(train, middle)) <= wanted else (middle + 1, high)
    return low


def _print_batches(folder: Path, tokens: int) -> None:
    """What an update sees."""
    train = open_dataset(folder / "dataset").splits["train"]
    budget = _padded_budget(train, tokens)
    print("| batches of an epoch | budget | how many | pairs | target tokens ", end="")
    print("| length spread in a batch: source | target |\n|---|---|---|---|---|---|---|")
    both = {"nmt": (tokens, _our_batches(train, tokens)), "fairseq": (budget, _padded_batches(train, budget))}
    for name, (most, batches) in both.items():
        sums = [int(batch[:, 1].sum()) for batch in batches]
        spreads = np.mean([batch.std(axis=0) for batch in batches], axis=0)
        pairs = statistics.mean(map(len, batches))
        print(f"| {name} | {most:,} | {len(batches):,} | {pairs:.1f} ", end="")
        print(f"| {statistics.mean(sums):.0f} ± {statistics.stdev(sums):.0f} ", end="")
        print(f"| {spreads[0]:.2f} | {spreads[1]:.2f} |")
    print(flush=True)


def _curves(model: str, tokens: int) -> list[tuple[str, dict[int, float]]]:
    """Of each run of a model: who trained, and the perplexities by update."""
    return [(trainer, _perplexities(result)) for trainer, result in _runs(model, tokens)]


def _curves_by_seconds(model: str, tokens: int) -> list[tuple[str, dict[float, float]]]:
    """The same by seconds of training, of the runs whose seconds were measured."""
    return [
        (trainer, {result["seconds_until"][str(at)]: value for at, value in _perplexities(result).items()})
        for trainer, result in _runs(model, tokens)
        if "seconds_until" in result
    ]


def _runs(model: str, tokens: int) -> list[tuple[str, Result]]:
    """Each run of a model, and who trained."""
    found = [result for result in results() if (result["model"], result["tokens"]) == (model, tokens)]
    return [(trainer, result) for trainer in TRAINERS for result in found if result["trainer"] == trainer]


def _perplexities(result: Result) -> dict[int, float]:
    return {int(update): math.exp(nll) for update, nll in result["valid"].items()}


def _print_table(model: str, tokens: int) -> None:
    """Mean perplexities; where there are several seeds, how many, and from the least to the most. And what an
    update took, in the runs whose seconds were measured."""
    runs = _runs(model, tokens)
    reached = sorted({update for _, result in runs for update in _perplexities(result)})
    print(f"| {model} | {' | '.join(f'update {update:,}' for update in reached)} | ms an update |")
    print(f"|{'---|' * (2 + len(reached))}")
    for trainer in dict(runs):
        mine = [result for name, result in runs if name == trainer]
        curves = [_perplexities(result) for result in mine]
        cells = [_cell([curve[update] for curve in curves if update in curve]) for update in reached]
        timed = [
            1000 * result["seconds_until"][str(result["updates"])] / result["updates"]
            for result in mine
            if "seconds_until" in result
        ]
        print(f"| {trainer} | {' | '.join(cells)} | {_cell(timed)} |")
    print(flush=True)


def _cell(values: Sequence[float]) -> str:
    if len(values) < 2:
        return "".join(f"{value:.2f}" for value in values)
    return f"{statistics.mean(values):.2f} ({len(values)}: {min(values):.2f} to {max(values):.2f})"


def _draw(models: Sequence[str], tokens: int) -> None:
    """A curve for each run, against updates and, where they were measured, against seconds."""
    panels = [Panel(model, _points(_curves(model, tokens))) for model in models]
    panels += [
        Panel(model, _points(curves), x_label="seconds")
        for model in models
        if (curves := _curves_by_seconds(model, tokens))
    ]
    drawn = picture(panels, TRAINERS, Axis("updates", 2), Axis("validation perplexity of a piece", 2))
    PICTURE.write_text(drawn, "utf-8")
    print(f"the curves: {PICTURE.name}")


def _points(curves: Sequence[tuple[str, Mapping[Any, float]]]) -> list[tuple[str, Points]]:
    return [(trainer, sorted(curve.items())) for trainer, curve in curves]


if __name__ == "__main__":
    main()
