"""Parsing of request bodies: a JSON object or a form becomes `Fields`, which check and convert values."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request

from nmt_cli.errors import printable
from nmt_cli.named_values import REQUIRED, Values
from nmt_cli.serving.apis.multipart import File, parts
from nmt_cli.serving.config import MAX_CHARACTERS
from nmt_cli.serving.refused import Refused
from nmt_cli.setting_values import Bounds

# An emoji is %F0%9F%98%80 in a form and \ud83d\ude00 in JSON.
MAX_BYTES_PER_CHARACTER, EXTRA_BYTES = 12, 1 << 16
"""Maximum bytes of one character of text in a form or in JSON, and of the rest of the body."""

MAX_SHOWN = 40
"""Maximum number of characters of client input in a message."""

YES_OR_NO: Mapping[object, bool] = {"true": True, "1": True, 1: True, "false": False, "0": False, 0: False}
"""True and false as clients write them in forms and in JSON."""


class Fields(Values):
    """The fields of a request by name. Each method returns one field as one type.

    None and "" count as missing. Texts become valid Unicode. A value of another type, or one that is not
    allowed, raises `Refused` (400).
    """

    absent = (None, "")

    def __init__(self, values: object, address: str = "") -> None:
        """`address` is that of the server as the client wrote it, with a slash at the end. Raise `Refused` if
        `values` is not a mapping."""
        super().__init__(values, lambda problem: Refused(400, f"{problem}."))
        self.address = address

    def found(self, name: str) -> Any:
        """Return the field as it is, but texts as valid Unicode. Return `REQUIRED` if it is missing."""
        value = super().found(name)
        return clean(value) if isinstance(value, str) else value

    def texts(self, name: str) -> list[str]:
        """Return a list of texts. One text becomes a list. Refuse a missing field or an empty list."""
        value = self.found(name)
        if value is REQUIRED or value == []:
            raise self.missing(name)
        texts = value if isinstance(value, list) else [value]
        if not all(isinstance(one, str) for one in texts):
            raise self.error(f"{name} must be a text, or a list of texts (got {shown(repr(value))})")
        return [clean(one) for one in texts]

    def file(self, name: str) -> File:
        """Return a file of a multipart form. Refuse a missing field and other values."""
        value = self.values.get(name)
        if not isinstance(value, File):
            raise self.error(f"{name} must be a file of a multipart form")
        return value

    def whole(self, name: str, maximum: int) -> int:
        """Return a whole number from 0 to `maximum`, also from digits in a form. A missing field is 0."""
        value = self.found(name)
        # `isdigit` alone accepts "²", and `int` raises an error for thousands of digits.
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < MAX_SHOWN:
            value = int(value)
        bounds = Bounds(least=0, most=maximum)
        return 0 if value is REQUIRED else int(self.checked(name, value, int, bounds))

    def yes(self, name: str) -> bool:
        """Return whether the field is true, or False if it is missing. Forms may send "true" or "1"."""
        value = self.found(name)
        # A list or an object of JSON has no hash, so it cannot be looked up.
        if isinstance(value, str | int) and value in YES_OR_NO:
            value = YES_OR_NO[value]
        return False if value is REQUIRED else bool(self.checked(name, value, bool))

    def chosen(self, name: str, choices: Sequence[str]) -> str:
        """Return the field, which must be one of `choices`. A missing field is the first choice."""
        return self.one_of(name, choices, choices[0])


async def fields_of(request: Request) -> Fields:
    """Read the fields of a request.

    They come from the body, a JSON object or a form, and from the URL. A field of a form replaces that of the
    URL. With JSON, the URL is ignored. Raise `Refused` for an invalid body (400), or one over the limit
    (413).
    """
    body = await _body(request, EXTRA_BYTES + MAX_BYTES_PER_CHARACTER * MAX_CHARACTERS)
    from_url = _parsed(request.url.query) | request.path_params
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return Fields(from_url | _single(parts(request.headers["content-type"], body)), _address(request))
    if kind == "application/x-www-form-urlencoded":
        try:
            return Fields(from_url | _parsed(body.decode()))
        except UnicodeDecodeError as error:
            raise Refused(400, "The form is not UTF-8.") from error
    if not body:
        return Fields(from_url)
    try:
        values = json.loads(body)
    # Python gives up on JSON that is nested a thousand times.
    except (ValueError, RecursionError) as error:
        raise Refused(400, "The body is neither a form nor JSON.") from error
    if not isinstance(values, dict):
        raise Refused(400, "The body must be a JSON object.")
    return Fields(values)


def _address(request: Request) -> str:
    """Return the address of the server for the client, with a slash at the end. A proxy that removes a prefix
    from paths names it in X-Forwarded-Prefix."""
    prefix = request.headers.get("x-forwarded-prefix", "").strip("/")
    return f"{request.base_url}{prefix}/" if prefix else str(request.base_url)


def shown(text: str) -> str:
    """Return client input for an error message: printable, and cut with "…" after `MAX_SHOWN` characters."""
    quoted = printable(text)
    return quoted if len(quoted) <= MAX_SHOWN else f"{quoted[:MAX_SHOWN]}…"


def clean(text: str) -> str:
    """Return `text` as valid Unicode. Each lone surrogate, which JSON can contain, becomes U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


async def _body(request: Request, limit: int) -> bytes:
    """Return the body. Raise `Refused` (413) beyond `limit` bytes."""
    # Bytes are counted as they come, because Content-Length may be missing.
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise Refused(413, f"The body has more than {limit:,} bytes. Send less at a time.")
        chunks.append(chunk)
    return b"".join(chunks)


def _parsed(form: str) -> dict[str, Any]:
    """Return the fields of a form or a query. A field that occurs several times has a list of its values. CR
    LF becomes LF. Raise `Refused` (400) for over 10,000 fields."""
    try:
        fields = parse_qs(form, keep_blank_values=True, max_num_fields=10_000)
    except ValueError as error:
        raise Refused(400, "The form has too many fields.") from error
    lines = {name: [value.replace("\r\n", "\n") for value in values] for name, values in fields.items()}
    return _single(lines)


def _single(fields: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the value of each field that has one value, and the list of values of each other field."""
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}
