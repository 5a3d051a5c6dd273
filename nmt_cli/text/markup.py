"""HTML and XML, cut into blocks: text with inline elements, and parts that stay exactly as they are.

A block is the text between two block-level tags, such as a paragraph or a table cell. It is translated as one
text without its inline tags. The time is linear in the length of the document, even for hostile input.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape, unescape
from itertools import groupby
from typing import Literal

Dialect = Literal["html", "xml"]

TAG = re.compile(
    r"<(?P<close>/?)(?P<name>[A-Za-z][^\s/>]*+)"
    r"(?:[^=>]|=\s*+(?:\"[^\"]*+\"|'[^']*+'|(?![\"'])))*+>"
)
"""A complete tag. Its quoted values may contain any characters."""

UNTRANSLATED = frozenset("code kbd math pre samp script style svg template textarea var".split())
"""HTML elements whose content is not translated."""

RAW = frozenset({"script", "style", "textarea"})
"""HTML elements whose content is raw text, even if it looks like markup."""

VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
"""HTML elements without an end tag."""

BLOCK_LEVEL = frozenset(
    "address article aside blockquote body br button caption center col colgroup dd details dialog dir div "
    "dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr "
    "html iframe legend li link main menu meta nav noscript object ol optgroup option p pre script search "
    "section select style summary table tbody td template textarea tfoot th thead title tr ul".split()
)
"""HTML elements that end the text before them, and the text inside them. All others are inline."""

NOT_TRANSLATED = re.compile(r"""(?i)\s(?:translate\s*=\s*["']?no\b|class\s*=\s*["'][^"']*\bnotranslate\b)""")
BEGIN = re.compile("</?[A-Za-z]")
UNTIL = {"<!--": "-->", "<![CDATA[": "]]>", "<!": ">", "<?": ">"}
"""The ends of comments and declarations by their beginnings, the most specific beginnings first."""

SPACES = re.compile(r"[ \t\n\r\f]+")
WORDS = re.compile(r"[^\W_]")

MAX_DEPTH = 64
"""Maximum number of inline elements inside each other. Deeper tags end the block."""


@dataclass(slots=True)
class Element:
    """An inline element of a block, or a comment."""

    opening: str
    """The start tag, or the complete element if it is void or its content stays as it is."""

    start: int
    end: int = 0
    """The element covers `text[start:end]` of its block."""

    closing: str = ""
    children: list["Element"] = field(default_factory=list)
    spaced: tuple[bool, bool] = (False, False)
    """For an element whose content stays: whether whitespace is before it, and after it."""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a document. `raw` is the part in the document."""

    raw: str
    text: str = ""
    """The text to translate, without tags and character references. Whitespace between words is one space.
    Empty if the part stays as it is."""

    elements: Sequence[Element] = ()
    """The outermost inline elements, in order."""

    escape: Callable[[str], str] = str
    """Prepares translated text for the document."""

    lines: int = 1
    """Number of lines of the translation."""

    @property
    def spaces(self) -> tuple[str, str]:
        """The whitespace at the start and at the end of `raw` that `text` does not have."""
        if self.text == self.raw:
            return "", ""
        content = self.raw.strip(" \t\n\r\f")
        before, _, after = self.raw.partition(content)
        return before, after


def escaped(text: str) -> str:
    """Return `text` for HTML and XML: with character references for &, < and >."""
    return escape(text, quote=False)


@dataclass(frozen=True, slots=True)
class _Token:
    """A tag, a text, a comment or a declaration, or a complete element that stays as it is."""

    raw: str
    kind: Literal["text", "open", "close", "void", "fixed", "break"] = "void"
    name: str = ""
    """The name of the element in lower case."""


def blocks(document: str, dialect: Dialect = "html", ignored: Collection[str] = ()) -> list[Block]:
    """Cut a `document` into blocks, in order. Their joined `raw` parts are the document.

    A text without letter or digit stays untranslated. Elements stay if their names are in `ignored`, or if
    they are marked by `translate="no"` or the class `notranslate`. In HTML, elements in `UNTRANSLATED` also
    stay. In HTML, the names in `BLOCK_LEVEL` delimit blocks. In XML, an element is inline if its parent also
    has text of its own. Tags that are not nested correctly, and inline elements with blocks, delimit blocks.
    """
    tokens = _without_fixed(_tokens(document, dialect), dialect, ignored)
    breaks = _breaks(tokens, _block_level(tokens, dialect))
    parts = []
    for is_break, run in groupby(zip(tokens, breaks, strict=True), key=lambda one: one[1]):
        inside = [token for token, _ in run]
        parts.append(Block("".join(token.raw for token in inside)) if is_break else _block(inside))
    return parts


