"""Translation of a stream of lines: a thread reads and tokenizes, workers translate, the caller iterates."""

import threading
from collections.abc import Callable, Iterable, Iterator

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.translation.translator import Translation, Translator
from nmt_cli.translation.workers.queue import RequestQueue
from nmt_cli.translation.workers.request import Request


def stream(
    translator: Translator,
    queue: RequestQueue,
    lines: Iterable[str],
    search: SearchConfig,
    before_waiting: Callable[[], None] = lambda: None,
) -> Iterator[Translation]:
    """Yield the translation of each of `lines` in order, as soon as the workers of `queue` finish the line.
    `search` replaces the search settings of `translator`. Raise errors of `lines` and workers. A thread reads
    `lines`, at most `input.window` ahead of the output. Call `before_waiting` before waiting for a
    translation. Closing the generator drops the remaining lines."""
    request = queue.open(search, translator.config.input.window)
    try:
        # A daemon, since reading may block forever. Python waits for other threads before it ends.
        threading.Thread(target=read_lines, args=(translator, queue, request, lines), daemon=True).start()
        while done := queue.next(request, before_waiting):
            yield translator.translation(*done)
    finally:
        queue.close_request(request)


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
