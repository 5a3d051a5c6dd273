"""BPE-dropout (Provilkov et al., 2020): words segmented with some of the merges left out, at random.

Merging takes a word from state to state, its parts getting fewer; where no merge is left out, these states
are the word's path. Leaving one out leads to another state, from which a path of its own goes on. Paths are
cached for the words that come first, among which the frequent ones are, with the branches taken so far: such
a word costs a look-up, and one more for each merge that is left out.
"""

import math
import random
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from nmt_cli.text.subword_models.subwords import LONGEST_WORD

MOST_STATES = 300_000
"""Most states of all cached paths together; a state takes some hundred bytes."""

PLACES = 1 << LONGEST_WORD.bit_length()
"""More than there are places for a merge in a word."""

Parts = tuple[str, ...]
"""The parts that a word is in at some state, as the model's `parts` and `rank` have them."""

Merges = list[int]
"""The merges that are possible in a state, in the order of their ranks: each is its rank times PLACES, plus
the number of its left part."""


class Merging(Protocol):
    """A model that makes its pieces by merging pairs."""

    def words(self, text: str) -> list[str]:
        """Prepared text in stretches that no merge goes across."""

    def parts(self, word: str) -> Parts:
        """The parts that a word is in before any merge."""

    def rank(self, left: str, right: str) -> int | None:
        """Which merge these parts are, the first ones to be done having the least ranks; None for none."""

    def numbers(self, parts: Parts) -> list[int]:
        """The pieces of a word that is in these parts."""


@dataclass(slots=True, eq=False)
class _State:
    """A word in parts, what can be merged in it, and the paths that lead on from it after a merge was left
    out."""

    parts: Parts
    merges: Merges
    branches: "dict[int, _Path]" = field(default_factory=dict)
    """Paths by which of `merges` are done in this state: bit i of the key stands for merge i."""


@dataclass(frozen=True, slots=True)
class _Path:
    """What a word goes through from some state on if no merge is left out."""

    course: list[_State]
    """For each merge the state that it is done in; merges of one rank are done in the same state,
    together."""

    end: list[int]
    """The pieces at the end, where nothing can be merged any more."""


class BpeDropout:
    """Segments as `model`, but leaves out each merge with probability `rate` whenever it could be done."""

    def __init__(self, model: Merging, rate: float) -> None:
        self._model = model
        self._scale = 1 / math.log1p(-rate)
        self._random = random.Random()
        self._words: dict[str, _Path] = {}
        self._states = 0

    def encode(self, text: str, seed: int) -> list[int]:
        """The pieces of prepared `text`: a pure function of text and seed."""
        self._random.seed(seed)
        pieces: list[int] = []
        kept = self._run()
        for word in self._model.words(text):
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
        """Draw how many merges are kept before the next one that is left out."""
        # A geometric distribution: one number for each merge left out, not for each merge.
        return int(math.log(1 - self._random.random()) * self._scale)

    def _word(self, word: str) -> _Path:
        path = self._path(self._model.parts(word))
        if self._room_for(path):
            self._words[word] = path
        return path

    def _walk(self, path: _Path, kept: int) -> tuple[int, list[int]]:
        """Follow `path`, leaving out the merge after the next `kept` ones, and so on.

        Returns how many merges are still to be kept after this word, and the word's pieces.
        """
        while kept < len(path.course):
            state = path.course[kept]
            kept, chosen = self._choose(state.merges, kept - path.course.index(state))
            if not chosen:
                return kept, self._model.numbers(state.parts)
            branch = state.branches.get(chosen)
            if not branch:
                branch = self._path(_merged(state.parts, state.merges, chosen))
                if self._room_for(branch):
                    state.branches[chosen] = branch
            path = branch
        return kept - len(path.course), path.end

    def _choose(self, merges: Merges, kept: int) -> tuple[int, int]:
        """Choose which merges are done in a state, given that the next `kept` are kept.

        Returns how many are still to be kept after it, and the key of `_State.branches`: merges of the lowest
        rank that was not wholly left out, or 0 if all were.
        """
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
        """The path of a word in these parts."""
        course: list[_State] = []
        while merges := self._merges(parts):
            # Merges of one rank are done at once, as subword-nmt does.
            equal = bisect_left(merges, (merges[0] // PLACES + 1) * PLACES)
            course += [_State(parts, merges)] * equal
            parts = _merged(parts, merges, (1 << equal) - 1)
        return _Path(course, self._model.numbers(parts))

    def _merges(self, parts: Parts) -> Merges:
        # As in `Bpe`, which spells such words; a `PieceMerging` has none.
        if len(parts) > LONGEST_WORD:
            return []
        ranks = (self._model.rank(*pair) for pair in pairwise(parts))
        return sorted([rank * PLACES + place for place, rank in enumerate(ranks) if rank is not None])

    def _room_for(self, path: _Path) -> bool:
        """Whether `path` may be cached; if so, its states are counted."""
        more = len(path.course) + 1
        if self._states + more > MOST_STATES:
            return False
        self._states += more
        return True


def _merged(parts: Parts, merges: Merges, chosen: int) -> Parts:
    """The parts after the chosen merges, bits as in `_State.branches`; of two that overlap the left one is
    done."""
    whole: list[str] = []
    done = 0
    for number, merge in enumerate(merges):
        place = merge % PLACES
        if chosen >> number & 1 and place >= done:
            whole += [*parts[done:place], parts[place] + parts[place + 1]]
            done = place + 2
    return (*whole, *parts[done:])
