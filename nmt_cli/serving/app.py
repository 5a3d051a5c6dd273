"""All routes of the server, as one ASGI application."""

from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from nmt_cli.serving import page
from nmt_cli.serving.apis import deepl, libretranslate, openai
from nmt_cli.serving.apis.answers import Answering, Shape, endpoint
from nmt_cli.serving.front import Front
from nmt_cli.serving.keys import Keys
from nmt_cli.serving.refused import Refused
from nmt_cli.serving.translating import Desk


def application(desk: Desk, keys: Keys) -> Front:
    """The application that answers from this desk those whose keys are good."""

    def route(path: str, method: str, answering: Answering, shape: Shape, needs_key: bool = True) -> Route:
        keyless = 401 if shape is openai.shape else 403
        allowed = keys if needs_key else Keys()
        return Route(path, endpoint(desk, allowed, answering, shape, keyless), methods=[method])

    free = partial(route, shape=libretranslate.shape, needs_key=False)
    routes = [
        route("/translate", "POST", libretranslate.translate, libretranslate.shape),
        route("/detect", "POST", libretranslate.detect, libretranslate.shape),
        free("/languages", "GET", libretranslate.languages),
        route("/align", "POST", page.align, libretranslate.shape),
        route("/attention", "POST", page.attention, libretranslate.shape),
        route("/v2/translate", "POST", deepl.translate, deepl.shape),
        route("/v2/languages", "GET", deepl.languages, deepl.shape),
        route("/v2/glossary-language-pairs", "GET", deepl.glossary_pairs, deepl.shape),
        route("/v2/usage", "GET", deepl.usage, deepl.shape),
        route("/v2/glossaries", "GET", deepl.glossaries, deepl.shape),
        route("/v3/glossaries", "GET", deepl.glossaries, deepl.shape),
        route("/v1/chat/completions", "POST", openai.complete, openai.shape),
        route("/v1/models", "GET", openai.models, openai.shape),
        route("/v1/models/{model:path}", "GET", openai.model, openai.shape),
        *_for_machines(desk, keys),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refused, Exception: _fault})
    return Front(app, desk.metrics, frozenset(one.path for one in routes))


def _for_machines(desk: Desk, keys: Keys) -> list[Route]:
    """What takes no body and needs no key."""

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def metrics(_: Request) -> Response:
        restarts = sum(model.restarts for model in desk.directions.models)
        told = desk.metrics.as_text(desk.waiting, restarts)
        return PlainTextResponse(told, media_type="text/plain; version=0.0.4")

    async def settings(_: Request) -> Response:
        return JSONResponse(libretranslate.settings(desk, keys.needed))

    shown = page.Page(desk, keys.needed)

    async def index(_: Request) -> Response:
        return shown.response()

    named = {"/": index, "/health": health, "/metrics": metrics, "/frontend/settings": settings}
    return [Route(path, answer, methods=["GET"]) for path, answer in named.items()]


async def _fault(_: Request, __: Exception) -> Response:
    return JSONResponse({"error": "a fault of nmt's own; the output of the server says where."}, 500)


async def _refused(request: Request, error: Exception) -> Response:
    """Answer requests for other addresses, or by another method, as the clients that send them expect."""
    assert isinstance(error, HTTPException)
    messages = {404: "there is nothing at this address.", 405: "this address takes another method."}
    refused = Refused(error.status_code, messages.get(error.status_code, error.detail))
    shapes = {"v1": openai.shape, "v2": deepl.shape, "v3": deepl.shape}
    shape = shapes.get(request.url.path.split("/")[1], libretranslate.shape)
    return JSONResponse(shape(refused), error.status_code, error.headers)
