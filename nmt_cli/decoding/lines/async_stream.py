"""`stream` for programs with an event loop: nothing here blocks it."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.lines.queue import RequestQueue
from nmt_cli.decoding.lines.request import Request
from nmt_cli.decoding.lines.stream import read_lines
from nmt_cli.decoding.lines.translator import Translation, Translator


async def async_stream(
    translator: Translator, queue: RequestQueue, lines: Iterable[str], search: SearchConfig
) -> AsyncGenerator[Translation]:
    """As `stream`; what is cancelled, or closed, takes its sentences out of the queue at once."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def told() -> None:
        with suppress(RuntimeError):  # the loop is closed, so nobody waits
            loop.call_soon_threadsafe(changed.set)

    request = queue.open(search, translator.config.input.window, told)
    try:
        # No daemon: it ends soon after the request does, and Python waits for it.
        threading.Thread(target=read_lines, args=(translator, queue, request, lines)).start()
        while request.error or not request.ended:
            changed.clear()
            done = await asyncio.to_thread(_done, translator, queue, request)
            for translation in done:
                yield translation
            if not done and not request.ended:
                await changed.wait()
    finally:
        queue.drop(request)


def _done(translator: Translator, queue: RequestQueue, request: Request) -> list[Translation]:
    """All that is done of a request, and not given back; putting words together takes its time."""
    found = []
    while done := queue.next_now(request):
        found.append(translator.translation(*done))
    return found
