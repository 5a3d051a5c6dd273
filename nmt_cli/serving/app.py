"""The ASGI application: all routes of the server, metrics, CORS headers and a last handler for exceptions."""

import sys
import time
import traceback
from collections.abc import Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nmt_cli.serving import page
from nmt_cli.serving.apis import deepl, files, glossaries, libretranslate, openai
from nmt_cli.serving.apis.answers import CLIENT_GONE, ErrorBody, Handler, endpoint
from nmt_cli.serving.connections import RESPONDED
from nmt_cli.serving.keys import Keys
from nmt_cli.serving.metrics import Metrics
from nmt_cli.serving.refused import Refused
from nmt_cli.serving.service import Service

CORS: Mapping[str, str] = {
    "access-control-allow-origin": "*",
    "access-control-allow-headers": "Authorization, Content-Type, X-API-Key",
    "access-control-expose-headers": "Authorization, Retry-After",
    "access-control-allow-methods": "DELETE, GET, POST",
    "access-control-allow-credentials": "true",
    "access-control-max-age": "1728000",
}
"""The CORS headers of every response: those of LibreTranslate, and the headers that nmt reads and sends."""

WANTED_HEADERS = b"access-control-request-headers"
"""The header that names the headers of a request, which a browser will send if all of them are allowed."""


class Middleware:
    """The application around `inner`, which has all routes. Every HTTP request passes through it."""

    def __init__(self, inner: ASGIApp, metrics: Metrics, routes: frozenset[str]) -> None:
        """`routes` are the paths that `metrics` counts separately. All other paths count as "other"."""
        self._inner, self._metrics, self._routes = inner, metrics, routes
        self.answered = 0
        """Number of answered requests, without those of clients that disconnected."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an HTTP request by `inner`, with CORS headers, and record its status and duration. OPTIONS
        is answered here.

        Of an exception, only the type and the line are printed, since its message may contain text of users.
        """
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        start, status = time.monotonic(), CLIENT_GONE

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), *_cors(scope)]}
            await send(message)

        try:
            app = PlainTextResponse() if scope["method"] == "OPTIONS" else self._inner
            await app(scope, receive, send_with_headers)
        except RESPONDED:
            pass  # uvicorn has refused malformed bytes of the body
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            fault = f"{type(error).__name__} at {frame.filename}:{frame.lineno}"
            print(f"Error: a bug in nmt, while answering a request: {fault}", file=sys.stderr, flush=True)
        finally:
            route = scope["path"] if scope["path"] in self._routes else "other"
            self._metrics.record(route, status, time.monotonic() - start)
            self.answered += status != CLIENT_GONE


def _cors(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the CORS headers for a request. They allow all headers that a browser asks for."""
    headers = {name.encode(): value.encode() for name, value in CORS.items()}
    # A browser does not send headers that are not allowed, such as those of OpenAI's client.
    if wanted := dict(scope["headers"]).get(WANTED_HEADERS):
        headers[b"access-control-allow-headers"] = wanted
    return [*headers.items()]


def application(service: Service, keys: Keys) -> Middleware:
    """Return the application with all routes for `service`.

    If `keys` has keys, `/detect`, `/attention`, `/translate`, `/translate_file` and all routes of DeepL and
    OpenAI need one. Other routes never do.
    """

    def route(path: str, method: str, handler: Handler, keys: Keys = keys) -> Route:
        error_body = _error_body(path)
        # Clients of OpenAI report a wrong key only for 401.
        no_key_status = 401 if error_body is openai.error_body else 403
        return Route(path, endpoint(service, keys, handler, error_body, no_key_status), methods=[method])

    routes = [
        route("/translate", "POST", libretranslate.translate),
        route("/detect", "POST", libretranslate.detect),
        route("/languages", "GET", libretranslate.languages, Keys()),
        route("/translate_file", "POST", files.translate_file),
        # Without a key, because a browser sends none when it follows a link, and nobody can guess the name.
        route("/download_file/{name}", "GET", files.download_file, Keys()),
        route("/attention", "POST", page.attention),
        route("/v2/translate", "POST", deepl.translate),
        route("/v2/languages", "GET", deepl.languages),
        route("/v2/usage", "GET", deepl.usage),
        route("/v2/glossaries", "POST", glossaries.create),
        route("/v2/glossaries", "GET", glossaries.listed),
        route("/v2/glossaries/{id}", "GET", glossaries.one),
        route("/v2/glossaries/{id}", "DELETE", glossaries.delete),
        route("/v2/glossaries/{id}/entries", "GET", glossaries.entries),
        route("/v2/glossary-language-pairs", "GET", glossaries.language_pairs),
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
        text = service.metrics.as_text()
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
