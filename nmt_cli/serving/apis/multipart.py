"""Parsing of multipart forms, in time that grows linearly with their length.

The package python-multipart (0.0.34) was tried instead. It ignores `filename*`, in which urllib3 before
version 2 sends names beyond ASCII, so such a file would be a text field. It refuses a preamble and more than
eight headers per part, accepts a form without parts, and logs errors of clients to stderr. The limit of
parts, the messages, the encodings and the line ends would still be ours, so its parser would save no lines.
"""

import re
from collections import defaultdict
from typing import NamedTuple
from urllib.parse import unquote

from nmt_cli.serving.refused import Refused

MAX_PARTS = 100
"""Maximum number of parts of a form."""

MAX_HEAD_BYTES = 8192
"""Maximum length of the headers of a part."""

# Possessive quantifiers (`*+`) never try a shorter match, so that the time is linear.
PARAMETER = r';[ \t]*+(?P<name>[^\s=;"]++)=(?:"(?P<quoted>(?:[^"\\]|\\.)*+)"|(?P<plain>[^\s;"]*+))'
DISPOSITION = re.compile(
    r"^content-disposition:[ \t]*+form-data(?P<parameters>.*+)$", re.IGNORECASE | re.MULTILINE
)


class File(NamedTuple):
    """A file that a client sends."""

    name: str
    content: bytes


def parts(content_type: str, body: bytes) -> dict[str, list[str | File]]:
    """Return the values of each field of a multipart form, texts or files, in order.

    CR LF in a text becomes LF. Raise `Refused` (400) for a damaged form, for too many parts, and for long
    headers.
    """
    boundary = _parameters(content_type).get("boundary", "")
    delimiter = b"\r\n--" + boundary.encode("latin-1", "replace")
    # The first delimiter has no line end before it if there is no preamble. The limit of `split` keeps a body
    # that is full of delimiters from becoming millions of pieces.
    _, *pieces = (b"\r\n" + body).split(delimiter, MAX_PARTS + 2)
    if len(pieces) > MAX_PARTS + 1:
        raise Refused(400, f"The form has more than {MAX_PARTS} parts. Send fewer fields.")
    # Two hyphens follow the last delimiter. Without them, the form was cut.
    if not boundary or len(pieces) < 2 or not pieces.pop().startswith(b"--"):
        raise _damaged()
    values = defaultdict[str, list[str | File]](list)
    try:
        for piece in pieces:
            name, value = _part(piece)
            values[name].append(value)
    except UnicodeDecodeError as error:
        raise Refused(400, "The form is not UTF-8.") from error
    return dict(values)


def _part(piece: bytes) -> tuple[str, str | File]:
    """Return name and value of the part between two delimiters. Raise `Refused` (400) for damage."""
    head, blank, content = piece.partition(b"\r\n\r\n")
    if len(head) > MAX_HEAD_BYTES:
        raise Refused(
            400, f"A part of the form has headers of more than {MAX_HEAD_BYTES:,} bytes. Shorten them."
        )
    disposition = DISPOSITION.search(head.decode().replace("\r\n", "\n"))
    parameters = _parameters(disposition["parameters"]) if disposition else {}
    if not blank or "name" not in parameters:
        raise _damaged()
    encoded = parameters.get("filename*", "").rpartition("'")[2]  # as in UTF-8''a%20b.txt
    file_name = unquote(encoded) or parameters.get("filename", "")
    value = File(file_name, content) if file_name else content.decode().replace("\r\n", "\n")
    return parameters["name"], value


def _parameters(text: str) -> dict[str, str]:
    """Return the parameters of a header, such as `; name="a"`. Their names become lower case."""
    return {
        found["name"].lower(): re.sub(r"\\(.)", r"\1", found["quoted"] or found["plain"] or "")
        for found in re.finditer(PARAMETER, text)
    }


def _damaged() -> Refused:
    return Refused(400, "The form is damaged.")
