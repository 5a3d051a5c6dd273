"""Return placeholders and addresses that a model without symbols for them lost or damaged."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from nmt_cli.text.placeholders import MASKED
from nmt_cli.text.tag_placement import WORD, Shares, Span, units

MIN_SHARE = 0.3
"""A target unit that looks like a part of a placeholder is replaced if it attends to it with this share."""

LETTER = re.compile(WORD)

MIN_LENGTH = 5
"""Minimum number of characters of such units. For short placeholders, half of their length suffices."""


def with_placeholders(source: str, target: str, shares: Shares) -> tuple[str, Shares]:
    """Return the translation `target` with all placeholders of `source`, and its new alignment. `shares` is
    the alignment before.

    A lost placeholder replaces adjacent target units that attend to it and are parts of its text. Without
    such units, it is put before the unit that attends most to the source unit after it, or else at the end.
    """
    spans_S, spans_T = units(source), units(target)
    kept = Counter(MASKED.findall(target))
    edits: list[tuple[Span, str, Mapping[int, float]]] = []
    for found in MASKED.finditer(source):
        if kept[found[0]]:
            kept[found[0]] -= 1
            continue
        own = [n for n, (start, end) in enumerate(spans_S) if start < found.end() and end > found.start()]
        equal = dict.fromkeys(own, 1 / len(own))
        run = _damaged(target, spans_T, [sum(row.get(n, 0.0) for n in own) for row in shares], found[0])
        if run and all(run[0] >= end or run[1] <= start for (start, end), *_ in edits):
            edits.append((run, found[0], equal))
            continue
        following = [row.get(own[-1] + 1, 0.0) for row in shares]
        place = spans_T[following.index(max(following))][0] if any(following) else len(target)
        left = _gap(source[: found.start()][-1:], target[:place][-1:])
        right = _gap(source[found.end() :][:1], target[place:][:1])
        edits.append(((place, place), f"{left}{found[0]}{right}", equal))
    return _edited(target, spans_T, shares, edits) if edits else (target, shares)


def _gap(source: str, target: str) -> str:
    """Return a space if a placeholder needs one before or after the character `target`, or else "". Beside it
    in the source was the character `source`. No character means the end of the text."""
    # Punctuation beside it in the source does not mean that it may touch a word of the translation.
    is_glued = LETTER.match(target) and not LETTER.match(source)
    return " " if target and not target.isspace() and (source.isspace() or is_glued) else ""


def _damaged(target: str, spans: list[Span], shares: Sequence[float], placeholder: str) -> Span | None:
    """Return the characters of the units of `target` that are a damaged `placeholder`, or None."""
    text = placeholder.casefold()
    parts = [
        target[start:end].casefold() in text and share >= MIN_SHARE
        for (start, end), share in zip(spans, shares, strict=True)
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
    target: str, spans: list[Span], shares: Shares, edits: list[tuple[Span, str, Mapping[int, float]]]
) -> tuple[str, Shares]:
    """Return `target` with the text of each edit in place of a span of its characters, and the new alignment.
    An edit is a span, the text and the shares of the text's units."""
    rows: list[Mapping[int, float]] = [{}] * len(target)  # of each character
    for (start, end), row in zip(spans, shares, strict=True):
        rows[start:end] = [row] * (end - start)
    # From the end, so that the spans of earlier edits stay right.
    for (start, end), text, own in reversed(sorted(edits, key=lambda edit: edit[0])):
        target = target[:start] + text + target[end:]
        rows[start:end] = [own] * len(text)
    return target, [rows[start] for start, _ in units(target)]
