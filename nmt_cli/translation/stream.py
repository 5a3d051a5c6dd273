"""Translation of a stream of lines: a thread reads and tokenizes, workers translate, the caller iterates."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from nmt_cli.scoring.command import CommandScorer
from nmt_cli.scoring.neural.comet import BLOCK
from nmt_cli.translation.call_options import CallOptions
from nmt_cli.translation.lines import FinishedLine, Translation
from nmt_cli.translation.text.ranking import searched
from nmt_cli.translation.translator import Translator
from nmt_cli.translation.workers.queue import RequestQueue
from nmt_cli.translation.workers.request import Request

WINDOW = 8192
"""Maximum number of lines between input and output. Workers take the longest of the waiting lines first, so
that sentences of a batch have similar lengths. More lines need more memory."""

SHORT_CHARACTERS = 2000
"""Maximum number of characters to read and join in the event loop itself, which takes less than 1 ms per
sentence. Threads would compete with the event loop and slow it down under many requests."""


def stream(
    translator: Translator,
    options: CallOptions,
    queue: RequestQueue,
    lines: Iterable[str],
    before_waiting: Callable[[], None] = lambda: None,
) -> Iterator[Translation]:
    """Yield the translation of each of `lines` in order, as soon as the workers of `queue` finish the line.

    A thread reads `lines`, at most `WINDOW` ahead of the output. Call `before_waiting` before waiting
    for a translation. Closing the generator drops the remaining lines.

    Raise errors of the scorer at once, an error of workers after the finished lines before it, and an error
    of `lines` after the translations of all lines before it.
    """
    request = _opened(translator, options, queue)
    cut = partial(translator.segmenter.line, options=options)
    try:
        # A daemon, since reading may block forever. Python waits for other threads before it ends.
        threading.Thread(target=queue.read_lines, args=(request, lines, cut), daemon=True).start()
        following = partial(queue.next, request, before_waiting)
        while block := _block(translator, options, following, partial(queue.poll, request)):
            yield from translator.translations(block, options)
        if request.reader_error:
            raise request.reader_error
    finally:
        queue.close_request(request)


def _opened(
    translator: Translator,
    options: CallOptions,
    queue: RequestQueue,
    on_change: Callable[[], None] = lambda: None,
) -> Request:
    """Return a new request in `queue`. `on_change` is called as in `RequestQueue.open`."""
    search = searched(options.search, translator.scorer)
    return queue.open(search, WINDOW, on_change, translator.second_attempts(options))


def _block(
    translator: Translator,
    options: CallOptions,
    wait: Callable[[], FinishedLine | None],
    poll: Callable[[], FinishedLine | None],
) -> list[FinishedLine]:
    """Wait for the next line. Return it, and the finished lines after it that the scorer ranks in the same
    call. Return [] at the end.

    wait: waits for a line and returns it.
    poll: returns the next line only if it is finished.

    A command as the scorer starts once for each block, so it waits for a full block.
    """
    limit, following = 1, poll
    if isinstance(translator.scorer, CommandScorer):
        limit, following = WINDOW, wait
    elif translator.scorer:
        limit = max(1, BLOCK // options.search.slots)
    block = [done] if (done := wait()) else []
    with suppress(Exception):  # the next call raises it, after the translations of these lines
        while block and len(block) < limit and (done := following()):
            block.append(done)
    return block


async def async_stream(
    translator: Translator, options: CallOptions, queue: RequestQueue, lines: Iterable[str]
) -> AsyncGenerator[Translation]:
    """Yield the translations of `lines` like `stream`, without blocking the event loop. A generator that is
    closed or cancelled removes its sentences from `queue` at once."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:  # called in any thread
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(changed.set)

    request = _opened(translator, options, queue, wake)
    counted = isinstance(lines, Sequence) and len(lines) <= request.window
    short = counted and sum(map(len, lines)) <= SHORT_CHARACTERS and not translator.scorer

    def poll_all() -> list[Translation]:
        finished = [*iter(partial(queue.poll, request), None)]
        return translator.translations(finished, options)

    cut = partial(translator.segmenter.line, options=options)
    try:
        if short:
            queue.read_lines(request, lines, cut)
        else:
            # Not a daemon: the thread ends soon after the request does.
            threading.Thread(target=queue.read_lines, args=(request, lines, cut)).start()
        while request.error or not request.ended:
            changed.clear()
            translations = poll_all() if short else await asyncio.to_thread(poll_all)
            for translation in translations:
                yield translation
            if not translations and not request.ended:
                await changed.wait()
        if request.reader_error:
            raise request.reader_error
    finally:
        queue.drop(request)
