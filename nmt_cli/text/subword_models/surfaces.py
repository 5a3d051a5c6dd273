"""What text may fall into by a SentencePiece model, for those who segment it themselves."""

import re
from collections.abc import Sequence
from itertools import groupby

from nmt_cli.text.normalize import BLANK_MARK
from nmt_cli.text.subword_models.model_file import defined
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.subword_models.subwords import BYTES, LONGEST_WORD

BEFORE, BEHIND = (
    rf"{BLANK_MARK}*[^{BLANK_MARK}]+|{BLANK_MARK}+",
    rf"[^{BLANK_MARK}]+{BLANK_MARK}*|{BLANK_MARK}+",
)
"""A word with the blanks before it, as most models have it, or behind it."""

UNKNOWN = -10.0
"""Logarithm of how probable a character that no piece stands for is, beside the rarest piece; as in
SentencePiece."""


class Surfaces:
    """The pieces of a model by how they are written, and the words that they stay within."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces, processor = pieces, pieces.processor
        text = ((i, piece) for i, piece in enumerate(pieces.entries) if not processor.is_byte(i))
        self._ids = {piece: i for i, piece in text if piece is not None}
        self._unknown = processor.unk_id()
        self._bytes = [i for byte in BYTES if processor.is_byte(i := processor.piece_to_id(byte))]
        written = pieces.written
        self.defined = {written[i] for i in defined(pieces.files()["model"])} & self._ids.keys()
        """Those that whoever trained the model has given it."""
        self.scores = {piece: processor.get_score(i) for piece, i in self._ids.items()}
        """Logarithms of probabilities, by a unigram model; of merges of a BPE model, how early they are."""
        learnt = [score for piece, score in self.scores.items() if piece not in self.defined]
        self.unknown_score = min(learnt, default=0.0) + UNKNOWN
        patterns = (BEFORE, BEHIND, ".+")  # the last one for pieces that go across words
        self._word = next(
            found
            for pattern in patterns
            if all((found := re.compile(pattern, re.DOTALL)).fullmatch(piece) for piece in self._ids)
        )

    def words(self, text: str) -> list[str]:
        """Stretches of `text`, prepared as the model wants it, that no piece goes across."""
        return self._word.findall(self._pieces.processor.normalize(text))

    def numbers(self, parts: Sequence[str]) -> list[int]:
        """The pieces of text that is in these parts."""
        found: list[int] = []
        for is_known, some in groupby(parts, self._ids.__contains__):
            if is_known:
                found += [self._ids[part] for part in some]
            elif self._bytes:
                found += [self._bytes[byte] for part in some for byte in part.encode()]
            else:  # as the model itself has it, one for all of them
                found.append(self._unknown)
        return self._pieces.split(found)


class PieceMerging:
    """Merging of a SentencePiece model of BPE, as a `Merging`."""

    def __init__(self, pieces: Pieces) -> None:
        self._surfaces = Surfaces(pieces)
        scores = self._surfaces.scores
        ranks = {score: rank for rank, score in enumerate(sorted(set(scores.values()), reverse=True))}
        self._ranks = {piece: ranks[score] for piece, score in scores.items()}
        longest_first = sorted(self._surfaces.defined, key=len, reverse=True)
        self._part = re.compile("|".join([*map(re.escape, longest_first), "."]), re.DOTALL)
        self.numbers = self._surfaces.numbers

    def words(self, text: str) -> list[str]:
        """Of longer words than `LONGEST_WORD` as much as may be merged at once."""
        return [
            word[start : start + LONGEST_WORD]
            for word in self._surfaces.words(text)
            for start in range(0, len(word), LONGEST_WORD)
        ]

    def parts(self, word: str) -> tuple[str, ...]:
        """Characters, and pieces that the model was given: those are never merged further."""
        return tuple(self._part.findall(word))

    def rank(self, left: str, right: str) -> int | None:
        """By the score of what they are together."""
        if left in self._surfaces.defined or right in self._surfaces.defined:
            return None
        return self._ranks.get(left + right)
