"""Write the quickstart corpus: English and German sentences from a small grammar, without a download.

Run `python recipes/quickstart/generate.py --help`.
"""

import argparse
import sys
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU

# Lets the script run from any folder: the recipes are not part of the installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from nmt_cli.demo.corpus import SIZES, corpus, write
from nmt_cli.demo.lexicon import Pair
from recipes.quickstart import dictionary

SAMPLES = 4
DICTIONARY_PAIRS = 20_000
"""Maximum number of pairs for the dictionary. More make it slower to learn, but not better."""


def baseline(train: list[Pair], test: list[Pair]) -> float:
    """Return the BLEU score of a word-for-word translation of the test set. Learn the dictionary from the
    training set."""
    words = dictionary.learn(train[:DICTIONARY_PAIRS])
    hypotheses = [dictionary.translate(pair.en, words) for pair in test]
    return float(BLEU().corpus_score(hypotheses, [[pair.de for pair in test]]).score)


def _size(text: str) -> int:
    """Return the number of pairs that an option gives. Raise ArgumentTypeError unless it is at least 1."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a number of pairs. Give a whole number of at least 1."
        )
    return int(text)


def _options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description="Write the quickstart corpus and score a word-for-word translation of its test set.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write train, valid and test into")
    for split, pairs in SIZES.items():
        parser.add_argument(f"--{split}", type=_size, default=pairs, help=f"pairs in the {split} set")
    parser.add_argument("--seed", type=int, default=1, help="the same seed and sizes give the same bytes")
    return parser.parse_args()


def main() -> None:
    """Write the corpus, and print its sizes, some samples and the score of the dictionary."""
    options = _options()
    try:
        corpora = {split: corpus(split, getattr(options, split), options.seed) for split in SIZES}
    except ValueError as error:
        sys.exit(f"Error: {error}")
    options.out.mkdir(parents=True, exist_ok=True)
    write(corpora, options.out)
    for split, pairs in corpora.items():
        print(f"{split}: {len(pairs)} pairs in {options.out / split}.en and .de")
    for pair in corpora["train"][:SAMPLES]:
        print(f"  {pair.en}\n  {pair.de}")
    score = baseline(corpora["train"], corpora["test"])
    print(f"word-for-word dictionary translation of the test set: {score:.1f} BLEU")


if __name__ == "__main__":
    main()
