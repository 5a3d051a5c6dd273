"""The encoding that a document declares. nmt reads and writes UTF-8, whatever a document declares.

Translations of a document in ASCII get character references, which are right in all encodings with ASCII.
Otherwise, and in PO, which has no references, the declaration changes.
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
"""What xgettext writes instead of a name."""

NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


def needs_references(text: str, form: str) -> bool:
    """Return whether translations in an HTML or XML document must be ASCII: it is, and declares an encoding
    other than UTF-8."""
    return form != "po" and text.isascii() and bool(_others(text, form))


def declared_utf8(text: str, form: str) -> tuple[str, str]:
    """Return the text of a file in UTF-8 with a declaration of UTF-8, and the name that it replaces. If the
    declaration may stay, or there is none, the name is ""."""
    others = _others(text, form)
    names = [name["name"] for name in others]
    if form != "po" and text.isascii() and not any(name.lower().startswith(WIDE) for name in names):
        return text, ""
    for name in reversed(others):
        text = text[: name.start("name")] + "UTF-8" + text[name.end("name") :]
    return text, next((name for name in names if name != PLACEHOLDER), "")


def referenced(text: str) -> str:
    """Return text of HTML or XML with character references for characters outside ASCII."""
    return text.encode("ascii", "xmlcharrefreplace").decode()


def referenced_in_cdata(text: str) -> str:
    """Return text of a CDATA section, which ends around references, since it can't contain any."""
    return NOT_ASCII.sub(lambda found: f"]]>{referenced(found[0])}<![CDATA[", text)


def _others(text: str, form: str) -> list[re.Match[str]]:
    """Return the declarations of other encodings in a document, in order."""
    found = []
    if form == "po":
        found.append(PO_NAME.search(text))
    elif form in ("html", "xhtml", "xml", "xliff"):
        found.append(XML_NAME.match(text))
    if form in ("html", "xhtml"):
        found.append(next((one for one in META_NAME.finditer(text) if one["name"]), None))
    return [one for one in found if one and one["name"].lower() not in UTF8]
