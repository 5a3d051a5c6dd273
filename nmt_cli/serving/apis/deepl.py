"""As much of DeepL's interface as its clients need to translate: texts in, texts out, and the languages."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from nmt_cli.serving.apis import libretranslate
from nmt_cli.serving.apis.bodies import Fields, shown
from nmt_cli.serving.directions import name_of
from nmt_cli.serving.refused import Refused
from nmt_cli.serving.texts.documents import Wanted
from nmt_cli.serving.translating import Desk

UNLIMITED = 1_000_000_000_000
"""The character limit that DeepL reports for accounts without one."""


def shape(refused: Refused) -> Mapping[str, Any]:
    """Return the body of an error."""
    return {"message": refused.told}


async def translate(desk: Desk, fields: Fields) -> Response:
    """Answer `POST /v2/translate`. Contexts and preferred formalities are accepted and have no effect."""
    texts = fields.texts("text")
    source = fields.text("source_lang", libretranslate.AUTO)
    markup = fields.text("tag_handling", "") in ("xml", "html")
    _refuse_unsupported(fields)
    direction, _ = await libretranslate.found(desk, source, fields.text("target_lang"), texts)
    made = await desk.translated(Wanted(direction, texts, 0, markup, _ignored(fields)))
    answers = [
        {
            "detected_source_language": direction.source.upper(),
            "text": one.text,
            "billed_characters": len(text),
        }
        for text, one in zip(texts, made, strict=True)
    ]
    return JSONResponse({"translations": answers})


async def languages(desk: Desk, fields: Fields) -> Response:
    """Answer `GET /v2/languages` with those of one `type`, source or target."""
    served = desk.directions
    targets = dict.fromkeys(target for source in served.sources for target in served.targets(source))
    listed = targets if fields.chosen("type", ("source", "target")) == "target" else served.sources
    return JSONResponse(
        [{"language": one.upper(), "name": name_of(one), "supports_formality": False} for one in listed]
    )


async def glossary_pairs(_: Desk, __: Fields) -> Response:
    """Answer `GET /v2/glossary-language-pairs` with none. Some clients ask this first."""
    return JSONResponse({"supported_languages": []})


async def glossaries(_: Desk, __: Fields) -> Response:
    """Answer `GET /v2/glossaries` and `GET /v3/glossaries` with none."""
    return JSONResponse({"glossaries": []})


async def usage(desk: Desk, _: Fields) -> Response:
    """Answer `GET /v2/usage` with the characters translated since the server was started, for all keys."""
    return JSONResponse({"character_count": desk.metrics.characters, "character_limit": UNLIMITED})


def _refuse_unsupported(fields: Fields) -> None:
    """Refuse settings that clients rely on and that have no effect here, as DeepL does."""
    if (formality := fields.text("formality", "")) in ("more", "less"):
        raise Refused(400, f"formality is not supported; send prefer_{formality}, which has no effect here.")
    if glossary := fields.text("glossary_id", ""):
        raise Refused(404, f"there is no glossary {shown(glossary)}.")


def _ignored(fields: Fields) -> frozenset[str]:
    """Names of elements, in a list or with commas between."""
    given = fields.texts("ignore_tags") if fields.values.get("ignore_tags") else []
    return frozenset(name.strip().lower() for names in given for name in names.split(","))
