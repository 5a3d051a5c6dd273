"""The part of DeepL's API that clients need: translation, languages and usage."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from nmt_cli.serving.apis import glossaries, libretranslate
from nmt_cli.serving.apis.bodies import Fields
from nmt_cli.serving.documents import TranslationRequest
from nmt_cli.serving.refused import Refused
from nmt_cli.serving.service import Service
from nmt_cli.text.markup import Dialect

DIALECTS: Mapping[str, Dialect] = {"html": "html", "xml": "xml"}

UNLIMITED = 1_000_000_000_000
"""The character limit that DeepL reports for accounts without one."""


def error_body(refused: Refused) -> Mapping[str, Any]:
    """Return the JSON body for an error in the format of DeepL: the field `message`."""
    return {"message": refused.message}


async def translate(service: Service, fields: Fields) -> Response:
    """Answer `POST /v2/translate`. With `tag_handling` xml or html, markup stays as it is.

    `ignore_tags` is a list, or a text with commas. `context` and a preferred formality have no effect. Raise
    `Refused` for wrong or unsupported fields (400), an unknown glossary (404), too much text (413), a busy
    server (429), or a failure (503).
    """
    texts = fields.texts("text")
    source = fields.text("source_lang", libretranslate.AUTO)
    markup = (
        DIALECTS[fields.chosen("tag_handling", (*DIALECTS,))] if fields.text("tag_handling", "") else None
    )
    # A client that sends prefer_more accepts any form. One that sends more does not.
    if (formality := fields.text("formality", "")) in ("more", "less"):
        raise Refused(400, f"formality is not supported. Send prefer_{formality}, which has no effect.")
    ignored = fields.texts("ignore_tags") if fields.values.get("ignore_tags") else []
    names = frozenset(name.strip().lower() for entry in ignored for name in entry.split(","))
    direction, _ = await libretranslate.find_direction(service, source, fields.text("target_lang"), texts)
    glossary = await glossaries.by_id(service, fields, direction)
    translated, _ = await service.translate(
        TranslationRequest(direction, texts, 0, markup, names, glossary=glossary, are_fragments=True)
    )
    translations: list[dict[str, Any]] = [
        {
            # DeepL writes codes in upper case.
            "detected_source_language": direction.source.upper(),
            "text": one.text,
            "billed_characters": len(text),
        }
        for text, one in zip(texts, translated, strict=True)
    ]
    if fields.yes("confidence"):
        for row, one in zip(translations, translated, strict=True):
            row["confidence"] = round(one.confidence, 4)
    return JSONResponse({"translations": translations})


async def languages(service: Service, fields: Fields) -> Response:
    """Answer `GET /v2/languages` with the languages of one `type`: "source", the default, or "target"."""
    served = service.directions
    targets = dict.fromkeys(target for source in served.sources for target in served.targets(source))
    listed = targets if fields.chosen("type", ("source", "target")) == "target" else served.sources
    return JSONResponse(
        [{"language": one.upper(), "name": served.names[one], "supports_formality": False} for one in listed]
    )


async def usage(service: Service, _: Fields) -> Response:
    """Answer `GET /v2/usage` with the number of characters in all requests since the server started."""
    count = service.metrics.value("nmt_characters_total")
    return JSONResponse({"character_count": count, "character_limit": UNLIMITED})
