"""Times segmenting Multi30k anew for each epoch, and what training loses by it: tables to keep in README.md.

python -m recipes.benchmarks.resegment [--preset tiny] [--epochs 3] [--rounds 3] [--only bpe]   needs NMT_DATA

The first table is one process at work, nothing else. In the second, training with and without sampling takes
turns on two cores; the epochs of a turn are segmented while the ones before are trained on. Sampled sentences
have more tokens, so an epoch is longer; what counts is tokens a second.
"""

import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from nmt_cli.data.dataset import TOKENIZERS, TRAIN, side_path
from nmt_cli.text.config import SamplingConfig
from nmt_cli.text.sampling import sampler
from nmt_cli.text.tokenizer import SIDES, Tokenizer
from nmt_cli.text.tokenizers import load_tokenizers

THREADS = 2
VOCABULARY = 10_000
FIRST_STEPS = 10
"""Not counted: everything is slower at first."""

KINDS = {
    "bpe": ("bpe", "unigram"),
    "sentencepiece, unigram": ("sentencepiece", "unigram"),
    "sentencepiece, bpe": ("sentencepiece", "bpe"),
}
DROPOUT = SamplingConfig(source_dropout=0.1, target_dropout=0.1)
SAMPLINGS = [
    ("bpe", "dropout 0.1", DROPOUT),
    ("sentencepiece, bpe", "dropout 0.1", DROPOUT),
    ("sentencepiece, unigram", "alpha 0.2", SamplingConfig(source_alpha=0.2, target_alpha=0.2)),
    (
        "sentencepiece, unigram",
        "alpha 0.2, nbest 64",
        SamplingConfig(source_alpha=0.2, target_alpha=0.2, nbest=64),
    ),
]


@dataclass(frozen=True)
class Turn:
    """One run of `nmt train`."""

    tokens_per_second: float
    processor_seconds: float
    """For a million target tokens, of all its processes, from start to end."""

    waiting: float


@click.command(context_settings={"show_default": True})
@click.option("--preset", default="tiny")
@click.option("--epochs", default=3, help="Epochs of a turn.")
@click.option("--rounds", default=3, help="Turns of each.")
@click.option("--only", type=click.Choice(list(KINDS)), help="These segments alone.")
def main(preset: str, epochs: int, rounds: int, only: str | None) -> None:
    """Measure segmenting, alone and beside training."""
    if "NMT_DATA" not in os.environ:
        raise click.ClickException("set NMT_DATA to a folder that holds multi30k/train.en and so on.")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    with tempfile.TemporaryDirectory(prefix="nmt-benchmark-") as scratch:
        samplings = [sampling for sampling in SAMPLINGS if only in (None, sampling[0])]
        kinds = {kind for kind, _, _ in samplings}
        datasets = {kind: _dataset(Path(scratch), *how) for kind, how in KINDS.items() if kind in kinds}
        print("| segments | setting | lines/s, as usual | first epoch | later epochs | tokens |")
        print("|---|---|---|---|---|---|")
        for kind, setting, config in samplings:
            print(f"| {kind} | {setting} | {_speeds(datasets[kind], config)} |", flush=True)
        print(f"\n| `{preset}` trains on | target tokens/s: each turn | median | of no sampling ", end="")
        print("| CPU seconds a million tokens | of no sampling | waiting |\n|---|---|---|---|---|---|---|")
        for kind, setting, config in samplings:
            _print_training(datasets[kind], f"{kind}, {setting}", config, [preset, str(epochs)], rounds)


def _dataset(scratch: Path, kind: str, model: str) -> Path:
    out = scratch / f"{kind}-{model}"
    train = Path(os.environ["NMT_DATA"]) / "multi30k" / "train"
    command = [sys.executable, "-m", "nmt_cli", "preprocess", "--quiet", "--source-lang", "en"]
    command += [
        "--target-lang",
        "de",
        "--train",
        str(train),
        "--vocab-size",
        str(VOCABULARY),
        "--tokenizer",
        kind,
    ]
    command += ["--set", f"tokenizer.sentencepiece_model={model}"] if kind == "sentencepiece" else []
    subprocess.run([*command, "--out", out], check=True)
    return out


