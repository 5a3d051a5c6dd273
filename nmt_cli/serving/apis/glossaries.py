"""The part of DeepL's API that manages glossaries, and the glossaries of translation requests."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from nmt_cli.serving.apis.bodies import Fields, clean, shown
from nmt_cli.serving.directions import Direction
from nmt_cli.serving.refused import Refused
from nmt_cli.serving.service import Service
from nmt_cli.serving.texts.glossaries import (
    MAX_GLOSSARIES,
    MAX_TERMS_IN_REQUEST,
    ServedGlossary,
    checked_terms,
    parsed_entries,
)


async def create(service: Service, fields: Fields) -> Response:
    """Answer `POST /v2/glossaries`. Raise `Refused` (400) for invalid entries and other directions than those
    of the models, and beyond `MAX_GLOSSARIES`."""
    if len(service.glossaries) >= MAX_GLOSSARIES:
        raise Refused(400, f"The server has {MAX_GLOSSARIES:,} glossaries, its limit. Delete one first.")
    name, form = fields.text("name"), fields.chosen("entries_format", ("tsv", "csv"))
    source, target = fields.text("source_lang"), fields.text("target_lang")
    if not (direction := service.directions.find(source, target)):
        raise Refused(400, f"No model translates {shown(source)} into {shown(target)}.")
    refuse_pivot(direction)
    glossary = ServedGlossary(parsed_entries(fields.text("entries"), form), direction.name, name)
    async with service.models.using(direction.models) as (model,):
        await asyncio.to_thread(glossary.of_model, model, model.config.search)
    service.glossaries[glossary.key] = glossary
    return JSONResponse(_described(service, glossary), 201)


async def listed(service: Service, _: Fields) -> Response:
    """Answer `GET /v2/glossaries`."""
    return JSONResponse({"glossaries": [_described(service, one) for one in service.glossaries.values()]})


async def one(service: Service, fields: Fields) -> Response:
    """Answer `GET /v2/glossaries/ID`. Raise `Refused` (404) for an unknown glossary."""
    return JSONResponse(_described(service, stored(service, fields.text("id"))))


async def entries(service: Service, fields: Fields) -> Response:
    """Answer `GET /v2/glossaries/ID/entries` with a line per term. Raise `Refused` (404)."""
    terms = stored(service, fields.text("id")).terms
    lines = ("\t".join([source, *forms]) for source, forms in terms.items())
    return Response("\n".join(lines), media_type="text/tab-separated-values")


async def delete(service: Service, fields: Fields) -> Response:
    """Answer `DELETE /v2/glossaries/ID`. Raise `Refused` (404) for an unknown glossary."""
    del service.glossaries[stored(service, fields.text("id")).key]
    return Response(status_code=204)


async def language_pairs(service: Service, _: Fields) -> Response:
    """Answer `GET /v2/glossary-language-pairs` with the directions of single models."""
    pairs = [served.languages for served in service.directions.models]
    languages = [{"source_lang": source, "target_lang": target} for source, target in pairs]
    return JSONResponse({"supported_languages": languages})


def stored(service: Service, key: str) -> ServedGlossary:
    """Return a stored glossary. Raise `Refused` (404) if there is none with this id."""
    if glossary := service.glossaries.get(key):
        return glossary
    raise Refused(404, f"There is no glossary {shown(key)}.")


def by_id(service: Service, fields: Fields, direction: Direction) -> ServedGlossary | None:
    """Return the glossary of the field `glossary_id`, if any. Raise `Refused` (404) if it is unknown, and
    (400) for another direction, without `source_lang`, and for the field `glossary_ids`."""
    if fields.values.get("glossary_ids"):
        raise Refused(400, "glossary_ids is not supported. Send one glossary_id.")
    if not (key := fields.text("glossary_id", "")):
        return None
    glossary = stored(service, key)
    if not fields.text("source_lang", ""):
        raise Refused(400, "glossary_id needs source_lang.")
    if glossary.direction != direction.name:
        raise Refused(
            400, f"The glossary is for {glossary.direction}, but the request is for {direction.name}."
        )
    return glossary


def in_request(fields: Fields, direction: Direction) -> ServedGlossary | None:
    """Return the glossary in the field `glossary`, if any: an object of sources with a translation or a list
    of them, or a list of such pairs, also as JSON in a text. Raise `Refused` (400) for another form."""
    if (value := fields.values.get("glossary")) in (None, ""):
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise Refused(400, "glossary is not JSON.") from error
    if isinstance(value, dict):
        value = [
            [source, *(forms if isinstance(forms, list) else [forms])] for source, forms in value.items()
        ]
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        raise Refused(400, "glossary must be an object, or a list of lists.")
    refuse_pivot(direction)
    rows = ([clean(text) if isinstance(text, str) else text for text in row] for row in value)
    return ServedGlossary(checked_terms(rows, MAX_TERMS_IN_REQUEST), direction.name)


def refuse_pivot(direction: Direction) -> None:
    """Raise `Refused` (400) if two models translate in this direction."""
    if len(direction.models) > 1:
        raise Refused(400, f"No single model translates {direction.name}, so it cannot use a glossary.")


def _described(service: Service, glossary: ServedGlossary) -> Mapping[str, Any]:
    """Return a glossary as JSON data, without its entries."""
    direction = service.directions.named[glossary.direction]
    return {
        "glossary_id": glossary.key,
        "ready": True,
        "name": glossary.name,
        "source_lang": direction.source,
        "target_lang": direction.target,
        "creation_time": glossary.created.isoformat(),
        "entry_count": len(glossary.terms),
    }
