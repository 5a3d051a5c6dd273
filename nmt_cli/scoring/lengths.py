"""Groups of lines by their number of words, because good scores of long lines hide bad ones of short
lines."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nmt_cli.text.tag_placement import units

LENGTHS = (2, 5, 10, 20, 40)
"""The most words of each range of lengths that is scored apart. One more range has no limit."""


@dataclass(frozen=True, slots=True)
class Length:
    """The lines with a number of words from `least` to `most`. `most` is None without a limit."""

    least: int
    most: int | None
    lines: int


def by_length(lines: Iterable[str], lengths: Sequence[int] = LENGTHS) -> list[tuple[Length, list[int]]]:
    """Return each range of lengths that occurs, with the numbers of its lines. `lengths` has the most words
    of each range but the last."""
    numbers: list[list[int]] = [[] for _ in (*lengths, None)]
    for number, line in enumerate(lines):
        # A punctuation mark is a unit too, but not a word.
        words = sum(any(map(str.isalnum, line[start:end])) for start, end in units(line))
        numbers[bisect_left(lengths, words)].append(number)
    ranges = zip((0, *(most + 1 for most in lengths)), (*lengths, None), numbers, strict=True)
    return [(Length(least, most, len(own)), own) for least, most, own in ranges if own]
