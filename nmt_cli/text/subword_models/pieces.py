"""SentencePiece models: learning, loading and segmentation.

The file of a model has a number for each piece. A dataset of an older version may have pieces that are too
rare on a side. They are replaced by smaller pieces, because a model learned little about them.
"""

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import sentencepiece

from nmt_cli.errors import UserError
from nmt_cli.text.config import TokenizerConfig
from nmt_cli.text.normalize import SPACE_MARK
from nmt_cli.text.subword_models.model_file import (
    KIND_OF_MODEL,
    NORMALIZER,
    TRAINER,
    WITHOUT_SPACES,
    field,
    replaced,
)
from nmt_cli.text.subword_models.subwords import UNKNOWN_PIECE, UNKNOWN_TEXT
from nmt_cli.text.vocabulary import NEW_MARKS

NEVER_IN_TEXT = 2 * SPACE_MARK
"""The prefix of special tokens and symbols in a model. The learner removes their names from its text. No
prepared text contains this prefix, so nothing is removed."""

RESERVED = "\u2585"
"""A character that has a special meaning for the learner, and that a text may contain."""

STAND_INS = "".join(map(chr, (*range(0xFDD0, 0xFDF0), *range(0xE000, 0xF900))))
"""Characters without a meaning that have as many bytes as `RESERVED`. For learning, one that the text lacks
replaces `RESERVED`."""

SAMPLING: Mapping[bytes, Literal["alpha", "dropout"]] = {b"": "alpha", b"\x01": "alpha", b"\x02": "dropout"}
"""The setting that samples from a model, by the kind of the model in its file. A file without a kind has a
unigram model."""

BYTE_NAME = re.compile(r"<(?=0x[0-9A-F]{2}>)")

LONGEST_LEARNT = 4000
"""The maximum number of characters that the learner gets of a line. A few lines of a megabyte would take it
minutes."""

LEARNING_THREADS = 8
"""The number of threads for learning. It is the same on every machine, because the last digits of a model
depend on it."""


class Pieces:
    """A SentencePiece model."""

    def __init__(self, model: bytes, too_rare: Iterable[int] = ()) -> None:
        """Load the content of a model's file. `too_rare` has the numbers of pieces that are replaced by
        smaller pieces.

        Pieces for bytes and single characters are never replaced. Raise `UserError` if the content is not a
        SentencePiece model, or a piece is not UTF-8.
        """
        try:
            self.processor = sentencepiece.SentencePieceProcessor()
            # The constructor would skip empty content, and the size of no model prints an error.
            self.processor.LoadFromSerializedProto(model)
            size = self.processor.get_piece_size()
        except RuntimeError:
            size = 0
        if not size:
            raise UserError("this is not a SentencePiece model. Give a file that spm_train wrote.")
        self._model = model
        special = (self.processor.is_control, self.processor.is_unknown, self.processor.is_unused)
        try:
            self.entries: Sequence[str | None] = [
                None if any(is_special(i) for is_special in special) else self.processor.id_to_piece(i)
                for i in range(size)
            ]
        except UnicodeDecodeError as error:
            raise UserError(
                "this SentencePiece model is damaged (a piece is not UTF-8). Copy it again."
            ) from error
        # Single characters and bytes can't be split further.
        self._splits = self._split_up(
            {i for i in too_rare if not self.processor.is_byte(i) and len(self.processor.id_to_piece(i)) > 1}
        )

    def encode(self, text: str) -> list[int]:
        """Return the numbers of the pieces of prepared text. Pieces that are too rare are split."""
        return self.split(self.processor.encode(text))

    @property
    def draws_by(self) -> Literal["alpha", "dropout", None]:
        """How segmentations are sampled: "alpha" for a unigram model, "dropout" for merges, and None for
        others."""
        return SAMPLING.get(field(field(self._model, TRAINER), KIND_OF_MODEL))

    def decode(self, pieces: Sequence[int]) -> str:
        """Return the text of pieces, given by their numbers. A number out of range becomes the unknown
        piece."""
        unknown, size = self.processor.unk_id(), len(self.entries)
        # SentencePiece fails on a number without a piece.
        return str(self.processor.decode([i if 0 <= i < size else unknown for i in pieces]))

    def within_words(self) -> "Pieces":
        """Return the model without normalisation and without a space before the text. It segments the text
        of a piece, with U+2581 for spaces, as if this was a part of a longer text."""
        return Pieces(replaced(self._model, NORMALIZER, WITHOUT_SPACES))

    @property
    def written(self) -> list[str]:
        """All pieces as the model's file spells them, including special tokens, in the order of their
        numbers."""
        return [self.processor.id_to_piece(i) for i in range(len(self.entries))]

    def files(self) -> dict[str, bytes]:
        """Return the content of the model's file by the ending of its name."""
        return {"model": self._model}

    def split(self, pieces: list[int]) -> list[int]:
        """Return the numbers of pieces, with each piece that is too rare replaced by smaller pieces."""
        if not self._splits:
            return pieces
        return [part for piece in pieces for part in self._splits.get(piece, (piece,))]

    def _split_up(self, too_rare: set[int]) -> dict[int, list[int]]:
        """Return the smaller pieces for each piece in `too_rare`.

        They have the same text, none is too rare, and they are as few as possible. Of equally few, those with
        the highest score are chosen. If there are none, the piece becomes `UNKNOWN_PIECE`.
        """
        entries = {i: piece for i, piece in enumerate(self.entries) if piece is not None}
        scores = {
            piece: (-1.0, self.processor.get_score(i), i) for i, piece in entries.items() if i not in too_rare
        }
        return {i: _best_split(entries[i], scores) for i in sorted(too_rare)}


