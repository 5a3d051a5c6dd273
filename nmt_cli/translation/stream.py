"""Translation of a stream of lines: a thread reads and tokenizes, workers translate, the caller iterates."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from nmt_cli.scoring.command import CommandScorer
from nmt_cli.scoring.neural.comet import BLOCK
from nmt_cli.translation.text.ranking import searched
from nmt_cli.translation.translator import Done, Translation, Translator
from nmt_cli.translation.workers.queue import RequestQueue
from nmt_cli.translation.workers.request import Request

SHORT_CHARACTERS = 2000
"""Maximum number of characters to read and join in the event loop itself, which takes less than 1 ms per
sentence. Threads would compete with the event loop and slow it down under many requests."""


def stream(
    translator: Translator,
    queue: RequestQueue,
    lines: Iterable[str],
    before_waiting: Callable[[], None] = lambda: None,
) -> Iterator[Translation]:
    """Yield the translation of each of `lines` in order, as soon as the workers of `queue` finish the line.
    Raise errors of the scorer at once, an error of workers after the finished lines before it, and an error
    of `lines` after the translations of all lines before it. A thread reads `lines`, at most `input.window`
    ahead of the output. Call `before_waiting` before waiting for a translation. Closing the generator drops
    the remaining lines."""
    request = queue.open(
        searched(translator.config.search, translator.scorer), translator.config.input.window
    )
    try:
        # A daemon, since reading may block forever. Python waits for other threads before it ends.
        threading.Thread(target=read_lines, args=(translator, queue, request, lines), daemon=True).start()
        while block := _block(translator, queue, request, before_waiting):
            yield from translator.translations(block)
        if request.reader_error:
            raise request.reader_error
    finally:
        queue.close_request(request)


def _block(
    translator: Translator, queue: RequestQueue, request: Request, before_waiting: Callable[[], None]
) -> list[Done]:
    """Wait for the next line. Return it and all lines after it that are finished and that the scorer should
    rank together, or [] at the end. A command starts once per block, so wait for a full block."""
    search, limit = translator.config.search, 1
    following: Callable[[], Done | None] = partial(queue.poll, request)
    if isinstance(translator.scorer, CommandScorer):
        limit, following = translator.config.input.window, partial(queue.next, request, before_waiting)
    elif translator.scorer:
        limit = max(1, BLOCK // search.slots)
    block = [done] if (done := queue.next(request, before_waiting)) else []
    with suppress(Exception):  # the next call raises it, after the translations of these lines
        while block and len(block) < limit and (done := following()):
            block.append(done)
    return block


def read_lines(translator: Translator, queue: RequestQueue, request: Request, lines: Iterable[str]) -> None:
    """Run the reader thread: prepare `lines` and add them to `request`, until the lines or the request end.
    Instead of raising an error, end the request with the error."""
    try:
        for number, raw in enumerate(lines, start=1):
            # If Python ends while a daemon thread runs SentencePiece's C++ code, the process crashes. So
            # `close_request` waits for this lock, after which no thread enters the tokenizer.
            with request.reading:
                line = translator.line(number, raw) if queue.is_open(request) else None
            if line is None or not queue.add(request, line):
                return
        queue.end(request)
    except BaseException as error:
        # Any error: otherwise the caller would wait forever.
        queue.end(request, error)


async def async_stream(
    translator: Translator, queue: RequestQueue, lines: Iterable[str]
) -> AsyncGenerator[Translation]:
    """Yield the translations of `lines` like `stream`, without blocking the event loop. When the generator is
    closed or cancelled, remove its sentences from `queue` at once."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:  # called in any thread
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(changed.set)

    window = translator.config.input.window
    request = queue.open(searched(translator.config.search, translator.scorer), window, wake)
    counted = isinstance(lines, Sequence) and len(lines) <= window
    short = counted and sum(map(len, lines)) <= SHORT_CHARACTERS and not translator.scorer
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
        if request.reader_error:
            raise request.reader_error
    finally:
        queue.drop(request)


def _poll_all(translator: Translator, queue: RequestQueue, request: Request) -> list[Translation]:
    """Return all finished translations of `request` that were not returned yet, in order, if any."""
    return translator.translations([*iter(partial(queue.poll, request), None)])
