"""The outermost ASGI application: metrics, CORS headers and a last handler for exceptions."""

import sys
import time
import traceback
from collections.abc import Mapping

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nmt_cli.serving.apis.answers import CLIENT_GONE
from nmt_cli.serving.metrics import Metrics

CORS: Mapping[str, str] = {
    "access-control-allow-origin": "*",
    "access-control-allow-headers": "Authorization, Content-Type",
    "access-control-expose-headers": "Authorization",
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-credentials": "true",
    "access-control-max-age": "1728000",
}
"""The CORS headers that LibreTranslate sends with every response."""


class Middleware:
    """The application around `inner`, which has all routes. Every HTTP request passes through it."""

    def __init__(self, inner: ASGIApp, metrics: Metrics, routes: frozenset[str]) -> None:
        """`routes` are the paths that `metrics` counts separately. All other paths count as "other"."""
        self._inner, self._metrics, self._routes = inner, metrics, routes
        self.answered = 0
        """Number of answered requests, without those of clients that disconnected."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an HTTP request by `inner`, or OPTIONS itself, with CORS headers. Record status and
        duration. Print only type and line of an exception, since its message may contain text of users."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        start, status = time.monotonic(), CLIENT_GONE

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [(name.encode(), value.encode()) for name, value in CORS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *headers]}
            await send(message)

        try:
            app = PlainTextResponse() if scope["method"] == "OPTIONS" else self._inner
            await app(scope, receive, send_with_headers)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            fault = f"{type(error).__name__} at {frame.filename}:{frame.lineno}"
            print(f"Error: a bug in nmt, while answering a request: {fault}", file=sys.stderr, flush=True)
        finally:
            route = scope["path"] if scope["path"] in self._routes else "other"
            self._metrics.record(route, status, time.monotonic() - start)
            self.answered += status != CLIENT_GONE