def _speeds(dataset: Path, config: SamplingConfig) -> str:
    """Lines a second of both sides: as usual, in the first epoch, and later; and how many more tokens."""
    gc.disable()
    tokenizers = load_tokenizers(dataset / TOKENIZERS)
    texts = {
        side: side_path(dataset, TRAIN, side, "txt").read_text("utf-8").split("\n")[:-1] for side in SIDES
    }
    lines, plain, seconds = sum(map(len, texts.values())), 0, [0.0] * 4
    sampled = 0
    for side, text in texts.items():
        tokenizer = tokenizers.side(side)
        plain_seconds, count = _plain(tokenizer, text)
        seconds[3] += plain_seconds
        plain += count
        draw = sampler(tokenizer, side, config)
        for epoch in range(3):
            began = time.process_time()
            count = sum(len(draw(line, epoch * lines + number)) for number, line in enumerate(text))
            seconds[epoch] += time.process_time() - began
        sampled += count
    gc.enable()
    later = statistics.mean(seconds[1:3])
    rates = " | ".join(f"{lines / taken:,.0f}" for taken in (seconds[3], seconds[0], later))
    return f"{rates} | {sampled / plain:.2f} x"


def _plain(tokenizer: Tokenizer, text: Sequence[str]) -> tuple[float, int]:
    """The seconds it takes to segment as usual, and the tokens that come of it."""
    began = time.process_time()
    count = sum(len(tokenizer.encode(line)) for line in text)
    return time.process_time() - began, count


def _print_training(
    dataset: Path, name: str, config: SamplingConfig, how: Sequence[str], rounds: int
) -> None:
    turns: dict[str, list[Turn]] = {"no sampling": [], name: []}
    for _ in range(rounds):
        turns["no sampling"].append(_train(dataset, SamplingConfig(), how))
        turns[name].append(_train(dataset, config, how))
    pairs = list(zip(*turns.values(), strict=True))
    for kind, taken in turns.items():
        speeds = [turn.tokens_per_second for turn in taken]
        own = taken is turns[name]
        speed, seconds = (
            f"{statistics.median(ratio(with_it, without) for without, with_it in pairs):.3f} x" if own else ""
            for ratio in (_of_speeds, _of_seconds)
        )
        listed = ", ".join(f"{speed:,.0f}" for speed in speeds)
        spent = statistics.median(turn.processor_seconds for turn in taken)
        waiting = max(turn.waiting for turn in taken)
        print(f"| {kind} | {listed} | {statistics.median(speeds):,.0f} | {speed} ", end="")
        print(f"| {spent:,.1f} | {seconds} | {waiting:.1%} |", flush=True)


def _of_speeds(one: Turn, other: Turn) -> float:
    return one.tokens_per_second / other.tokens_per_second


def _of_seconds(one: Turn, other: Turn) -> float:
    return one.processor_seconds / other.processor_seconds


def _train(dataset: Path, config: SamplingConfig, how: Sequence[str]) -> Turn:
    """Train for some epochs."""
    preset, epochs = how
    with tempfile.TemporaryDirectory(prefix="nmt-turn-", dir=dataset.parent) as folder:
        command = [sys.executable, "-m", "nmt_cli", "train", dataset, "--out", f"{folder}/run", "--quiet"]
        command += ["--preset", preset, "--device", "cpu", "--set", f"training.max_epochs={epochs}"]
        command += ["--validate-every", "0", "--set", "training.log_every=10"]
        for key in ("source_dropout", "target_dropout", "source_alpha", "target_alpha", "nbest"):
            command += ["--set", f"sampling.{key}={getattr(config, key)}"]
        before = _children_seconds()
        subprocess.run(
            list(map(str, command)), check=True, env={**os.environ, "OMP_NUM_THREADS": str(THREADS)}
        )
        spent = _children_seconds() - before
        lines = [json.loads(line) for line in Path(folder, "run", "log.jsonl").read_text().splitlines()]
    every = sum(line["target_tokens"] for line in lines)
    counted = [line for line in lines if line["step"] > FIRST_STEPS]
    tokens = sum(line["target_tokens"] for line in counted)
    seconds = sum(line["target_tokens"] / line["tokens_per_second"] for line in counted)
    waiting = statistics.mean(line["waiting"] for line in counted)
    return Turn(tokens / seconds, 1e6 * spent / every, waiting)


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
