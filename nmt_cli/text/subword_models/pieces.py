"""SentencePiece models: learning, loading and segmentation."""

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import sentencepiece

from nmt_cli.errors import UserError
from nmt_cli.text.config import TokenizerConfig
from nmt_cli.text.normalize import SPACE_MARK
from nmt_cli.text.subword_models.model_file import KIND_OF_MODEL, TRAINER, field
from nmt_cli.text.subword_models.subwords import UNKNOWN_PIECE, UNKNOWN_TEXT
from nmt_cli.text.vocabulary import NEW_MARKS

NEVER_IN_TEXT = 2 * SPACE_MARK
"""Prefix of the names of special tokens and symbols in a model. The learner removes such names from its text.
No prepared text contains this prefix, so nothing is removed."""

RESERVED = "\u2585"
"""A character with a special meaning for the learner that a text may contain."""

STAND_INS = "".join(map(chr, (*range(0xFDD0, 0xFDF0), *range(0xE000, 0xF900))))
"""Unassigned characters, equally long in bytes. One that a text lacks replaces `RESERVED` in it."""

SAMPLING: Mapping[bytes, Literal["alpha", "dropout"]] = {b"": "alpha", b"\x01": "alpha", b"\x02": "dropout"}
"""The way to sample by the kind of a model in its file. A file without a kind is a unigram model."""

BYTE_NAME = re.compile(r"<(?=0x[0-9A-F]{2}>)")

LONGEST_LEARNT = 4000
"""Maximum characters of a line for the learner. A few lines of a megabyte would take it minutes."""

LEARNING_THREADS = 8
"""Number of threads, the same on every machine, because the last digits of the model depend on it."""


class Pieces:
    """A SentencePiece model. The entry of a special token or an unused piece is None."""

    def __init__(self, model: bytes, too_rare: Iterable[int] = ()) -> None:
        """Load the content of a `.model` file. Split pieces with numbers in `too_rare` into smaller ones.
        Raise `UserError` if the content is not a SentencePiece model, or a piece is not UTF-8."""
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
        """Return the numbers of the pieces of prepared text. Split pieces that are too rare further."""
        return self.split(self.processor.encode(text))

    @property
    def draws_by(self) -> Literal["alpha", "dropout", None]:
        """The setting that samples segmentations: "alpha" for unigram, "dropout" for BPE, otherwise None."""
        return SAMPLING.get(field(field(self._model, TRAINER), KIND_OF_MODEL))

    def decode(self, pieces: Sequence[int]) -> str:
        """Return the text of pieces, given as numbers. Replace a number out of range by the unknown piece."""
        unknown, size = self.processor.unk_id(), len(self.entries)
        # SentencePiece fails on a number without a piece.
        return str(self.processor.decode([i if 0 <= i < size else unknown for i in pieces]))

    @property
    def written(self) -> list[str]:
        """All pieces in the spelling of the model, in order of their numbers, with special tokens."""
        return [self.processor.id_to_piece(i) for i in range(len(self.entries))]

    def files(self) -> dict[str, bytes]:
        """Return the content of the model file, with the file ending as key."""
        return {"model": self._model}

    def split(self, pieces: list[int]) -> list[int]:
        """Return the numbers `pieces`. Replace each piece that is too rare by smaller pieces."""
        if not self._splits:
            return pieces
        return [part for piece in pieces for part in self._splits.get(piece, (piece,))]

    def _split_up(self, too_rare: set[int]) -> dict[int, list[int]]:
        """Return, for each number in `too_rare`, the fewest other pieces with the same text, none too rare.
        Choose the likeliest of equally many. A piece without a split becomes `UNKNOWN_PIECE`."""
        entries = {i: piece for i, piece in enumerate(self.entries) if piece is not None}
        scores = {
            piece: (-1.0, self.processor.get_score(i), i) for i, piece in entries.items() if i not in too_rare
        }
        return {i: _best_split(entries[i], scores) for i in sorted(too_rare)}


def _best_split(text: str, scores: Mapping[str, tuple[float, float, int]]) -> list[int]:
    """Return the numbers of the pieces that make up `text` with the maximum sum of scores.

    `scores` has two scores and the number of each piece. The second score decides between equal sums of the
    first. If no pieces make up the text, return `UNKNOWN_PIECE` alone.
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


def learn_pieces(lines: Sequence[str], config: TokenizerConfig) -> bytes:
    """Learn a model of `config.vocab_size` entries from `lines`. Return the content of its file. The entries
    include special tokens and symbols, in the order of `Numbering.new`. Raise `UserError` if the size is too
    large or too small, or if SentencePiece fails."""
    model = io.BytesIO()
    stand_in = next(mark for mark in STAND_INS if not any(mark in line for line in lines))
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(
                part for line in lines for part in _learnable(line, stand_in, config.byte_fallback)
            ),
            model_writer=model,
            model_type=config.sentencepiece_model,
            vocab_size=config.vocab_size,
            character_coverage=config.character_coverage,
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
        )
    except RuntimeError as error:
        raise UserError(_explained(str(error), config)) from error
    # Both have the same number of bytes, so the lengths in the file stay right.
    return model.getvalue().replace(stand_in.encode(), RESERVED.encode())


def _learnable(line: str, stand_in: str, byte_fallback: bool) -> Iterator[str]:
    """Yield `line` for the learner in parts of at most `LONGEST_LEARNT` characters. Replace `RESERVED` by
    `stand_in`. With `byte_fallback`, put a space into names of bytes. Of later parts, yield only characters
    that are new, once each."""
    line = line.replace(RESERVED, stand_in)
    if byte_fallback:
        line = BYTE_NAME.sub("< ", line)
    yield line[:LONGEST_LEARNT]
    # Of the rest of a long line only new characters are used, so that the vocabulary covers them.
    if new := "".join(sorted(set(line[LONGEST_LEARNT:]) - set(line[:LONGEST_LEARNT]) - {" "})):
        yield from (new[i : i + LONGEST_LEARNT] for i in range(0, len(new), LONGEST_LEARNT))


def _explained(message: str, config: TokenizerConfig) -> str:
    """Return the learner's error message with our option names. If the vocabulary size is too large, give the
    maximum. If it is too small, give the minimum."""
    if maximum := re.search(r"value <= (\d+)", message):
        return (
            f"a vocabulary of {config.vocab_size:,} is more than the text supports. "
            f"Take --vocab-size {maximum.group(1)} or less."
        )
    if minimum := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return (
            f"a vocabulary of {config.vocab_size:,} is too small: special tokens and single characters are "
            f"{minimum.group(1)}. Raise --vocab-size or lower tokenizer.character_coverage."
        )
    return f"SentencePiece can't learn from this text: {message}"
