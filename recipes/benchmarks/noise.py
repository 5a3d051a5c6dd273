"""What each filter finds of noise that was put into Multi30k, and what leaving it out is worth: two tables.

python -m recipes.benchmarks.noise [--steps 300] [--filters-only] needs NMT_DATA

30 % of the corpus get one kind of noise each; pairs of the validation set in capitals and without their full
stop come on top. The models are those that `nmt train` makes in as many steps of what is left; their score is
that of test_2016_flickr.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
import numpy as np

from nmt_cli import config as settings
from nmt_cli.corpus.files import sha256
from nmt_cli.corpus.parallel import find
from nmt_cli.data.cleaning import held_out
from nmt_cli.data.cleaning.clean import CleanTask, clean
from nmt_cli.data.cleaning.duplicates import Hashed, repeated, sought
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.text.tokenizers import Recipe

KINDS = ("other language", "misaligned", "copied", "truncated")
NOISY = 0.3
LEAKED = "leaked"
OFF = ("filter.decontaminate=false",)
FILTERS = {
    "identical": ("filter.identical=true",),
    "language": ("filter.language=true",),
    "max_ratio=2": ("filter.max_ratio=2.0",),
    "max_ratio=1.5": ("filter.max_ratio=1.5",),
    "numbers": ("filter.numbers=true",),
    "sentences": ("filter.sentences=true",),
    "max_repeats=3": ("filter.max_repeats=3",),
    "markup": ("filter.markup=true",),
    "one_per_target": ("filter.one_per_target=true",),
    "one_per_source": ("filter.one_per_source=true",),
    "decontaminate": ("filter.decontaminate=true",),
}
TOGETHER = ("identical", "language", "max_ratio=1.5", "decontaminate")
"""Those that the second table is about: between them they know every kind but the misaligned."""

Pair = tuple[str, str, str]
"""Source, target, and the kind of noise; "" for none."""


def lines(path: Path) -> list[str]:
    """The lines of a file, without their ends."""
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def with_noise(data: Path, seed: int = 1) -> list[Pair]:
    """Multi30k's training pairs and the leaked ones, in a shuffled order."""
    chosen = random.Random(seed)
    english, german, french = (lines(data / f"train.{lang}") for lang in ("en", "de", "fr"))
    pairs: list[Pair] = []
    for source, target, other in zip(english, german, french, strict=True):
        kind = chosen.choice(KINDS) if chosen.random() < NOISY else ""
        words = target.split()
        changed = {
            "": target,
            "other language": other,
            "misaligned": chosen.choice(german),
            "copied": source,
            "truncated": " ".join(words[: max(1, int(len(words) * chosen.uniform(0.2, 0.6)))]),
        }
        pairs.append((source, changed[kind], kind))
    valid = zip(lines(data / "valid.en"), lines(data / "valid.de"), strict=True)
    pairs += [(source.upper(), target.rstrip("."), LEAKED) for source, target in list(valid)[:500]]
    chosen.shuffle(pairs)
    return pairs


def write(pairs: Iterable[Pair], prefix: Path) -> None:
    """Both sides, as files of a line for a line."""
    kept = list(pairs)
    for side, lang in enumerate(("en", "de")):
        Path(f"{prefix}.{lang}").write_text("".join(f"{pair[side]}\n" for pair in kept), encoding="utf-8")


def left_out(prefix: Path, valid: Path, assignments: Sequence[str], folder: Path) -> set[int]:
    """The numbers, from 0, of the pairs that `nmt preprocess` would leave out."""
    config = settings.read(PreprocessConfig, assignments=[*OFF, *assignments]).filter
    corpus = find(str(prefix), "en", "de")
    keys = folder / "keys.txt"
    held_out.write([find(str(valid), "en", "de")], keys, ())
    known = held_out.HeldOut(keys, sha256(keys)) if config.decontaminate else None
    recipe = Recipe("bpe", True, "en", "de", PreprocessConfig().text)
    cleaned = [
        clean(CleanTask(block, corpus, recipe, config, "error", known, hashed=sought(config)))
        for block in corpus.blocks(5000)
    ]
    numbers = [int(number) for block in cleaned for number in block.numbers]
    kept = set(numbers)
    sides: tuple[Hashed, ...] = ("source", "target")
    for side in sides:
        (folder / side).write_bytes(b"".join(block.hashes[side] for block in cleaned))
        if (folder / side).stat().st_size:
            qualities = [[folder / f"{i}.npy"] for i in (0, 1)]
            for i, (path,) in enumerate(qualities):
                np.save(path, np.concatenate([block.qualities[i] for block in cleaned]))
            for again in repeated([folder / side], folder, qualities):
                kept -= {numbers[place] for place in again}
    return set(range(corpus.count())) - {number - 1 for number in kept}


