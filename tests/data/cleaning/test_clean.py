"""Cleaning a block keeps, drops and notes the right pairs."""

from collections import Counter
from pathlib import Path

import pytest

from nmt_cli.corpus.parallel import Corpus, PairBlock
from nmt_cli.data.cleaning.clean import CleanBlock, CleanTask, clean
from nmt_cli.data.cleaning.duplicates import hashes_needed, pair_hash
from nmt_cli.data.cleaning.filters import EMPTY, WORDS
from nmt_cli.data.config import FilterConfig
from nmt_cli.errors import UserError
from nmt_cli.text.config import TextConfig
from nmt_cli.text.tokenizers import Recipe

FIRST = 41


def cleaned(pairs: list[tuple[bytes, bytes]], **settings: object) -> CleanBlock:
    """Clean pairs. The first has the number `FIRST`."""
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    corpus = Corpus("c", Path("c.en"), Path("c.de"), "lines")
    recipe = Recipe("char", True, "en", "de", TextConfig())
    config = FilterConfig(**settings)  # type: ignore[arg-type]
    block = PairBlock(FIRST, sources, targets)
    return clean(CleanTask(block, corpus, recipe, config, "error", hashed=hashes_needed(config)))


def test_kept_pairs_stay_in_order_with_their_numbers_and_lengths() -> None:
    block = cleaned([(b"one  two", b"eins"), (b" ", b"zwei"), ("drei äö".encode(), b"x\t y")])
    assert block.source.content.decode() == "one two\ndrei äö\n"
    assert block.target.content == b"eins\nx y\n"
    assert block.source.lengths.tolist() == [8, 10]
    assert block.target.lengths.tolist() == [5, 4]
    assert block.numbers.tolist() == [FIRST, FIRST + 2]
    assert block.dropped.counts == Counter({EMPTY: 1})
    assert [sample.number for sample in block.dropped.samples[EMPTY]] == [FIRST + 1]


def test_a_block_without_kept_pairs_is_empty() -> None:
    block = cleaned([(b"", b"a"), (b"a", b"")])
    assert (block.source.content, block.target.content, block.hashes["pair"]) == (b"", b"", b"")
    assert len(block.source.lengths) == len(block.numbers) == 0


def test_long_lines_and_empty_sides_are_counted_apart() -> None:
    block = cleaned([(b"a " * 9, b"a"), (b"a " * 9, b" "), (b"a", b"b")], max_words=8)
    assert block.dropped.counts == Counter({WORDS: 1, EMPTY: 1})
    assert block.numbers.tolist() == [FIRST + 2]


def test_the_error_for_invalid_utf8_names_file_and_line() -> None:
    with pytest.raises(UserError, match=rf"c\.de line {FIRST + 1}"):
        cleaned([(b"a", b"b"), (b"a", b"\xff")])


def test_prepared_pairs_are_hashed_only_to_find_duplicates() -> None:
    pairs = [(b"a  b", b"c"), (b"", b"x"), (b"a b", b"c"), (b"a b", b"d")]
    hashes = cleaned(pairs, duplicates=True).hashes["pair"]
    assert hashes == b"".join(pair_hash(*pair) for pair in (("a b", "c"), ("a b", "c"), ("a b", "d")))
    assert cleaned(pairs).hashes["pair"] == b""
