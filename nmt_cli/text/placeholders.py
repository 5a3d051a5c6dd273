"""Masking of placeholders and addresses by numbered symbols, so that a model copies and never spells them.

`Dear {{name}}, see https://x.org.` becomes `Dear ⟦2⟧ ⟦+⟧ , see ⟦3⟧ ⟦+⟧ .`. The symbol `⟦+⟧` means that the
text has no space there. The translation has equal symbols, and the original texts replace the symbols.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from zlib import crc32

import regex

JOINED = "⟦+⟧"
"""The symbol next to a placeholder's symbol if the text has no space there."""

TERM, TERM_END = "⟦<⟧", "⟦>⟧"
"""The symbols around the annotation of a term: a translation of the next words of the source."""

SYMBOL = regex.compile(r"⟦\d+⟧")
OURS = regex.compile(r"⟦(?:\d+|[+<>])⟧")
WRITTEN = regex.compile(r" ?⟦\+⟧ ?|⟦\d+⟧")
ANNOTATION = regex.compile(rf"{TERM}.*?(?:{TERM_END} ?|$)")

PLACEHOLDER = (
    r"\{\{[^{}]*\}\}|\$?\{[\w.:-]*\}|%(?:\(\w+\)|\d+\$)?[sdif@](?!\w)"
    r"""|https?://[^\s<>"']*[^\s<>"'.,;:!?)\]}…。，、）»”]|(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+"""
)
"""{{name}}, {0}, ${name}, %s, %1$s, %(name)d, URLs and e-mail addresses."""

MASKED = regex.compile(rf"{PLACEHOLDER}|{OURS.pattern}")

Values = Mapping[str, str]
"""The placeholder of each symbol in one text."""


def family(count: int, terms: bool = False) -> tuple[str, ...]:
    """Return `JOINED`, the symbols ⟦1⟧ to ⟦N⟧ for N = `count` placeholders, and those of `terms`. Return ()
    if `count` is 0 and `terms` is false."""
    numbered = (f"⟦{number}⟧" for number in range(1, count + 1))
    return (JOINED, *numbered, *((TERM, TERM_END) if terms else ())) if count or terms else ()


def apart(symbols: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return two lists: numbered symbols of placeholders, such as ⟦1⟧, and other symbols without `JOINED`."""
    ours = [symbol for symbol in symbols if SYMBOL.fullmatch(symbol)]
    return ours, [symbol for symbol in symbols if not OURS.fullmatch(symbol)]


def values_of(source: str, symbols: Sequence[str], target: str | None = None) -> Values:
    """Return the placeholder of each symbol that is used. Placeholders in `source`, or text that looks like a
    symbol, get `symbols` in order until all are used. With a `target`, leave out placeholders that it lacks.
    A hash of `source` decides the first symbol, so that training uses all symbols."""
    placeholders = MASKED.findall(source)
    if target is not None:
        # If the target has fewer copies of a placeholder, the first ones in the source are masked.
        remaining = Counter(MASKED.findall(target))
        shared = []
        for placeholder in placeholders:
            if remaining[placeholder]:
                remaining[placeholder] -= 1
                shared.append(placeholder)
        placeholders = shared
    first = crc32(source.encode(errors="replace"))
    count = len(symbols)
    return {symbols[(first + i) % count]: text for i, text in enumerate(placeholders[:count])}


def masked(text: str, values: Values) -> str:
    """Return `text` with each placeholder in `values` replaced by a symbol with spaces around it. Equal
    placeholders get their symbols in order, and stay if no symbol is left. `JOINED` marks a side without a
    space, and splits text that looks like a symbol."""
    unused: dict[str, list[str]] = {}
    for symbol, value in values.items():
        unused.setdefault(value, []).append(symbol)

    def symbol_for(match: regex.Match[str]) -> str:
        value, symbols = match[0], unused.get(match[0])
        if not symbols:
            # Text that looks like a symbol, also inside an address, is split so that it stays text.
            return str(OURS.sub(lambda symbol: f"{symbol[0][0]} {JOINED} {symbol[0][1:]}", value))
        neighbours = (text[max(0, match.start() - 1) : match.start()], text[match.end() : match.end() + 1])
        before, after = ("" if not character or character.isspace() else JOINED for character in neighbours)
        return f" {before} {symbols.pop(0)} {after} "

    return str(MASKED.sub(symbol_for, text)).replace(f"{JOINED}  {JOINED}", JOINED)


def restored(text: str, values: Values) -> str:
    """Return `text` with each symbol in `values` replaced by its placeholder. Other symbols stay. Remove
    annotations of terms, and each `JOINED` with a space on each side."""
    text = ANNOTATION.sub("", text)
    return str(WRITTEN.sub(lambda match: "" if JOINED in match[0] else values.get(match[0], match[0]), text))


def masked_pair(source: str, target: str, symbols: Sequence[str]) -> tuple[str, str]:
    """Return both texts. Replace placeholders that both have by equal symbols, while `symbols` last."""
    values = values_of(source, symbols, target)
    return masked(source, values), masked(target, values)
