"""Encoding of one block of prepared text as token ids, as a task for a worker process."""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nmt_cli.data.array_files import Array, ArrayWriter, Extent, OffsetsWriter
from nmt_cli.data.dataset import Sentences, side_path
from nmt_cli.text.subword_models.subwords import UNKNOWN_PIECE
from nmt_cli.text.tokenizer import Side, Tokenizer
from nmt_cli.text.tokenizers import Tokenizers, load_tokenizers


@dataclass(frozen=True, slots=True)
class EncodeTask:
    """A block of prepared text, and the folder of the tokenizers."""

    tokenizers: Path
    fingerprint: str
    """The fingerprint that the tokenizers in the folder must have."""

    source: Extent
    target: Extent
    """The position of the lines of each side in its file. Both sides have equally many lines."""


@dataclass(frozen=True, slots=True)
class EncodedSide:
    """The ids of consecutive sentences of one side, with end tokens, in one array. `lengths` has the number
    of ids of each."""

    tokens: Array
    lengths: NDArray[np.int64]

    @classmethod
    def read(cls, sentences: Sentences, first: int, end: int) -> Self:
        """Read the sentences [`first`, `end`) from disk into memory."""
        offsets = np.array(sentences.offsets[first : end + 1])
        return cls(np.array(sentences.tokens[offsets[0] : offsets[-1]]), np.diff(offsets))

    def without_ends(self, end: int) -> "EncodedSide":
        """Return the sentences without the end token `end`. Sources of some imported models have none."""
        lasts = self.lengths.cumsum() - 1
        ended = self.tokens[lasts] == end
        return EncodedSide(np.delete(self.tokens, lasts[ended]), self.lengths - ended)

    def only(self, kept: NDArray[np.bool_]) -> "EncodedSide":
        """Return the sentences whose value in `kept` is true."""
        if kept.all():
            return self
        return EncodedSide(self.tokens[np.repeat(kept, self.lengths)], self.lengths[kept])


def encode_block(task: EncodeTask) -> tuple[EncodedSide, EncodedSide]:
    """Return the ids of the source lines and of the target lines. Raise `ValueError` if the tokenizers have
    another fingerprint."""
    tokenizers = loaded(task.tokenizers, task.fingerprint)
    source = encode_lines(tokenizers.source, lines_of(*task.source))
    return source, encode_lines(tokenizers.target, lines_of(*task.target))


class TokensWriter(ExitStack):
    """Writes the ids and offsets of one side of a split, to SPLIT.SIDE.tokens.npy and
    SPLIT.SIDE.offsets.npy."""

    def __init__(self, folder: Path, split: str, side: Side, tokenizer: Tokenizer) -> None:
        super().__init__()
        tokens = ArrayWriter(side_path(folder, split, side, "tokens.npy"), token_type(tokenizer))
        self._tokens = self.enter_context(tokens)
        self._offsets = self.enter_context(OffsetsWriter(side_path(folder, split, side, "offsets.npy")))
        self._unknown, self._unknowns = tokenizer.vocabulary.unknown, 0
        self.pairs = 0

    def append(self, encoded: EncodedSide) -> None:
        """Write more sentences, and count them."""
        self._tokens.append(encoded.tokens)
        self._offsets.append(encoded.lengths)
        self._unknowns += int((encoded.tokens == self._unknown).sum())
        self.pairs += len(encoded.lengths)

    def counts(self) -> dict[str, int]:
        """Return the number of "tokens", with end tokens, and of "unknowns", the unknown tokens."""
        return {"tokens": self._tokens.length, "unknowns": self._unknowns}


def encode_lines(tokenizer: Tokenizer, lines: Iterable[str]) -> EncodedSide:
    """Return the ids of prepared lines, with end tokens. Segmentation is not random here."""
    # The fast way below knows neither symbols nor sentences without an end token.
    if tokenizer.symbols or tokenizer.vocabulary.bare:
        return packed(map(tokenizer.encode, lines), tokenizer)
    # One look-up turns the pieces of all lines into ids. Line by line, characters take 1.5 times as long.
    pieces, lengths = _joined([*tokenizer.subwords.encode(line), UNKNOWN_PIECE] for line in lines)
    ids = np.frombuffer(tokenizer.numbering.ids, np.uintc).astype(token_type(tokenizer))
    tokens = ids[np.fromiter(pieces, np.int64, len(pieces))]
    tokens[lengths.cumsum() - 1] = tokenizer.vocabulary.end
    return EncodedSide(tokens, lengths)


def packed(sentences: Iterable[list[int]], tokenizer: Tokenizer) -> EncodedSide:
    """Return sentences of ids as one array, with end tokens added."""
    flat, lengths = _joined(map(tokenizer.vocabulary.ended, sentences))
    # `np.array` takes three times as long as `fromiter` for small integers.
    return EncodedSide(np.fromiter(flat, token_type(tokenizer), len(flat)), lengths)


def _joined(sentences: Iterable[list[int]]) -> tuple[list[int], NDArray[np.int64]]:
    """Return the ids of all sentences as one list, and the lengths of the sentences."""
    flat: list[int] = []
    lengths: list[int] = []
    for sentence in sentences:
        flat += sentence
        lengths.append(len(sentence))
    return flat, np.array(lengths, np.int64)


def token_type(tokenizer: Tokenizer) -> type[np.uint16] | type[np.uint32]:
    """Return the type of ids: uint16 if every id of the vocabulary fits, otherwise uint32. uint16 halves the
    size of a corpus."""
    return np.uint16 if len(tokenizer.vocabulary) <= 1 << 16 else np.uint32


@cache
def loaded(folder: Path, fingerprint: str) -> Tokenizers:
    """Load the tokenizers in `folder`, once per process. Raise `ValueError` if they have another fingerprint,
    because another run has replaced them."""
    tokenizers = load_tokenizers(folder)
    if tokenizers.fingerprint != fingerprint:
        raise ValueError(f"{folder} holds other tokenizers than expected")
    return tokenizers


def lines_of(path: Path, first: int, end: int) -> list[str]:
    """Return the lines in the bytes [`first`, `end`) of a file. The last byte must be a line feed."""
    with path.open("rb") as file:
        file.seek(first)
        return file.read(end - first).decode().split("\n")[:-1]
