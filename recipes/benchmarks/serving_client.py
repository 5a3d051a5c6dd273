"""A server to measure, and cheap clients: plain HTTP over asyncio's streams."""

import asyncio
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipes.benchmarks.machine import NMT, memory_bytes, used_seconds

ENOUGH = 1 << 26
"""Maximum bytes of an answer."""


@dataclass(frozen=True, slots=True)
class Server:
    """`nmt serve` in its own session."""

    process: subprocess.Popen[bytes]
    host: str
    port: int
    log: Path

    @property
    def workers(self) -> list[int]:
        """Return ids of worker processes, which Linux lists under the threads that forked them."""
        lists = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for path in lists for pid in path.read_text().split()]

    @property
    def seconds(self) -> float:
        """Return the processor seconds of all its processes."""
        return used_seconds(self.process.pid)

    @property
    def megabytes(self) -> float:
        """Return the memory of all its processes in MiB."""
        return memory_bytes(self.process.pid) / (1 << 20)


@contextmanager
def server(models: Sequence[Path], threads: int, *settings: str) -> Iterator[Server]:
    """Start a server, wait until it listens, and kill it when the block ends. Exit if it does not start."""
    command = [*NMT, "serve", *map(str, models), "--port", "0"]
    command += ["--threads", str(threads), "--device", "cpu"]
    command += [word for setting in settings for word in ("--set", setting)]
    with (
        tempfile.NamedTemporaryFile("w+") as file,
        subprocess.Popen(command, stderr=file, start_new_session=True) as process,
    ):
        try:
            log, address = Path(file.name), None
            while not (address := re.search(r"http://(\S+):(\d+)/", log.read_text())):
                if process.poll() is not None:
                    raise SystemExit(f"the server did not start: {log.read_text()}")
                time.sleep(0.05)
            yield Server(process, address[1], int(address[2]), log)
        finally:
            if process.poll() is None:
                process.kill()


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body, parsed as JSON."""
        return json.loads(self.body)


class Connection:
    """A client's connection, which stays open between requests and opens again if it was closed."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, fields: Mapping[str, Any]) -> Answer:
        """Send `fields` as JSON, and return the answer."""
        return await self.send("POST", path, json.dumps(fields).encode(), "application/json")

    async def send(self, method: str, path: str, body: bytes = b"", kind: str = "text/plain") -> Answer:
        """Send a request, and return the answer. Raise `ConnectionError` if there is no answer."""
        if self._streams and self._streams[0].at_eof():  # the server closes idle ones
            await self.close()
        if not self._streams:
            self._streams = await asyncio.open_connection(self._server.host, self._server.port, limit=ENOUGH)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        try:
            writer.write(head.encode("latin-1") + body)
            await writer.drain()
            return await self._answer(reader)
        except (asyncio.IncompleteReadError, OSError) as error:
            await self.close()
            raise ConnectionError(str(error)) from error

    async def _answer(self, reader: asyncio.StreamReader) -> Answer:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if "content-length" in headers:
            body = await reader.readexactly(int(headers["content-length"]))
        else:
            body = b""
            while size := int(await reader.readuntil(b"\r\n"), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
        if headers.get("connection") == "close":
            await self.close()
        return Answer(int(first.split()[1]), headers, body)

    async def close(self) -> None:
        """Close the connection."""
        if self._streams:
            self._streams[1].close()
        self._streams = None


async def clients(count: int, server: Server, work: Callable[[Connection], Awaitable[None]]) -> None:
    """Call `work` for `count` clients at once, each with its own connection. Wait until all return."""

    async def one() -> None:
        connection = Connection(server)
        await work(connection)
        await connection.close()

    await asyncio.gather(*(one() for _ in range(count)))
