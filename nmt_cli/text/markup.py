"""HTML and XML, cut into blocks: text with inline elements, and parts that never change.

A block is the text between two block-level tags, such as a paragraph or a table cell. It is translated as one
text without its inline tags. An element stays if its content is not translated, such as code. The time is
linear in the length of the document, even for hostile input.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape, unescape
from html.entities import html5
from io import StringIO
from itertools import groupby, pairwise
from typing import Literal

Dialect = Literal["html", "xhtml", "xml", "xliff"]
"""XHTML is XML with the elements of HTML. XLIFF is the content of its element `source`."""

ATTRIBUTES = r"""(?:[^=>]|=\s*+(?:"[^"]*+"|'[^']*+'|(?!["'])))*+"""
NAME_START = (
    ":_a-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d\u2070-\u218f"
    "\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
NAME_PART = NAME_START + ".0-9\u00b7\u0300-\u036f\u203f\u2040-"
"""The characters with which a name of XML begins (`NAME_START`), and those that a name contains."""

NAMES: dict[Dialect, str] = {
    "html": r"[a-z][^\s/>]*+",
    "xml": rf"(?:[a-z][^\s/>]*+|[{NAME_START}][{NAME_PART}]*+(?=[\s/>]|\Z))",
}
"""The names of elements. A fragment of XML need not be correct, so it may have others, such as <a@b.org>."""

LITERALS = r""""[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)"""
DOCTYPE = rf"""<!DOCTYPE(?:[^][<>"']|{LITERALS})*+"""
"""A document type of XML up to its end, or up to its declarations in brackets."""

SUBSET = rf"""(?:[^]<"']|{LITERALS}|<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z)|<)*+"""
"""The declarations in a document type. Their quotes and comments may contain brackets and tags."""

PART = (
    r"(?P<void><!--.*?(?:-->|\Z)|<\?[^>]*+(?:>|\Z)|\{\\[^{}]*+\}|<\d++:[\d:.]++>)"
    r"|(?P<declaration><!\[CDATA\[.*?(?:\]\]>|\Z)|<![^>]*+(?:>|\Z))"
)
RAW = (
    rf"(?P<raw><(?P<element>script|style|textarea)(?=[\s/>]){ATTRIBUTES}>"
    r".*?(?:</(?P=element)(?=[\s/>])[^>]*+(?:>|\Z)|\Z))"
)
PHP = r"(?P<instruction><\?(?:php\b|=|\s).*?(?:\?>|\Z))"
INSTRUCTION = r"(?P<instruction><\?.*?(?:\?>|\Z))"
ENTITY = rf"(?P<entity>&[{NAME_START}][{NAME_PART}]*+;)"
TYPE = rf"(?P<type>{DOCTYPE}(?:\[{SUBSET}(?:\]|\Z))?[^>]*+(?:>|\Z))"
SPECIAL: dict[Dialect, str] = {"html": f"{RAW}|{PHP}", "xml": f"{INSTRUCTION}|{ENTITY}|{TYPE}"}
MARKUP = {
    dialect: re.compile(
        rf"{SPECIAL[dialect]}|{PART}|<(?P<close>/?)(?P<name>{name}){ATTRIBUTES}>|(?P<unfinished></?{name}.*)",
        re.IGNORECASE | re.DOTALL,
    )
    for dialect, name in NAMES.items()
}
"""A tag, comment, declaration, instruction, or code of subtitles such as {\\an8}. In HTML also an element
with raw text, and in XML a reference to an entity. If the end is missing, the match extends to the end of the
document. Every other "<" is text."""

UNTRANSLATED = frozenset("code kbd math pre samp script style svg template textarea var".split())
"""HTML elements whose content is not translated."""

WORDLESS = frozenset("bpt ept it math ph script style svg template textarea".split())
"""Elements whose content is not translated and has no words of the sentence around it. The words of other
elements that stay, such as `code`, are a part of the text, since a sentence without them is translated
wrongly."""

VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
"""HTML elements without an end tag."""

BLOCK_LEVEL = frozenset(
    "address article aside blockquote body br button caption center col colgroup dd details dialog dir div "
    "dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr "
    "html iframe legend li link main menu meta nav noscript object ol optgroup option p pre script search "
    "section select style summary table tbody td template textarea tfoot th thead title tr ul".split()
)
"""HTML elements that end the text before them, and the text inside them. All others are inline."""

INLINE = frozenset(
    "a abbr acronym audio b bdi bdo big canvas cite data datalist del dfn em font i ins label map mark meter "
    "output picture progress q rp rt ruby s slot small span strike strong sub sup time tt u video".split()
)
"""HTML elements that are in none of the other sets."""

PAIRED = {
    "bpt": "bpt",
    "ept": "bpt",
    "bx": "bx",
    "ex": "bx",
    "it": "it",
    "sc": "sc",
    "ec": "sc",
    "sm": "sm",
    "em": "sm",
}
"""The elements of XLIFF 1.2 and 2 that open or close a pair of codes, with the name of the one that opens it.
Both ends can be `it`, whose attribute `pos` says which end it is."""

ATTRIBUTE = re.compile(r"""\s([\w:.-]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""")
SEGMENT = re.compile(r"""<mrk\s(?:.*\s)?mtype\s*+=\s*+["']seg["']""", re.DOTALL)
"""The start tag of a sentence in the element `seg-source` of XLIFF 1.2."""

NOT_TRANSLATED = re.compile(
    r"""(?i)\s(?:translate\s*=\s*["']?no\b|class\s*=\s*["'][^"']*\bnotranslate\b|mtype\s*=\s*["']protected["'])"""
)
"""The attributes by which a document forbids the translation of an element. XLIFF 1.2 has `mtype`."""

WHITESPACE = " \t\n\r\f"
BLANKS = tuple(WHITESPACE)
SPACES = re.compile(f"[{WHITESPACE}]+")
WORDS = re.compile(r"[^\W_]")
ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

MAX_DEPTH = 64
"""The maximum number of nested inline elements. A deeper tag ends the block."""

MAX_STAYING = 100
"""The maximum number of characters of code that a text to translate includes. Longer code is left out of the
text."""


@dataclass(slots=True)
class Element:
    """An inline element of a block, or a comment."""

    opening: str
    """The start tag. If the element is void, or its content stays, it is the complete element."""

    start: int
    end: int
    """The element covers `text[start:end]` of its block."""

    closing: str = ""
    children: list["Element"] = field(default_factory=list)
    spaced: tuple[bool, bool] = (False, False)
    """For an element that stays or has no text: whether whitespace is directly before it, and directly after
    it."""

    stays: bool = False
    """True if the element replaces the translation of the text that it covers."""

    opened_by: "Element | None" = None
    """For a closing code of XLIFF: its opening code, if that is not in the same element. Otherwise None."""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a document: a text to translate, or a part that never changes."""

    raw: str
    """The part as it is in the document."""
    text: str = ""
    """The text to translate, without tags and character references, with single spaces between words. Empty
    if the part never changes."""

    elements: Sequence[Element] = ()
    """The outermost inline elements of the text, in order."""

    escape: Callable[[str], str] = str
    """A function that prepares a translation for the document."""

    lines: int = 1
    """The number of lines of the translation."""


def escaped(text: str) -> str:
    """Prepare `text` for HTML and XML: use character references for &, < and >, and remove characters that
    XML does not have, such as control characters."""
    return escape(ILLEGAL.sub("", text), quote=False)


@dataclass(frozen=True, slots=True)
class Token:
    """A part of a document that is not divided further: a text, a tag, a comment, or an element that stays as
    a whole.

    "fixed" is an element that stays or a reference to an entity, "void" has no content, such as a comment,
    and "break" ends the text before it.
    """

    raw: str
    kind: Literal["text", "open", "close", "void", "fixed", "break", "cdata"]
    name: str = ""
    """The name of the element in lower case."""

    pair: str = ""
    """The name of the pair of a code of XLIFF, if the pair crosses the borders of an element. Otherwise
    ""."""


def blocks(document: str, dialect: Dialect = "html", ignored: Collection[str] = ()) -> list[Block]:
    """Cut a document into blocks, in order. Their `raw` parts joined are the document.

    The following elements stay: those with a name in `ignored`, with `translate="no"` or with the class
    `notranslate`, and in HTML and XHTML also those in `UNTRANSLATED`. A text without a letter or digit stays
    too.

    The dialect decides which tags separate blocks:

    - HTML and XHTML: those of elements in `BLOCK_LEVEL`.
    - XML: those of elements that are not inline. An element is inline if its parent has text of its own, or
      is inline and not a list.
    - XLIFF: those of the sentences of `seg-source`. A pair of codes counts as an element.

    In all dialects, tags that are not nested correctly, and inline elements that contain blocks, separate
    blocks too. Outside of HTML, a CDATA section is a text of its own, or is cut as HTML if it has tags.
    """
    tokens = [*markup_tokens(document, dialect, ignored)]
    tokens = _paired(tokens) if dialect == "xliff" else tokens
    parts: list[Block] = []
    runs = groupby(
        zip(_breaks(tokens, dialect), tokens, strict=True), lambda one: (one[0], one[1].kind == "cdata")
    )
    for (is_break, _), run in runs:
        inside = [token for _, token in run]
        if inside[0].kind == "cdata":
            for token in inside:
                parts += [Block(token.raw[:9]), *text_or_html(token.raw[9:-3], in_cdata), Block("]]>")]
            continue
        # Whitespace at both ends stays outside of the text, so that the document keeps it exactly.
        raw = "".join(token.raw for token in inside)
        content = "" if is_break else raw.strip(WHITESPACE)
        before, _, after = raw.partition(content) if content else (raw, "", "")
        parts += [Block(before)] if before else []
        parts += [_block(content, inside)] if content else []
        parts += [Block(after)] if after else []
    return parts


def text_or_html(text: str, escape: Callable[[str], str] = str) -> list[Block]:
    """Cut a text that may be HTML into blocks.

    It is HTML if it has tags. It is not if a start tag has an unknown name and no end tag, as in "press
    <Enter>". Then return one block, and use `escape` for its translation.
    """
    matches = [found for found in MARKUP["html"].finditer(text) if found.lastgroup in ("name", "raw")]
    tags = [_token(found, "html") for found in matches]
    known = UNTRANSLATED | BLOCK_LEVEL | INLINE | {tag.name for tag in tags if tag.kind == "close"}
    names = {tag.name for tag in tags if tag.kind == "open"}
    # Otherwise "Save <Enter>" would be cut into two texts, and "Ctrl & C" would become "Ctrl &amp; C".
    if tags and names <= known:
        return blocks(text)
    return [Block(text, text if WORDS.search(text) else "", escape=escape)]


def in_cdata(text: str) -> str:
    """Return `text` as the content of a CDATA section of XML: without characters that XML forbids, and with
    each "]]>" divided over two sections."""
    return ILLEGAL.sub("", text).replace("]]>", "]]]]><![CDATA[>")


def _block(raw: str, tokens: Sequence[Token]) -> Block:
    """Return the block of tokens whose tags are nested correctly. If they have no words, it never changes."""
    text, spaced = StringIO(), True
    root = Element("", 0, 0)
    opened, codes, has_words = [root], dict[str, Element](), False
    gap = True  # whether whitespace is directly before the token, or the token is the first one
    for token, following in pairwise([*tokens, Token("", "break")]):
        position, gap_after = text.tell(), following.raw.startswith(BLANKS)
        if token.kind == "text":
            try:
                words = SPACES.sub(" ", unescape(token.raw))
            except ValueError:  # a character reference with a number that is too long
                return Block(raw)
            # Whitespace between words is one space, also if it is divided by tags.
            words = words.removeprefix(" ") if spaced else words
            text.write(words)
            spaced = words.endswith(" ") if words else spaced
            has_words |= WORDS.search(words) is not None
        elif token.kind == "close":
            one = opened.pop()
            one.closing, one.end = token.raw, position
            one.spaced = (one.spaced[0], gap_after) if one.start == position else (False, False)
        else:
            opened[-1].children.append(element := Element(token.raw, position, position))
            element.spaced = gap, gap_after
            if token.kind == "open":
                opened.append(element)
            elif words := _words_of(token):
                # Its words help the translation, and the attention to them shows its position.
                text.write(words)
                element.end, element.stays, spaced = text.tell(), True, False
            elif token.pair and not (opening := codes.pop(token.pair, None)):
                codes[token.pair] = element
            elif token.pair:
                element.opened_by = opening
        gap = token.raw.endswith(BLANKS)
    if not has_words:
        return Block(raw)
    return Block(raw, text.getvalue().rstrip(" "), root.children, escaped)


def _words_of(token: Token) -> str:
    """Return the text of an element that stays. It is "" for other tokens, and for text of more than
    `MAX_STAYING` characters."""
    if token.kind != "fixed" or not token.name or token.name in WORDLESS:
        return ""
    try:
        words = SPACES.sub(" ", unescape(MARKUP["html"].sub("", token.raw))).strip(" ")
    except ValueError:  # a character reference with a number that is too long
        return ""
    return words if len(words) <= MAX_STAYING else ""


def _paired(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens of XLIFF, with pairs of codes changed into start and end tags.

    If a pair crosses the borders of an element or of another pair, its codes do not become tags, but get the
    name of the pair.
    """
    result = [*tokens]
    opened: dict[str, int] = {}  # the indices of opening codes by name
    inside: list[dict[str, int]] = [{}]  # those directly inside each open element
    for index, token in enumerate(tokens):
        name, is_opening = _code(token)
        if token.kind == "open":
            inside.append({})
        elif token.kind == "close" and len(inside) > 1:
            inside.pop()
        elif is_opening:
            inside[-1].pop(name, None)
            opened[name] = inside[-1][name] = index
        elif name in opened:
            start = opened.pop(name)
            is_nested = inside[-1].get(name) == start
            while is_nested and inside[-1].popitem()[0] != name:
                pass  # the pairs that opened since then cross the end of this one
            if is_nested:
                result[start] = replace(tokens[start], kind="open", name=name)
                result[index] = replace(token, kind="close", name=name)
            else:
                result[start], result[index] = replace(tokens[start], pair=name), replace(token, pair=name)
    return result


def _code(token: Token) -> tuple[str, bool]:
    """Return the name of the pair that a token of XLIFF belongs to, and whether the token opens it. The name
    is "" for a token that is no such code."""
    is_code = token.kind in ("void", "fixed") and token.name in PAIRED
    tag = MARKUP["xml"].match(token.raw) if is_code else None
    if not tag:
        return "", False
    attributes = {name.lower(): first or second for name, first, second in ATTRIBUTE.findall(tag[0])}
    number = next((attributes[name] for name in ("rid", "startref", "id") if name in attributes), "")
    opening, position = PAIRED[token.name], attributes.get("pos")
    if token.name == "it" and position not in ("open", "close"):
        return "", False
    return f"{opening} {number}", token.name == opening and position != "close"


def _breaks(tokens: Sequence[Token], dialect: Dialect) -> list[bool]:
    """Return for each token whether it separates blocks. Between two such tokens, all tags are nested
    correctly."""
    match dialect:
        case "html" | "xhtml":
            own = [token.name in BLOCK_LEVEL for token in tokens]
        case "xliff":
            own = [token.kind == "open" and SEGMENT.match(token.raw) is not None for token in tokens]
        case "xml":
            own = _breaks_by_parent(tokens)
    breaks = [token.kind in ("break", "cdata") or is_own for token, is_own in zip(tokens, own, strict=True)]
    opened: list[int] = []  # the indices of open inline elements
    for index, token in enumerate(tokens):
        is_nested = bool(opened) and tokens[opened[-1]].name == token.name
        wrong = len(opened) == MAX_DEPTH if token.kind == "open" else token.kind == "close" and not is_nested
        if breaks[index] or wrong:
            # Elements around a separating tag are divided by it, so their tags must separate blocks too.
            for one in (*opened, index):
                breaks[one] = True
            opened.clear()
        elif token.kind == "open":
            opened.append(index)
        elif token.kind == "close":
            opened.pop()
    for index in opened:
        breaks[index] = True
    return breaks


def _breaks_by_parent(tokens: Sequence[Token]) -> list[bool]:
    """Return for each token of XML whether it separates blocks, judged by the element around it.

    A text never does. A tag does not if its parent has text of its own, or is inline and not a list. A list
    is an element with children of equal names in sequence, or with children on separate lines.
    """
    parents, opened = list[int](), [-1]  # indices of start tags
    lists, names = set[int](), dict[int, str]()  # the name of the element that ended last in each parent
    for index, token in enumerate(tokens):
        if token.kind == "close" and len(opened) > 1 and tokens[opened[-1]].name == token.name:
            opened.pop()
        parent = opened[-1]
        parents.append(parent)
        if token.kind == "open":
            before = tokens[index - 1].raw if index and tokens[index - 1].kind == "text" else ""
            # Rows or items of a list are separate texts, even if the list is inside running text.
            if names.get(parent) == token.name or ("\n" in before and not before.strip(WHITESPACE)):
                lists.add(parent)
            names[parent] = token.name
            opened.append(index)
        elif token.kind == "text" and token.raw.strip(WHITESPACE):
            names.pop(parent, None)
    both = list(zip(tokens, parents, strict=True))
    with_text = {parent for token, parent in both if token.kind == "text" and WORDS.search(token.raw)}
    breaks: list[bool] = []
    for token, parent in both:
        is_inside = parent >= 0 and not breaks[parent] and parent not in lists
        breaks.append(token.kind != "text" and parent not in with_text and not is_inside)
    return breaks


def markup_tokens(document: str, dialect: Dialect, ignored: Collection[str] = ()) -> Iterator[Token]:
    """Yield the tokens of a document in order, without gaps. An element that stays is one token."""
    start, name, depth = 0, "", 0  # of a text, or of an element that stays
    for found in MARKUP["html" if dialect == "html" else "xml"].finditer(document):
        if found.lastgroup == "entity" and found[0][1:] in html5:
            # The other entities are defined by the document. Their references must be kept: "&brandName;"
            # once became "&amp;BRANDNAME;".
            continue  # a character of the text
        token = _token(found, dialect)
        if depth:
            depth += (token.name == name) * ((token.kind == "open") - (token.kind == "close"))
            if not depth:
                yield Token(document[start : found.end()], "fixed", name)
                start = found.end()
            continue
        if start < found.start():
            yield Token(document[start : found.start()], "text")
        start = found.start()
        is_named = token.name in ignored or (dialect in ("html", "xhtml") and token.name in UNTRANSLATED)
        if token.kind == "open" and (is_named or NOT_TRANSLATED.search(token.raw)):
            name, depth = token.name, 1
        else:
            yield token
            start = found.end()
    if start < len(document):
        yield Token(document[start:], "break" if depth else "text")


def _token(found: re.Match[str], dialect: Dialect) -> Token:
    """Return the token of a match of `MARKUP`."""
    if found.lastgroup in ("void", "instruction"):
        return Token(found[0], "void")
    if found.lastgroup == "entity":
        return Token(found[0], "fixed")  # the document defines it
    if found.lastgroup != "name":
        is_cdata = dialect != "html" and found[0].startswith("<![CDATA[") and found[0].endswith("]]>")
        return Token(found[0], "cdata" if is_cdata else "break")
    name, raw = found["name"].lower(), found[0]
    if dialect == "html":
        name = name.partition(".")[0]  # WebVTT ends <c.red> with </c>
    if found["close"]:
        return Token(raw, "close", name)
    return Token(raw, "void" if raw.endswith("/>") or (dialect == "html" and name in VOID) else "open", name)
