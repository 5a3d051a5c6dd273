"""The page at /, and what it asks for besides translations: words that belong together, and attention."""

import io
import json
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any

from starlette.responses import JSONResponse, Response

from nmt_cli.api import Model
from nmt_cli.decoding.attention_maps import alignment
from nmt_cli.html.compose import compose
from nmt_cli.serving.apis.bodies import Fields, clean, shown
from nmt_cli.serving.directions import name_of
from nmt_cli.serving.refused import Refused
from nmt_cli.serving.translating import Desk
from nmt_cli.translation.attention_page import write_attention_page
from nmt_cli.translation.given_pairs import ids_of
from nmt_cli.translation.text.word_links import pharaoh

POLICY = (
    "default-src 'none'; style-src {style}; script-src {script}; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'self'"
)
HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
SCRIPTS = ("events.js", "words.js", "page.js")
MOST_DRAWN = 20
"""Sentences of an attention page, which takes tens of kilobytes for each."""

LONGEST_DRAWN = 200
"""Pieces."""

Pair = tuple[str, str]
"""A sentence and its translation."""


class Page:
    """The page, made once: all that it needs is in it."""

    def __init__(self, desk: Desk, needs_key: bool) -> None:
        served = desk.directions
        data = {
            "languages": {one: name_of(one) for one in served.languages},
            "targets": {one: served.targets(one) for one in served.sources},
            "most": desk.config.most_characters,
            "needsKey": needs_key,
        }
        parts = files("nmt_cli.serving") / "page"
        self._page = compose("Translate", parts, SCRIPTS, data, POLICY, "tool")

    def response(self) -> Response:
        """The page, with headers that let nobody frame it."""
        return Response(self._page, media_type="text/html", headers=HEADERS)


async def align(desk: Desk, fields: Fields) -> Response:
    """`POST /align`: for `pairs` of sentences their words, and which belong together."""
    model, pairs = _asked(desk, fields)
    return JSONResponse(await desk.aside(len(pairs), partial(_aligned, model, pairs)))


async def attention(desk: Desk, fields: Fields) -> Response:
    """`POST /attention`: a page of where each head of each layer looks."""
    model, pairs = _asked(desk, fields)
    if len(pairs) > MOST_DRAWN:
        raise Refused(413, f"there are {len(pairs)} sentences; send at most {MOST_DRAWN}.")
    drawn = await desk.aside(len(pairs), partial(_drawn, model, pairs))
    return Response(drawn, media_type="text/html", headers=HEADERS)


def _asked(desk: Desk, fields: Fields) -> tuple[Model, list[Pair]]:
    pairs = fields.values.get("pairs")
    if isinstance(pairs, str):  # a form's
        try:
            pairs = json.loads(pairs)
        except (ValueError, RecursionError):
            pairs = None
    if not isinstance(pairs, list) or not pairs or not all(_is_pair(one) for one in pairs):
        raise Refused(400, "pairs must be a list of pairs of texts.")
    found = [(clean(source), clean(target)) for source, target in pairs]
    desk.bounded([text for pair in found for text in pair])
    source, target = fields.text("source"), fields.text("target")
    direction = desk.directions.find(source, target)
    if not direction or len(direction.models) > 1:
        raise Refused(400, f"no single model translates {shown(source)} into {shown(target)}.")
    return direction.models[0], found


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(one, str) for one in value)


def _aligned(model: Model, pairs: Sequence[Pair]) -> list[Mapping[str, Any]]:
    tokenizers = model.tokenizers
    found: list[Mapping[str, Any]] = []
    for pair in pairs:
        source, target = ids_of(tokenizers, pair)
        words = [tokenizers.source.decode(source).split(), tokenizers.target.decode(target).split()]
        links: list[list[int]] = []
        if source and target and max(len(source), len(target)) <= model.max_source_tokens:
            aligned = alignment(model.transformers[0], [source], [target])
            written = pharaoh(tokenizers, [source], [target], aligned)
            links = [[int(word) for word in link.split("-")] for link in written.split()]
        found.append({"source": words[0], "target": words[1], "links": links})
    return found


def _drawn(model: Model, pairs: Sequence[Pair]) -> bytes:
    tokenizers = model.tokenizers
    ids = [ids_of(tokenizers, pair) for pair in pairs]
    if max(len(one) for both in ids for one in both) > LONGEST_DRAWN:
        raise Refused(413, f"a sentence has more than {LONGEST_DRAWN} pieces, too many to be drawn.")
    shown_pairs = [(pair[0], *both) for pair, both in zip(pairs, ids, strict=True) if all(both)]
    file = io.BytesIO()
    write_attention_page(file, model.transformers[0], tokenizers, shown_pairs)
    return file.getvalue()
