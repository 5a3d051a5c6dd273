"""The part of LibreTranslate's API that translates files."""

import asyncio
import secrets
from pathlib import PurePath

from starlette.responses import JSONResponse, Response

from nmt_cli.serving.apis.bodies import Fields, shown
from nmt_cli.serving.apis.glossaries import in_request
from nmt_cli.serving.apis.libretranslate import find_direction
from nmt_cli.serving.documents import TranslationRequest
from nmt_cli.serving.refused import Refused
from nmt_cli.serving.service import Service
from nmt_cli.serving.store import MAX_SECONDS
from nmt_cli.text.declared import declared_utf8
from nmt_cli.text.formats import SUFFIXES

PLAIN = ".txt"


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
        TranslationRequest(
            direction,
            [text],
            markup=SUFFIXES.get(ending),
            glossary=await in_request(service, fields, direction),
        )
    )
    # Encoding megabytes would hold up other requests.
    content = await asyncio.to_thread(translated.text.encode)
    # Nobody can guess the name.
    name = f"{secrets.token_hex(16)}.{direction.target}{ending}"
    await asyncio.to_thread(service.store.add_file, name, content)
    asyncio.get_running_loop().call_later(MAX_SECONDS, service.store.remove_old_files)
    return JSONResponse({"translatedFileUrl": f"{fields.address}download_file/{name}"})


async def download_file(service: Service, fields: Fields) -> Response:
    """Answer `GET /download_file/NAME` with a translated file. Raise `Refused` (404) for an unknown name."""
    content = await asyncio.to_thread(service.store.file, name := fields.text("name"))
    if content is None:
        raise Refused(404, f"There is no file {shown(name)}. Translated files are kept for ten minutes.")
    # A browser must not show it as a page of this server.
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    return Response(content, media_type="application/octet-stream", headers=headers)
