"""HTTP connections of uvicorn, limited in number and in the time that a client may take.

The options of uvicorn (0.54) do not replace this file. Without it, `tests/serving/test_connections.py` fails:

- `limit_concurrency` refuses a new client if idle ones hold all connections. Here, it replaces an idle one.
- No option bounds the time for a header. `timeout_keep_alive` counts between requests only.
- No option bounds what is read of a body after its refusal, or the time of a client that reads nothing.
- `timeout_graceful_shutdown` gives slow bodies the time of the longest request.

So this file reads some private state of `H11Protocol`: `timeout_keep_alive_task`, `cycle.response_complete`
and `flow.write_paused`. A new version of uvicorn that renames one fails in the same tests.
"""

import asyncio
import errno
import resource
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_FILES, RESERVED_FILES = 10_240, 128
"""Maximum number of open files, as macOS allows, and the number reserved for files other than connections."""

CLIENT_SECONDS = 10.0
"""Time for a complete header, for the remaining body after an early response, and for a client to read any
part of its response, in seconds."""

MAX_UNREAD_BYTES = 1 << 16
"""Maximum number of bytes of a body that are read and dropped after an early response."""

RESPONDED = h11.LocalProtocolError
"""Raised if a second response to a request begins, such as uvicorn's to malformed bytes of the body."""

REPORT_SECONDS = 60.0
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class RareReports:
    """Prints errors to stderr, each kind at most once a minute, since clients can cause many."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def __call__(self, kind: str, message: str) -> None:
        """Print `message` to stderr, unless a message of the same `kind` was printed in the last minute."""
        now = time.monotonic()
        if now - self._last.get(kind, -REPORT_SECONDS) >= REPORT_SECONDS:
            self._last[kind] = now
            print(message, file=sys.stderr, flush=True)

    def of_loop(self, _: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """Report an exception of the event loop, as its exception handler.

        The exception's own message is left out, since it may have text of clients. A lack of files or memory
        is reported with its remedy.
        """
        error = context.get("exception")
        kind = type(error).__name__
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            self("files", f"Error: cannot accept connections: {error.strerror}. Raise ulimit -n.")
        else:
            self(kind, f"Error: a bug in nmt, in a connection: {kind}: {context['message']}")


class Connection(H11Protocol):
    """An HTTP connection. If more than `limit` are open, a new one closes a tenth of `limit`: those that have
    waited longest for their clients."""

    def __init__(self, limit: int, report: RareReports, **arguments: Any) -> None:
        """`limit` is the maximum number of connections. `report` prints errors. `arguments` are uvicorn's."""
        super().__init__(**arguments)
        self._limit, self._report = limit, report
        self._since = time.monotonic()  # when the client began to owe a header, or got its response
        self._unread_bytes = 0
        # Bytes that the client has not read, and since when.
        self._unsent, self._unsent_since = 0, self._since

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection. Beyond `limit`, report and abort the longest waiting tenth of `limit`."""
        super().connection_made(transport)
        if len(self.connections) > self._limit:
            self._report("limit", f"{self._limit:,} connections are open. New ones replace idle ones.")
            waiting = [one for one in self.connections if isinstance(one, Connection) and one._waits]
            for oldest in sorted(waiting, key=lambda one: one._since)[: self._limit // 10 + 1]:
                self.connections.discard(oldest)
                oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client. After an early response, the connection is closed once they are
        malformed, or more than `MAX_UNREAD_BYTES`. An early response is one that is complete before the body
        of its request."""
        if self.timeout_keep_alive_task:  # set by uvicorn between a response and the next request
            self._since = time.monotonic()
        try:
            super().data_received(data)
        except RESPONDED:  # uvicorn refuses malformed bytes, but the response has begun
            self._end()
        if self._answered_early:
            self._unread_bytes += len(data)
            if self._unread_bytes > MAX_UNREAD_BYTES:
                self._end()

    def on_response_complete(self) -> None:
        """Start the clock for the client's next request, and let uvicorn end the response."""
        self._since = time.monotonic()
        super().on_response_complete()

    def end_if_late(self) -> None:
        """Close the connection if the client has taken more than `CLIENT_SECONDS` for one of these: a
        complete header, the remaining body after an early response, or any part of its response. A request in
        progress is not affected."""
        now, unsent = time.monotonic(), self.transport.get_write_buffer_size()
        if not unsent or unsent != self._unsent:
            self._unsent, self._unsent_since = unsent, now
        # Uvicorn waits without limit for a client that stops reading. The server could then not end.
        elif now - self._unsent_since > CLIENT_SECONDS:
            self.transport.abort()
            return
        begun = not self.timeout_keep_alive_task or self.conn.trailing_data[0]
        header = self.conn.their_state is h11.IDLE and begun
        if (header or self._answered_early) and now - self._since > CLIENT_SECONDS:
            self._end()

    @property
    def owes_body(self) -> bool:
        """True if the client has sent a header, but not yet the complete body."""
        return self.conn.their_state is h11.SEND_BODY

    @property
    def _answered_early(self) -> bool:
        """True if the response is complete, but the client still sends the body of its request."""
        return self.owes_body and self.cycle.response_complete

    @property
    def _waits(self) -> bool:
        """True while the server waits for the client to send or to read, rather than computing a response."""
        requested = self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)
        return not requested or self.flow.write_paused or not self.cycle or self.cycle.response_complete

    def _end(self) -> None:
        # A client that is still sending then reads the response before its write fails.
        self.transport.write_eof()
        self.transport.abort()


def raise_file_limit() -> int:
    """Raise the limit of open files of this process as far as `MAX_FILES`, if the system allows it. Return
    how many connections to allow.

    It is the limit without `RESERVED_FILES`, or half of a small limit, and at least 1.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    maximum, files = (
        MAX_FILES if limit == resource.RLIM_INFINITY else min(limit, MAX_FILES) for limit in (hard, soft)
    )
    if files < maximum:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, hard))
            files = maximum
    return max(1, files - min(RESERVED_FILES, files // 2))
