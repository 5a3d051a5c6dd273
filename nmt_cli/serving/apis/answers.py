"""From a request to its response: read, authorized, limited in time, cancelled if the client disconnects."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from nmt_cli.serving.apis.bodies import Fields, fields_of
from nmt_cli.serving.keys import Keys
from nmt_cli.serving.refused import Refused
from nmt_cli.serving.service import Service

Result = TypeVar("Result")
Handler = Callable[[Service, Fields], Awaitable[Response]]
ErrorBody = Callable[[Refused], Mapping[str, Any]]
"""Returns the JSON body of an error, in the format of one API."""

SENDING_SECONDS = 5
"""Time for the last event of a stream after `server.most_seconds`, in seconds."""

CLIENT_GONE = 499
"""The status under which requests of clients that disconnected are counted."""


def endpoint(
    service: Service, keys: Keys, handler: Handler, error_body: ErrorBody, no_key_status: int = 403
) -> Callable[[Request], Coroutine[None, None, Response]]:
    """Return a Starlette endpoint that answers a request by `handler`, which gets the fields of the request.

    error_body: makes the JSON body of an error, in the format of one API.
    no_key_status: the status for a missing or wrong key.

    A busy server refuses POST. If the client disconnects, the work is cancelled, and the status is
    `CLIENT_GONE`.
    """

    async def respond(request: Request) -> Response:
        try:
            if request.method == "POST":
                service.check_load()  # before the body is read: an overloaded server mostly refuses
            fields = await in_time(service, fields_of(request))
            if not keys.accept(request, fields):
                raise Refused(no_key_status, "An API key is needed. Ask the operator of this server for one.")
            # Only after the body is read: both take messages from `request.receive`.
            return await unless_gone(request.receive, in_time(service, handler(service, fields)))
        except Refused as refused:
            return JSONResponse(error_body(refused), refused.status, refused.headers)
        except ClientDisconnect:
            return Response(status_code=CLIENT_GONE)

    return respond


async def in_time(service: Service, work: Awaitable[Result]) -> Result:
    """Return the result of `work`. After `server.most_seconds`, cancel `work` and raise `Refused` (504)."""
    limit = service.config.most_seconds
    try:
        async with asyncio.timeout(limit):
            return await work
    except TimeoutError as error:
        raise Refused(504, f"The request takes more than {limit:g} s. Send less text at a time.") from error


async def unless_gone(receive: Receive, work: Coroutine[None, None, Result]) -> Result:
    """Return the result of `work`. If the client disconnects first, cancel `work` and raise
    `ClientDisconnect`. `receive` is the ASGI function that reports a disconnected client."""
    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        watching.cancel()
        # Cancelling only asks. The work must have ended before the request counts as done.
        await asyncio.gather(working, watching, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    """Wait until `receive` reports that the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """A response of server-sent events, one for each text of `events`. After a refusal or a timeout, the last
    event is an error in the format of `error_body`."""

    def __init__(self, service: Service, events: AsyncGenerator[str], error_body: ErrorBody) -> None:
        """`events` yields the text of each event. `service` has the time limit. `error_body` builds the body
        of an error."""
        super().__init__(media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        # Starlette took it from the empty body, but the length is known only after the last event.
        del self.headers["content-length"]
        self.headers["X-Accel-Buffering"] = "no"  # otherwise nginx would buffer the events
        self._service, self._events, self._error_body = service, events, error_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response through the ASGI function `send`. End early if the client disconnects, or does
        not read it in time. The server then closes the connection."""
        with suppress(ClientDisconnect, TimeoutError):
            # The time limit of a request does not cover sending, which waits for a client that does not read.
            async with asyncio.timeout(self._service.config.most_seconds + SENDING_SECONDS):
                await unless_gone(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        """Send the start, all events and the end. An error after the start becomes the last event."""
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)

        async def send_event(event: str) -> None:
            body = f"data: {event}\n\n".encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})

        async def send_events() -> None:
            # A client that disconnects ends the loop. The translations of the other events must end with it
            # at once, not when the generator is collected.
            async with aclosing(self._events) as events:
                async for event in events:
                    await send_event(event)

        try:
            await in_time(self._service, send_events())
        except Refused as refused:
            await send_event(as_json(self._error_body(refused)))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def as_json(value: object) -> str:
    """Return `value` as JSON on one line without spaces. Characters beyond ASCII are not escaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
