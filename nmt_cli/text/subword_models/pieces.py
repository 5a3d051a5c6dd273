"""SentencePiece models, learnt here or given."""

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import sentencepiece

from nmt_cli.errors import UserError
from nmt_cli.text.config import TokenizerConfig
from nmt_cli.text.normalize import BLANK_MARK
from nmt_cli.text.subword_models.subwords import UNKNOWN_PIECE, UNKNOWN_TEXT
from nmt_cli.text.vocabulary import NEW_MARKS

NEVER_IN_TEXT = 2 * BLANK_MARK
"""Begins the names of marks and symbols in a model. The learner cuts such names out of the text it learns
from; with this, which no prepared text holds, it cuts nothing."""

RESERVED = "\u2585"
"""A character with a meaning for the learner, which a text may hold all the same."""

STAND_INS = "".join(map(chr, (*range(0xFDD0, 0xFDF0), *range(0xE000, 0xF900))))
"""Characters without a meaning in Unicode, of as many bytes as `RESERVED`; one that the text lacks takes its
place while learning."""

BYTE_NAME = re.compile(r"<(?=0x[0-9A-F]{2}>)")

LONGEST_LEARNT = 4000
"""Characters of a line that the learner sees; with a few lines of a megabyte it would take minutes."""

LEARNING_THREADS = 8
"""The same on every machine: the learner's sums, and so the model, depend on it in their last digits."""


class Pieces:
    """A SentencePiece model; see `Subwords`. The entries of its marks and unused pieces are None."""

    def __init__(self, model: bytes, too_rare: Iterable[int] = ()) -> None:
        """`model` is the content of a `.model` file; `too_rare` are numbers of pieces to split further."""
        try:
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            size = self.processor.get_piece_size()
        except RuntimeError:
            size = 0
        if not size:
            raise UserError("this is no SentencePiece model; give a file that spm_train wrote.")
        self._model = model
        try:
            self.entries: Sequence[str | None] = [
                None if self._is_mark(i) or self.processor.is_unused(i) else self.processor.id_to_piece(i)
                for i in range(size)
            ]
        except UnicodeDecodeError as error:
            raise UserError(
                "this SentencePiece model is damaged (a piece is no UTF-8); copy it again."
            ) from error
        # Single characters and bytes can't be split further, however rare they are.
        self._splits = self._split_up({piece for piece in too_rare if self._has_parts(piece)})

    def encode(self, text: str) -> list[int]:
        """See `Subwords`."""
        return self.split(self.processor.encode(text))

    @property
    def draws_by(self) -> Literal["alpha", "dropout", None]:
        """How this kind of model can be drawn from: by alpha (unigram), with dropout (bpe), or not at all."""
        try:
            # A processor does not tell the kind of its model; it only refuses what the kind can't do.
            self.processor.encode("", enable_sampling=True, alpha=1.0, nbest_size=-1)
        except RuntimeError:
            return None
        try:
            self.processor.nbest_encode("", nbest_size=2)
        except RuntimeError:
            return "dropout"
        return "alpha"

    def decode(self, pieces: Sequence[int]) -> str:
        """See `Subwords`."""
        unknown, size = self.processor.unk_id(), len(self.entries)
        # SentencePiece fails on a number that it does not have.
        return str(self.processor.decode([i if 0 <= i < size else unknown for i in pieces]))

    @property
    def written(self) -> list[str]:
        """All its pieces by number, marks among them."""
        return [self.processor.id_to_piece(i) for i in range(len(self.entries))]

    def shown(self, text: str) -> list[str]:
        """The pieces of `text` as they are written."""
        return list(self.processor.encode(text, out_type=str))

    def text_of(self, shown: Sequence[str]) -> str:
        """The inverse of `shown`."""
        return str(self.processor.decode(list(shown)))

    def files(self) -> dict[str, bytes]:
        """See `Subwords`."""
        return {"model": self._model}

    def split(self, pieces: list[int]) -> list[int]:
        """`pieces` with the too rare ones split further."""
        if not self._splits:
            return pieces
        return [part for piece in pieces for part in self._splits.get(piece, (piece,))]

    def _split_up(self, too_rare: set[int]) -> dict[int, list[int]]:
        """For each too rare piece the pieces that it is split into: the fewest, and of equally many the
        likeliest."""
        shown = {i: piece for i, piece in enumerate(self.entries) if piece is not None}
        scores = {
            piece: (-1.0, self.processor.get_score(i), i) for i, piece in shown.items() if i not in too_rare
        }
        return {i: _best_split(shown[i], scores) for i in sorted(too_rare)}

    def _has_parts(self, piece: int) -> bool:
        return not self.processor.is_byte(piece) and len(self.processor.id_to_piece(piece)) > 1

    def _is_mark(self, piece: int) -> bool:
        return bool(self.processor.is_control(piece) or self.processor.is_unknown(piece))


def _best_split(text: str, scores: Mapping[str, tuple[float, float, int]]) -> list[int]:
    """The numbers of the pieces that make up `text` with the greatest sums of scores.

    `scores` has for each piece two scores and its number; the second sum decides where the first ones are
    equal.
    """
    # The best way to each place in the text, one place after another (Viterbi).
    best: list[tuple[float, float, list[int]] | None] = [(0.0, 0.0, [])]
    for end in range(1, len(text) + 1):
        ways = [
            (way[0] + part[0], way[1] + part[1], [*way[2], part[2]])
            for start, way in enumerate(best)
            if way and (part := scores.get(text[start:end]))
        ]
        best.append(max(ways, default=None))
    return best[-1][2] if best[-1] else [UNKNOWN_PIECE]


def learn_pieces(lines: Sequence[str], config: TokenizerConfig) -> bytes:
    """The content of a `.model` file, learnt from `lines`, with `config.vocab_size` entries.

    Marks and symbols are among the entries, in the order of `Numbering.new`.
    """
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
            # The text is prepared already.
            normalization_rule_name="identity",
            # Longer lines would be left out without a word; `_learnable` has cut them.
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
        raise UserError(_plainly(str(error), config)) from error
    # Of as many bytes, so that the lengths written in the model's file stay right.
    return model.getvalue().replace(stand_in.encode(), RESERVED.encode())


def _learnable(line: str, stand_in: str, byte_fallback: bool) -> Iterator[str]:
    """`line` for the learner: in parts that are not too long, without what it would take for its own
    marks."""
    line = line.replace(RESERVED, stand_in)
    if byte_fallback:
        line = BYTE_NAME.sub("< ", line)
    yield line[:LONGEST_LEARNT]
    # Of the rest of a long line only the characters not seen yet, so that the vocabulary covers them.
    if new := "".join(sorted(set(line[LONGEST_LEARNT:]) - set(line[:LONGEST_LEARNT]) - {" "})):
        yield from (new[i : i + LONGEST_LEARNT] for i in range(0, len(new), LONGEST_LEARNT))


def _plainly(message: str, config: TokenizerConfig) -> str:
    """The learner's message in the words of our settings."""
    if most := re.search(r"value <= (\d+)", message):
        return (
            f"a vocabulary of {config.vocab_size:,} is more than the text supports; "
            f"take --vocab-size {most.group(1)} or less."
        )
    if least := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return (
            f"a vocabulary of {config.vocab_size:,} is too small: its marks and single characters alone are "
            f"{least.group(1)}; raise --vocab-size or lower tokenizer.character_coverage."
        )
    return f"SentencePiece can't learn from this text: {message}"
