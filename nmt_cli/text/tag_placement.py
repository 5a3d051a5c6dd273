"""Put the inline elements of a source text into its translation, by the alignment of words."""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from operator import itemgetter

from nmt_cli.text.markup import Element

SPACELESS = "\u2e80-\u2fdf\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Scripts without spaces between words."""

MARKS = "!-/:-@\\[-`{-~¡-©«¬®°±¶·»¿\u2010-\u205e\u3000-\u3004\uff00-\uff0f\uff1a-\uff20"
WORD = rf"[^\s{MARKS}{SPACELESS}]+"
MARK = re.compile(rf"[{MARKS}]")
UNIT = re.compile(rf"[{SPACELESS}]|{WORD}(?:[-'’.,:/@&_]+{WORD})*|[^\s{SPACELESS}]")

THRESHOLD = 0.6
"""A target unit belongs to an element if it attends to the element with more than this share."""

MIN_SHARE = 0.01
"""Smaller shares are left out."""

Shares = Sequence[Mapping[int, float]]
"""For each target unit, the shares of source units in its attention. They may sum to less than 1, since the
model may attend to the end of the source."""

Span = tuple[int, int]
"""The first index, and the last index + 1."""


def units(text: str) -> list[Span]:
    """Return the characters of each unit of `text`, in order. A unit is a word, a punctuation mark, or a
    character of a script in `SPACELESS`."""
    return [unit.span() for unit in UNIT.finditer(text)]


def placed(
    source: str,
    elements: Sequence[Element],
    target: str,
    shares: Shares,
    escape: Callable[[str], str] = str,
) -> str:
    """Return the translation `target` of `source` with the tags of all `elements` of `source`.

    `escape` prepares text for markup. Each element covers the run of target units with the highest sum of
    share - `THRESHOLD`, inside its parent and outside its siblings. An element of all units of its parent
    covers all units of its parent. Tags inside a word stay there if the translation has the same word. An
    element without units is before the unit that follows it. The result without tags, and without elements
    whose content stays, is always `target`.
    """
    cuts = sorted({offset for one in elements for offset in _offsets(one)})
    page = _Page(source, target, shares, cuts, escape)
    return page.filled(elements, (0, len(page.spans_S)), (0, len(page.spans_T)), (0, len(target)))


def _offsets(element: Element) -> Iterator[int]:
    """Yield the characters of the source at which `element` and the elements inside it start and end."""
    yield from (element.start, element.end)
    for child in element.children:
        yield from _offsets(child)


def _split_words(
    source: str, target: str, shares: Shares, cuts: Sequence[int]
) -> tuple[list[Span], list[Span], list[dict[int, float]]]:
    """Return the units of `source` and of `target`, and for each source unit its share of target units.

    A source word is split at the `cuts` in it if a target word that attends to it most is equal. That word is
    split too, and each piece attends to its equal.
    """
    pieces_S, pieces_T = ([[span] for span in units(text)] for text in (source, target))
    twins: dict[int, int] = {}  # source units by equal target unit
    for unit_T, row in enumerate(shares[: len(pieces_T)]):
        unit_S = max(row, key=row.__getitem__, default=0)
        (start, end), (begin, stop) = pieces_S[unit_S][0], pieces_T[unit_T][0]
        if len(pieces_S[unit_S]) > 1 or source[start:end] != target[begin:stop]:
            continue
        if inside := cuts[bisect_right(cuts, start) : bisect_left(cuts, end)]:
            twins[unit_T] = unit_S
            bounds = [0, *(cut - start for cut in inside), end - start]
            pieces_S[unit_S], pieces_T[unit_T] = (
                [(at + one, at + other) for one, other in pairwise(bounds)] for at in (start, begin)
            )
    first_S, first_T = ([*accumulate(map(len, pieces), initial=0)] for pieces in (pieces_S, pieces_T))
    targets: list[dict[int, float]] = [{} for _ in range(first_S[-1])]
    for unit_T, row in enumerate(shares[: len(pieces_T)]):
        if unit_T in twins:
            for n in range(len(pieces_T[unit_T])):
                targets[first_S[twins[unit_T]] + n][first_T[unit_T] + n] = 1.0
        else:
            for unit_S, share in row.items():
                targets[first_S[unit_S]][first_T[unit_T]] = share
    return [*chain(*pieces_S)], [*chain(*pieces_T)], targets


