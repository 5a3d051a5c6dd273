"""What stands before all routes: counts, headers for other sites' pages, and the last net for faults."""

import sys
import time
import traceback
from collections.abc import Mapping

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nmt_cli.serving.apis.answers import GONE
from nmt_cli.serving.metrics import Metrics

CORS: Mapping[str, str] = {
    "access-control-allow-origin": "*",
    "access-control-allow-headers": "Authorization, Content-Type",
    "access-control-expose-headers": "Authorization",
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-credentials": "true",
    "access-control-max-age": "1728000",
}
"""As LibreTranslate sends them, to whoever asks."""


class Front:
    """The outermost application; of what goes wrong inside, no text reaches the server's output."""

    def __init__(self, inner: ASGIApp, metrics: Metrics, routes: frozenset[str]) -> None:
        self._inner, self._metrics, self._routes = inner, metrics, routes
        self.answered = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        began, status = time.monotonic(), GONE

        async def heard(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [(name.encode(), value.encode()) for name, value in CORS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *headers]}
            await send(message)

        try:
            asks = scope["method"] != "OPTIONS"
            await (self._inner if asks else PlainTextResponse())(scope, receive, heard)
        except Exception as error:  # texts may stand in its message, so that it is not shown
            place = traceback.extract_tb(error.__traceback__)[-1]
            told = f"{type(error).__name__} at {place.filename}:{place.lineno}"
            print(f"Error: a fault of nmt's own in answering a request: {told}", file=sys.stderr, flush=True)
        finally:
            route = scope["path"] if scope["path"] in self._routes else "other"
            self._metrics.answered(route, status, time.monotonic() - began)
            self.answered += status != GONE
