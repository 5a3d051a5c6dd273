"""BPE-dropout (Provilkov et al., 2020): segmentation that omits random merges.

A word goes through states. A state is the word in parts, and a merge of two parts leads to the next state.
The sequence of states in which no merge is omitted is the word's path. If a merge is omitted, the word
reaches a state outside of its path, from which a new path begins: a branch.

Paths are cached for the first words, and these include the frequent ones. A cached word costs one look-up,
and one more for each omitted merge.
"""

import math
import random
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from nmt_cli.text.subword_models.subwords import LONGEST_WORD

MOST_STATES = 300_000
"""The maximum number of states in all cached paths. A state takes some hundred bytes."""

POSITIONS = 1 << LONGEST_WORD.bit_length()
"""A number above that of any position of a merge in a word."""

Parts = tuple[str, ...]
"""The parts of a word in one state."""

Merges = list[int]
"""The merges that are possible in a state, sorted. Each is the number rank * `POSITIONS` + position."""


class Merging(Protocol):
    """A model that forms the pieces of a word by merging adjacent parts."""

    def words(self, text: str) -> list[str]:
        """Split prepared text into words that no piece crosses."""

    def parts(self, word: str) -> Parts:
        """Return the parts of a word before the first merge, such as its characters."""

    def rank(self, left: str, right: str) -> int | None:
        """Return the rank of the merge of two parts, or None if the model does not have it. Merges of lower
        rank are done first."""

    def numbers(self, parts: Parts) -> list[int]:
        """Return the numbers of the pieces of a word that is cut into parts."""


@dataclass(slots=True, eq=False)
class _State:
    """A state of a word: its parts, the merges that are possible, and the branches that begin here."""

    parts: Parts
    merges: Merges
    branches: "dict[int, _Path]" = field(default_factory=dict)
    """The path of each branch. The key has bit i set if merge i is done here. Merges without a bit are
    omitted."""


@dataclass(frozen=True, slots=True)
class _Path:
    """The states that a word passes from one state to the end if no merge is omitted."""

    course: list[_State]
    """The state before each merge. Merges of equal rank are done together, so their state is repeated."""

    end: list[int]
    """The numbers of the pieces after the last merge."""


class BpeDropout:
    """A segmentation by the merges of `model` in which each possible merge is omitted with probability
    `rate`, at every step. `rate` must be above 0."""

    def __init__(self, model: Merging, rate: float) -> None:
        self._model = model
        self._scale = 1 / math.log1p(-rate)
        self._random = random.Random()
        self._words: dict[str, _Path] = {}
        self._states = 0

    def encode(self, text: str, seed: int) -> list[int]:
        """Segment prepared text at random, and return the numbers of its pieces. The result depends only on
        `text` and `seed`."""
        self._random.seed(seed)
        pieces: list[int] = []
        count = self._run()
        for word in self._model.words(text):
            path = self._words.get(word) or self._word(word)
            merges = len(path.course)
            if merges <= count:
                count -= merges
                pieces += path.end
            else:
                count, end = self._walk(path, count)
                pieces += end
        return pieces

    def _run(self) -> int:
        """Draw the number of merges that are done before the next omitted merge."""
        # A geometric distribution needs one random number per omitted merge, not per merge.
        return int(math.log(1 - self._random.random()) * self._scale)

    def _word(self, word: str) -> _Path:
        path = self._path(self._model.parts(word))
        if self._has_room(path):
            self._words[word] = path
        return path

    def _walk(self, path: _Path, count: int) -> tuple[int, list[int]]:
        """Follow the path of a word to its end, with random omissions.

        `count` merges are done before the next omission. After each omission, a new count is drawn, and the
        word continues on a branch. Return the merges that are left of the last count, and the numbers of the
        word's pieces.
        """
        while count < len(path.course):
            state = path.course[count]
            count, chosen = self._choose(state.merges, count - path.course.index(state))
            if not chosen:
                return count, self._model.numbers(state.parts)
            branch = state.branches.get(chosen)
            if not branch:
                branch = self._path(_merged(state.parts, state.merges, chosen))
                if self._has_room(branch):
                    state.branches[chosen] = branch
            path = branch
        return count - len(path.course), path.end

    def _choose(self, merges: Merges, count: int) -> tuple[int, int]:
        """Draw the merges to do in a state. All of them have the same rank, the first that is not omitted
        completely.

        `count` merges are kept before the next omission. Return the merges that are left of the last count,
        and the choice as a key of `_State.branches`, which is 0 if all merges are omitted.
        """
        chosen = rank = 0
        for number, merge in enumerate(merges):
            if chosen and merge // POSITIONS != rank:
                break
            if count:
                count, chosen, rank = count - 1, chosen | 1 << number, merge // POSITIONS
            else:
                count = self._run()
        return count, chosen

    def _path(self, parts: Parts) -> _Path:
        """Return the path of a word, given in parts."""
        course: list[_State] = []
        while merges := self._merges(parts):
            # Merges of equal rank are done at once, as in subword-nmt.
            equal = bisect_left(merges, (merges[0] // POSITIONS + 1) * POSITIONS)
            course += [_State(parts, merges)] * equal
            parts = _merged(parts, merges, (1 << equal) - 1)
        return _Path(course, self._model.numbers(parts))

    def _merges(self, parts: Parts) -> Merges:
        """Return the possible merges of a word in parts, sorted by rank and position. A word with more than
        `LONGEST_WORD` parts is never merged."""
        # `Bpe` spells such words in characters. `PieceMerging` has none.
        if len(parts) > LONGEST_WORD:
            return []
        ranks = (self._model.rank(*pair) for pair in pairwise(parts))
        return sorted(
            [rank * POSITIONS + position for position, rank in enumerate(ranks) if rank is not None]
        )

    def _has_room(self, path: _Path) -> bool:
        """Return whether `path` fits in the cache. If so, its states count as cached from now on."""
        states = len(path.course) + 1
        if self._states + states > MOST_STATES:
            return False
        self._states += states
        return True


def _merged(parts: Parts, merges: Merges, chosen: int) -> Parts:
    """Return the parts of a word after some of its `merges`. Merge i is done if bit i of `chosen` is set. Of
    two overlapping merges, only the left one is done."""
    result: list[str] = []
    end = 0
    for number, merge in enumerate(merges):
        position = merge % POSITIONS
        if chosen >> number & 1 and position >= end:
            result += [*parts[end:position], parts[position] + parts[position + 1]]
            end = position + 2
    return (*result, *parts[end:])
