"""Return placeholders and addresses that a model without symbols for them lost or damaged."""

from bisect import bisect_right
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from nmt_cli.text.placeholders import MASKED
from nmt_cli.text.tag_placement import Shares, Span, units

MIN_SHARE = 0.3
"""A target unit that looks like a part of a placeholder is replaced if it attends to it with this share."""

MIN_LENGTH = 5
"""Minimum number of characters of such units. For short placeholders, half of their length suffices."""


def has_placeholders(text: str) -> bool:
    """Return whether `text` has placeholders or addresses."""
    return MASKED.search(text) is not None


def with_placeholders(source: str, target: str, shares_TS: Shares) -> tuple[str, Shares]:
    """Return the translation `target` with all placeholders of `source`, and its alignment. `shares_TS` is
    the alignment of the units of both. A lost placeholder replaces the run of target units that attend to it
    and are parts of its text. Without such a run, it is put before the unit that attends most to the
    following source unit, or at the end."""
    spans_S, spans_T = units(source), units(target)
    kept = Counter(MASKED.findall(target))
    edits: list[tuple[Span, str, NDArray[np.bool_]]] = []
    for found in MASKED.finditer(source):
        if kept[found[0]]:
            kept[found[0]] -= 1
            continue
        own_S = np.array([start < found.end() and end > found.start() for start, end in spans_S])
        run = _damaged(target, spans_T, shares_TS[:, own_S].sum(1), found[0])
        if run and all(run[0] >= end or run[1] <= start for (start, end), *_ in edits):
            edits.append((run, found[0], own_S))
            continue
        following = [unit for unit, (start, _) in enumerate(spans_S) if start >= found.end()][:1]
        column_T = shares_TS[:, following].sum(1)
        place = spans_T[int(column_T.argmax())][0] if column_T.any() else len(target)
        left = " " if source[: found.start()][-1:].isspace() and not target[:place][-1:].isspace() else ""
        right = " " if source[found.end() :][:1].isspace() and not target[place:][:1].isspace() else ""
        edits.append(((place, place), f"{left if place else ''}{found[0]}{right}", own_S))
    return _edited(target, spans_T, shares_TS, edits) if edits else (target, shares_TS)


def _damaged(target: str, spans: list[Span], shares_T: NDArray[np.float32], placeholder: str) -> Span | None:
    """Return the characters of the units of `target` that are a damaged `placeholder`, or None."""
    text = placeholder.casefold()
    parts = [
        target[start:end].casefold() in text and share >= MIN_SHARE
        for (start, end), share in zip(spans, shares_T, strict=True)
    ]
    if not any(parts):
        return None
    first = parts.index(True)
    last = next((unit for unit in range(first, len(parts)) if not parts[unit]), len(parts)) - 1
    length = sum(end - start for start, end in spans[first : last + 1])
    # A short word is often a part of a placeholder by chance, such as "am" of {{name}}.
    is_long = length >= min(MIN_LENGTH, len(placeholder) / 2)
    return (spans[first][0], spans[last][1]) if is_long else None


def _edited(
    target: str, spans: list[Span], shares_TS: Shares, edits: list[tuple[Span, str, NDArray[np.bool_]]]
) -> tuple[str, Shares]:
    """Return `target` with the text of each edit in place of its characters, and the new alignment. New units
    attend to the source units of their edit."""
    starts = [start for start, _ in spans]
    pieces: list[str] = []
    rows: list[NDArray[np.float32]] = []  # one for each character

    def keep(start: int, end: int) -> None:
        pieces.append(target[start:end])
        rows.extend(shares_TS[max(0, bisect_right(starts, n) - 1)] for n in range(start, end))

    before = 0
    for (start, end), text, own_S in sorted(edits, key=lambda edit: edit[0]):
        keep(before, start)
        pieces.append(text)
        rows.extend([(own_S / own_S.sum()).astype(np.float32)] * len(text))
        before = end
    keep(before, len(target))
    edited = "".join(pieces)
    return edited, np.array([rows[start] for start, _ in units(edited)], np.float32)
