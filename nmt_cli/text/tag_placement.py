"""Put the inline elements of a source text into its translation, by the alignment of words."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from nmt_cli.text.markup import Element

SPACELESS = "\u2e80-\u2fdf\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Scripts without spaces between words."""

MARKS = "!-/:-@\\[-`{-~¡-©«¬®°±¶·»¿\u2010-\u205e\u3000-\u3004\uff00-\uff0f\uff1a-\uff20"
WORD = rf"[^\s{MARKS}{SPACELESS}]+"
MARK = re.compile(rf"[{MARKS}]")
UNIT = re.compile(rf"[{SPACELESS}]|{WORD}(?:[-'’.,:/@&_]+{WORD})*|[^\s{SPACELESS}]")

THRESHOLD = 0.6
"""A target unit belongs to an element if it attends to the element with more than this share."""

MIN_SHARE = 0.05
"""An element is empty in the translation if no unit there has this share in its source units."""

Shares = NDArray[np.float32]
"""[target units, source units]: the share of each source unit in the attention of each target unit. A row may
sum to less than 1, since the model may attend to the end of the source."""

Span = tuple[int, int]
"""The first index, and the last index + 1."""


@dataclass(frozen=True, slots=True)
class AlignedPart:
    """The alignment of a sentence, as part of a longer text."""

    source: int
    """Index of the sentence's first source unit in the text."""

    target: int
    """Index of the first unit of its translation."""

    shares_TS: Shares


def units(text: str) -> list[Span]:
    """Return the characters of each unit of `text`, in order. A unit is a word, a punctuation mark, or a
    character of a script in `SPACELESS`."""
    return [unit.span() for unit in UNIT.finditer(text)]


def placed(
    source: str,
    elements: Sequence[Element],
    target: str,
    parts: Sequence[AlignedPart],
    escape: Callable[[str], str] = str,
) -> str:
    """Return the translation `target` of `source` with the tags of all `elements` of `source`.

    `parts` has the alignments of all sentences, in order. `escape` prepares text for markup. Each element
    covers the run of target units with the highest sum of share - `THRESHOLD`, inside its parent and
    outside its siblings. An element of all units of its parent covers all units of its parent. Tags
    inside a word stay there if the translation has the same word. An element without units is before the
    unit that follows it. The result without tags, and without elements whose content stays, is always
    `target`.
    """
    sides = _Side(source, units(source)), _Side(target, units(target))
    cuts = sorted({offset for one in elements for offset in _offsets(one)})
    page = _Page(*_split_words(*sides, parts, cuts), escape)
    return page.filled(elements, (0, len(page.source.spans)), (0, len(page.target.spans)), (0, len(target)))


def _offsets(element: Element) -> Iterator[int]:
    """Yield the characters of the source at which `element` and the elements inside it start and end."""
    yield from (element.start, element.end)
    for child in element.children:
        yield from _offsets(child)


class _Side:
    """A text and its units."""

    def __init__(self, text: str, spans: Sequence[Span]) -> None:
        self.text, self.spans = text, spans
        self.starts = [start for start, _ in spans]
        self.ends = [end for _, end in spans]
        self.words = [text[start:end] for start, end in spans]

    def covered(self, start: int, end: int) -> Span:
        """Return the units of `text[start:end]`, also those only in part. Without units, return the next one
        as an empty span."""
        first = bisect_right(self.ends, start)
        return first, max(first, bisect_left(self.starts, end)) if end > start else first

    def split(self, inner: Mapping[int, Sequence[int]]) -> tuple["_Side", NDArray[np.int64]]:
        """Return this text with each unit in `inner` split after its first n characters, for each n in the
        value. Return also the new number of each old unit, and last the new count of units."""
        pieces = []
        for unit, (start, end) in enumerate(self.spans):
            bounds = [start, *(start + offset for offset in inner.get(unit, ())), end]
            pieces.append(list(pairwise(bounds)))
        numbers = np.cumsum([0, *map(len, pieces)])
        return _Side(self.text, [span for spans in pieces for span in spans]), numbers