def print_filters(pairs: Sequence[Pair], prefix: Path, valid: Path, folder: Path) -> set[int]:
    """Print what each filter finds; returns the numbers of what those of `TOGETHER` leave out."""
    total = Counter(kind for _, _, kind in pairs)
    kinds = (*KINDS, LEAKED)
    print(f"| filter | left out | precision | recall | {' | '.join(kinds)} |")
    print("|---" * (4 + len(kinds)) + "|")
    print(f"| there are | {len(pairs):,} | | {_share(total.total() - total[''], len(pairs))} | ", end="")
    print(" | ".join(f"{total[kind]:,}" for kind in kinds) + " |")
    together: set[int] = set()
    rows = {**FILTERS, " + ".join(TOGETHER): tuple(word for name in TOGETHER for word in FILTERS[name])}
    for name, assignments in rows.items():
        together = left_out(prefix, valid, assignments, folder)
        found = Counter(pairs[number][2] for number in together)
        noise = found.total() - found[""]
        recall = _share(noise, total.total() - total[""])
        cells = [_share(found[kind], total[kind]) for kind in kinds]
        precision = _share(noise, found.total())
        print(f"| {name} | {found.total():,} | {precision} | {recall} | {' | '.join(cells)} |", flush=True)
    return together


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def bleu(prefix: Path, data: Path, steps: int, folder: Path) -> float:
    """The score of a small model after so many steps on the corpus."""
    dataset, run = folder / "dataset", folder / "run"
    test = data / "test_2016_flickr"
    made = ("preprocess", "--source-lang", "en", "--target-lang", "de", "--train", prefix, "--test", test)
    _nmt(*made, "--set", OFF[0], "--vocab-size", 3000, "--out", dataset)
    small = [f"model.{name}_layers=1" for name in ("encoder", "decoder")]
    faster = ["schedule.warmup=100", "model.residual_dropout=0.1", "model.embedding_dropout=0.1"]
    given = [word for setting in (*small, *faster) for word in ("--set", setting)]
    # A model as small as this tells noise from none in minutes on a CPU.
    length = ("--max-steps", steps, "--batch-tokens", 2048, "--validate-every", 0, "--save-every", steps)
    _nmt("train", dataset, "--out", run, "--preset", "tiny", "--device", "cpu", *length, *given)
    translations = folder / "translations.de"
    translations.write_bytes(_nmt("translate", run, stdin=Path(f"{test}.en")))
    told = json.loads(_nmt("score", "--reference", f"{test}.de", translations, "--metric", "bleu", "--json"))
    return float(told["systems"][0]["scores"][0]["score"])


def _nmt(*words: object, stdin: Path | None = None) -> bytes:
    command = [sys.executable, "-m", "nmt_cli", *map(str, words), "--quiet"]
    with (stdin or Path(os.devnull)).open("rb") as lines_in:
        return subprocess.run(command, check=True, stdin=lines_in, stdout=subprocess.PIPE).stdout


def print_models(pairs: Sequence[Pair], gone: set[int], data: Path, steps: int, folder: Path) -> None:
    """Print what models of the corpus as it is, as it is filtered, and as it was before are worth."""
    corpora = {
        "with noise": pairs,
        "filtered": [pair for number, pair in enumerate(pairs) if number not in gone],
        "without noise": [pair for pair in pairs if not pair[2]],
    }
    print(f"\n| corpus | pairs | noise in it | BLEU after {steps} steps |\n|---|---|---|---|")
    for name, kept in corpora.items():
        place = folder / name.replace(" ", "-")
        place.mkdir()
        write(kept, place / "train")
        noise = sum(bool(kind) for _, _, kind in kept)
        score = bleu(place / "train", data, steps, place)
        print(f"| {name} | {len(kept):,} | {_share(noise, len(kept))} | {score:.1f} |", flush=True)


@click.command(context_settings={"show_default": True})
@click.option("--steps", default=300, type=click.IntRange(min=1), help="Updates of each model.")
@click.option("--filters-only", is_flag=True, help="Train no models.")
def main(steps: int, filters_only: bool) -> None:
    """Print both tables."""
    data = Path(os.environ["NMT_DATA"]) / "multi30k"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pairs = with_noise(data)
        write(pairs, folder / "train")
        gone = print_filters(pairs, folder / "train", data / "valid", folder)
        if not filters_only:
            print_models(pairs, gone, data, steps, folder)


if __name__ == "__main__":
    main()
