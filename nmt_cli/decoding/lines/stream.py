"""Lines come in and their translations go out, in order, while workers translate what has arrived."""

import threading
from collections.abc import Callable, Iterable, Iterator

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.lines.queue import RequestQueue
from nmt_cli.decoding.lines.request import Request
from nmt_cli.decoding.lines.translator import Translation, Translator


def stream(
    translator: Translator,
    queue: RequestQueue,
    lines: Iterable[str],
    search: SearchConfig,
    before_waiting: Callable[[], None] = lambda: None,
) -> Iterator[Translation]:
    """Translate `lines`, which are read by a thread, with the workers of `queue`.

    Calls `before_waiting` whenever the next translation is not there yet.
    """
    request = queue.open(search, translator.config.input.window)
    try:
        # It may wait for input for ever, and Python at its end does not wait for a daemon.
        threading.Thread(target=_read, args=(translator, queue, request, lines), daemon=True).start()
        while done := queue.next(request, before_waiting):
            yield translator.translation(*done)
    finally:
        queue.close_request(request)


def _read(translator: Translator, queue: RequestQueue, request: Request, lines: Iterable[str]) -> None:
    try:
        for number, raw in enumerate(lines, start=1):
            # The tokeniser is no Python: to be inside when Python ends is fatal.
            with request.reading:
                if not queue.is_open(request):
                    return
                line = translator.line(number, raw)
            if not queue.add(request, line):
                return
        queue.end(request)
    except BaseException as error:
        queue.end(request, error)
