"""What text may fall into by a SentencePiece model, for those who segment it themselves."""

import re
from collections.abc import Sequence
from itertools import groupby

from nmt_cli.text.model_file import symbols
from nmt_cli.text.normalize import BLANK_MARK
from nmt_cli.text.pieces import Pieces
from nmt_cli.text.subwords import BYTES, LONGEST_WORD

SYMBOL_SCORE = -0.1
"""What SentencePiece takes as the logarithm of the probability of symbols that the model was given."""

WORD = re.compile(rf"{BLANK_MARK}*[^{BLANK_MARK}]{{1,{LONGEST_WORD}}}|{BLANK_MARK}+")
"""A word of text as SentencePiece prepares it, or as much of it as is segmented at once."""

LINE = re.compile(f".{{1,{LONGEST_WORD}}}", re.DOTALL)
"""The same where pieces go across words."""


class Surfaces:
    """Pieces by how they are written; merging those of a BPE model is as `Merging` has it."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        processor, entries = pieces.processor, pieces.entries
        written = ((i, piece) for i, piece in enumerate(entries) if not processor.is_byte(i))
        self._numbers = {piece: i for i, piece in written if piece is not None}
        self._symbols = {piece for i in symbols(pieces.files()["model"]) if (piece := entries[i]) is not None}
        scores = {piece: processor.get_score(i) for piece, i in self._numbers.items()}
        ranks = {score: rank for rank, score in enumerate(sorted(set(scores.values()), reverse=True))}
        self._ranks = {piece: ranks[score] for piece, score in scores.items()}
        self.scores = scores | dict.fromkeys(self._symbols, SYMBOL_SCORE)
        """Logarithms of probabilities, by a unigram model."""
        self._unknown = processor.unk_id()
        self._bytes = [i for byte in BYTES if processor.is_byte(i := processor.piece_to_id(byte))]
        longest_first = sorted(self._symbols, key=len, reverse=True)
        self._part = re.compile("|".join([*map(re.escape, longest_first), "."]), re.DOTALL)
        across = any(BLANK_MARK in piece.lstrip(BLANK_MARK) for piece in self._numbers)
        self._stretch = LINE if across else WORD

    def words(self, text: str) -> list[str]:
        """Stretches of `text`, prepared as the model wants it, that no piece goes across."""
        return self._stretch.findall(self._pieces.processor.normalize(text))

    def parts(self, word: str) -> tuple[str, ...]:
        """Characters, and symbols that the model was given."""
        return tuple(self._part.findall(word))

    def rank(self, left: str, right: str) -> int | None:
        """By the score of what they are together; symbols stay as they are."""
        if left in self._symbols or right in self._symbols:
            return None
        return self._ranks.get(left + right)

    def numbers(self, parts: Sequence[str]) -> list[int]:
        """The pieces of text that is in these parts."""
        known = self._numbers
        found: list[int] = []
        for is_known, some in groupby(parts, known.__contains__):
            if is_known:
                found += [known[part] for part in some]
            elif self._bytes:
                found += [self._bytes[byte] for part in some for byte in part.encode()]
            else:  # as the model itself has it, one for all of them
                found.append(self._unknown)
        return self._pieces.split(found)
