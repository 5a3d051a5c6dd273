"""Random placeholders through a small model: how many come out exactly as they went in.

python -m recipes.benchmarks.placeholders [--placeholders 10000] [--out FOLDER]

Trains on the corpus of `nmt demo`, with symbols for placeholders drawn into a third of the pairs (a few
minutes on two cores), then translates sentences with one to three placeholders each.
"""

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random

import click

from nmt_cli import demo
from nmt_cli.demo.corpus import corpus, write
from nmt_cli.demo.lexicon import Pair
from nmt_cli.text.variation import random_placeholder

SETTINGS = Path(demo.__file__).parent
NMT = [sys.executable, "-m", "nmt_cli"]


@dataclass(frozen=True)
class Sample:
    """A sentence with placeholders, its translation with the same ones, and what they are."""

    source: str
    target: str
    placeholders: list[str]


@click.command()
@click.option("--placeholders", default=10_000, help="How many, all in all.")
@click.option("--seed", default=1)
@click.option("--out", type=click.Path(path_type=Path), help="Keep all in this folder, and go on there.")
def main(placeholders: int, seed: int, out: Path | None) -> None:
    """Train, translate, count."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = out or Path(scratch)
        folder.mkdir(exist_ok=True)
        for split, size in (("train", 20_000), ("valid", 300)):
            write(corpus(split, size, seed=1), folder, split)
        _train(folder)
        samples = _samples(placeholders, seed)
        (folder / "test.en").write_text("".join(f"{one.source}\n" for one in samples))
        (folder / "test.de").write_text("".join(f"{one.target}\n" for one in samples))
        _nmt("translate", folder / "training", "--input", folder / "test.en", "--output", folder / "out.de")
        translations = (folder / "out.de").read_text().split("\n")[:-1]
        _tell(samples, translations)
        _nmt("score", "--reference", folder / "test.de", folder / "out.de")


def _train(folder: Path) -> None:
    sets = [("--train", "train"), ("--valid", "valid"), ("--valid", "valid+placeholders")]
    _nmt(
        *("preprocess", "--source-lang", "en", "--target-lang", "de", "--out", folder / "dataset"),
        *(word for option, name in sets for word in (option, folder / name)),
        *("--config", SETTINGS / "preprocess.toml", "--set", "tokenizer.placeholders=8"),
    )
    _nmt(
        *("train", folder / "dataset", "--out", folder / "training", "--config", SETTINGS / "train.toml"),
        *("--set", "augment.placeholders=0.35"),
    )


def _samples(count: int, seed: int) -> list[Sample]:
    random, samples, left = Random(seed), list[Sample](), count
    for pair in corpus("test", count * 3 // 5 + 1, seed=2):
        number = min(left, random.choice((1, 2, 2, 3)))
        if number:
            samples.append(
                _with_placeholders(pair, [random_placeholder(random) for _ in range(number)], random)
            )
        left -= number
    if left:
        raise click.ClickException(f"{left} placeholders found no sentence; ask for fewer")
    return samples


def _with_placeholders(pair: Pair, placeholders: list[str], random: Random) -> Sample:
    source, target = pair.en.split(), pair.de.split()
    for each in placeholders:
        place = random.random()
        for words in (source, target):
            words.insert(int(place * len(words)), each)
    return Sample(" ".join(source), " ".join(target), placeholders)


def _tell(samples: list[Sample], translations: list[str]) -> None:
    exact = lines = 0
    for sample, translation in zip(samples, translations, strict=True):
        found = [sample.source.count(each) == translation.count(each) for each in sample.placeholders]
        exact += sum(found)
        lines += all(found)
        if not all(found):
            print(f"- {sample.source}\n+ {translation}")
    total = sum(len(sample.placeholders) for sample in samples)
    print("| placeholders | exact | lines | all exact |\n|---|---|---|---|")
    print(f"| {total:,} | {exact:,} | {len(samples):,} | {lines:,} |", flush=True)


def _nmt(*arguments: object) -> None:
    subprocess.run([*NMT, *map(str, arguments)], check=True)


if __name__ == "__main__":
    main()