def _best_split(text: str, scores: Mapping[str, tuple[float, float, int]]) -> list[int]:
    """Return the numbers of the pieces that make up `text` with the highest sum of scores.

    `scores` has a first score, a second score and the number of each piece, by its text. The second scores
    decide between equal sums of the first. If no pieces make up the text, return `UNKNOWN_PIECE` alone.
    """
    # The best split of the text up to each position (Viterbi).
    best: list[tuple[float, float, list[int]] | None] = [(0.0, 0.0, [])]
    for end in range(1, len(text) + 1):
        splits = [
            (split[0] + part[0], split[1] + part[1], [*split[2], part[2]])
            for start, split in enumerate(best)
            if split and (part := scores.get(text[start:end]))
        ]
        best.append(max(splits, default=None))
    return best[-1][2] if best[-1] else [UNKNOWN_PIECE]


def learn_pieces(lines: Sequence[str], config: TokenizerConfig, *, exact: bool = True) -> bytes:
    """Learn a model from prepared `lines`, and return the content of its file.

    The model has `config.vocab_size` entries: special tokens and symbols first, as in `Numbering.new`, and
    then pieces. Raise `UserError` if the text does not support that size, or SentencePiece fails. Unless
    `exact`, the model has the size that the text supports.
    """
    model = io.BytesIO()
    stand_in = next(mark for mark in STAND_INS if not any(mark in line for line in lines))
    # A model's file has the options that were given. So this one is given only if it is on, and other models
    # stay equal to those of earlier versions, byte by byte.
    digits: dict[str, Any] = {"split_digits": True} if config.split_digits else {}
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(
                part for line in lines for part in _learnable(line, stand_in, config.byte_fallback)
            ),
            model_writer=model,
            model_type=config.sentencepiece_model,
            vocab_size=config.vocab_size,
            hard_vocab_limit=exact,
            character_coverage=1.0,
            byte_fallback=config.byte_fallback,
            control_symbols=[NEVER_IN_TEXT + symbol for symbol in config.all_symbols],
            # The text is already prepared.
            normalization_rule_name="identity",
            # The learner drops longer lines without a warning. `_learnable` has cut them.
            max_sentence_length=1 << 30,
            eos_id=NEW_MARKS.index("</s>"),
            eos_piece=NEVER_IN_TEXT + "</s>",
            unk_id=NEW_MARKS.index("<unk>"),
            unk_piece=NEVER_IN_TEXT + "<unk>",
            unk_surface=UNKNOWN_TEXT,
            bos_id=-1,
            pad_id=-1,
            num_threads=LEARNING_THREADS,
            minloglevel=3,
            **digits,
        )
    except RuntimeError as error:
        raise UserError(_explained(str(error), config)) from error
    # Both have the same number of bytes, so the lengths in the file stay right.
    return model.getvalue().replace(stand_in.encode(), RESERVED.encode())


def _learnable(line: str, stand_in: str, byte_fallback: bool) -> Iterator[str]:
    """Yield the parts of `line` that the learner gets, each of at most `LONGEST_LEARNT` characters.

    The first part is the start of the line. Further parts have the characters that do not occur in it, once
    each. `RESERVED` becomes `stand_in`. With `byte_fallback`, names of bytes such as "<0x0A>" get a space,
    since the learner would take them for pieces.
    """
    line = line.replace(RESERVED, stand_in)
    if byte_fallback:
        line = BYTE_NAME.sub("< ", line)
    yield line[:LONGEST_LEARNT]
    # Of the rest of a long line only new characters are used, so that the vocabulary covers them.
    if new := "".join(sorted(set(line[LONGEST_LEARNT:]) - set(line[:LONGEST_LEARNT]) - {" "})):
        yield from (new[i : i + LONGEST_LEARNT] for i in range(0, len(new), LONGEST_LEARNT))


def _explained(message: str, config: TokenizerConfig) -> str:
    """Return an error of the learner in our words. If the vocabulary size is the cause, the message has the
    size that the text supports."""
    if maximum := re.search(r"value <= (\d+)", message):
        return (
            f"a vocabulary of {config.vocab_size:,} is more than the text supports. "
            f"Take --vocab-size {maximum.group(1)} or less."
        )
    if minimum := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return (
            f"a vocabulary of {config.vocab_size:,} is too small: special tokens and single characters are "
            f"{minimum.group(1)}. Raise --vocab-size, or drop lines in other scripts (filter.source_script)."
        )
    return f"SentencePiece can't learn from this text: {message}"
