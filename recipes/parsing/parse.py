"""Parse sentences with a model of this recipe.

    python -m recipes.parsing.parse MODEL [--beam N] [--threads N] [--free] <SENTENCES >TREES

A line of SENTENCES has spaces between its words. Its tree is printed in brackets over exactly these words.
The search settings are those of `translate.toml`. The search finds well-formed trees only (`tree_rule.py`).
With `--free`, the model writes what it likes, as any translation. A malformed parse is then repaired: surplus
tags are dropped, and missing ones become XX. The share of malformed parses is printed on stderr.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from nmt_cli.api import TranslateConfig, load
from nmt_cli.config import read
from recipes.parsing.tree_rule import tree_rule
from recipes.parsing.trees import Tree, bracketed, repair_linearised, words_of

ESCAPED = str.maketrans({"(": "-LRB-", ")": "-RRB-"})
"""The form of brackets that are words in treebanks."""


def restored(parse: str, sentence: str) -> tuple[str, str]:
    """Return the linearised `parse` as a tree in brackets over the words of `sentence`, and its first flaw or
    "". A malformed parse is repaired. The tree of a sentence without words is ""."""
    words = words_of(sentence.translate(ESCAPED))
    if not words:
        return "", ""
    tree, flaw = repair_linearised(parse, len(words))
    return bracketed(Tree(tree.symbols, tuple(words))), flaw


def main() -> None:
    """Read sentences from stdin, and print a tree for each."""
    parser = argparse.ArgumentParser(description="Parse sentences from stdin.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--beam", type=int, default=4, metavar="N")
    parser.add_argument("--threads", type=int, metavar="N")
    parser.add_argument("--free", action="store_true", help="also search malformed trees, and repair them")
    options = parser.parse_args()
    config = read(TranslateConfig, Path(__file__).with_name("translate.toml"))
    config = replace(config, search=replace(config.search, beam=options.beam))
    sys.stdin.reconfigure(newline="\n")  # type: ignore[union-attr]
    sentences = [line.rstrip("\n") for line in sys.stdin]
    with load(options.model, config=config, threads=options.threads) as model:
        target, flaws = model.tokenizers.target, 0
        rule = None if options.free else tree_rule(target)
        for sentence, parse in zip(sentences, model.translations(sentences, rule=rule), strict=True):
            # Not the text of the translation, which gets back addresses that are in the sentence only.
            parts = parse.candidates[0].parts if parse.candidates else ()
            tree, flaw = restored(" ".join(target.decode(part.tokens) for part in parts), sentence)
            flaws += bool(flaw)
            print(tree)
    print(
        f"malformed: {flaws:,} of {len(sentences):,} ({100 * flaws / max(1, len(sentences)):.2f} %)",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
