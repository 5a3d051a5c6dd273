"""Masking: placeholders and addresses in a text are replaced by symbols, so that a model copies them exactly.

A symbol is a word of the vocabulary that is never segmented. `Dear {{name}}, see https://x.org.` becomes
`Dear ⟦2⟧ ⟦+⟧ , see ⟦3⟧ ⟦+⟧ .`. The symbol `⟦+⟧` means that the text has no space there. The translation
contains the same symbols, and the original placeholders replace them at the end.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from zlib import crc32

import regex

JOINED = "⟦+⟧"
"""The symbol beside the symbol of a placeholder where the text has no space."""

TERM, TERM_END = "⟦<⟧", "⟦>⟧"
"""The symbols around the annotation of a term. An annotation is a translation that is suggested for the next
words of the source."""

SYMBOL = regex.compile(r"⟦\d+⟧")
OURS = regex.compile(r"⟦(?:\d+|[+<>])⟧")
WRITTEN = regex.compile(r" ?⟦\+⟧ ?|⟦\d+⟧")
ANNOTATION = regex.compile(rf"{TERM}.*?(?:{TERM_END} ?|$)")

PLACEHOLDER = (
    r"\{\{[^{}]*\}\}|\$?\{[\w.:-]*\}|%(?:\(\w+\)|\d+\$)?[sdif@](?!\w)"
    r"""|https?://[^\s<>"']*[^\s<>"'.,;:!?)\]}…。，、）»”]|(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+"""
)
"""The pattern of {{name}}, {0}, ${name}, %s, %1$s, %(name)d, URLs and e-mail addresses."""

MASKED = regex.compile(rf"{PLACEHOLDER}|{OURS.pattern}")

Values = Mapping[str, str]
"""The placeholder that each symbol of a text replaces."""


def family(count: int, terms: bool = False) -> tuple[str, ...]:
    """Return the symbols that a vocabulary needs for masking: `JOINED` and ⟦1⟧ to ⟦N⟧ for `count`
    placeholders. With `terms`, add the symbols of annotations. If `count` is 0 and `terms` is false, return
    ()."""
    numbered = (f"⟦{number}⟧" for number in range(1, count + 1))
    return (JOINED, *numbered, *((TERM, TERM_END) if terms else ())) if count or terms else ()


def apart(symbols: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split `symbols` into the numbered symbols of placeholders, such as ⟦1⟧, and symbols of the user.
    `JOINED` and the symbols of annotations are left out."""
    ours = [symbol for symbol in symbols if SYMBOL.fullmatch(symbol)]
    return ours, [symbol for symbol in symbols if not OURS.fullmatch(symbol)]


def values_of(source: str, symbols: Sequence[str], target: str | None = None) -> Values:
    """Assign symbols to the placeholders of a text, and return the placeholder of each symbol.

    - `source`: the text. A text in it that looks like a symbol counts as a placeholder.
    - `symbols`: the numbered symbols. When all are used, further placeholders get none.
    - `target`: the translation in a training pair, or None. Placeholders that it lacks get no symbol.

    A hash of `source` decides the first symbol, so that training uses all symbols about equally.
    """
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
    """Return `text` with the placeholders in `values` replaced by their symbols, with spaces around.

    If a placeholder occurs repeatedly, each occurrence takes the next of its symbols. An occurrence stays if
    none is left. `JOINED` is added on a side without a space. Text that only looks like a symbol is split by
    `JOINED`.
    """
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
    """Return `text` with the symbols in `values` replaced by their placeholders. Other numbered symbols stay.

    Annotations of terms are removed. So is each `JOINED`, with one space on each side.
    """
    text = ANNOTATION.sub("", text)
    return str(WRITTEN.sub(lambda match: "" if JOINED in match[0] else values.get(match[0], match[0]), text))


def masked_pair(source: str, target: str, symbols: Sequence[str]) -> tuple[str, str]:
    """Return both texts of a training pair, with the placeholders that both have replaced by equal symbols.
    When `symbols` are used up, further placeholders stay."""
    values = values_of(source, symbols, target)
    return masked(source, values), masked(target, values)
