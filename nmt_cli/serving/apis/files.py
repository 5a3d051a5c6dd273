"""The part of LibreTranslate's API that translates files."""

import asyncio
import secrets
import time
from pathlib import PurePath

from starlette.responses import JSONResponse, Response

from nmt_cli.serving.apis.bodies import Fields, shown
from nmt_cli.serving.apis.glossaries import in_request
from nmt_cli.serving.apis.libretranslate import find_direction
from nmt_cli.serving.refused import Refused
from nmt_cli.serving.service import Service
from nmt_cli.serving.texts.documents import Job
from nmt_cli.text.declared import declared_utf8
from nmt_cli.text.formats import SUFFIXES

PLAIN = ".txt"

MAX_FILES, MAX_SECONDS = 100, 600
"""Maximum number of translated files in memory, and maximum age of a file in seconds."""


async def translate_file(service: Service, fields: Fields) -> Response:
    """Answer `POST /translate_file` with the address of the translated file. Raise `Refused` like `translate`
    of LibreTranslate, and (400) for other formats and files that are not UTF-8."""
    file = fields.file("file")
    ending = PurePath(file.name).suffix.lower()
    if ending != PLAIN and ending not in SUFFIXES:
        offered = ", ".join([PLAIN, *SUFFIXES])
        raise Refused(400, f"Files like {shown(file.name)} are not supported. Supported: {offered}.")
    try:
        text = file.content.decode()
    except UnicodeDecodeError as error:
        raise Refused(400, f"The file is not UTF-8 (byte {error.start + 1:,}). Convert it.") from error
    text, _ = declared_utf8(text, SUFFIXES.get(ending, PLAIN))
    source, target = fields.text("source"), fields.text("target")
    direction, _ = await find_direction(service, source, target, [text])
    (translated,), _ = await service.translate(
        Job(
            direction,
            [text],
            markup=SUFFIXES.get(ending),
            glossary=await in_request(service, fields, direction),
        )
    )
    content = await asyncio.to_thread(translated.text.encode)
    # Nobody can guess the name.
    name = f"{secrets.token_hex(16)}.{direction.target}{ending}"
    service.files[name] = time.monotonic() + MAX_SECONDS, content
    _forget_old_files(service)
    return JSONResponse({"translatedFileUrl": f"{fields.address}download_file/{name}"})


async def download_file(service: Service, fields: Fields) -> Response:
    """Answer `GET /download_file/NAME` with a translated file. Raise `Refused` (404) for an unknown name."""
    _forget_old_files(service)
    if (name := fields.text("name")) not in service.files:
        raise Refused(404, f"There is no file {shown(name)}. Translated files are kept for ten minutes.")
    # A browser must not show it as a page of this server.
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    return Response(service.files[name][1], media_type="application/octet-stream", headers=headers)


def _forget_old_files(service: Service) -> None:
    """Forget files that are too old, and the oldest beyond `MAX_FILES`."""
    now = time.monotonic()
    current = [(name, file) for name, file in service.files.items() if file[0] > now]
    service.files = dict(current[-MAX_FILES:])