def _split_words(
    source: _Side, target: _Side, parts: Sequence[AlignedPart], cuts: Sequence[int]
) -> tuple[_Side, _Side, Sequence[AlignedPart]]:
    """Split source words at the characters `cuts`, with the target words that repeat them. Each piece of such
    a target word attends only to its piece of the source word. Return both sides and all alignments."""
    inner: dict[int, list[int]] = {}  # the cuts inside each source unit to split, from its start
    twins: list[dict[int, int]] = []  # for each part, source units by target unit
    for part in parts:
        twins.append({})
        columns = range(part.source, part.source + part.shares_TS.shape[1])
        for unit in columns if part.shares_TS.size else ():
            start, end = source.spans[unit]
            inside = cuts[bisect_right(cuts, start) : bisect_left(cuts, end)]
            twin = part.target + int(part.shares_TS[:, unit - part.source].argmax()) if inside else -1
            if inside and twin not in twins[-1] and target.words[twin] == source.words[unit]:
                twins[-1][twin], inner[unit] = unit, [cut - start for cut in inside]
    if not inner:
        return source, target, parts
    new_source, new_S = source.split(inner)
    new_target, new_T = target.split({twin: inner[unit] for own in twins for twin, unit in own.items()})
    return new_source, new_target, [_split_part(*one, new_S, new_T) for one in zip(parts, twins, strict=True)]


def _split_part(
    part: AlignedPart, twins: Mapping[int, int], new_S: NDArray[np.int64], new_T: NDArray[np.int64]
) -> AlignedPart:
    """Return the alignment after the split of words. `twins` has source units by equal target unit. `new_S`
    and `new_T` have the new number of each old unit, and last the new count of units."""
    rows, columns = part.shares_TS.shape
    counts_S = np.diff(new_S[part.source : part.source + columns + 1])
    counts_T = np.diff(new_T[part.target : part.target + rows + 1])
    shares_TS: Shares = np.repeat(part.shares_TS / counts_S.astype(np.float32), counts_S, axis=1)
    shares_TS = np.repeat(shares_TS, counts_T, axis=0)
    source, target = int(new_S[part.source]), int(new_T[part.target])
    for twin, unit in twins.items():
        row, column, count = new_T[twin] - target, new_S[unit] - source, new_T[twin + 1] - new_T[twin]
        shares_TS[row : row + count] = 0
        shares_TS[row : row + count, column : column + count] = np.eye(count)
    return AlignedPart(source, target, shares_TS)


