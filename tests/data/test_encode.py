"""A block of prepared text to ids: every line comes back, and pairs are left out on both sides at once."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nmt_cli.data.dataset import TOKENIZERS
from nmt_cli.data.encode import EncodedSide, EncodeTask, encode_block, encode_lines, kept_of, lines_of
from nmt_cli.data.preprocessing.preprocess import Outcome
from nmt_cli.text.config import Kind, TextConfig, TokenizerConfig
from nmt_cli.text.tokenizer import Tokenizer
from nmt_cli.text.tokenizers import Recipe, Tokenizers, learn_tokenizers, load_tokenizers

PAIRS = [("ab", "abcd"), ("abc", "d"), ("a" * 5, "b"), ("", "äb"), ("b", "a")]


@pytest.fixture
def tokenizers(tmp_path: Path, make: Callable[..., Outcome], write_pairs: Callable[..., str]) -> Tokenizers:
    """Characters, in the dataset `out` of the test's folder."""
    make(tmp_path / "out", [write_pairs(tmp_path / "c", [("aaabc", "abcd")] * 2)])
    return load_tokenizers(tmp_path / "out" / TOKENIZERS)


@pytest.fixture
def task(tmp_path: Path, tokenizers: Tokenizers) -> EncodeTask:
    """All of `PAIRS`, which stand between other lines of their files."""
    extents = []
    for side, lines in zip(("en", "de"), zip(*PAIRS, strict=True), strict=True):
        content = "".join(f"{line}\n" for line in lines).encode()
        path = tmp_path / f"text.{side}"
        path.write_bytes(b"before\n" + content + b"after\n")
        extents.append((path, 7, 7 + len(content)))
    place = tmp_path / "out" / TOKENIZERS
    return EncodeTask(place, tokenizers.fingerprint, extents[0], extents[1])


def texts(side: EncodedSide, tokenizer: Tokenizer) -> list[str]:
    """What the sentences say; each must end in the same mark."""
    sentences = np.split(side.tokens, np.cumsum(side.lengths)[:-1])
    assert len({int(sentence[-1]) for sentence in sentences}) == 1
    return [tokenizer.decode(sentence[:-1].tolist()) for sentence in sentences]


def test_the_lines_are_those_between_the_bytes(task: EncodeTask) -> None:
    assert lines_of(*task.source) == [source for source, _ in PAIRS]
    assert lines_of(*task.target) == [target for _, target in PAIRS]


def test_every_line_of_both_sides_comes_back(task: EncodeTask, tokenizers: Tokenizers) -> None:
    block = kept_of(*encode_block(task), None, 0)
    assert texts(block.source, tokenizers.source) == [source for source, _ in PAIRS]
    assert block.target.lengths.tolist() == [len(target) + 1 for _, target in PAIRS]
    unknown = tokenizers.target.vocabulary.unknown
    assert [(side.tokens == unknown).sum() for side in (block.source, block.target)] == [0, 1]
    assert block.kept.all() and not block.too_long.any()
    assert block.side("source") is block.source and block.side("target") is block.target


def test_pairs_too_long_on_a_side_and_those_to_skip_are_left_out_on_both(
    task: EncodeTask, tokenizers: Tokenizers
) -> None:
    skip = np.array([False, False, False, False, True])
    block = kept_of(*encode_block(task), skip, 4)
    assert block.too_long.tolist() == [True, False, True, False, False]
    assert block.kept.tolist() == [False, True, False, True, False]
    assert texts(block.source, tokenizers.source) == ["abc", ""]
    assert block.target.lengths.tolist() == [2, 3]


def test_what_is_skipped_is_not_counted_as_too_long(task: EncodeTask) -> None:
    block = kept_of(*encode_block(task), np.ones(len(PAIRS), np.bool_), 1)
    assert not block.too_long.any() and not block.kept.any()
    assert len(block.source.tokens) == len(block.target.tokens) == 0


def test_tokenisers_that_were_exchanged_are_noticed(task: EncodeTask) -> None:
    with pytest.raises(ValueError, match="holds other tokenisers than it should"):
        encode_block(replace(task, fingerprint="another"))


@pytest.mark.parametrize("symbols", [(), ("<x>",)], ids=["no symbols", "symbols"])
@pytest.mark.parametrize("kind", ["bpe", "char", "word"])
def test_lines_encoded_together_are_those_encoded_one_by_one(kind: Kind, symbols: tuple[str, ...]) -> None:
    config = TokenizerConfig(kind=kind, vocab_size=12)
    sample = ["ab abc ab", "abc bc", "cab"] * 2
    recipe = Recipe(kind, True, "en", "en", TextConfig(), symbols)
    tokenizer = learn_tokenizers(recipe, config, {"source": sample, "target": sample}).source
    lines = ["ab abc", "", "z abz <x> bc", "</s>", "cab"]
    one_by_one = [tokenizer.vocabulary.ended(tokenizer.encode(line)) for line in lines]
    encoded = encode_lines(tokenizer, lines)
    assert encoded.tokens.tolist() == [i for ids in one_by_one for i in ids]
    assert encoded.tokens.dtype == np.uint16
    assert encoded.lengths.tolist() == [len(ids) for ids in one_by_one]
    assert tokenizer.vocabulary.unknown in encoded.tokens
    assert not encode_lines(tokenizer, []).tokens.size
