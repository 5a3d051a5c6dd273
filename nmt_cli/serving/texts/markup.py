"""HTML and XML, cut into pieces: text to translate, and other parts, which stay exactly as they are.

The time is linear in the length of the document, even for hostile input. A missing end is searched for once,
and the remaining document stays as it is.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape, unescape

TAG = re.compile(
    r"<(?P<close>/?)(?P<name>[A-Za-z][^\s/>]*+)"
    r"(?:[^=>]|=\s*+(?:\"[^\"]*+\"|'[^']*+'|(?![\"'])))*+>"
)
"""A complete tag. Its quoted values may contain any characters."""

UNTRANSLATED = frozenset("code kbd samp script style svg math textarea var template".split())
"""HTML elements whose content is not translated."""

RAW = frozenset({"script", "style", "textarea"})
"""Elements whose content is raw text, even if it looks like markup."""

VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
"""Elements without an end tag."""

NOT_TRANSLATED = re.compile(r"""(?i)\s(?:translate\s*=\s*["']?no\b|class\s*=\s*["'][^"']*\bnotranslate\b)""")
BEGIN = re.compile("</?[A-Za-z]")
UNTIL = {"<!--": "-->", "<![CDATA[": "]]>", "<!": ">", "<?": ">"}
"""The ends of comments and declarations by their beginnings, the most specific beginnings first."""

WORDS = re.compile(r"[^\W_]")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a document. `raw` is the part as the client sent it."""

    raw: str
    text: str = ""
    """The text to translate, without character references. Empty if the part stays as it is."""

    plain: bool = False
    """Whether the document is plain text rather than markup."""

    def translated(self, text: str) -> str:
        """Return the part with `text`, escaped for markup, as its text. A part without text stays `raw`."""
        if not self.text:
            return self.raw
        return text if self.plain else escape(text, quote=False)


def pieces(document: str, ignored: frozenset[str] = frozenset()) -> list[Piece]:
    """Cut a `document` with markup into pieces, in order. Their joined `raw` parts are the document. Text
    without letter or digit stays untranslated. Text also stays in elements named in `UNTRANSLATED` or
    `ignored`, or marked by `translate="no"` or the class `notranslate`."""
    parts: list[Piece] = []
    inside, depth = "", 0  # the outermost untranslated element, and how many of its name are open
    for token in _tokens(document):
        text = "" if inside or not token.is_text else _plain(token.raw)
        parts.append(Piece(token.raw, text if WORDS.search(text) else ""))
        if not inside and token.opens and _stays(token, ignored):
            inside, depth = token.opens, 1
        elif inside:
            depth += (token.opens == inside) - (token.closes == inside)
            inside = inside if depth else ""
    return parts


@dataclass(frozen=True, slots=True)
class _Token:
    """A tag, a text, a comment or a declaration."""

    raw: str
    is_text: bool = False
    opens: str = ""
    """The name of the element that begins here, in lower case. Empty for elements without content."""

    closes: str = ""
    """The name of the element that ends here, in lower case."""


def _stays(token: _Token, ignored: frozenset[str]) -> bool:
    """Return whether the element that `token` opens stays untranslated, by its name or attributes."""
    return token.opens in UNTRANSLATED or token.opens in ignored or bool(NOT_TRANSLATED.search(token.raw))


def _plain(raw: str) -> str:
    """Return `raw` with character references resolved, or "" if the number of a reference is too long."""
    try:
        return unescape(raw)
    except ValueError:
        return ""


def _tokens(document: str) -> Iterator[_Token]:
    """Yield all tokens in order, without gaps. The content of a `RAW` element is one token."""
    start = position = 0
    while (position := document.find("<", position)) >= 0:
        token = _markup(document, position)
        if token is None:  # a lone "<" is text
            position += 1
            continue
        if start < position:
            yield _Token(document[start:position], is_text=True)
        yield token
        start = position = position + len(token.raw)
        if token.opens in RAW:
            close = re.compile(rf"(?i)</{token.opens}[\s/>]").search(document, position)
            position = close.start() if close else len(document)
            if start < position:
                yield _Token(document[start:position])
            start = position
    if start < len(document):
        yield _Token(document[start:], is_text=True)


def _markup(document: str, start: int) -> _Token | None:
    """Return the tag, comment or declaration that begins at `start`. Return None if the "<" there is text. A
    comment, declaration or tag without an end extends to the end of the document."""
    for begin, end in UNTIL.items():
        if document.startswith(begin, start):
            stop = document.find(end, start + len(begin))
            return _Token(document[start : stop + len(end) if stop >= 0 else len(document)])
    if tag := TAG.match(document, start):
        name, raw = tag["name"].lower(), tag[0]
        if tag["close"]:
            return _Token(raw, closes=name)
        closed = name in VOID or (raw.endswith("/>") and name not in RAW)
        return _Token(raw, opens="" if closed else name)
    return _Token(document[start:]) if BEGIN.match(document, start) else None
