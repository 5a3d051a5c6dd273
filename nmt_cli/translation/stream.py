"""Translates a stream of lines: a thread reads and tokenises them, workers translate, the caller gets them in
order."""

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
    """Translate `lines` with the workers of `queue`; yields translations in order, each as soon as it is
    done.

    A thread reads `lines`, at most `input.window` of them ahead of the output. `before_waiting` is called
    whenever the next translation is not done yet.
    """
    request = queue.open(search, translator.config.input.window)
    try:
        # A daemon, since reading may block for ever: Python would wait for any other thread before it ends.
        threading.Thread(target=read_lines, args=(translator, queue, request, lines), daemon=True).start()
        while done := queue.next(request, before_waiting):
            yield translator.translation(*done)
    finally:
        queue.close_request(request)


def read_lines(translator: Translator, queue: RequestQueue, request: Request, lines: Iterable[str]) -> None:
    """Add `lines` to a request, in a thread of its own, until it is closed."""
    try:
        for number, raw in enumerate(lines, start=1):
            # SentencePiece is C++: if Python ends while a daemon thread is inside, the process crashes. So
            # `close_request` waits for this lock, and what comes here later finds the request closed.
            with request.reading:
                if not queue.is_open(request):
                    return
                line = translator.line(number, raw)
            if not queue.add(request, line):
                return
        queue.end(request)
    except BaseException as error:
        # Whatever it is: the caller would wait for ever.
        queue.end(request, error)
