"""Translation of a stream of lines, as in `stream`, for programs with an event loop."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.translation.stream import read_lines
from nmt_cli.translation.translator import Translation, Translator
from nmt_cli.translation.workers.queue import RequestQueue
from nmt_cli.translation.workers.request import Request

SHORT_CHARACTERS = 2000
"""Maximum number of characters to read and join in the event loop itself, which takes less than 1 ms per
sentence. Threads would compete with the event loop and slow it down under many requests."""


async def async_stream(
    translator: Translator, queue: RequestQueue, lines: Iterable[str], search: SearchConfig
) -> AsyncGenerator[Translation]:
    """Yield the translation of each of `lines` in order, each as soon as finished, without blocking the event
    loop. `search` replaces the search settings of `translator`. Raise errors of `lines` and of the workers.
    When the generator is closed or cancelled, remove its sentences from `queue` at once."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:  # called in any thread
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(changed.set)

    window = translator.config.input.window
    request, short = queue.open(search, window, wake), _is_short(lines, window)
    try:
        if short:
            read_lines(translator, queue, request, lines)
        else:
            # Not a daemon: the thread ends soon after the request does.
            threading.Thread(target=read_lines, args=(translator, queue, request, lines)).start()
        while request.error or not request.ended:
            changed.clear()
            arguments = (translator, queue, request)
            translations = _poll_all(*arguments) if short else await asyncio.to_thread(_poll_all, *arguments)
            for translation in translations:
                yield translation
            if not translations and not request.ended:
                await changed.wait()
    finally:
        queue.drop(request)


def _is_short(lines: Iterable[str], window: int) -> bool:
    """Return whether `lines` are a list of up to `window` lines and `SHORT_CHARACTERS` characters."""
    return isinstance(lines, Sequence) and len(lines) <= window and sum(map(len, lines)) <= SHORT_CHARACTERS


def _poll_all(translator: Translator, queue: RequestQueue, request: Request) -> list[Translation]:
    """Return all finished translations of `request` that were not returned yet, in order, if any."""
    translations = []
    while done := queue.poll(request):
        translations.append(translator.translation(*done))
    return translations
