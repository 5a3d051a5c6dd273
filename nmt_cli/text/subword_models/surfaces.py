"""The pieces of a SentencePiece model by their surfaces, for random segmentation without SentencePiece."""

import re
from collections.abc import Sequence
from itertools import groupby

from nmt_cli.text.normalize import SPACE_MARK
from nmt_cli.text.subword_models.model_file import defined
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.subword_models.subwords import BYTES, LONGEST_WORD

UNKNOWN = -10.0
"""Log-probability of a character without a piece, relative to the rarest piece, as in SentencePiece."""


class Surfaces:
    """The pieces of a SentencePiece model by their surfaces. A surface is the text of a piece, with U+2581
    for each space. Special tokens and bytes have no surface."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces, processor = pieces, pieces.processor
        text = ((i, piece) for i, piece in enumerate(pieces.entries) if not processor.is_byte(i))
        self._ids = {piece: i for i, piece in text if piece is not None}
        self._unknown = processor.unk_id()
        self._bytes = [i for byte in BYTES if processor.is_byte(i := processor.piece_to_id(byte))]
        written = pieces.written
        self.defined = {written[i] for i in defined(pieces.files()["model"])} & self._ids.keys()
        """Surfaces of user-defined pieces."""
        self.scores = {piece: processor.get_score(i) for piece, i in self._ids.items()}
        """Log-probabilities of a unigram model. In a BPE model, a higher score is an earlier merge."""
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
        """Normalise `text` as the model does, and split it into words that no piece crosses. A word may
        include spaces around it. If pieces can cross words, the whole text is one word."""
        return self._word.findall(self._pieces.processor.normalize(text))

    def numbers(self, parts: Sequence[str]) -> list[int]:
        """Return the pieces of a text, given in parts. A part without a piece becomes bytes. If the model has
        no bytes, each run of such parts becomes one unknown piece. Split pieces that are too rare."""
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
    """The merges of a SentencePiece model of BPE, for BPE-dropout."""

    def __init__(self, pieces: Pieces) -> None:
        self._surfaces = Surfaces(pieces)
        scores = self._surfaces.scores
        ranks = {score: rank for rank, score in enumerate(sorted(set(scores.values()), reverse=True))}
        self._ranks = {piece: ranks[score] for piece, score in scores.items()}
        longest_first = sorted(self._surfaces.defined, key=len, reverse=True)
        self._part = re.compile("|".join([*map(re.escape, longest_first), "."]), re.DOTALL)
        self.numbers = self._surfaces.numbers

    def words(self, text: str) -> list[str]:
        """Split prepared text into words that no piece crosses. Cut words after `LONGEST_WORD` characters."""
        return [
            word[start : start + LONGEST_WORD]
            for word in self._surfaces.words(text)
            for start in range(0, len(word), LONGEST_WORD)
        ]

    def parts(self, word: str) -> tuple[str, ...]:
        """Return the parts of a word before the first merge: its characters and user-defined pieces."""
        return tuple(self._part.findall(word))

    def rank(self, left: str, right: str) -> int | None:
        """Return the rank of a merge. The higher the score of the merged piece, the lower the rank. Return
        None if there is no such piece, or either part is user-defined."""
        if left in self._surfaces.defined or right in self._surfaces.defined:
            return None
        return self._ranks.get(left + right)
