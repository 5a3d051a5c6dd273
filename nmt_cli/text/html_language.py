"""The language that a page declares in its `html` element."""

import re

HTML = re.compile(
    r"(?:\s++|<!--.*?(?:-->|\Z)|<(?:!(?!--)|\?)[^>]*+>)*+"
    r"""(?P<tag><html(?=[\s/>])(?:"[^"]*+"|'[^']*+'|[^"'>])*+>)""",
    re.IGNORECASE | re.DOTALL,
)
"""The start of a document, up to its `html` tag. Declarations and comments may come first."""

LANGUAGE = re.compile(
    r"""(?P<name>\s(?:xml:)?lang\s*+=\s*+)(?:"[^"]*+"|'[^']*+'|[^\s"'>]++)|"[^"]*+"|'[^']*+'""", re.IGNORECASE
)
"""The attribute for the language of an element, with its value. Values of other attributes have no name."""


def with_language(document: str, language: str) -> str:
    """Return an HTML or XHTML document that declares a `language`, if it declared one. A byte order mark may
    come first. Other texts stay as they are."""
    found = HTML.match(document, pos=document.startswith("\ufeff"))
    if not found:
        return document
    code = language.replace("_", "-")

    def declared(one: re.Match[str]) -> str:
        return f'{one["name"]}"{code}"' if one["name"] else one[0]

    start, end = found.span("tag")
    return document[:start] + LANGUAGE.sub(declared, found["tag"]) + document[end:]
