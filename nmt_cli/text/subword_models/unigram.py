"""Random segmentations of a unigram model (Kudo, 2018) that depend only on a seed.

SentencePiece samples from the same distribution, but after the same seed it draws other segmentations in each
process. A word is drawn backwards: at the end of the word, one of the pieces that may end there is chosen,
and so on up to its start.
"""

import math
import random
from bisect import bisect
from itertools import accumulate

from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.subword_models.surfaces import Surfaces

MOST_CHOICES = 500_000
"""The maximum number of choices in all cached words. A choice takes some hundred bytes."""

Choices = list[tuple[list[float], list[str]]]
"""For each position in a word: the pieces that may end there, and their cumulative probabilities. The last
probability is always 1 and is left out."""


class UnigramSampling:
    """A source of random segmentations. Each segmentation is drawn with a probability proportional to its
    probability in the model, raised to the power `alpha`."""

    def __init__(self, pieces: Pieces, alpha: float) -> None:
        self._surfaces = Surfaces(pieces)
        # The score in SentencePiece: higher than that of any other segmentation of the same text.
        scores = self._surfaces.scores | {piece: 0.1 * (len(piece) - 1) for piece in self._surfaces.defined}
        self._weights = {piece: alpha * score for piece, score in scores.items()}
        self._longest = max(map(len, self._weights), default=1)
        self._unknown = alpha * self._surfaces.unknown_score
        self._random = random.Random()
        self._words: dict[str, Choices] = {}
        self._free_choices = MOST_CHOICES

    def encode(self, text: str, seed: int) -> list[int]:
        """Segment prepared text at random, and return the numbers of its pieces. The result depends only on
        `text` and `seed`."""
        self._random.seed(seed)
        parts: list[str] = []
        for word in self._surfaces.words(text):
            parts += self._drawn(self._words.get(word) or self._word(word))
        return self._surfaces.numbers(parts)

    def _drawn(self, choices: Choices) -> list[str]:
        """Draw the pieces of a word, given its `choices`. Return the texts of the pieces in reading order."""
        parts, end = [], len(choices)
        while end:
            cumulative, pieces = choices[end - 1]
            parts.append(pieces[bisect(cumulative, self._random.random())])
            end -= len(parts[-1])
        return parts[::-1]

    def _word(self, word: str) -> Choices:
        """Compute the choices of a word, and cache them if there is room. A character that has no piece is a
        choice with the score of an unknown piece."""
        choices: Choices = []
        totals = [0.0]  # logarithm of the total weight of all segmentations up to each position
        for end in range(1, len(word) + 1):
            starts = range(max(0, end - self._longest), end)
            pieces = [piece for start in starts if (piece := word[start:end]) in self._weights]
            weights = [totals[end - len(piece)] + self._weights[piece] for piece in pieces]
            if word[end - 1] not in self._weights:
                pieces.append(word[end - 1])
                weights.append(totals[end - 1] + self._unknown)
            # The maximum is subtracted first, since `exp` of a long word's weight would be 0.
            maximum = max(weights)
            sums = list(accumulate(math.exp(weight - maximum) for weight in weights))
            totals.append(maximum + math.log(sums[-1]))
            choices.append(([partial / sums[-1] for partial in sums[:-1]], pieces))
        count = sum(len(pieces) for _, pieces in choices)
        if count <= self._free_choices:
            self._free_choices -= count
            self._words[word] = choices
        return choices
