"""Parse trees as translations."""

import pytest

from nmt_cli.corpus.trees import parse
from nmt_cli.text.config import Kind, TextConfig, TokenizerConfig
from nmt_cli.text.tokenizers import Recipe, Tokenizers, learn_tokenizers
from nmt_cli.translation.text.parses import tree_symbols, written_out

SYMBOLS_OF_TREES = ("(A", "(BB", ")A", ")BB", "NN")
LINES = ["(A NN )A", "(A (BB NN NN )BB . )A", "(A NN . )A"]


def learnt(kind: Kind, symbols: tuple[str, ...]) -> Tokenizers:
    recipe = Recipe(kind, kind != "word", "words", "trees", TextConfig(words="raw"), symbols)
    config = TokenizerConfig(kind=kind, symbols=symbols, vocab_size=60, joint=kind != "word")
    return learn_tokenizers(recipe, config, {"source": ["a cat sat ."], "target": LINES})


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_tree_symbols_are_found_in_the_vocabulary(kind: Kind) -> None:
    config = TokenizerConfig(kind="bpe", symbols=SYMBOLS_OF_TREES, merges=2)
    recipe = Recipe("bpe", True, "words", "trees", TextConfig(words="raw"), SYMBOLS_OF_TREES)
    lines = {"source": ["a cat sat . cat"], "target": LINES}
    tokenizers = learn_tokenizers(recipe, config, lines) if kind == "bpe" else learnt(kind, SYMBOLS_OF_TREES)  # type: ignore[arg-type]
    target = tokenizers.target
    symbols = tree_symbols(target)
    assert symbols
    for line in LINES:
        for name, i in zip(line.split(), target.encode(line), strict=True):
            expected = (
                symbols.closing
                if name[0] == "("
                else symbols.closing.values()
                if name[0] == ")"
                else symbols.tags
            )
            assert i in expected, name


def test_other_vocabularies_have_no_tree_symbols() -> None:
    assert tree_symbols(learnt("word", ()).target) is None
    assert tree_symbols(learnt("word", ("<2de>",)).target) is None
    assert tree_symbols(learnt("char", SYMBOLS_OF_TREES).target) is None  # it has spaces between tags


def test_a_tree_is_written_in_brackets_with_its_words() -> None:
    assert (
        written_out("(S (NP DT NN )NP . )S", "The cat (".split())
        == "(TOP (S (NP (DT The) (NN cat)) (. -LRB-)))"
    )
    assert parse(written_out("(S NN", "a b".split())).words == ("a", "b")
