"""Checks of XML by an independent parser, expat: that a document is well-formed, and that no tag was lost.

Expat fetches nothing. The declarations of a document are hidden from it, so it expands no entity.
"""

import re
from collections import Counter
from xml.parsers import expat

from nmt_cli.errors import UserError
from nmt_cli.text.markup import DOCTYPE, NAME_PART, SUBSET

PROLOG = re.compile(
    rf"\ufeff?(?P<xml><\?xml\s.*?\?>)?(?:\s++|<\?.*?\?>|<!--.*?-->)*+(?:{DOCTYPE}\[(?P<subset>{SUBSET})\])?",
    re.DOTALL,
)
"""The text before the root element, with the declarations of the document."""

LETTERS = re.compile(rf"(?=[^\x00-\x7f])[{NAME_PART}]")
"""A character outside ASCII that a name of XML may contain."""

UNFINISHED = {
    expat.errors.codes[expat.errors.XML_ERROR_NO_ELEMENTS],
    expat.errors.codes[expat.errors.XML_ERROR_UNCLOSED_TOKEN],
}
"""The errors of expat that mean that a document ends too early."""

LONGEST_NAME = 50
"""The maximum number of characters of a name in a message."""

Tag = tuple[str, ...]
"""A start tag, comment or instruction: its kind, its name or content, and its attributes."""


def tags_of(document: str) -> Counter[Tag]:
    """Count the start tags, comments and instructions of an XML document. Equal ones have one count.

    Entities may be undefined. Raise `UserError` with line and column if the document is not well-formed.
    """
    text = document
    for start, end in map(PROLOG.match(document).span, ("xml", "subset")):  # type: ignore[union-attr]
        if start >= 0:  # Spaces keep the positions of errors.
            text = text[:start] + re.sub(r"[^\r\n]", " ", text[start:end]) + text[end:]
    try:
        return _tags(text)
    except UserError:
        if text.isascii():
            raise
    # Expat knows the letters of XML's first editions, such as Chinese. The fifth allows nearly all in names.
    letters = {ord(one): chr(0x4E00 + ord(one) % 20_902) for one in LETTERS.findall(text)}
    try:
        return _tags(text.translate(letters))
    except UserError as error:
        # The message must name the letters of the document.
        own = {ord(new): chr(old) for old, new in letters.items()}
        raise UserError(error.message.translate(own)) from None


def _tags(document: str) -> Counter[Tag]:
    """Count the start tags with their attributes, the comments and the processing instructions of a document.

    The document has no declarations, and its names have only letters that expat knows. Raise `UserError`
    with the position if it is not well-formed.
    """
    tags, opened = Counter[Tag](), list[str]()

    def start(name: str, attributes: list[str]) -> None:
        opened.append(name)
        tags["<", name, *attributes] += 1

    def add(*content: str) -> None:
        tags[content] += 1

    def refuse(*_: object) -> None:
        raise UserError("the declarations at the start can't be read. Remove them.")

    parser = expat.ParserCreate("utf-8")
    parser.UseForeignDTD(True)  # other files may define the entities
    parser.ordered_attributes = True
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: opened.pop()
    parser.CommentHandler = lambda content: add("<!--", content)
    parser.ProcessingInstructionHandler = lambda *content: add("<?", *content)
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(document.encode("utf-8", "surrogatepass"), True)
    except expat.ExpatError as error:
        inside = f" inside <{opened[-1][:LONGEST_NAME]}>" if opened else ""
        # Expat's own message for a truncated file, "no element found", does not help.
        if error.code in UNFINISHED and inside:
            raise UserError(f"the file ends{inside}. Copy it again, or close the element.") from None
        reason = expat.ErrorString(error.code)
        position = f"line {error.lineno:,}, column {error.offset + 1:,}"
        raise UserError(f"{position}: {reason}{inside}. Correct the XML.") from None
    return tags


def check_tags(source: str, result: str) -> None:
    """Raise `RuntimeError` unless a translated document has the same tags as its source, in any order.

    Both may be fragments without a root element. If `source` is not well-formed, nothing is compared.
    """
    # A fragment has no root element, which XML requires. So it is read again inside one.
    for before, after in ("", ""), ("<a>", "</a>"):
        try:
            expected = tags_of(before + source + after)
        except UserError:
            continue
        try:
            found = tags_of(before + result + after)
        except UserError as error:
            raise RuntimeError(f"the translation is damaged: {error.message}") from error
        if found != expected:
            tag = min((expected - found) + (found - expected))
            name = "".join(tag[:2])[:LONGEST_NAME]
            raise RuntimeError(f"{name} is {expected[tag]} times in the document, {found[tag]} times after")
        return
