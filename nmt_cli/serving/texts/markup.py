"""HTML and XML cut into text, which is translated, and all else, which stays as it is to the last character.

Hostile input takes time linear in its length: what never ends is looked for once, and the rest is left alone.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape, unescape

TAG = re.compile(
    r"<(?P<close>/?)(?P<name>[A-Za-z][^\s/>]*+)"
    r"(?:[^=>]|=\s*+(?:\"[^\"]*+\"|'[^']*+'|(?![\"'])))*+>"
)
"""A tag, whose quoted values may hold anything; without an end it is no match, however it begins."""

KEPT_WHOLE = frozenset("code kbd samp script style svg math textarea var template".split())
"""Elements of which nothing is translated."""

RAW = frozenset({"script", "style", "textarea"})
"""Elements that hold text alone, whatever it looks like."""

EMPTY = frozenset("area base br col embed hr img input link meta source track wbr".split())
"""Elements without an end tag."""

NOT_TRANSLATED = re.compile(r"""(?i)\s(?:translate\s*=\s*["']?no\b|class\s*=\s*["'][^"']*\bnotranslate\b)""")
BEGIN = re.compile("</?[A-Za-z]")
UNTIL = {"<!--": "-->", "<![CDATA[": "]]>", "<!": ">", "<?": ">"}
"""Comments and declarations, and how they end."""

WORDS = re.compile(r"[^\W_]")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a document."""

    raw: str
    text: str = ""
    """What is to be translated; empty where nothing is."""

    plain: bool = False
    """Whether it is no markup language at all."""

    def translated(self, text: str) -> str:
        """The part with this in place of its text."""
        if not self.text:
            return self.raw
        return text if self.plain else escape(text, quote=False)


def pieces(document: str, ignored: frozenset[str] = frozenset()) -> list[Piece]:
    """All of `document`, in order; `ignored` names further elements that stay as they are."""
    found: list[Piece] = []
    inside, depth = "", 0  # the element that is kept whole, and how many of its name are open in it
    for token in _tokens(document):
        text = "" if inside or not token.is_text else _plain(token.raw)
        found.append(Piece(token.raw, text if WORDS.search(text) else ""))
        if not inside and token.opens and _kept_whole(token, ignored):
            inside, depth = token.opens, 1
        elif inside:
            depth += (token.opens == inside) - (token.closes == inside)
            inside = inside if depth else ""
    return found


@dataclass(frozen=True, slots=True)
class _Token:
    """A tag, a text, or what is neither."""

    raw: str
    is_text: bool = False
    opens: str = ""
    """The name of the element that begins."""

    closes: str = ""
    """The name of the element that ends."""


def _kept_whole(token: _Token, ignored: frozenset[str]) -> bool:
    return token.opens in KEPT_WHOLE or token.opens in ignored or bool(NOT_TRANSLATED.search(token.raw))


def _plain(raw: str) -> str:
    try:
        return unescape(raw)
    except ValueError:  # a character's number with more digits than Python reads
        return ""


def _tokens(document: str) -> Iterator[_Token]:
    start = place = 0
    while (place := document.find("<", place)) >= 0:
        token = _markup(document, place)
        if token is None:  # a lone "<" is text
            place += 1
            continue
        if start < place:
            yield _Token(document[start:place], is_text=True)
        yield token
        start = place = place + len(token.raw)
        if token.opens in RAW:
            close = re.compile(rf"(?i)</{token.opens}[\s/>]").search(document, place)
            place = close.start() if close else len(document)
            if start < place:
                yield _Token(document[start:place])
            start = place
    if start < len(document):
        yield _Token(document[start:], is_text=True)


def _markup(document: str, place: int) -> _Token | None:
    """The markup that begins at `place`; what has no end is as long as the document."""
    for begin, end in UNTIL.items():
        if document.startswith(begin, place):
            found = document.find(end, place + len(begin))
            return _Token(document[place : found + len(end) if found >= 0 else len(document)])
    if tag := TAG.match(document, place):
        name, raw = tag["name"].lower(), tag[0]
        if tag["close"]:
            return _Token(raw, closes=name)
        closed = name in EMPTY or (raw.endswith("/>") and name not in RAW)
        return _Token(raw, opens="" if closed else name)
    return _Token(document[place:]) if BEGIN.match(document, place) else None
