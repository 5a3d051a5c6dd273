"""Compare validation perplexity at equal updates: `nmt train` with both values of `model.init`, and fairseq.

python -m recipes.benchmarks.updates --fairseq BIN [--work FOLDER]                      needs NMT_DATA

BIN is the bin folder of fairseq's virtual environment. All train the same models on Multi30k, English to
German, in the same joint subwords, with the same loss, optimiser and schedule, and with batches of about the
same number of target tokens, on one thread each. Each run adds a line to updates.jsonl and is not repeated.
"""

import json
import math
import os
import shutil
import statistics
import subprocess
import sys
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
from recipes.benchmarks import machine
from recipes.benchmarks import training_peers as peers
from recipes.benchmarks.lengths import Pairs, of_split

RESULTS = Path(__file__).with_name("updates.jsonl")
PIECES = 4_000
VALID_PAIRS = 250
EVERYTHING = 1_000_000
"""More tokens and pairs than the validation set has, so that fairseq takes it as one batch."""

ALIKE = ("model.attention_bias=true", "model.norm_epsilon=1e-5")
"""What fairseq always has."""
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
"""Name to preset and further settings. Tiny and base have their own schedules."""

TRAINERS = ("nmt, xavier", "nmt, smaller", "fairseq")

Result = Mapping[str, Any]
"""A line of the results: the fields of a Run, and the measurements of `_result`."""


@dataclass(frozen=True)
class Run:
    """One training of one model."""

    model: str
    trainer: str
    seed: int
    updates: int
    tokens: int
    """Maximum of our batches on either side. fairseq's batches have the same average."""

    every: int
    """Updates between two validations."""

    @property
    def settings(self) -> list[str]:
        """Values of `--set` for `nmt train`."""
        init = [f"model.init={self.trainer.removeprefix('nmt, ')}"] if self.trainer != "fairseq" else []
        return [*ALIKE, *MODELS[self.model][1], *init]

    @property
    def config(self) -> TrainConfig:
        """Configuration of the run by `nmt train`."""
        return read(TrainConfig, None, self.settings, (), preset_path(MODELS[self.model][0]))


@dataclass
class Seen:
    """The measurements in the log of a run."""

    valid: dict[int, float] = field(default_factory=dict)
    """Nats per target subword of the validation set, by update."""

    seconds: dict[int, float] = field(default_factory=dict)
    """Seconds of all updates before each validation, without validations."""

    train_tokens: list[float] = field(default_factory=list)
    """Real target subwords of each update."""


@click.command(context_settings={"show_default": True})
@click.option("--fairseq", type=machine.BIN, required=True)
@click.option(
    "--work", type=click.Path(file_okay=False, path_type=Path), help="Folder for datasets and logs."
)
@click.option("--models", multiple=True, type=click.Choice(list(MODELS)), default=list(MODELS)[:3])
@click.option("--trainers", multiple=True, type=click.Choice(TRAINERS), default=TRAINERS)
@click.option("--seeds", multiple=True, type=int, default=[1, 2, 3])
@click.option("--updates", default=600)
@click.option("--tokens", default=1000, help="Maximum of a batch on either side.")
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
    """Train the missing runs, then print tables of all results."""
    machine.data_folder()
    os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with machine.scratch() as scratch:
        folder = (work or scratch).resolve()
        _prepare(folder, fairseq)
        for seed, model, trainer in product(seeds, models, trainers):
            run = Run(model, trainer, seed, updates, tokens, every)
            if not any(covers(result, run) for result in results()):
                with RESULTS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(_result(folder, fairseq, run)) + "\n")
    for model in models:
        print_table(model, tokens)


def results() -> list[Result]:
    """Return all runs so far."""
    lines = RESULTS.read_text("utf-8").splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def covers(result: Result, run: Run) -> bool:
    """Return whether the result is of the same run or a longer one. No schedule depends on the length."""
    same = {name: value for name, value in asdict(run).items() if name != "updates"}
    return same.items() <= result.items() and int(result["updates"]) >= run.updates


def _prepare(folder: Path, fairseq: Path) -> None:
    """Make our dataset and fairseq's, unless they exist."""
    if (folder / "fairseq").exists():
        return
    data, raw = machine.data_folder() / "multi30k", folder / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for lang in machine.LANGUAGES:
        with (data / f"valid.{lang}").open(encoding="utf-8") as file:
            (raw / f"valid.{lang}").write_text("".join(islice(file, VALID_PAIRS)), "utf-8")
    machine.make_dataset(folder / "dataset", PIECES, "--valid", raw / "valid")
    peers.write_pieces(folder)
    entries = (folder / "entries").read_text("utf-8").splitlines()
    (folder / "dict").write_text("".join(f"{entry} 1\n" for entry in entries), "utf-8")
    peers.prepare_fairseq(fairseq, folder, "--validpref", folder / "valid", "--srcdict", folder / "dict")


