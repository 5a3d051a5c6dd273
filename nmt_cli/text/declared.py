"""The encoding that a document declares for itself, such as `<meta charset="iso-8859-1">`.

We read and write only UTF-8. If a document is pure ASCII, its translation is kept in ASCII with character
references such as `&#252;`. They are right in every encoding that includes ASCII, so the declaration may
stay. Any other document gets a declaration of UTF-8. So do PO files, which have no character references.

`form` is a format such as "html" or "po".
"""

import re

XML_NAME = re.compile(r"""\ufeff?<\?xml\s[^>]*?\sencoding\s*+=\s*+["'](?P<name>[\w.:-]++)""")
META_NAME = re.compile(
    r"""<!--.*?(?:-->|\Z)|<meta\s(?:[^<>]*?[\s;"'])?charset\s*+=\s*+["']?\s*+(?P<name>[\w.:-]++)""",
    re.DOTALL | re.IGNORECASE,
)
PO_NAME = re.compile(
    r'^msgid[ \t]++""[ \t\r]*+\nmsgstr[ \t]++"(?:[^\n]*+\n")*?[^\n]*?\bcharset=(?P<name>[^\s"\\;]++)',
    re.MULTILINE,
)
UTF8 = ("utf-8", "utf8")
WIDE = ("utf-16", "utf-32", "ucs", "iso-10646-ucs")
"""Encodings whose names begin like this have no ASCII bytes."""

PLACEHOLDER = "CHARSET"
"""The text that xgettext writes in a PO file in place of an encoding."""

NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


def needs_references(text: str, form: str) -> bool:
    """Return whether the translations in a document must be ASCII with character references. They must if the
    document is ASCII and declares another encoding than UTF-8. PO files never need it."""
    return form != "po" and text.isascii() and bool(_others(text, form))


def declared_utf8(text: str, form: str) -> tuple[str, str]:
    """Return `text` with declarations of UTF-8 in place of other encodings, and the encoding that was
    replaced.

    The encoding is "" if nothing was replaced, or only the `PLACEHOLDER` of a PO file. An ASCII document
    keeps its declaration, unless it is a PO file or declares an encoding such as UTF-16.
    """
    others = _others(text, form)
    names = [name["name"] for name in others]
    # A file in UTF-16 has no ASCII bytes, so what we write as UTF-8 would be unreadable under that
    # declaration.
    if form != "po" and text.isascii() and not any(name.lower().startswith(WIDE) for name in names):
        return text, ""
    # From the end, so that the offsets of earlier declarations stay right.
    for name in reversed(others):
        text = text[: name.start("name")] + "UTF-8" + text[name.end("name") :]
    return text, next((name for name in names if name != PLACEHOLDER), "")


def referenced(text: str) -> str:
    """Replace each character of HTML or XML outside ASCII by a character reference."""
    return text.encode("ascii", "xmlcharrefreplace").decode()


def referenced_in_cdata(text: str) -> str:
    """Replace each character of a CDATA section outside ASCII by a character reference. The section is closed
    before a reference and opened again after it, because references have no effect inside."""
    return NOT_ASCII.sub(lambda found: f"]]>{referenced(found[0])}<![CDATA[", text)


def _others(text: str, form: str) -> list[re.Match[str]]:
    """Return the declarations of encodings other than UTF-8 in a document, in order."""
    found = []
    if form == "po":
        found.append(PO_NAME.search(text))
    elif form in ("html", "xhtml", "xml", "xliff"):
        found.append(XML_NAME.match(text))
    if form in ("html", "xhtml"):
        found.append(next((one for one in META_NAME.finditer(text) if one["name"]), None))
    return [one for one in found if one and one["name"].lower() not in UTF8]
