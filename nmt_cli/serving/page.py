"""The web page of the server, and the alignments and attention pages that the page requests."""

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
from nmt_cli.serving.service import Service
from nmt_cli.translation.attention_page import write_attention_page
from nmt_cli.translation.pairs import ids_of
from nmt_cli.translation.text.word_links import word_links

POLICY = (
    "default-src 'none'; style-src {style}; script-src {script}; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'self'"
)
HEADERS = {  # other sites must not embed a page
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
SCRIPTS = ("events.js", "words.js", "page.js")
MAX_DRAWN = 20
"""Maximum number of sentences of an attention page. Each takes tens of kilobytes."""

MAX_DRAWN_TOKENS = 200
"""Maximum number of subword tokens of a sentence on an attention page."""

Pair = tuple[str, str]
"""A sentence and its translation."""


def start_page(service: Service, needs_key: bool) -> str:
    """Return the HTML page that translates in the browser and, if `needs_key`, asks for an API key."""
    served = service.directions
    data = {
        "languages": {one: name_of(one) for one in served.languages},
        "targets": {one: served.targets(one) for one in served.sources},
        "maxCharacters": service.config.most_characters,
        "needsKey": needs_key,
    }
    return compose("Translate", files("nmt_cli.serving") / "page", SCRIPTS, data, POLICY, "tool")


async def align(service: Service, fields: Fields) -> Response:
    """Answer `POST /align` with JSON: words of both sides of each of `pairs`, and links of word indices.
    Raise `Refused` for wrong fields (400), too much text (413), or a busy server (429)."""
    model, pairs = _requested(service, fields)
    return JSONResponse(await service.run_in_thread(len(pairs), partial(_aligned, model, pairs)))


async def attention(service: Service, fields: Fields) -> Response:
    """Answer `POST /attention` with a page of weights. Skip pairs with an empty side. Raise `Refused` as
    `align` does, and (413) for over `MAX_DRAWN` pairs or a sentence of over `MAX_DRAWN_TOKENS` tokens."""
    model, pairs = _requested(service, fields)
    if len(pairs) > MAX_DRAWN:
        raise Refused(413, f"The request has {len(pairs)} sentences. Send at most {MAX_DRAWN}.")
    drawn = await service.run_in_thread(len(pairs), partial(_drawn, model, pairs))
    return Response(drawn, media_type="text/html", headers=HEADERS)


def _requested(service: Service, fields: Fields) -> tuple[Model, list[Pair]]:
    """Return the model and the pairs of a request. Raise `Refused` (400) if `pairs` has no pairs of texts, or
    no single model has the direction. Raise `Refused` (413) for too many or too long texts."""
    pairs = fields.values.get("pairs")
    if isinstance(pairs, str):  # of a form
        try:
            pairs = json.loads(pairs)
        except (ValueError, RecursionError):
            pairs = None
    if not isinstance(pairs, list) or not pairs or not all(_is_pair(one) for one in pairs):
        raise Refused(400, "pairs must be a list of pairs of texts.")
    texts = [(clean(source), clean(target)) for source, target in pairs]
    service.check_size([text for pair in texts for text in pair])
    source, target = fields.text("source"), fields.text("target")
    direction = service.directions.find(source, target)
    if not direction or len(direction.models) > 1:
        raise Refused(400, f"No single model translates {shown(source)} into {shown(target)}.")
    return direction.models[0], texts


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(one, str) for one in value)


def _aligned(model: Model, pairs: Sequence[Pair]) -> list[Mapping[str, Any]]:
    """Return the words and links of each pair. A pair with an empty or too long side has no links."""
    tokenizers = model.tokenizers
    aligned_pairs: list[Mapping[str, Any]] = []
    for pair in pairs:
        source, target = ids_of(tokenizers, pair)
        words = [tokenizers.source.decode(source).split(), tokenizers.target.decode(target).split()]
        links: list[tuple[int, int]] = []
        if source and target and max(len(source), len(target)) <= model.max_source_tokens:
            aligned = alignment(model.transformers[0], [source], [target])
            links = word_links(tokenizers, [source], [target], aligned)
        aligned_pairs.append({"source": words[0], "target": words[1], "links": links})
    return aligned_pairs


def _drawn(model: Model, pairs: Sequence[Pair]) -> bytes:
    """Return the attention page as bytes, without pairs with an empty side. Raise `Refused` (413) if a
    sentence has more than `MAX_DRAWN_TOKENS` tokens."""
    tokenizers = model.tokenizers
    ids = [ids_of(tokenizers, pair) for pair in pairs]
    if max(len(one) for sides in ids for one in sides) > MAX_DRAWN_TOKENS:
        raise Refused(413, f"A sentence has more than {MAX_DRAWN_TOKENS} tokens, too many for the page.")
    nonempty = [(pair[0], *sides) for pair, sides in zip(pairs, ids, strict=True) if all(sides)]
    file = io.BytesIO()
    write_attention_page(file, model.transformers[0], tokenizers, nonempty)
    return file.getvalue()
