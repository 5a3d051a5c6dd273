"""The web page of the server, and the attention page that it requests."""

import io
from functools import partial
from importlib.resources import files

from starlette.responses import Response

from nmt_cli.api import Model
from nmt_cli.html.compose import compose
from nmt_cli.runtime.threads import set_own_threads
from nmt_cli.serving.apis.bodies import Fields, shown
from nmt_cli.serving.apis.files import PLAIN
from nmt_cli.serving.config import MAX_CHARACTERS
from nmt_cli.serving.documents import TranslationRequest
from nmt_cli.serving.refused import Refused
from nmt_cli.serving.service import Service
from nmt_cli.text.formats import SUFFIXES
from nmt_cli.translation.attention_page import write_attention_page

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
SCRIPTS = ("page.js",)
MAX_DRAWN = 20
"""Maximum number of sentences of an attention page. Each takes tens of kilobytes."""

MAX_DRAWN_TOKENS = 200
"""Maximum number of subword tokens of a sentence on an attention page."""


def start_page(service: Service, needs_key: bool) -> str:
    """Return the HTML page that translates in the browser and, if `needs_key`, asks for an API key."""
    served = service.directions
    data = {
        "languages": served.names,
        "targets": {one: served.targets(one) for one in served.sources},
        "maxCharacters": MAX_CHARACTERS,
        "needsKey": needs_key,
        "files": [PLAIN, *SUFFIXES],
    }
    return compose("Translate", files("nmt_cli.serving") / "page", SCRIPTS, data, POLICY, "tool")


async def attention(service: Service, fields: Fields) -> Response:
    """Answer `POST /attention` with a page of the attention weights for the text `q`.

    The page has up to `MAX_DRAWN` sentences. Sentences of more than `MAX_DRAWN_TOKENS` tokens are left out.
    Raise `Refused` as `translate` of LibreTranslate does, and (400) for a direction that is not of a single
    model.
    """
    text, source, target = fields.text("q"), fields.text("source"), fields.text("target")
    direction = service.directions.find(source, target)
    if not direction or len(direction.legs) > 1:
        raise Refused(400, f"No single model translates {shown(source)} into {shown(target)}.")
    _, translations = await service.translate(TranslationRequest(direction, [text]))
    pairs = [
        (one.line.raw, [*sentence.tokens], [*part.tokens])
        for one in translations
        if one.candidates
        for sentence, part in zip(one.line.sentences, one.candidates[0].parts, strict=True)
        if max(len(sentence.tokens), len(part.tokens)) <= MAX_DRAWN_TOKENS
    ][:MAX_DRAWN]
    async with service.models.using(direction.legs) as (model,):
        page = await service.run_in_thread(len(pairs), partial(_drawn, model, pairs))
    return Response(page, media_type="text/html", headers=HEADERS)


def _drawn(model: Model, pairs: list[tuple[str, list[int], list[int]]]) -> bytes:
    """Return the attention page of `pairs` as bytes. A pair is as for `write_attention_page`."""
    set_own_threads(1)  # the threads of this process must not slow the workers down
    file = io.BytesIO()
    write_attention_page(file, model.transformers[0], model.tokenizers, pairs)
    return file.getvalue()
