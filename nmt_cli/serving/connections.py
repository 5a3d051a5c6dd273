"""HTTP connections, limited in number and in the time that their clients take."""

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
"""Open files of the process, which is all that macOS allows, and those of them that are not connections."""

CLIENT_SECONDS = 10.0
"""Time for a complete header, and for the rest of a body after its answer."""

MAX_UNREAD_BYTES = 1 << 16
"""Bytes of a body that are read and dropped after its answer."""

REPORT_SECONDS = 60.0
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class RareReports:
    """Prints errors of connections to stderr, each kind at most once a minute: clients can cause many."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def __call__(self, kind: str, message: str) -> None:
        """Print `message`, unless one of its kind was printed in the last minute."""
        now = time.monotonic()
        if now - self._last.get(kind, -REPORT_SECONDS) >= REPORT_SECONDS:
            self._last[kind] = now
            print(message, file=sys.stderr, flush=True)

    def of_loop(self, _: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """Report an exception of the event loop, without its text: a client may have written it."""
        error = context.get("exception")
        kind = type(error).__name__
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            self("files", f"Error: no connection can be accepted: {error.strerror}; raise ulimit -n.")
        else:
            self(kind, f"Error: a fault of nmt's own in a connection: {kind}: {context['message']}")


class Connection(H11Protocol):
    """One HTTP connection. Beyond `limit`, a new one replaces those that wait longest for their clients."""

    def __init__(self, limit: int, report: RareReports, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._limit, self._report = limit, report
        self._since = time.monotonic()  # when the client began to owe a header, or had its answer
        self._unread_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._limit:
            self._report("limit", f"{self._limit:,} connections are open; idle ones are closed for new ones.")
            waiting = [one for one in self.connections if isinstance(one, Connection) and one._waits]
            for oldest in sorted(waiting, key=lambda one: one._since)[: self._limit // 10 + 1]:
                self.connections.discard(oldest)
                oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.timeout_keep_alive_task:  # uvicorn's, between an answer and the next request
            self._since = time.monotonic()
        super().data_received(data)
        if self._answered_early:
            self._unread_bytes += len(data)
            if self._unread_bytes > MAX_UNREAD_BYTES:
                self._end()

    def on_response_complete(self) -> None:
        self._since = time.monotonic()
        super().on_response_complete()

    def end_if_late(self) -> None:
        """Close the connection if its client has taken too long to send a header or the rest of a body."""
        begun = not self.timeout_keep_alive_task or self.conn.trailing_data[0]
        header = self.conn.their_state is h11.IDLE and begun
        if (header or self._answered_early) and time.monotonic() - self._since > CLIENT_SECONDS:
            self._end()

    @property
    def _answered_early(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete

    @property
    def _waits(self) -> bool:
        """Whether the client has to send or to read something."""
        asked = self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)
        return not asked or self.flow.write_paused or not self.cycle or self.cycle.response_complete

    def _end(self) -> None:
        # With its end announced, a client that is still sending reads the answer before its write fails.
        self.transport.write_eof()
        self.transport.abort()


def raise_file_limit() -> int:
    """Raise the process's soft limit of open files, and return the number of connections it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most, files = (
        MAX_FILES if limit == resource.RLIM_INFINITY else min(limit, MAX_FILES) for limit in (hard, soft)
    )
    if files < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            files = most
    return max(1, files - min(RESERVED_FILES, files // 2))
