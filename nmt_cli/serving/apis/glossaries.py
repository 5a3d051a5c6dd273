"""The part of DeepL's API that manages glossaries, and the glossaries of translation requests."""

import asyncio
import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.responses import JSONResponse, Response

from nmt_cli.errors import UserError
from nmt_cli.serving.apis.bodies import Fields, clean, shown
from nmt_cli.serving.directions import Direction
from nmt_cli.serving.refused import Refused
from nmt_cli.serving.service import Service
from nmt_cli.serving.store import StoredGlossary
from nmt_cli.text.glossary import Terms, terms_of
from nmt_cli.translation.text.model_glossary import Glossary

MAX_TERMS, MAX_TERMS_IN_REQUEST = 10_000, 1000
MAX_FORMS = 50
"""Maximum number of translations of a term, since each takes as long to encode as a term."""

MAX_CHARACTERS = 200
"""Maximum number of characters of a source or target term."""


async def create(service: Service, fields: Fields) -> Response:
    """Answer `POST /v2/glossaries` by storing a glossary. Raise `Refused` (400) for invalid entries, for a
    direction that no model has, and if the server already stores as many as it can."""
    name, form = fields.text("name"), fields.chosen("entries_format", ("tsv", "csv"))
    source, target = fields.text("source_lang"), fields.text("target_lang")
    if not (direction := service.directions.find(source, target)):
        reason = f"No model translates {shown(source)} into {shown(target)}."
        raise Refused(400, f"{reason} {service.directions.offered(source)}")
    terms = _parsed(fields.text("entries"), form)
    glossary = await _encoded(service, terms, direction)
    stored = StoredGlossary(name, direction.source, direction.target, terms)
    await asyncio.to_thread(service.store.add_glossary, stored)
    service.glossaries[stored.key] = glossary
    return JSONResponse(_described(stored), 201)


async def listed(service: Service, _: Fields) -> Response:
    """Answer `GET /v2/glossaries`."""
    stored = await asyncio.to_thread(service.store.glossaries)
    return JSONResponse({"glossaries": [_described(one) for one in stored]})


async def one(service: Service, fields: Fields) -> Response:
    """Answer `GET /v2/glossaries/ID`. Raise `Refused` (404) for an unknown glossary."""
    return JSONResponse(_described(await _stored(service, fields.text("id"))))


async def entries(service: Service, fields: Fields) -> Response:
    """Answer `GET /v2/glossaries/ID/entries` with a line per term. Raise `Refused` (404)."""
    terms = (await _stored(service, fields.text("id"))).terms
    lines = ("\t".join([source, *forms]) for source, forms in terms.items())
    return Response("\n".join(lines), media_type="text/tab-separated-values")


async def delete(service: Service, fields: Fields) -> Response:
    """Answer `DELETE /v2/glossaries/ID`. Raise `Refused` (404) for an unknown glossary."""
    stored = await _stored(service, fields.text("id"))
    await asyncio.to_thread(service.store.remove_glossary, stored.key)
    service.glossaries.pop(stored.key, None)
    return Response(status_code=204)


async def language_pairs(service: Service, _: Fields) -> Response:
    """Answer `GET /v2/glossary-language-pairs` with the directions of single models."""
    pairs = [pair for served in service.directions.models for pair in served.directions]
    languages = [{"source_lang": source, "target_lang": target} for source, target in pairs]
    return JSONResponse({"supported_languages": languages})


async def by_id(service: Service, fields: Fields, direction: Direction) -> Glossary | None:
    """Return the glossary that the field `glossary_id` names, or None without the field.

    Raise `Refused` (404) if it is unknown. Raise `Refused` (400) if it is for another direction, if
    `source_lang` is missing, and for the field `glossary_ids`.
    """
    if fields.values.get("glossary_ids"):
        raise Refused(400, "glossary_ids is not supported. Send one glossary_id.")
    if not (key := fields.text("glossary_id", "")):
        return None
    stored = await _stored(service, key)
    if not fields.text("source_lang", ""):
        raise Refused(400, "glossary_id needs source_lang.")
    if (pair := f"{stored.source}-{stored.target}") != direction.name:
        raise Refused(400, f"The glossary is for {pair}, but the request is for {direction.name}.")
    if key not in service.glossaries:  # another process has stored it
        async with service.encoding:
            if key not in service.glossaries:
                # Another request may have encoded it meanwhile, hence the second look.
                service.glossaries[key] = await _encoded(service, stored.terms, direction)
    return service.glossaries[key]