@dataclass(frozen=True, slots=True)
class _Page:
    """A source text, its translation, and their alignment."""

    source: _Side
    target: _Side
    parts: Sequence[AlignedPart]
    escape: Callable[[str], str]

    def filled(self, elements: Sequence[Element], inside: Span, room: Span, characters: Span) -> str:
        """Return these `characters` of the translation with `elements`: the children of an element that
        covers the source units `inside` and the target units `room`."""
        spans: dict[int, Span] = {}  # the target units by number of the element
        free = [room]
        covered = [self.source.covered(one.start, one.end) for one in elements]
        for number in sorted(range(len(elements)), key=lambda n: covered[n][1] - covered[n][0]):
            whole = covered[number] == inside and free == [room]
            first, last = room if whole else self._best_run(covered[number], free)
            if covered[number][0] < covered[number][1] and first < last:
                spans[number] = first, last
                _remove(free, (first, last))
        taken = sorted(spans.values())
        for number in range(len(elements)):
            if number not in spans:
                at = self._place(covered[number][0], inside, room, taken)
                spans[number] = at, at
        text, position = [], characters[0]
        for number in sorted(spans, key=lambda n: (spans[n], n)):
            first, last = spans[number]
            start = self.target.starts[first] if first < room[1] else characters[1]
            end = self.target.ends[last - 1] if first < last else start
            element = elements[number]
            content = self.filled(element.children, covered[number], (first, last), (start, end))
            between = self.escape(self.target.text[position:start])
            around = (
                self.target.text[start - 1 : start] if start else " ",
                self.target.text[end : end + 1] or " ",
            )
            before, after = (
                " " * (spaced and not character.isspace())
                for spaced, character in zip(element.spaced, around, strict=True)
            )
            text += [between, before, element.opening, content, element.closing, after]
            position = end
        return "".join([*text, self.escape(self.target.text[position : characters[1]])])

    def _shares(self, covered: Span) -> tuple[int, list[float]]:
        """Return the share of these source units in the attention of each target unit of their sentences, and
        the index of the first target unit."""
        first = max(0, bisect_right(self.parts, covered[0], key=lambda part: part.source) - 1)
        last = bisect_left(self.parts, max(covered[1], covered[0] + 1), key=lambda part: part.source)
        shares: list[float] = []
        for part in self.parts[first:last]:
            columns = part.shares_TS[:, max(0, covered[0] - part.source) : covered[1] - part.source]
            shares += columns.sum(1).tolist()
        return self.parts[first].target if shares else 0, shares

    def _best_run(self, covered: Span, free: Sequence[Span]) -> Span:
        """Return the run of target units with the highest sum of share - `THRESHOLD`, inside one of the
        `free` runs. It has no punctuation mark at an end where the source has none. Without a unit of at
        least `MIN_SHARE`, return an empty run."""
        offset, shares = self._shares(covered)
        has_word = not all(MARK.fullmatch(word) for word in self.source.words[covered[0] : covered[1]])
        best, run = MIN_SHARE - THRESHOLD, (0, 0)
        index = max(0, bisect_right(free, (offset, len(self.target.spans))) - 1)
        while index < len(free) and free[index][0] < offset + len(shares):
            first, last = max(offset, free[index][0]), min(offset + len(shares), free[index][1])
            total, begin = -1.0, first
            for unit in range(first, last):
                if total <= 0:
                    total, begin = 0.0, unit
                # A mark between two words belongs to both or neither, whatever it attends to.
                if not has_word or not MARK.fullmatch(self.target.words[unit]):
                    total += shares[unit - offset] - THRESHOLD
                    best, run = max((best, run), (total, (begin, unit + 1)), key=itemgetter(0))
            index += 1
        return self._without_marks(run, covered)

    def _without_marks(self, run: Span, covered: Span) -> Span:
        """Return the target units `run` without punctuation marks at an end where the source units `covered`
        have none. At least one unit stays."""
        first, last = run
        if first < last:
            marks = [bool(MARK.fullmatch(self.source.words[unit])) for unit in (covered[0], covered[1] - 1)]
            while last - first > 1 and not marks[1] and MARK.fullmatch(self.target.words[last - 1]):
                last -= 1
            while last - first > 1 and not marks[0] and MARK.fullmatch(self.target.words[first]):
                first += 1
        return first, last

    def _place(self, unit: int, inside: Span, room: Span, taken: Sequence[Span]) -> int:
        """Return the target unit before which an element belongs that is before source unit `unit`. It is the
        unit with the highest share, or the end of `room` if no unit of the parent follows. A run in `taken`
        is not divided."""
        offset, shares = self._shares((unit, unit + 1)) if unit < inside[1] else (0, [])
        inner = range(max(room[0], offset), min(room[1], offset + len(shares)))
        if not inner:
            return room[1]
        at = max(inner, key=lambda one: shares[one - offset])
        before = bisect_right(taken, (at, at)) - 1
        return taken[before][0] if before >= 0 and at < taken[before][1] else at


def _remove(free: list[Span], span: Span) -> None:
    """Remove `span` from the sorted runs `free`, one of which contains it."""
    index = bisect_right(free, span[0], key=lambda run: run[0]) - 1
    first, last = free[index]
    free[index : index + 1] = [run for run in ((first, span[0]), (span[1], last)) if run[0] < run[1]]
