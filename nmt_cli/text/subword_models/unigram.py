"""Drawing segmentations of a unigram model (Kudo, 2018), as a pure function of a seed.

SentencePiece draws such ones too, but after the same seed others in each process.
"""

import math
import random
from bisect import bisect
from itertools import accumulate

from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.subword_models.surfaces import Surfaces

MOST_CHOICES = 500_000
"""Most choices of all cached words together; a choice takes some hundred bytes."""

Choices = list[tuple[list[float], list[str]]]
"""For each place in a word the pieces that may end there, and how probable it is that one of them or of those
before it does; that of the last one, which is 1, is left out."""


class UnigramSampling:
    """Draws segmentations by their probability to the power of `alpha`."""

    def __init__(self, pieces: Pieces, alpha: float) -> None:
        self._surfaces = Surfaces(pieces)
        # As SentencePiece has it: more than any other way to put together the same text.
        scores = self._surfaces.scores | {piece: 0.1 * (len(piece) - 1) for piece in self._surfaces.defined}
        self._weights = {piece: alpha * score for piece, score in scores.items()}
        self._longest = max(map(len, self._weights), default=1)
        self._unknown = alpha * self._surfaces.unknown_score
        self._random = random.Random()
        self._words: dict[str, Choices] = {}
        self._room = MOST_CHOICES

    def encode(self, text: str, seed: int) -> list[int]:
        """The pieces of prepared `text`: a pure function of text and seed."""
        self._random.seed(seed)
        parts: list[str] = []
        for word in self._surfaces.words(text):
            parts += self._drawn(self._words.get(word) or self._word(word))
        return self._surfaces.numbers(parts)

    def _drawn(self, choices: Choices) -> list[str]:
        """The last piece first, then the last one of what is before it, and so on."""
        parts, place = [], len(choices)
        while place:
            shares, pieces = choices[place - 1]
            parts.append(pieces[bisect(shares, self._random.random())])
            place -= len(parts[-1])
        return parts[::-1]

    def _word(self, word: str) -> Choices:
        """What may end at each place, by how probable all ways up to it are that end so."""
        choices: Choices = []
        ways = [0.0]  # logarithm of the sum over all ways up to each place
        for end in range(1, len(word) + 1):
            starts = range(max(0, end - self._longest), end)
            found = [piece for start in starts if (piece := word[start:end]) in self._weights]
            weights = [ways[end - len(piece)] + self._weights[piece] for piece in found]
            if word[end - 1] not in self._weights:
                found.append(word[end - 1])
                weights.append(ways[end - 1] + self._unknown)
            most = max(weights)
            sums = list(accumulate(math.exp(weight - most) for weight in weights))
            ways.append(most + math.log(sums[-1]))
            choices.append(([each / sums[-1] for each in sums[:-1]], found))
        more = sum(len(found) for _, found in choices)
        if more <= self._room:
            self._room -= more
            self._words[word] = choices
        return choices