async def in_request(service: Service, fields: Fields, direction: Direction) -> Glossary | None:
    """Return the glossary that the field `glossary` contains, or None without the field.

    It is an object with a translation, or a list of them, for each source. A list of lists does as well: a
    source and its translations. Both may be JSON in a text. Raise `Refused` (400) for another form.
    """
    if (value := fields.values.get("glossary")) in (None, ""):
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if isinstance(value, dict):
        value = [
            [source, *(forms if isinstance(forms, list) else [forms])] for source, forms in value.items()
        ]
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        raise Refused(400, "glossary must be a JSON object or a list of lists.")
    rows = ([clean(text) if isinstance(text, str) else text for text in row] for row in value)
    return await _encoded(service, _terms(rows, MAX_TERMS_IN_REQUEST), direction)


def _terms(rows: Iterable[Sequence[object]], limit: int) -> Terms:
    """Return the terms of `rows`. A row is a source and its accepted translations.

    Raise `Refused` (400) for a repeated source, for something that is not a text of up to `MAX_CHARACTERS`,
    for more than `MAX_FORMS` translations, and unless there are 1 to `limit` terms.
    """
    texts: list[list[str]] = []
    for number, row in enumerate(rows, start=1):
        texts.append([text for text in row if isinstance(text, str) and len(text) <= MAX_CHARACTERS])
        if len(texts[-1]) < len(row):
            raise Refused(400, f"Entry {number:,} must have texts of up to {MAX_CHARACTERS:,} characters.")
        # A body of 1.2 MB could have 600,000 translations of one term, which nothing would stop from being
        # encoded.
        if len(row) > 1 + MAX_FORMS:
            raise Refused(400, f"Entry {number:,} has more than {MAX_FORMS} translations. Shorten it.")
        if number > limit:
            raise Refused(400, f"The glossary has more than {limit:,} entries. Shorten it.")
    try:
        return terms_of(texts, "entry")
    except UserError as error:
        raise Refused(400, str(error)) from error


def _parsed(text: str, form: str) -> Terms:
    """Return the terms of a text in a format of DeepL. Raise `Refused` (400) for damage.

    In "tsv", a line has a source and its translations. In "csv", it has a source and one translation, and
    further columns are languages.
    """
    if form == "tsv":
        return _terms((line.split("\t") for line in text.splitlines()), MAX_TERMS)
    # Otherwise, damaged quotes would be read as a part of a term.
    rows = csv.reader(text.splitlines(), strict=True)
    try:
        entries = [row[:2] for row in rows]
    except csv.Error as error:
        raise Refused(400, f"Line {rows.line_num:,} of the entries is not valid CSV: {error}.") from error
    return _terms(entries, MAX_TERMS)


async def _encoded(service: Service, terms: Terms, direction: Direction) -> Glossary:
    """Return the glossary for the model of `direction`. Raise `Refused` (400) if two models translate, for
    terms that the model cannot write, and for search settings that cannot use a glossary."""
    if len(direction.legs) > 1:
        raise Refused(400, f"No single model translates {direction.name}, so it cannot use a glossary.")
    async with service.models.using(direction.legs) as (model,):
        try:
            glossary = await asyncio.to_thread(model.glossary, terms)
            glossary.check(model.config.search, model.tokenizers)
        except UserError as error:
            raise Refused(400, str(error)) from error
    return glossary


async def _stored(service: Service, key: str) -> StoredGlossary:
    """Return a stored glossary. Raise `Refused` (404) if there is none with this id."""
    if stored := await asyncio.to_thread(service.store.glossary, key):
        return stored
    service.glossaries.pop(key, None)
    # Another process may have removed it, so this one must not keep it.
    raise Refused(404, f"There is no glossary {shown(key)}.")


def _described(stored: StoredGlossary) -> Mapping[str, Any]:
    """Return a glossary as JSON data, without its entries."""
    return {
        "glossary_id": stored.key,
        "ready": True,
        "name": stored.name,
        "source_lang": stored.source,
        "target_lang": stored.target,
        "creation_time": stored.created.isoformat(),
        "entry_count": len(stored.terms),
    }
