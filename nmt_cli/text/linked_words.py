"""Links between the words of a sentence pair, which follow the pair when its text is changed.

A link is a pair of numbers: a word of the source, and a word of the target that translates it. Words are the
units of `tag_placement`, so a punctuation mark is one too. A change of a text is a list of edits, since only
then it is known what became of each word.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nmt_cli.text.tag_placement import Span, units

Link = tuple[int, int]
Pair = tuple[str, str]
"""A source and a target."""


class Edit(NamedTuple):
    """The replacement of the characters [`start`, `end`) of a text by `text`."""

    start: int
    end: int
    text: str


Edits = Sequence[Edit]
"""Edits of one text, in order and without overlap. Their positions are those before any of them."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a sentence pair, as edits of its source and of its target."""

    source: Edits = ()
    target: Edits = ()
    equal: str = ""
    """A text that both sides have after the change, such as a placeholder. Its last copies are linked word by
    word, and to nothing else."""

    def of(self, pair: Pair) -> Pair:
        """Return `pair` after the change."""
        return edited(pair[0], self.source), edited(pair[1], self.target)

    def links(self, pair: Pair, links: Iterable[Link]) -> set[Link]:
        """Return the links of the changed pair, given the `links` of `pair`."""
        changed = self.of(pair)
        source, target = map(_followed, pair, (self.source, self.target), changed)
        result = {(s, t) for one, other in links for s in source[one] for t in target[other]}
        if self.equal:
            same = [*zip(*(_last_copy(text, self.equal) for text in changed), strict=True)]
            sources, targets = {s for s, _ in same}, {t for _, t in same}
            result = {(s, t) for s, t in result if s not in sources and t not in targets}.union(same)
        return result


def words_of(text: str) -> list[str]:
    """Return the words of `text`, in order."""
    return [text[start:end] for start, end in units(text)]


def edited(text: str, edits: Edits) -> str:
    """Return `text` after `edits`."""
    for edit in reversed(edits):  # from the end, so that earlier positions stay right
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _last_copy(text: str, part: str) -> range:
    """Return the numbers of the words in the last copy of `part` in `text`."""
    start = text.rindex(part)
    return _inside(units(text), (start, start + len(part)))


def _followed(before: str, edits: Edits, after: str) -> Sequence[Sequence[int]]:
    """Return for each word of `before` the words of `after` that it became. There are none if it is gone.

    A word whose characters stay is followed by their position. A replaced word became all words of the
    replacement, or one of them if there were equally many words before.
    """
    old, new = units(before), units(after)
    if not edits:
        return [[n] for n in range(len(old))]
    found: list[set[int]] = [set() for _ in old]
    kept_from = shift = 0
    # An empty edit at the end, so that the text after the last one is followed too.
    for edit in (*edits, Edit(len(before), len(before), "")):
        for n in _touching(old, (kept_from, edit.start)):
            start, end = max(old[n][0], kept_from), min(old[n][1], edit.start)
            found[n].update(_touching(new, (start + shift, end + shift)))
        replaced = (edit.start, edit.end)
        replacement = (edit.start + shift, edit.start + shift + len(edit.text))
        whole, own = _inside(old, replaced), _inside(new, replacement)
        for n in _touching(old, replaced):
            one_to_one = n in whole and len(whole) == len(own)
            found[n].update([own[n - whole.start]] if one_to_one else _touching(new, replacement))
        kept_from, shift = edit.end, shift + len(edit.text) - (edit.end - edit.start)
    return [sorted(words) for words in found]


def _touching(spans: Sequence[Span], part: Span) -> range:
    """Return the numbers of the spans that have a character in `part`. An insertion has none."""
    if part[0] >= part[1]:
        return range(0)
    first = bisect_right(spans, part[0], key=lambda span: span[1])
    return range(first, max(first, bisect_left(spans, part[1], key=lambda span: span[0])))


def _inside(spans: Sequence[Span], part: Span) -> range:
    """Return the numbers of the spans that are in `part` as a whole."""
    first = bisect_left(spans, part[0], key=lambda span: span[0])
    return range(first, max(first, bisect_right(spans, part[1], key=lambda span: span[1])))
