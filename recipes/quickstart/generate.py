"""Write the quickstart corpus: English and German sentences from a small grammar, nothing downloaded.

Run `python recipes/quickstart/generate.py --help`.
"""

import argparse
import sys
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

from sacrebleu.metrics.bleu import BLEU

# Lets the script run from any folder: recipes are no part of the installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recipes.quickstart import dictionary
from recipes.quickstart.lexicon import Pair
from recipes.quickstart.sentences import sentence

SPLITS = ("train", "valid", "test")
SAMPLES = 4
PATIENCE = 100_000
"""How many sentences in a row may be of no use before we say that the grammar has no more to give."""

DICTIONARY_PAIRS = 20_000
"""More pairs than these make the dictionary slower to learn, not better."""


def split_of(english: str) -> str:
    """The one set an English sentence may be in, whatever the seed and the sizes."""
    shard = zlib.crc32(english.encode("utf-8")) % 40
    return {0: "test", 1: "valid"}.get(shard, "train")


def corpus(split: str, size: int, seed: int) -> list[Pair]:
    """As many pairs as asked for, no English sentence twice; a larger size begins with the smaller one."""
    pairs = list(islice(_drawn(split, seed), size))
    if len(pairs) < size:
        raise ValueError(
            f"--{split} is {size}, but the grammar gave only {len(pairs)} different sentences; ask for fewer"
        )
    return pairs


def _drawn(split: str, seed: int) -> Iterator[Pair]:
    rng, seen, in_vain = Random(f"{split} {seed}"), set[str](), 0
    while in_vain < PATIENCE:
        pair = sentence(rng)
        in_vain += 1
        if split_of(pair.en) == split and pair.en not in seen:
            seen.add(pair.en)
            in_vain = 0
            yield pair


def baseline(train: list[Pair], test: list[Pair]) -> float:
    """BLEU of translating the test set word for word, with a dictionary learnt from the training set."""
    words = dictionary.learn(train[:DICTIONARY_PAIRS])
    hypotheses = [dictionary.translate(pair.en, words) for pair in test]
    return float(BLEU().corpus_score(hypotheses, [[pair.de for pair in test]]).score)


def write(pairs: list[Pair], folder: Path, split: str) -> None:
    """FOLDER/split.en and FOLDER/split.de, one sentence a line."""
    for language, lines in (("en", [pair.en for pair in pairs]), ("de", [pair.de for pair in pairs])):
        (folder / f"{split}.{language}").write_text("".join(f"{x}\n" for x in lines), "utf-8", newline="\n")


def _size(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size; give a whole number from 1 on")
    return int(text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Write the quickstart corpus and score a word-for-word translation of its test set.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write train, valid and test into")
    for split, pairs in zip(SPLITS, (20_000, 500, 500), strict=True):
        parser.add_argument(f"--{split}", type=_size, default=pairs, help=f"pairs in the {split} set")
    parser.add_argument("--seed", type=int, default=1, help="the same seed and sizes give the same bytes")
    return parser.parse_args()


def main() -> None:
    """Read the options, write the corpus, and print what it holds."""
    options = _options()
    try:
        made = {split: corpus(split, getattr(options, split), options.seed) for split in SPLITS}
    except ValueError as error:
        sys.exit(f"Error: {error}")
    options.out.mkdir(parents=True, exist_ok=True)
    for split, pairs in made.items():
        write(pairs, options.out, split)
        print(f"{split}: {len(pairs)} pairs in {options.out / split}.en and .de")
    for pair in made["train"][:SAMPLES]:
        print(f"  {pair.en}\n  {pair.de}")
    score = baseline(made["train"], made["test"])
    print(f"word-for-word dictionary translation of the test set: {score:.1f} BLEU")


if __name__ == "__main__":
    main()
