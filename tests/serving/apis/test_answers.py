"""Responses of server-sent events."""

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import Message

from nmt_cli.serving.apis import answers
from nmt_cli.serving.apis.answers import EventStream
from nmt_cli.serving.apis.libretranslate import error_body


def test_a_stream_to_a_client_that_does_not_read_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "SENDING_SECONDS", 0.01)
    service: Any = SimpleNamespace(config=SimpleNamespace(most_seconds=0.01))
    closed = []

    async def events() -> AsyncGenerator[str]:
        try:
            while True:
                yield "a"
        finally:
            closed.append(True)

    async def wait(*_: Message) -> Any:
        await asyncio.Event().wait()

    stream = EventStream(service, events(), error_body)
    asyncio.run(asyncio.wait_for(stream({}, wait, wait), 10))
    stream = EventStream(service, events(), error_body)
    started: list[Message] = []

    async def send(message: Message) -> None:
        await (wait() if started else asyncio.sleep(0))
        started.append(message)

    asyncio.run(asyncio.wait_for(stream({}, wait, send), 10))
    assert closed == [True]
