"""The pieces of a SentencePiece model by their surfaces, for random segmentation.

A surface is the text of a piece, with U+2581 for each space. We sample without SentencePiece, because its
segmentations differ from process to process.
"""

import re
from collections.abc import Sequence
from itertools import groupby

from nmt_cli.text.normalize import SPACE_MARK
from nmt_cli.text.subword_models.model_file import defined
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.subword_models.subwords import BYTES, LONGEST_WORD

UNKNOWN = -10.0
"""The log-probability of a character that has no piece, relative to the rarest piece. SentencePiece has the
same."""


class Surfaces:
    """The pieces of a SentencePiece model by their surfaces. Special tokens and pieces for bytes have no
    surface."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces, processor = pieces, pieces.processor
        text = ((i, piece) for i, piece in enumerate(pieces.entries) if not processor.is_byte(i))
        self._ids = {piece: i for i, piece in text if piece is not None}
        self._unknown = processor.unk_id()
        self._bytes = [i for byte in BYTES if processor.is_byte(i := processor.piece_to_id(byte))]
        written = pieces.written
        self.defined = {written[i] for i in defined(pieces.files()["model"])} & self._ids.keys()
        """The surfaces of pieces that the user defined."""
        self.scores = {piece: processor.get_score(i) for piece, i in self._ids.items()}
        """The score of each surface. In a unigram model, it is a log-probability. In a BPE model, a higher
        score means an earlier merge."""
        learnt = [score for piece, score in self.scores.items() if piece not in self.defined]
        self.unknown_score = min(learnt, default=0.0) + UNKNOWN
        space, other = f"{SPACE_MARK}+", f"[^{SPACE_MARK}]+"
        # Words with the spaces before them, as in most models, or after them, or pieces that cross words.
        patterns = (f"(?:{space})?{other}|{space}", f"{other}(?:{space})?|{space}", ".+")
        self._word = next(
            word
            for pattern in patterns
            if all((word := re.compile(pattern, re.DOTALL)).fullmatch(piece) for piece in self._ids)
        )

    def words(self, text: str) -> list[str]:
        """Normalise `text` as the model does, and split it into words. No piece crosses the border of two
        words.

        A word includes the spaces before it, or after it, as in the model's pieces. If pieces may cross
        words, the whole text is one word.
        """
        return self._word.findall(self._pieces.processor.normalize(text))

    def numbers(self, parts: Sequence[str]) -> list[int]:
        """Return the numbers of the pieces of a text that is cut into `parts`.

        A part that has no piece becomes bytes. If the model has no bytes, adjacent parts without a piece
        become one unknown piece. Pieces that are too rare are split.
        """
        pieces: list[int] = []
        for has_piece, run in groupby(parts, self._ids.__contains__):
            if has_piece:
                pieces += [self._ids[part] for part in run]
            elif self._bytes:
                pieces += [self._bytes[byte] for part in run for byte in part.encode()]
            else:  # one for the whole run, as in SentencePiece
                pieces.append(self._unknown)
        return self._pieces.split(pieces)


class PieceMerging:
    """A SentencePiece model of BPE in the form that BPE-dropout needs: its merges with their ranks."""

    def __init__(self, pieces: Pieces) -> None:
        self._surfaces = Surfaces(pieces)
        scores = self._surfaces.scores
        # The file has no list of merges. But the scores of pieces fall in the order in which merges were
        # learnt.
        ranks = {score: rank for rank, score in enumerate(sorted(set(scores.values()), reverse=True))}
        self._ranks = {piece: ranks[score] for piece, score in scores.items()}
        longest_first = sorted(self._surfaces.defined, key=len, reverse=True)
        self._part = re.compile("|".join([*map(re.escape, longest_first), "."]), re.DOTALL)
        self.numbers = self._surfaces.numbers

    def words(self, text: str) -> list[str]:
        """Split prepared text into words that no piece crosses. A word that is longer than `LONGEST_WORD` is
        cut."""
        return [
            word[start : start + LONGEST_WORD]
            for word in self._surfaces.words(text)
            for start in range(0, len(word), LONGEST_WORD)
        ]

    def parts(self, word: str) -> tuple[str, ...]:
        """Return the parts of a word before any merge: its characters, and pieces that the user defined."""
        return tuple(self._part.findall(word))

    def rank(self, left: str, right: str) -> int | None:
        """Return the rank of a merge, or None if the model has no such merge. Merges of lower rank are done
        first.

        Pieces that the user defined are never merged.
        """
        if left in self._surfaces.defined or right in self._surfaces.defined:
            return None
        return self._ranks.get(left + right)