def _result(folder: Path, fairseq: Path, run: Run) -> Result:
    """Train, and return the measurements."""
    out = folder / "runs" / "-".join(map(str, asdict(run).values())).replace(" ", "")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    peer = run.trainer == "fairseq"
    command: Sequence[object] = _fairseq(folder, fairseq, run) if peer else _nmt(folder, out, run)
    environment = os.environ | {"PYTHONPATH": str(folder / "stubs" / "fairseq" if peer else machine.ROOT)}
    words, began = list(map(str, command)), time.perf_counter()
    with (out / "printed").open("wb") as printed:
        subprocess.run(words, check=True, stdout=printed, stderr=printed, env=environment, cwd=out)
    seconds = time.perf_counter() - began
    valid_tokens = len(open_dataset(folder / "dataset").splits["valid"].target.tokens)
    seen = read_fairseq(out / "printed", valid_tokens) if peer else read_nmt(out / "run" / "log.jsonl")
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
    command = [*machine.NMT, "train", folder / "dataset", "--out", out / "run", "--quiet"]
    command += ["--preset", MODELS[run.model][0], "--max-steps", run.updates, "--batch-tokens", run.tokens]
    command += ["--seed", run.seed, "--validate-every", run.every, "--set", "validation.sentences=1"]
    return [*command, *(part for setting in run.settings for part in ("--set", setting))]


def _fairseq(folder: Path, bin_folder: Path, run: Run) -> Sequence[object]:
    train = open_dataset(folder / "dataset").splits["train"]
    command = peers.fairseq_train(bin_folder, folder, run.config, run.updates)
    command += ["--max-tokens", padded_budget(train, run.tokens), "--required-batch-size-multiple", 1]
    command += ["--max-tokens-valid", EVERYTHING, "--batch-size-valid", EVERYTHING, "--seed", run.seed]
    return [*command, "--validate-interval-updates", run.every, "--validate-interval", EVERYTHING]


def read_nmt(log: Path) -> Seen:
    seen = Seen()
    for validation in read_history(log).validations:
        seen.valid[validation.at.step] = validation.line["nll"]
        seen.seconds[validation.at.step] = validation.at.hours * 3600
    lines = map(json.loads, log.read_text("utf-8").splitlines())
    seen.train_tokens += [line["target_tokens"] for line in lines if "target_tokens" in line]
    return seen


def read_fairseq(printed: Path, valid_tokens: int) -> Seen:
    """Read fairseq's log. Exit if it validated on another number of subwords than we do."""
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


def our_batches(train: Split, tokens: int) -> list[Pairs]:
    """Return the lengths in each of our batches of the first epoch."""
    shard = plan_shard(train, BatchConfig(tokens=tokens), 1, 0, 0)
    pairs = of_split(train)
    return [pairs[shard.batch(number)] for number in range(len(shard))]


def padded_batches(train: Split, budget: int) -> list[Pairs]:
    """Return the same of fairseq, which sorts by source, then by target, and counts padding."""
    pairs = of_split(train)
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    batches, start, longest = [], 0, 0
    for end, length in enumerate(pairs.max(axis=1).tolist()):
        longest = max(longest, length)
        if longest * (end + 1 - start) > budget:
            batches.append(pairs[start:end])
            start, longest = end, length
    return [*batches, pairs[start:]]


def padded_budget(train: Split, tokens: int) -> int:
    """Return the smallest budget with which fairseq's epoch has no more updates than ours."""
    wanted = len(our_batches(train, tokens))
    low, high = tokens // 2, 4 * tokens
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(padded_batches(train, middle)) <= wanted else (middle + 1, high)
    return low


def print_table(model: str, tokens: int) -> None:
    """Print mean perplexities, number and range of several seeds, and the time of an update."""
    runs = [result for result in results() if (result["model"], result["tokens"]) == (model, tokens)]
    reached = sorted({int(update) for result in runs for update in result["valid"]})
    machine.print_head(model, *(f"update {update:,}" for update in reached), "ms an update")
    for trainer in TRAINERS:
        mine = [result for result in runs if result["trainer"] == trainer]
        curves = [{int(at): math.exp(nll) for at, nll in result["valid"].items()} for result in mine]
        cells = [_cell([curve[update] for curve in curves if update in curve]) for update in reached]
        timed = [
            1000 * result["seconds_until"][str(result["updates"])] / result["updates"]
            for result in mine
            if "seconds_until" in result
        ]
        if mine:
            machine.print_row(trainer, *cells, _cell(timed))
    print(flush=True)


def _cell(values: Sequence[float]) -> str:
    if len(values) < 2:
        return "".join(f"{value:.2f}" for value in values)
    return f"{statistics.mean(values):.2f} ({len(values)}: {min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
