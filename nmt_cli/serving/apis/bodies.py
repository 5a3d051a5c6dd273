"""What clients send, read with care: JSON objects and forms become fields, and fields become values."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from nmt_cli.errors import printable
from nmt_cli.serving.config import ServerConfig
from nmt_cli.serving.refused import Refused

BYTES_A_CHARACTER, BYTES_AROUND = 12, 1 << 16
"""A character takes at most so many bytes in a form or in JSON; names and keys take some more."""

logging.getLogger("python_multipart").addHandler(logging.NullHandler())  # it would tell what was sent

MOST_SHOWN = 40
"""Characters of what a client sent, in an answer."""


@dataclass(frozen=True, slots=True)
class Fields:
    """What a request brought along, by name; a method for each kind of value refuses others."""

    values: Mapping[str, Any]

    def text(self, name: str, default: str | None = None) -> str:
        """A text; required where there is no default."""
        value = self.values.get(name)
        if value is None or value == "":
            if default is None:
                raise Refused(400, f"{name} is missing.")
            return default
        if not isinstance(value, str):
            raise Refused(400, f"{name} must be a text.")
        return clean(value)

    def texts(self, name: str) -> list[str]:
        """A text, or a list of texts."""
        value = self.values.get(name)
        if not value:
            raise Refused(400, f"{name} is missing.")
        several = value if isinstance(value, list) else [value]
        if not all(isinstance(one, str) for one in several):
            raise Refused(400, f"{name} must be a text, or a list of texts.")
        return [clean(one) for one in several]

    def whole(self, name: str, most: int) -> int:
        """A whole number from 0 to `most`; 0 where it is missing."""
        value = self.values.get(name) or 0
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < MOST_SHOWN:
            value = int(value)
        if type(value) is not int:
            raise Refused(400, f"{name} must be a whole number.")
        if not 0 <= value <= most:
            raise Refused(400, f"{name} must be from 0 to {most}.")
        return value

    def yes(self, name: str) -> bool:
        """Whether it is true; forms say so in words."""
        value = self.values.get(name)
        if value not in (None, True, False, "", "true", "false", "1", "0"):
            raise Refused(400, f"{name} must be true or false.")
        return value in (True, "true", "1")

    def chosen(self, name: str, choices: Sequence[str]) -> str:
        """One of `choices`; the first where it is missing."""
        value = self.text(name, choices[0])
        if value not in choices:
            raise Refused(400, f"{name} must be {' or '.join(choices)}.")
        return value


async def fields_of(request: Request, config: ServerConfig) -> Fields:
    """The fields of a JSON object or a form, whichever was sent; those of the address count less."""
    most = BYTES_AROUND + BYTES_A_CHARACTER * config.most_characters
    body = await _body(request, most)
    asked = {name: values[-1] for name, values in _parsed(request.url.query).items()} | request.path_params
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return Fields(asked | await _multipart(request, most))
    if kind == "application/x-www-form-urlencoded":
        try:
            return Fields(asked | _single(_parsed(body.decode())))
        except UnicodeDecodeError as error:
            raise Refused(400, "the form is not in UTF-8.") from error
    if not body:
        return Fields(asked)
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, "the body is neither a form nor JSON.") from error
    if not isinstance(found, dict):
        raise Refused(400, "the body must be a JSON object.")
    return Fields(found)


def shown(text: str) -> str:
    """What a client sent, as an answer may quote it."""
    told = printable(text)
    return told if len(told) <= MOST_SHOWN else f"{told[:MOST_SHOWN]}…"


def clean(text: str) -> str:
    """`text` as Unicode has it: JSON can spell halves of characters."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


async def _body(request: Request, most: int) -> bytes:
    """All of it; kept where Starlette looks for it, too."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise Refused(413, f"the body has more than {most:,} bytes; send less at a time.")
        chunks.append(chunk)
    request._body = b"".join(chunks)
    return request._body


def _parsed(form: str) -> dict[str, list[str]]:
    try:
        return parse_qs(form, keep_blank_values=True, max_num_fields=10_000)
    except ValueError as error:
        raise Refused(400, "the form has too many fields.") from error


async def _multipart(request: Request, most: int) -> dict[str, Any]:
    found: dict[str, list[str]] = {}
    try:
        async with request.form(max_files=0, max_fields=10_000, max_part_size=most) as form:
            for name, value in form.multi_items():
                if isinstance(value, UploadFile):
                    raise Refused(400, "files are not translated; send their text.")
                found.setdefault(name, []).append(value)
    except (HTTPException, ValueError, LookupError, AssertionError) as error:
        raise Refused(400, "the form is damaged.") from error
    return _single(found)


def _single(form: Mapping[str, list[str]]) -> dict[str, Any]:
    """What a field holds; a list where it was sent several times. Forms end lines as mail does."""
    lines = {name: [value.replace("\r\n", "\n") for value in values] for name, values in form.items()}
    return {name: values[0] if len(values) == 1 else values for name, values in lines.items()}
