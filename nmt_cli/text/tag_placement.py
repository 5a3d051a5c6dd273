"""Put the inline elements of a source text into its translation, by the alignment of words."""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import itemgetter

from nmt_cli.text.markup import Element

SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Scripts without spaces between words."""

MARKS = "!-/:-@\\[-`{-~¡-©«¬®°±¶·»¿\u2010-\u205e\u3000-\u3004\uff00-\uff0f\uff1a-\uff20"
WORD = rf"[^\s{MARKS}{SPACELESS}]+"
MARK = re.compile(rf"[{MARKS}]")
UNIT = re.compile(rf"[{SPACELESS}]|{WORD}(?:[-'’.,:/@&_]+{WORD})*|[^\s{SPACELESS}]")

OPENING, CLOSING = "([{¿¡„“«（「『【《", ".,;:!?…)]}»”%。，、；：！？）」』】》"
"""Marks with a space usually only before them, and only after them."""

THRESHOLD = 0.6
"""A target unit belongs to an element if it attends to the element with more than this share."""

MAX_GAP = 3
"""Maximum number of target units between an element and its child that the element then also covers."""

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
    share - `THRESHOLD`, and nearby runs of its children, inside its parent and outside its siblings. An
    element of all units of its parent covers all units of its parent. Tags inside a word stay there if the
    translation has the same word. An element without units is before the unit that follows it, or after a
    word that is directly before it. The spaces around it stay. An element that stays replaces the units that
    it covers. Without such elements and spaces, and without tags, the result is always `target`.
    """
    page = _Page(source, target, shares, escape)
    page.queue_codes([*_closing_codes(elements)])
    page.fill(elements, (0, len(page.spans_S)), (0, len(page.spans_T)), (0, len(target)))
    return "".join([*page.parts, *(code for *_, code in page.codes)])


def _closing_codes(elements: Sequence[Element]) -> Iterator[Element]:
    """Yield the closing codes of pairs that cross the borders of elements."""
    for element in elements:
        if element.opened_by:
            yield element
        yield from _closing_codes(element.children)


