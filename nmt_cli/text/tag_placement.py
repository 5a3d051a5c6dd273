"""Placement of the inline elements of a source text, such as `<b>`, in its translation.

The alignment of words decides: an element of the source goes to the words of the translation that attend to
the words of the element. Both texts are cut into units: words, punctuation marks, and characters of scripts
without spaces. A suffix `_S` means units of the source, `_T` units of the translation.

A code is a tag of XLIFF that opens or closes something, such as bold text, without containing it. If the
closing code is not in the element of its opening code, the pair crosses the border of an element. Such pairs
are placed apart from elements. All other pairs count as elements.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import itemgetter

from nmt_cli.text.markup import Element

SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Characters of scripts without spaces between words."""

MARKS = "!-/:-@\\[-`{-~¡-©«¬®°±¶·»¿\u2010-\u205e\u3000-\u3004\uff00-\uff0f\uff1a-\uff20"
WORD = rf"[^\s{MARKS}{SPACELESS}]+"
MARK = re.compile(rf"[{MARKS}]")
UNIT = re.compile(rf"[{SPACELESS}]|{WORD}(?:[-'’.,:/@&_]+{WORD})*|[^\s{SPACELESS}]")

OPENING, CLOSING = "([{¿¡„“«（「『【《", ".,;:!?…)]}»”%。，、；：！？）」』】》"
"""Marks that usually have a space only before them, and marks that usually have one only after them."""

THRESHOLD = 0.6
"""A unit of the translation belongs to an element if more than this share of its attention goes to the
element."""

MAX_GAP = 3
"""If this number of units or fewer is between the translations of an element and of its child, the element
covers them too."""

MIN_SHARE = 0.01
"""Shares of attention below this number are left out."""

Shares = Sequence[Mapping[int, float]]
"""For each unit of the translation, the share of its attention that goes to each unit of the source. The
shares may sum to less than 1, since the model also attends to the end of the source."""

Span = tuple[int, int]
"""The first index, and the last index + 1."""


def units(text: str) -> list[Span]:
    """Return the span of characters of each unit of `text`, in order. A unit is a word, a punctuation mark,
    or a character of a script in `SPACELESS`."""
    return [unit.span() for unit in UNIT.finditer(text)]


def placed(
    source: str,
    elements: Sequence[Element],
    target: str,
    shares: Shares,
    escape: Callable[[str], str] = str,
) -> str:
    """Return a translation with the tags of all elements of its source.

    - `source`, `target`: the source text without tags, and its translation.
    - `elements`: the outermost elements of `source`, with their children.
    - `shares`: the alignment of the units of both texts.
    - `escape`: a function that prepares text for markup.

    An element covers the run of units with the highest sum of share - `THRESHOLD`. The run is inside that of
    its parent and outside those of its siblings, and includes nearby runs of its children. The following
    cases differ:

    - An element of all words of its parent covers all that the parent covers.
    - Tags inside a word stay inside if the translation has the same word.
    - An element without words is put before the word that follows it in the source, or after a word that it
      touches. The spaces around it are kept.
    - An element whose content is not translated, such as code, replaces the units that it covers.

    If there are no elements of the last two kinds, the result without its tags is `target`.
    """
    page = _Page(source, target, shares, escape)
    page.queue_codes([*_closing_codes(elements)])
    page.fill(elements, (0, len(page.spans_S)), (0, len(page.spans_T)), (0, len(target)))
    return "".join([*page.parts, *(code for *_, code in page.codes)])


def _closing_codes(elements: Sequence[Element]) -> Iterator[Element]:
    """Yield the closing code of each pair that crosses the border of an element, among `elements` and their
    descendants."""
    for element in elements:
        if element.opened_by:
            yield element
        yield from _closing_codes(element.children)


class _Page:
    """The work on one text: its source, its translation with the alignment, and the parts of the result so
    far."""

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
        """Append a part of the translation with its elements.

        - `elements`: the children of an element, or the outermost elements.
        - `inside`: the source units that the parent covers.
        - `room`: the target units that the parent covers.
        - `characters`: the part of the translation, as a span of characters.
        """
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
        # Short elements choose first, because the run of a long one could take their words.
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
        """Append a span of the translation's characters, with the codes that belong inside it."""
        while self.codes and self.codes[0][:2] <= (end, 0):
            at, _, code = self.codes.popleft()
            self.parts += [self.escape(self.target[start : max(start, at)]), code]
            start = max(start, at)
        self.parts.append(self.escape(self.target[start:end]))

    def queue_codes(self, closing_codes: Sequence[Element]) -> None:
        """Find the positions of pairs of codes that cross the borders of elements, given the closing codes.
        `_write` then inserts them.

        A pair covers everything between the translations of its first and its last word.
        """
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
        """Return the character before which an element without target units is put. None means the end of
        `room`.

        - `unit`: the first source unit of the element or, if it has none, the next one.
        - `inside`, `room`: the source and target units of the parent.
        - `owners`: for each target unit that another element covers, the run of that element.

        An element that touches the word before it, such as a footnote mark, follows that word. Any other
        element precedes the word that follows it.
        """
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
        """Return the spaces to add before and after an element that covers nothing, each "" or " ".

        The element is put before the character `at`. A space of the source is left out inside of brackets and
        before punctuation, unless the source also has this mark there.
        """
        before, after = self.target[max(0, at - 1) : at].strip(), self.target[at : at + 1].strip()
        source_before = self.source[max(0, element.start - 2) : element.start].rstrip()
        source_after = self.source[element.end : element.end + 2].lstrip()
        is_before = before and (before not in OPENING or source_before.endswith(before))
        is_after = after and (after not in CLOSING or source_after.startswith(after))
        return " " * (element.spaced[0] and bool(is_before)), " " * (element.spaced[1] and bool(is_after))

    def _place_in(self, copy: int, element: Element, unit: int) -> Span | None:
        """Return the characters of `element` inside the target word `copy`, which is equal to the source word
        `unit`. Return None if the element is not a proper part of the word."""
        start, end = self.spans_S[unit]
        # An element of length 0 at the start of a word is before it.
        is_part = start <= element.start and start < element.end <= end
        is_part = is_part and element.end - element.start < end - start
        shift = self.spans_T[copy][0] - start
        return (element.start + shift, element.end + shift) if is_part else None

    def _place_of(self, run: Span, element: Element, covered: Span) -> Span | None:
        """Return the characters of `element` in the target units `run`.

        If an element whose content is not translated covers only a part of a word, such as code in "x-axis",
        it may replace only its own text. Return None if the translation does not have that text.
        """
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
        """Return the source units of which `element` has at least one character. If it has none, the span is
        empty, before the next unit."""
        first = bisect_right(self.spans_S, element.start, key=lambda span: span[1])
        last = bisect_left(self.spans_S, element.end, key=lambda span: span[0])
        return first, max(first, last) if element.start < element.end else first

    def _run(self, element: Element, free: Collection[int]) -> Span:
        """Return the best run of target units for `element`, extended by the best runs of its children.

        A child's run is included if at most `MAX_GAP` units are in between, all of them in `free`.
        """
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
        """Return the run of units in `free` with the highest sum of share - `THRESHOLD`. It is empty without
        shares.

        `covered` has the source units of the element. The run begins or ends with punctuation only if they
        do.
        """
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
        """Extend `run` by adjacent punctuation in `free`, on a side on which the source units `covered` have
        punctuation too."""
        first, last = run
        while self.marks_S[covered[0]] and first - 1 in free and self.marks_T[first - 1]:
            first -= 1
        while self.marks_S[covered[1] - 1] and last in free and self.marks_T[last]:
            last += 1
        return first, last
