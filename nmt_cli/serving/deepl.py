"""As much of DeepL's interface as its clients need to translate: texts in, texts out, and the languages."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from nmt_cli.serving import libretranslate
from nmt_cli.serving.bodies import Fields
from nmt_cli.serving.directions import name_of
from nmt_cli.serving.documents import Wanted
from nmt_cli.serving.refused import Refused
from nmt_cli.serving.translating import Desk


def shape(refused: Refused) -> Mapping[str, Any]:
    """What is wrong."""
    return {"message": refused.told}


async def translate(desk: Desk, fields: Fields) -> Response:
    """`POST /v2/translate`; formality, contexts and glossaries are taken and have no effect."""
    texts = fields.texts("text")
    source = fields.text("source_lang", libretranslate.AUTO)
    markup = fields.text("tag_handling", "") in ("xml", "html")
    direction, _ = await libretranslate.found(desk, source, fields.text("target_lang"), texts)
    made = await desk.translated(Wanted(direction, texts, 0, markup, _ignored(fields)))
    found = direction.source.upper()
    return JSONResponse(
        {"translations": [{"detected_source_language": found, "text": one.text} for one in made]}
    )


async def languages(desk: Desk, fields: Fields) -> Response:
    """`GET /v2/languages`, of one of the types source and target."""
    served = desk.directions
    targets = dict.fromkeys(target for source in served.sources for target in served.targets(source))
    listed = targets if fields.chosen("type", ("source", "target")) == "target" else served.sources
    return JSONResponse(
        [{"language": one.upper(), "name": name_of(one), "supports_formality": False} for one in listed]
    )


async def glossary_pairs(_: Desk, __: Fields) -> Response:
    """`GET /v2/glossary-language-pairs`: there are none, which some clients ask first."""
    return JSONResponse({"supported_languages": []})


def _ignored(fields: Fields) -> frozenset[str]:
    """Names of elements, in a list or with commas between."""
    given = fields.texts("ignore_tags") if fields.values.get("ignore_tags") else []
    return frozenset(name.strip().lower() for names in given for name in names.split(","))
