"""`stream` for programs with an event loop: nothing here blocks it."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.translation.stream import read_lines
from nmt_cli.translation.translator import Translation, Translator
from nmt_cli.translation.workers.queue import RequestQueue
from nmt_cli.translation.workers.request import Request

AT_ONCE = 2000
"""Characters that the event loop reads and puts together itself: a fraction of a millisecond each sentence.
Threads would take turns with it, and under many requests, each of which waits for several turns, the loop
would hardly have its own."""


async def async_stream(
    translator: Translator, queue: RequestQueue, lines: Iterable[str], search: SearchConfig
) -> AsyncGenerator[Translation]:
    """As `stream`; what is cancelled, or closed, takes its sentences out of the queue at once."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def told() -> None:
        with suppress(RuntimeError):  # the loop is closed, so nobody waits
            loop.call_soon_threadsafe(changed.set)

    window = translator.config.input.window
    request, short = queue.open(search, window, told), _short(lines, window)
    try:
        if short:
            read_lines(translator, queue, request, lines)
        else:
            # No daemon: it ends soon after the request does, and Python waits for it.
            threading.Thread(target=read_lines, args=(translator, queue, request, lines)).start()
        while request.error or not request.ended:
            changed.clear()
            work = (translator, queue, request)
            done = _done(*work) if short else await asyncio.to_thread(_done, *work)
            for translation in done:
                yield translation
            if not done and not request.ended:
                await changed.wait()
    finally:
        queue.drop(request)


def _short(lines: Iterable[str], window: int) -> bool:
    """Whether lines are there and few, so that reading them waits for nothing."""
    return isinstance(lines, Sequence) and len(lines) <= window and sum(map(len, lines)) <= AT_ONCE


def _done(translator: Translator, queue: RequestQueue, request: Request) -> list[Translation]:
    """All that is done of a request, and not given back; putting words together takes its time."""
    found = []
    while done := queue.next_now(request):
        found.append(translator.translation(*done))
    return found
