"""Placeholders and addresses, which no model should spell: numbered symbols stand for them.

`Dear {{name}}, see https://x.org.` becomes `Dear ⟦2⟧ ⟦+⟧ , see ⟦3⟧ ⟦+⟧ .`, where `⟦+⟧` says that no blank was
there. A translation has the same symbols, and gets the very same texts in their places.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from zlib import crc32

import regex

JOINED = "⟦+⟧"
"""Stands beside a placeholder's symbol where the text has no blank."""

SYMBOL = regex.compile(r"⟦\d+⟧")
OURS = regex.compile(r"⟦(?:\d+|\+)⟧")
WRITTEN = regex.compile(r" ?⟦\+⟧ ?|⟦\d+⟧")

PLACEHOLDER = (
    r"\{\{[^{}]*\}\}|\$?\{[\w.:-]*\}|%(?:\(\w+\)|\d+\$)?[sdif@](?!\w)"
    r"""|https?://[^\s<>"']*[^\s<>"'.,;:!?)\]}…。，、）»”]|(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+"""
)
"""{{name}}, {0}, ${name}, %s, %1$s, %(name)d, addresses of pages and of people."""

MASKED = regex.compile(rf"{PLACEHOLDER}|{OURS.pattern}")

Values = Mapping[str, str]
"""What each symbol stands for in one text."""


def family(count: int) -> tuple[str, ...]:
    """The symbols of a vocabulary with `count` placeholders; none for 0."""
    return (JOINED, *(f"⟦{number}⟧" for number in range(1, count + 1))) if count else ()


def apart(symbols: Sequence[str]) -> tuple[list[str], list[str]]:
    """The symbols that stand for placeholders, and the others, but for `JOINED`."""
    ours = [symbol for symbol in symbols if SYMBOL.fullmatch(symbol)]
    return ours, [symbol for symbol in symbols if not OURS.fullmatch(symbol)]


def values_of(source: str, symbols: Sequence[str], target: str | None = None) -> Values:
    """A symbol for each placeholder of `source`, as long as there are any; only those in `target` too, if
    that is known.

    Which symbol comes first follows from the text, so that a corpus with one placeholder a line teaches all.
    """
    found = MASKED.findall(source)
    if target is not None:
        # Of one that the target has less often, the first ones count.
        left = Counter(MASKED.findall(target))
        kept = []
        for one in found:
            if left[one]:
                left[one] -= 1
                kept.append(one)
        found = kept
    first = crc32(source.encode(errors="replace"))
    count = len(symbols)
    return {symbols[(first + i) % count]: one for i, one in enumerate(found[:count])}


def masked(text: str, values: Values) -> str:
    """`text` with the symbols of `values` in the places of what they stand for, in order."""
    waiting: dict[str, list[str]] = {}
    for symbol, value in values.items():
        waiting.setdefault(value, []).append(symbol)

    def shown(match: regex.Match[str]) -> str:
        value, symbols = match[0], waiting.get(match[0])
        if not symbols:
            # What looks like one of ours, an address with one in it too, is taken apart, so that it is text.
            return str(OURS.sub(lambda ours: f"{ours[0][0]} {JOINED} {ours[0][1:]}", value))
        beside = (text[max(0, match.start() - 1) : match.start()], text[match.end() : match.end() + 1])
        before, after = ("" if not one or one.isspace() else JOINED for one in beside)
        return f" {before} {symbols.pop(0)} {after} "

    return str(MASKED.sub(shown, text)).replace(f"{JOINED}  {JOINED}", JOINED)


def restored(text: str, values: Values) -> str:
    """A text with what its symbols stand for in their places."""
    return str(WRITTEN.sub(lambda match: "" if JOINED in match[0] else values.get(match[0], match[0]), text))


def masked_pair(source: str, target: str, symbols: Sequence[str]) -> tuple[str, str]:
    """A pair of sentences with the same symbols for what stands in both."""
    values = values_of(source, symbols, target)
    return masked(source, values), masked(target, values)
