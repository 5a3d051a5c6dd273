"""Replacement of the language that an HTML page declares, since a translated page has another one."""

import re

from nmt_cli.language import TWO_LETTERS

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
    """Return an HTML or XHTML document whose `html` element declares `language`, such as "de" or "pt_BR".

    The result is `document` unchanged if it has no `html` element at its start, or if that element declares
    no language. The document may start with a byte order mark.
    """
    found = HTML.match(document, pos=document.startswith("\ufeff"))
    if not found:
        return document
    # HTML requires BCP 47, which writes "pt-BR", and "de-Latn" for the "deu_Latn" of NLLB.
    own, dash, region = language.replace("_", "-").partition("-")
    code = TWO_LETTERS.get(own, own) + dash + region

    def declared(one: re.Match[str]) -> str:
        return f'{one["name"]}"{code}"' if one["name"] else one[0]

    start, end = found.span("tag")
    return document[:start] + LANGUAGE.sub(declared, found["tag"]) + document[end:]
