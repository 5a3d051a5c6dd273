"""From a request to its answer: read, allowed, within its time, and dropped where the client goes away."""

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
from nmt_cli.serving.translating import Desk

Result = TypeVar("Result")
Answering = Callable[[Desk, Fields], Awaitable[Response]]
Shape = Callable[[Refused], Mapping[str, Any]]
"""How a family of clients wants to be told what is wrong, as JSON."""

GONE = 499
"""The status that is counted where nobody is there to be answered."""


def endpoint(
    desk: Desk, keys: Keys, answering: Answering, shape: Shape, keyless: int = 403
) -> Callable[[Request], Coroutine[None, None, Response]]:
    """What Starlette calls for a request; `keyless` is the status for those that bring no good key."""

    async def answer(request: Request) -> Response:
        try:
            if request.method == "POST":  # before it is looked at: under load, most of the work is to refuse
                desk.refuse_full()
            fields = await in_time(desk, fields_of(request, desk.config))
            if not keys.good(request, fields):
                raise Refused(keyless, "an API key is needed; ask the operator of this server for one.")
            return await unless_gone(request.receive, in_time(desk, answering(desk, fields)))
        except Refused as refused:
            return JSONResponse(shape(refused), refused.status, refused.headers)
        except ClientDisconnect:
            return Response(status_code=GONE)

    return answer


async def in_time(desk: Desk, work: Awaitable[Result]) -> Result:
    """What comes of `work`, unless it takes too long."""
    try:
        async with asyncio.timeout(desk.config.most_seconds):
            return await work
    except TimeoutError as error:
        raise Refused(504, f"this takes more than {desk.config.most_seconds:g} s; send less.") from error


async def unless_gone(receive: Receive, work: Coroutine[None, None, Result]) -> Result:
    """What comes of `work`; cancels it where the client goes away."""
    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Server-sent events; they end where the client goes away, or the time of a request is over."""

    def __init__(self, desk: Desk, events: AsyncGenerator[str], shape: Shape) -> None:
        super().__init__(media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        del self.headers["content-length"]
        self.headers["X-Accel-Buffering"] = "no"  # or nginx would hold them back
        self._desk, self._events, self._shape = desk, events, shape

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See Starlette."""
        with suppress(ClientDisconnect):
            await unless_gone(receive, self._sent(send))

    async def _sent(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)

        async def told(event: str) -> None:
            body = f"data: {event}\n\n".encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})

        async def every() -> None:
            async with aclosing(self._events) as events:
                async for event in events:
                    await told(event)

        try:
            await in_time(self._desk, every())
        except Refused as refused:
            await told(as_json(self._shape(refused)))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def as_json(value: object) -> str:
    """`value` on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
