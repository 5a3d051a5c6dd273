"""BPE-dropout (Provilkov et al., 2020): segmentation that omits random merges.

Each merge takes a word from one state to the next. The states without any omitted merge are the word's path.
An omitted merge leads to another state, where a branch begins. A branch is also a path. Paths are
cached for the first words, which include the frequent ones. A cached word costs one look-up, and one more
for each omitted merge.
"""

import math
import random
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from nmt_cli.text.subword_models.subwords import LONGEST_WORD

MOST_STATES = 300_000
"""Maximum number of states in all cached paths. A state takes some hundred bytes."""

POSITIONS = 1 << LONGEST_WORD.bit_length()
"""More than the number of positions for a merge in a word."""

Parts = tuple[str, ...]
"""The parts of a word in a state, in the form of the model's `parts` and `rank`."""

Merges = list[int]
"""The possible merges in a state, sorted. Each is its rank times POSITIONS plus its position."""


class Merging(Protocol):
    """A model that forms pieces by merging pairs of parts."""

    def words(self, text: str) -> list[str]:
        """Split prepared text into words. No piece crosses the end of a word."""

    def parts(self, word: str) -> Parts:
        """Return the parts of a word before the first merge, such as its characters."""

    def rank(self, left: str, right: str) -> int | None:
        """Return the rank of merging two parts, or None if no such merge exists. Lower ranks go first."""

    def numbers(self, parts: Parts) -> list[int]:
        """Return the numbers of the pieces of a word, given in parts."""


@dataclass(slots=True, eq=False)
class _State:
    """A word in parts, its possible merges, and the branches that begin where a merge is omitted."""

    parts: Parts
    merges: Merges
    branches: "dict[int, _Path]" = field(default_factory=dict)
    """Paths by the merges that are done in this state. Bit i of the key is merge i."""


@dataclass(frozen=True, slots=True)
class _Path:
    """The states of a word from one state to the end if no merge is omitted."""

    course: list[_State]
    """The state before each merge. Merges of equal rank are done together, in the same state."""

    end: list[int]
    """The pieces after the last merge."""


class BpeDropout:
    """A segmentation by `model` that omits each possible merge with probability `rate` > 0 at every step."""

    def __init__(self, model: Merging, rate: float) -> None:
        self._model = model
        self._scale = 1 / math.log1p(-rate)
        self._random = random.Random()
        self._words: dict[str, _Path] = {}
        self._states = 0

    def encode(self, text: str, seed: int) -> list[int]:
        """Return the pieces of prepared `text`. The result depends only on `text` and `seed`."""
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
        """Draw at random how many merges are done before the next omitted merge."""
        # A geometric distribution needs one random number per omitted merge, not per merge.
        return int(math.log(1 - self._random.random()) * self._scale)

    def _word(self, word: str) -> _Path:
        path = self._path(self._model.parts(word))
        if self._has_room(path):
            self._words[word] = path
        return path

    def _walk(self, path: _Path, count: int) -> tuple[int, list[int]]:
        """Follow `path` and its branches to the end of a word. Do `count` merges, omit the next one, draw a
        new count, and repeat. Return the number of merges until the next omission, and the word's pieces."""
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
        """Choose the merges to do in a state: the kept merges of the first rank that has any. Keep `count`
        merges, omit the next one, draw a new `count`, and repeat. Return the merges until the next omission.
        Also return the choice, a key of `_State.branches`: bit i for merge i, 0 if none is kept."""
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
        """Return the path of a word, given in parts, to its end. Omit no merges."""
        course: list[_State] = []
        while merges := self._merges(parts):
            # Merges of equal rank are done at once, as in subword-nmt.
            equal = bisect_left(merges, (merges[0] // POSITIONS + 1) * POSITIONS)
            course += [_State(parts, merges)] * equal
            parts = _merged(parts, merges, (1 << equal) - 1)
        return _Path(course, self._model.numbers(parts))

    def _merges(self, parts: Parts) -> Merges:
        """Return the possible merges, sorted by rank and position. Over `LONGEST_WORD` parts have none."""
        # `Bpe` spells such words in characters. `PieceMerging` has none.
        if len(parts) > LONGEST_WORD:
            return []
        ranks = (self._model.rank(*pair) for pair in pairwise(parts))
        return sorted(
            [rank * POSITIONS + position for position, rank in enumerate(ranks) if rank is not None]
        )

    def _has_room(self, path: _Path) -> bool:
        """Return whether `path` fits in the cache. If so, count its states as cached."""
        states = len(path.course) + 1
        if self._states + states > MOST_STATES:
            return False
        self._states += states
        return True


def _merged(parts: Parts, merges: Merges, chosen: int) -> Parts:
    """Return the parts after the merges with a bit in `chosen`. If two overlap, do only the left merge."""
    result: list[str] = []
    end = 0
    for number, merge in enumerate(merges):
        position = merge % POSITIONS
        if chosen >> number & 1 and position >= end:
            result += [*parts[end:position], parts[position] + parts[position + 1]]
            end = position + 2
    return (*result, *parts[end:])