class _Page:
    """A source text, its translation, and their alignment."""

    def __init__(self, source: str, target: str, shares: Shares, escape: Callable[[str], str]) -> None:
        self.source, self.target, self.escape = source, target, escape
        self.parts: list[str] = []  # of the result, in order
        self.codes: deque[tuple[int, int, str]] = deque()  # that are left, of pairs that cross elements
        self.crossing: set[int] = set()  # the ids of their elements
        self.spans_S, self.spans_T = units(source), units(target)
        self.marks_S = [MARK.match(source, start) is not None for start, _ in self.spans_S]
        self.marks_T = [MARK.match(target, start) is not None for start, _ in self.spans_T]
        self.targets: list[dict[int, float]] = [{} for _ in self.spans_S]
        for unit_T, row in zip(range(len(self.spans_T)), shares, strict=False):
            for unit_S, share in row.items():
                self.targets[unit_S][unit_T] = share
        # For each source unit, the target unit that attends most to it, or else to a later source unit.
        self.following = [len(self.spans_T)]
        for own in reversed(self.targets):
            self.following.append(max(own, key=own.__getitem__, default=self.following[-1]))
        self.following.reverse()
        # For each source word that the translation repeats, the equal target word that attends to it.
        nearest = {unit_T: unit_S for unit_S, unit_T in enumerate(self.following[:-1])}
        self.copies = {
            unit_S: unit_T
            for unit_T, unit_S in nearest.items()
            if unit_T < len(self.spans_T)
            and source[slice(*self.spans_S[unit_S])] == target[slice(*self.spans_T[unit_T])]
        }

    def fill(self, elements: Sequence[Element], inside: Span, room: Span, characters: Span) -> None:
        """Append these `characters` of the translation with `elements`: the children of an element that
        covers the source units `inside` and the target units `room`."""
        elements = [one for one in elements if id(one) not in self.crossing]
        covered = [self._covered(one) for one in elements]
        free = set(range(*room))
        runs: dict[int, Span] = {}  # the target units of elements by number
        places: dict[int, Span] = {}  # the characters of elements by number
        for number, element in enumerate(elements):
            copy = self.copies.get(covered[number][0], room[1])
            if copy in free and (place := self._place_in(copy, element, covered[number][0])):
                places[number], runs[number] = place, (copy, copy + 1)
        free.difference_update(first for first, _ in runs.values())
        left = [number for number in range(len(elements)) if number not in runs]
        for number in sorted(left, key=lambda n: covered[n][1] - covered[n][0]):
            is_whole = covered[number] == inside and not runs
            run = room if is_whole else self._run(elements[number], free)
            if run[0] < run[1] and (place := self._place_of(run, elements[number], covered[number])):
                runs[number], places[number] = run, place
                free.difference_update(range(*run))
        owners = {unit: run for run in runs.values() for unit in range(*run)}
        for number in set(left).difference(runs):
            point = self._point(elements[number], covered[number][0], inside, room, owners)
            at = characters[1] if point is None else point
            runs[number], places[number] = (room[1], room[1]), (at, at)
        position = characters[0]
        for number in sorted(places, key=lambda n: (places[n], n)):
            element, (start, end) = elements[number], places[number]
            before, after = self._spaces(element, start) if start == end else ("", "")
            self._write(position, start)
            self.parts += [before, element.opening]
            if not element.stays:
                self.fill(element.children, covered[number], runs[number], (start, end))
            self.parts += [element.closing, after]
            position = end
        self._write(position, characters[1])

    def _write(self, start: int, end: int) -> None:
        """Append the text between these characters of the translation, with the codes inside."""
        while self.codes and self.codes[0][:2] <= (end, 0):
            at, _, code = self.codes.popleft()
            self.parts += [self.escape(self.target[start : max(start, at)]), code]
            start = max(start, at)
        self.parts.append(self.escape(self.target[start:end]))

    def queue_codes(self, closing_codes: Sequence[Element]) -> None:
        """Queue pairs of codes that cross the borders of elements. A pair covers all that is between the
        translations of its first and its last word."""
        codes: list[tuple[int, int, str]] = []
        for closing in closing_codes:
            opening = closing.opened_by or closing
            self.crossing |= {id(opening), id(closing)}
            first, last = self._covered(Element("", opening.start, closing.start))
            run = sorted((self.following[first], self.following[max(first, last - 1)]))
            if first < last and run[1] < len(self.spans_T):
                # At the same character, a code closes before another one opens.
                codes.append((self.spans_T[run[0]][0], 1, opening.opening))
                codes.append((self.spans_T[run[1]][1], 0, closing.opening))
            else:
                at = self.spans_T[run[0]][0] if run[0] < len(self.spans_T) else len(self.target)
                codes += [(at, 2, opening.opening), (at, 2, closing.opening)]
        self.codes.extend(sorted(codes, key=itemgetter(0, 1)))

    def _point(
        self, element: Element, unit: int, inside: Span, room: Span, owners: Mapping[int, Span]
    ) -> int | None:
        """Return the character before which to put an element without target units, or None for the end of
        `room`. `unit` is its first source unit, or else the next one. `owners` has the run of other elements
        for each unit that they cover."""
        start = element.start
        is_glued = (
            element.end == start and inside[0] < unit < inside[1] and not self.source[start - 1].isspace()
        )
        if is_glued and (self.source[start].isspace() or not self.marks_S[unit - 1]):
            own = self.targets[unit - 1]
            at = max(own, key=own.__getitem__, default=room[1])
            if room[0] <= at < room[1]:
                return self.spans_T[owners.get(at, (at, at + 1))[1] - 1][1]
        at = self.following[unit] if unit < inside[1] else room[1]
        return self.spans_T[owners.get(at, (at, at))[0]][0] if room[0] <= at < room[1] else None

    def _spaces(self, element: Element, at: int) -> tuple[str, str]:
        """Return the spaces to add before and after `element`, which covers nothing and is put before the
        character `at`. Inside of brackets and before other marks, there are none, unless the source has the
        same mark there."""
        before, after = self.target[max(0, at - 1) : at].strip(), self.target[at : at + 1].strip()
        source_before = self.source[max(0, element.start - 2) : element.start].rstrip()
        source_after = self.source[element.end : element.end + 2].lstrip()
        is_before = before and (before not in OPENING or source_before.endswith(before))
        is_after = after and (after not in CLOSING or source_after.startswith(after))
        return " " * (element.spaced[0] and bool(is_before)), " " * (element.spaced[1] and bool(is_after))

    def _place_in(self, copy: int, element: Element, unit: int) -> Span | None:
        """Return the characters of `element` in the target word `copy`, if it is a part of source `unit`."""
        start, end = self.spans_S[unit]
        # An element of length 0 at the start of a word is before it.
        is_part = start <= element.start and start < element.end <= end
        is_part = is_part and element.end - element.start < end - start
        shift = self.spans_T[copy][0] - start
        return (element.start + shift, element.end + shift) if is_part else None

    def _place_of(self, run: Span, element: Element, covered: Span) -> Span | None:
        """Return the characters of `element` in the target units `run`. If an element that stays covers a
        part of a word, such as code in "x-axis", it replaces only its own text, or nothing (None)."""
        start, end = self.spans_T[run[0]][0], self.spans_T[run[1] - 1][1]
        is_words = (
            element.start <= self.spans_S[covered[0]][0] and self.spans_S[covered[1] - 1][1] <= element.end
        )
        if is_words or not element.stays:
            return start, end
        text = self.source[element.start : element.end]
        at = self.target.find(text, start, end)
        return (at, at + len(text)) if at >= 0 else None

    def _covered(self, element: Element) -> Span:
        """Return the source units of `element`, also those only in part. Without units, return the next one
        as an empty span."""
        first = bisect_right(self.spans_S, element.start, key=lambda span: span[1])
        last = bisect_left(self.spans_S, element.end, key=lambda span: span[0])
        return first, max(first, last) if element.start < element.end else first

    def _run(self, element: Element, free: Collection[int]) -> Span:
        """Return the best run of `element`. Include the best run of each child, if at most `MAX_GAP` units,
        all in `free`, are in between."""
        first, last = self._best_run(self._covered(element), free)
        for start, end in (self._best_run(self._covered(child), free) for child in element.children):
            gap = range(last, start) if last <= start else range(end, first)
            if first < last and start < end and len(gap) <= MAX_GAP and all(unit in free for unit in gap):
                first, last = min(first, start), max(last, end)
        if element.stays:  # it must not replace a mark of the sentence
            text = self.source[element.start : element.end]
            words = [
                n
                for n in range(first, last)
                if not self.marks_T[n] or self.target[self.spans_T[n][0]] in text
            ]
            first, last = (words[0], words[-1] + 1) if words else (0, 0)
        return first, last

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