class _Page:
    """A source text, its translation, and their alignment."""

    def __init__(
        self, source: str, target: str, shares: Shares, cuts: Sequence[int], escape: Callable[[str], str]
    ) -> None:
        self.target, self.escape = target, escape
        self.spans_S, self.spans_T, self.targets = _split_words(source, target, shares, cuts)
        self.marks_S = [MARK.match(source, start) is not None for start, _ in self.spans_S]
        self.marks_T = [MARK.match(target, start) is not None for start, _ in self.spans_T]
        # For each source unit, the target unit that attends most to it, or else to a later source unit.
        self.following = [len(self.spans_T)]
        for own in reversed(self.targets):
            self.following.append(max(own, key=own.__getitem__, default=self.following[-1]))
        self.following.reverse()

    def filled(self, elements: Sequence[Element], inside: Span, room: Span, characters: Span) -> str:
        """Return these `characters` of the translation with `elements`: the children of an element that
        covers the source units `inside` and the target units `room`."""
        covered = [self._covered(one) for one in elements]
        runs: dict[int, Span] = {}  # the target units of elements by number
        free = set(range(*room))
        for number in sorted(range(len(elements)), key=lambda n: covered[n][1] - covered[n][0]):
            is_whole = covered[number] == inside and not runs
            run = room if is_whole else self._best_run(covered[number], free)
            if run[0] < run[1]:
                runs[number] = run
                free.difference_update(range(*run))
        starts = {unit: first for first, last in runs.values() for unit in range(first, last)}
        for number in range(len(elements)):
            if number not in runs:
                unit = covered[number][0]
                at = self.following[unit] if unit < inside[1] else room[1]
                at = starts.get(at, at) if room[0] <= at < room[1] else room[1]
                runs[number] = at, at
        text, position = [], characters[0]
        for number in sorted(runs, key=lambda n: (runs[n], n)):
            element, (first, last) = elements[number], runs[number]
            start = self.spans_T[first][0] if first < room[1] else characters[1]
            end = self.spans_T[last - 1][1] if first < last else start
            content = self.filled(element.children, covered[number], (first, last), (start, end))
            before = " " * (element.spaced[0] and not self._is_space(start - 1))
            after = " " * (element.spaced[1] and not self._is_space(end))
            between = self.escape(self.target[position:start])
            text += [between, before, element.opening, content, element.closing, after]
            position = end
        return "".join([*text, self.escape(self.target[position : characters[1]])])

    def _covered(self, element: Element) -> Span:
        """Return the source units of `element`, also those only in part. Without units, return the next one
        as an empty span."""
        first = bisect_right(self.spans_S, element.start, key=lambda span: span[1])
        last = bisect_left(self.spans_S, element.end, key=lambda span: span[0])
        return first, max(first, last) if element.start < element.end else first

    def _best_run(self, covered: Span, free: Collection[int]) -> Span:
        """Return the run of target units in `free` with the highest sum of share - `THRESHOLD`. At an end, it
        has punctuation marks only if the source units `covered` have. Without shares, it is empty."""
        shares: dict[int, float] = defaultdict(float)
        for unit in range(*covered):
            for target, share in self.targets[unit].items():
                if target in free:
                    shares[target] += share
        only_marks = all(self.marks_S[slice(*covered)])
        best, run = -THRESHOLD, (0, 0)
        total, begin = 0.0, 0
        for unit in range(min(shares), max(shares) + 1) if shares else ():
            if unit not in free:
                total = 0.0
            # A mark between two words belongs to both or neither, whatever it attends to.
            elif only_marks or not self.marks_T[unit]:
                total, begin = (total, begin) if total > 0 else (0.0, unit)
                total += shares[unit] - THRESHOLD
                best, run = max((best, run), (total, (begin, unit + 1)), key=itemgetter(0))
        return run if only_marks or run == (0, 0) else self._with_marks(run, covered, free)

    def _with_marks(self, run: Span, covered: Span, free: Collection[int]) -> Span:
        """Return `run` with the marks in `free` beside it, if marks are at that end of the source units
        `covered`."""
        first, last = run
        while self.marks_S[covered[0]] and first - 1 in free and self.marks_T[first - 1]:
            first -= 1
        while self.marks_S[covered[1] - 1] and last in free and self.marks_T[last]:
            last += 1
        return first, last

    def _is_space(self, index: int) -> bool:
        """Return whether the character at `index` of the target is a space or outside of the text."""
        return not 0 <= index < len(self.target) or self.target[index].isspace()
