"""Encoding a block of prepared text keeps every line."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nmt_cli.data.dataset import TOKENIZERS
from nmt_cli.data.encode import EncodedSide, EncodeTask, encode_block, encode_lines
from nmt_cli.text.config import Kind, TextConfig, TokenizerConfig
from nmt_cli.text.tokenizer import Tokenizer
from nmt_cli.text.tokenizers import Recipe, Tokenizers, learn_tokenizers, load_tokenizers
from tests.data.corpora import Make, WritePairs

PAIRS = [("ab", "abcd"), ("abc", "d"), ("a" * 5, "b"), ("", "äb"), ("b", "a")]


@pytest.fixture
def tokenizers(tmp_path: Path, make: Make, write_pairs: WritePairs) -> Tokenizers:
    """Character tokenizers of the dataset `out`."""
    make(tmp_path / "out", [write_pairs(tmp_path / "c", [("aaabc", "abcd")] * 2)])
    return load_tokenizers(tmp_path / "out" / TOKENIZERS)


@pytest.fixture
def task(tmp_path: Path, tokenizers: Tokenizers) -> EncodeTask:
    """The task to encode `PAIRS`, which are between other lines of their files."""
    extents = []
    for side, lines in zip(("en", "de"), zip(*PAIRS, strict=True), strict=True):
        content = "".join(f"{line}\n" for line in lines).encode()
        path = tmp_path / f"text.{side}"
        path.write_bytes(b"before\n" + content + b"after\n")
        extents.append((path, 7, 7 + len(content)))
    return EncodeTask(tmp_path / "out" / TOKENIZERS, tokenizers.fingerprint, extents[0], extents[1])


def texts(side: EncodedSide, tokenizer: Tokenizer) -> list[str]:
    """Decode the sentences, which must all end in the same token."""
    sentences = np.split(side.tokens, np.cumsum(side.lengths)[:-1])
    assert len({int(sentence[-1]) for sentence in sentences}) == 1
    return [tokenizer.decode(sentence[:-1].tolist()) for sentence in sentences]


def test_decoding_gives_every_line_of_both_sides(task: EncodeTask, tokenizers: Tokenizers) -> None:
    source, target = encode_block(task)
    assert texts(source, tokenizers.source) == [source for source, _ in PAIRS]
    assert target.lengths.tolist() == [len(target) + 1 for _, target in PAIRS]
    unknown = tokenizers.target.vocabulary.unknown
    assert [(side.tokens == unknown).sum() for side in (source, target)] == [0, 1]
    assert source.only(np.ones(5, np.bool_)) is source
    kept = np.array([False, True, False, True, False])
    assert texts(source.only(kept), tokenizers.source) == ["abc", ""]
    assert not source.only(~np.ones(5, np.bool_)).tokens.size


def test_replaced_tokenizers_are_an_error(task: EncodeTask) -> None:
    with pytest.raises(ValueError, match="holds other tokenizers than expected"):
        encode_block(replace(task, fingerprint="another"))


@pytest.mark.parametrize("symbols", [(), ("<x>",)], ids=["no symbols", "symbols"])
@pytest.mark.parametrize("kind", ["bpe", "char", "word"])
def test_lines_encode_together_as_they_do_one_by_one(kind: Kind, symbols: tuple[str, ...]) -> None:
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
