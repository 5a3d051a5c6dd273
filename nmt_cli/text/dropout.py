"""BPE-dropout (Provilkov et al., 2020): words segmented with some of the merges left out, at random.

What becomes of a word is a path of merges, which branches where one is left out. Paths of the words that come
first, mostly the frequent ones, are kept: such a word costs a look-up, and one more for each merge left out.
"""

import math
import random
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise

from nmt_cli.text.bpe import LONGEST_WORD, WORD_END, Bpe

MOST_STATES = 300_000
"""Of all paths that are kept; a state takes some hundred bytes."""

PLACES = 1 << LONGEST_WORD.bit_length()

Parts = tuple[str, ...]
"""Of a word on its way; the last one has the mark of a word's end, as in codes."""

Merges = list[int]
"""What can be merged, in the order of the codes: each merge's rank times PLACES, plus its place."""


@dataclass(slots=True, eq=False)
class _State:
    parts: Parts
    merges: Merges
    branches: "dict[int, _Path]" = field(default_factory=dict)
    """Where it goes on when the first merge is not done; bit i of the key tells whether merge i is done."""


@dataclass(frozen=True, slots=True)
class _Path:
    """What follows where all merges are kept."""

    course: list[_State]
    """The state that each merge is done in; those of one rank are done in the same one."""

    end: list[int]
    """The pieces it ends in."""


class BpeDropout:
    """Segments as `bpe` does, but leaves out each merge with probability `rate` whenever it could be done."""

    def __init__(self, bpe: Bpe, rate: float) -> None:
        self._bpe = bpe
        self._scale = 1 / math.log1p(-rate)
        self._random = random.Random()
        self._words: dict[str, _Path] = {}
        self._states = 0

    def encode(self, text: str, seed: int) -> list[int]:
        """The pieces of `text`: a pure function of both."""
        self._random.seed(seed)
        pieces: list[int] = []
        kept = self._run()
        for word in text.split():
            path = self._words.get(word) or self._word(word)
            merges = len(path.course)
            if merges <= kept:
                kept -= merges
                pieces += path.end
            else:
                kept, end = self._walk(path, kept)
                pieces += end
        return pieces

    def _run(self) -> int:
        """How many merges are kept before the next one that is left out."""
        return int(math.log(1 - self._random.random()) * self._scale)

    def _word(self, word: str) -> _Path:
        path = self._path((*word[:-1], word[-1] + WORD_END))
        if self._room_for(path):
            self._words[word] = path
        return path

    def _walk(self, path: _Path, kept: int) -> tuple[int, list[int]]:
        """The pieces at the end if the next `kept` merges are kept; and how many are kept behind it."""
        while kept < len(path.course):
            state = path.course[kept]
            kept, chosen = self._choose(state.merges, kept - path.course.index(state))
            if not chosen:
                return kept, self._numbers(state.parts)
            branch = state.branches.get(chosen)
            if not branch:
                branch = self._path(_merged(state.parts, state.merges, chosen))
                if self._room_for(branch):
                    state.branches[chosen] = branch
            path = branch
        return kept - len(path.course), path.end

    def _choose(self, merges: Merges, kept: int) -> tuple[int, int]:
        """How many merges are kept behind this state, and which are done in it, all of one rank."""
        chosen = rank = 0
        for number, merge in enumerate(merges):
            if chosen and merge // PLACES != rank:
                break
            if kept:
                kept, chosen, rank = kept - 1, chosen | 1 << number, merge // PLACES
            else:
                kept = self._run()
        return kept, chosen

    def _path(self, parts: Parts) -> _Path:
        course: list[_State] = []
        while merges := self._merges(parts):
            equal = bisect_left(merges, (merges[0] // PLACES + 1) * PLACES)
            course += [_State(parts, merges)] * equal
            parts = _merged(parts, merges, (1 << equal) - 1)
        return _Path(course, self._numbers(parts))

    def _merges(self, parts: Parts) -> Merges:
        if len(parts) > LONGEST_WORD:
            return []
        ranks, pairs = self._bpe.ranks, enumerate(pairwise(parts))
        return sorted([ranks[pair] * PLACES + place for place, pair in pairs if pair in ranks])

    def _numbers(self, parts: Parts) -> list[int]:
        return self._bpe.numbers_of(self._bpe.common((*parts[:-1], parts[-1].removesuffix(WORD_END))))

    def _room_for(self, path: _Path) -> bool:
        """Whether it can be kept, in which case it is counted."""
        more = len(path.course) + 1
        if self._states + more > MOST_STATES:
            return False
        self._states += more
        return True


def _merged(parts: Parts, merges: Merges, chosen: int) -> Parts:
    """What comes of the chosen merges, which have one rank; of two that overlap the first one is done."""
    whole: list[str] = []
    done = 0
    for number, merge in enumerate(merges):
        place = merge % PLACES
        if chosen >> number & 1 and place >= done:
            whole += [*parts[done:place], parts[place] + parts[place + 1]]
            done = place + 2
    return (*whole, *parts[done:])