def _block(tokens: Sequence[_Token]) -> Block:
    """Return the block of `tokens`, whose tags are nested correctly. It stays raw without words."""
    raw = "".join(token.raw for token in tokens)
    try:
        texts = [SPACES.sub(" ", unescape(one.raw)) if one.kind == "text" else "" for one in tokens]
    except ValueError:  # a character reference with a number that is too long
        return Block(raw)
    text, length = [""], 0
    root = last_fixed = Element("", 0)
    opened = [root]
    for token, words in zip(tokens, texts, strict=True):
        spaced = not length or text[-1].endswith(" ")
        match token.kind:
            case "text":
                if last_fixed.end == length:
                    last_fixed.spaced = last_fixed.spaced[0], words.startswith(" ")
                # Whitespace between words is one space, also if it is divided by tags.
                words = words.removeprefix(" ") if spaced else words
                text += [words] if words else []
                length += len(words)
            case "open":
                opened.append(Element(token.raw, length))
                opened[-2].children.append(opened[-1])
            case "close":
                opened[-1].closing, opened[-1].end = token.raw, length
                opened.pop()
            case "fixed":
                last_fixed = Element(token.raw, length, length, spaced=(spaced, False))
                opened[-1].children.append(last_fixed)
            case _:
                opened[-1].children.append(Element(token.raw, length, length))
    if not WORDS.search(joined := "".join(text)):
        return Block(raw)
    return Block(raw, joined.rstrip(" "), root.children, escaped)


def _breaks(tokens: Sequence[_Token], block_level: Sequence[bool]) -> list[bool]:
    """Return for each token whether it delimits blocks. Other tags are nested correctly between them."""
    breaks = list(block_level)
    opened: list[int] = []  # the indices of open inline elements

    def interrupt(index: int) -> None:
        for one in (*opened, index):
            breaks[one] = True
        opened.clear()

    for index, token in enumerate(tokens):
        if breaks[index] or (token.kind == "open" and len(opened) == MAX_DEPTH):
            interrupt(index)
        elif token.kind == "open":
            opened.append(index)
        elif token.kind == "close":
            if opened and tokens[opened[-1]].name == token.name:
                opened.pop()
            else:
                interrupt(index)
    for index in opened:
        breaks[index] = True
    return breaks


def _block_level(tokens: Sequence[_Token], dialect: Dialect) -> list[bool]:
    """Return for each token whether it is a tag or element that delimits blocks by its name or its parent."""
    if dialect == "html":
        return [token.kind == "break" or token.name in BLOCK_LEVEL for token in tokens]
    parents, with_text, opened = [], {-1: False}, [-1]
    for index, token in enumerate(tokens):
        if token.kind == "close" and len(opened) > 1 and tokens[opened[-1]].name == token.name:
            opened.pop()
        parents.append(opened[-1])
        if token.kind == "text":
            with_text[opened[-1]] |= bool(WORDS.search(token.raw))
        if token.kind == "open":
            opened.append(index)
            with_text[index] = False
    return [
        token.kind == "break" or (token.kind != "text" and not with_text[parent])
        for token, parent in zip(tokens, parents, strict=True)
    ]


def _without_fixed(tokens: Iterator[_Token], dialect: Dialect, ignored: Collection[str]) -> list[_Token]:
    """Return `tokens` with one token of kind "fixed" in place of each element that stays as it is."""
    result: list[_Token] = []
    fixed, name, depth = [""], "", 0
    for token in tokens:
        if depth:
            fixed.append(token.raw)
            depth += (token.kind == "open" and token.name == name) - (
                token.kind == "close" and token.name == name
            )
            if not depth:
                result.append(_Token("".join(fixed), "fixed", name))
        elif token.kind == "open" and (
            token.name in ignored
            or (dialect == "html" and token.name in UNTRANSLATED)
            or NOT_TRANSLATED.search(token.raw)
        ):
            fixed, name, depth = [token.raw], token.name, 1
        else:
            result.append(token)
    return [*result, _Token("".join(fixed), "break")] if depth else result


def _tokens(document: str, dialect: Dialect) -> Iterator[_Token]:
    """Yield all tokens in order, without gaps. The content of a `RAW` element is one token."""
    start = position = 0
    while (position := document.find("<", position)) >= 0:
        token = _markup(document, position, dialect)
        if token is None:  # a lone "<" is text
            position += 1
            continue
        if start < position:
            yield _Token(document[start:position], "text")
        yield token
        start = position = position + len(token.raw)
        if dialect == "html" and token.kind == "open" and token.name in RAW:
            close = re.compile(rf"(?i)</{token.name}[\s/>]").search(document, position)
            position = close.start() if close else len(document)
            if start < position:
                yield _Token(document[start:position])
            start = position
    if start < len(document):
        yield _Token(document[start:], "text")


def _markup(document: str, start: int, dialect: Dialect) -> _Token | None:
    """Return the tag, comment or declaration that begins at `start`. Return None if the "<" there is text. A
    comment, declaration or tag without an end extends to the end of the document."""
    for begin, end in UNTIL.items():
        if document.startswith(begin, start):
            stop = document.find(end, start + len(begin))
            raw = document[start : stop + len(end) if stop >= 0 else len(document)]
            return _Token(raw, "void" if begin in ("<!--", "<?") else "break")
    if tag := TAG.match(document, start):
        name, raw = tag["name"].lower(), tag[0]
        if tag["close"]:
            return _Token(raw, "close", name)
        void = (name in VOID and dialect == "html") or (raw.endswith("/>") and name not in RAW)
        return _Token(raw, "void" if void else "open", name)
    return _Token(document[start:], "break") if BEGIN.match(document, start) else None
