"""The ASGI application with all routes of the server."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from nmt_cli.serving import page
from nmt_cli.serving.apis import deepl, libretranslate, openai
from nmt_cli.serving.apis.answers import ErrorBody, Handler, endpoint
from nmt_cli.serving.keys import Keys
from nmt_cli.serving.middleware import Middleware
from nmt_cli.serving.refused import Refused
from nmt_cli.serving.service import Service


def application(service: Service, keys: Keys) -> Middleware:
    """Return the application with all routes for `service`. If `keys` has keys, `/translate`, `/detect`,
    `/attention` and all routes of DeepL and OpenAI need one."""

    def route(path: str, method: str, handler: Handler, keys: Keys = keys) -> Route:
        error_body = _error_body(path)
        no_key_status = 401 if error_body is openai.error_body else 403
        return Route(path, endpoint(service, keys, handler, error_body, no_key_status), methods=[method])

    routes = [
        route("/translate", "POST", libretranslate.translate),
        route("/detect", "POST", libretranslate.detect),
        route("/languages", "GET", libretranslate.languages, Keys()),
        route("/attention", "POST", page.attention),
        route("/v2/translate", "POST", deepl.translate),
        route("/v2/languages", "GET", deepl.languages),
        route("/v2/usage", "GET", deepl.usage),
        route("/v1/chat/completions", "POST", openai.complete),
        route("/v1/models", "GET", openai.models),
        route("/v1/models/{model:path}", "GET", openai.model),
        *_public_routes(service, keys),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _http_error, Exception: _fault})
    return Middleware(app, service.metrics, frozenset(one.path for one in routes))


def _public_routes(service: Service, keys: Keys) -> list[Route]:
    """Return the GET routes that need no key: start page, health and metrics."""
    html = page.start_page(service, keys.needed)

    async def index(_: Request) -> Response:
        return Response(html, media_type="text/html", headers=page.HEADERS)

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def metrics(_: Request) -> Response:
        restarts = sum(model.restarts for model in service.directions.models)
        text = service.metrics.as_text(service.waiting, restarts)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    endpoints = {"/": index, "/health": health, "/metrics": metrics}
    return [Route(path, respond, methods=["GET"]) for path, respond in endpoints.items()]


def _error_body(path: str) -> ErrorBody:
    """Return what builds error bodies: OpenAI's for /v1, DeepL's for /v2 and /v3, else LibreTranslate's."""
    formats = {"v1": openai.error_body, "v2": deepl.error_body, "v3": deepl.error_body}
    return formats.get(path.split("/")[1], libretranslate.error_body)


async def _fault(_: Request, __: Exception) -> Response:
    """Answer a request that raised an unexpected exception with status 500."""
    return JSONResponse({"error": "Internal error of nmt. The output of the server has its location."}, 500)


async def _http_error(request: Request, error: Exception) -> Response:
    """Answer a request with an unknown path (404) or a wrong method (405), in the format of the API."""
    assert isinstance(error, HTTPException)
    messages = {404: "Unknown path.", 405: "This path does not support the method."}
    refused = Refused(error.status_code, messages.get(error.status_code, error.detail))
    return JSONResponse(_error_body(request.url.path)(refused), error.status_code, error.headers)
