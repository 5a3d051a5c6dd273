"""Learning of byte-pair merges from counted words.

The result is equal to that of subword-nmt, byte for byte. Each merge joins the most frequent pair of adjacent
pieces in all words. A file of merges is called codes.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any

from nmt_cli.text.subword_models.bpe import HEADER, WORD_END, Merge

MIN_COUNT = 2
"""The minimum count of a pair that is merged."""


class CountedPair(tuple[int, Merge]):
    """A pair of pieces with its count, ordered for a heap: the highest count comes first. Among equal counts,
    the pair that is last in the order of strings comes first, as in subword-nmt."""

    __slots__ = ()

    def __lt__(self, other: tuple[Any, ...]) -> bool:
        """Return the opposite of the order of tuples, because `heapq` returns the smallest item first."""
        return self > other


class CountedWords:
    """Words in pieces with their counts, and the count of each pair of adjacent pieces."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._words = [[*word[:-1], word[-1] + WORD_END] for word in counts]
        self._word_counts = list(counts.values())
        self.pairs: Counter[Merge] = Counter()
        self._containing: dict[Merge, list[int]] = defaultdict(list)
        """The numbers of the words that contain a pair, or contained it before a merge. A number may be
        listed repeatedly."""
        for number, (word, count) in enumerate(zip(self._words, self._word_counts, strict=True)):
            for pair in pairwise(word):
                self.pairs[pair] += count
                self._list(pair, number)

    def merge(self, left: str, right: str) -> set[Merge]:
        """Join `left` and `right` wherever they are adjacent, and update the counts. Return the pairs that
        this created."""
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
        """Add word `number` to the list for `pair`, unless it is the last one there already."""
        numbers = self._containing[pair]
        # A word that is listed twice costs little, but a long word of one letter has a pair hundreds of
        # times.
        if not numbers or numbers[-1] != number:
            numbers.append(number)


def learn_codes(counts: Counter[str], merges: int) -> str:
    """Learn up to `merges` merges from counted words, and return the content of a codes file.

    There are fewer merges if no other pair occurs twice. Words that contain `WORD_END` are ignored.
    """
    # Merges of a word that contains the learner's end mark could not be distinguished from others.
    words = {word: count for word, count in counts.items() if WORD_END not in word}
    learnt = islice(_merges(CountedWords(words)), merges)
    return "\n".join([HEADER, *(f"{left} {right}" for left, right in learnt)]) + "\n"


def _merges(words: CountedWords) -> Iterator[Merge]:
    """Yield the merges of `words` in order, and apply each to it. End when no pair occurs twice."""
    heap: list[CountedPair] = []
    changed = set(words.pairs)
    while True:
        for pair in changed:
            if words.pairs[pair] >= MIN_COUNT:
                heapq.heappush(heap, CountedPair((words.pairs[pair], pair)))
        if not heap:
            return
        count, best = heapq.heappop(heap)
        # A count only falls after the merge that creates its pair. So counts in the heap may be too high.
        if count > words.pairs[best]:
            changed = {best}
        else:
            yield best
            changed = words.merge(*best)


def _joined(pieces: list[str], left: str, right: str) -> list[str]:
    """Return `pieces` with each `left` followed by `right` joined, from left to right."""
    result: list[str] = []
    for piece in pieces:
        if piece == right and result and result[-1] == left:
            result[-1] += right
        else:
            result.append(piece)
    return result
