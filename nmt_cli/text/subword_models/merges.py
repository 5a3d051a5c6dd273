"""Learning of byte-pair merges from word counts, with the same codes as subword-nmt, byte for byte."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any

from nmt_cli.text.subword_models.bpe import HEADER, WORD_END, Merge

MIN_COUNT = 2
"""Minimum count of a pair that is merged."""


class Candidate(tuple[int, Merge]):
    """A pair of pieces after its count. In a heap, the highest count comes first. Among equal counts, the
    last pair in the order of strings comes first."""

    __slots__ = ()

    def __lt__(self, other: tuple[Any, ...]) -> bool:
        """Return the opposite of the order of tuples, because `heapq` takes the minimum first."""
        return self > other


class Corpus:
    """Counted words in pieces, and the count of each pair of adjacent pieces."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._words = [[*word[:-1], word[-1] + WORD_END] for word in counts]
        self._word_counts = list(counts.values())
        self.pairs: Counter[Merge] = Counter()
        self._containing: dict[Merge, list[int]] = defaultdict(list)
        """The words that contain or once contained a pair, by number. One word may be listed repeatedly, but
        not for each of its occurrences in a long word."""
        for number, (word, count) in enumerate(zip(self._words, self._word_counts, strict=True)):
            for pair in pairwise(word):
                self.pairs[pair] += count
                self._list(pair, number)

    def merge(self, left: str, right: str) -> set[Merge]:
        """Join each `left` and `right` in all words. Update the counts, and return the new pairs."""
        new_pairs = set()
        joined = left + right
        for number in self._containing.pop((left, right)):
            before, count = self._words[number], self._word_counts[number]
            after = _joined(before, left, right)
            if len(after) == len(before):
                continue
            for pair in pairwise(before):
                self.pairs[pair] -= count
            for pair in pairwise(after):
                self.pairs[pair] += count
                if joined in pair:
                    self._list(pair, number)
                    new_pairs.add(pair)
            self._words[number] = after
        return new_pairs

    def _list(self, pair: Merge, number: int) -> None:
        """List word `number` for `pair`, unless it is the last in the list."""
        numbers = self._containing[pair]
        if not numbers or numbers[-1] != number:
            numbers.append(number)


def learn_codes(counts: Counter[str], merges: int) -> str:
    """Return a codes file with `merges` merges of counted words, or fewer if no other pair occurs twice.
    Ignore words that contain `WORD_END`. All merges have different results."""
    # Merges of a word that contains the learner's end mark could not be distinguished from others.
    words = {word: count for word, count in counts.items() if WORD_END not in word}
    learnt = islice(_merges(Corpus(words)), merges)
    return "\n".join([HEADER, *(f"{left} {right}" for left, right in learnt)]) + "\n"


def _merges(corpus: Corpus) -> Iterator[Merge]:
    """Yield the most frequent pair, merge it in `corpus`, and repeat. End if no pair occurs twice."""
    heap: list[Candidate] = []
    changed = set(corpus.pairs)
    while True:
        for pair in changed:
            if corpus.pairs[pair] >= MIN_COUNT:
                heapq.heappush(heap, Candidate((corpus.pairs[pair], pair)))
        if not heap:
            return
        count, best = heapq.heappop(heap)
        # A count only falls after the merge that creates its pair. So counts in the heap may be too high.
        if count > corpus.pairs[best]:
            changed = {best}
        else:
            yield best
            changed = corpus.merge(*best)


def _joined(pieces: list[str], left: str, right: str) -> list[str]:
    """Return `pieces` with each `left` and `right` joined, from left to right."""
    result: list[str] = []
    for piece in pieces:
        if piece == right and result and result[-1] == left:
            result[-1] += right
        else:
            result.append(piece)
    return result
