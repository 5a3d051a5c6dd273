"""A server to be measured, and clients that cost it little: plain HTTP over asyncio's streams."""

import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENOUGH = 1 << 26
"""Bytes of an answer."""


@dataclass(frozen=True, slots=True)
class Server:
    """`nmt serve` in a process of its own."""

    process: subprocess.Popen[bytes]
    host: str
    port: int
    log: Path
    """What it has said so far."""

    @property
    def workers(self) -> list[int]:
        """Its worker processes."""
        lists = Path(f"/proc/{self.process.pid}/task").glob("*/children")  # each thread has those it forked
        return [int(pid) for path in lists for pid in path.read_text().split()]

    @property
    def seconds(self) -> float:
        """Of processors, that it and its workers have taken so far."""
        ticks = 0
        for pid in (self.process.pid, *self.workers):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    @property
    def kilobytes(self) -> int:
        """Of memory, where what processes share is shared out among them."""
        found = 0
        for pid in (self.process.pid, *self.workers):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            found += int(re.findall(r"^Pss:\s+(\d+) kB", rollup, re.M)[0])
        return found


@contextmanager
def server(models: Sequence[Path], threads: int, *settings: str) -> Iterator[Server]:
    """A server that listens."""
    command = [sys.executable, "-m", "nmt_cli", "serve", *map(str, models), "--port", "0"]
    command += ["--threads", str(threads), "--device", "cpu"]
    command += [word for setting in settings for word in ("--set", setting)]
    with (
        tempfile.NamedTemporaryFile("w+") as told,
        subprocess.Popen(command, stderr=told) as process,
    ):
        try:
            log, place = Path(told.name), None
            while not (place := re.search(r"http://(\S+):(\d+)/", log.read_text())):
                if process.poll() is not None:
                    raise SystemExit(f"the server did not begin: {log.read_text()}")
                time.sleep(0.05)
            yield Server(process, place[1], int(place[2]), log)
        finally:
            if process.poll() is None:
                process.kill()


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Of the body."""
        return json.loads(self.body)


class Connection:
    """One client's; stays open from one request to the next, and is opened anew where it was closed."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, fields: Mapping[str, Any]) -> Answer:
        """Send JSON."""
        return await self.send("POST", path, json.dumps(fields).encode(), "application/json")

    async def send(self, method: str, path: str, body: bytes = b"", kind: str = "text/plain") -> Answer:
        """Send a request; `ConnectionError` where it is not answered."""
        if self._streams and self._streams[0].at_eof():  # closed by the server, as nobody used it
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
        """Without a word."""
        if self._streams:
            self._streams[1].close()
        self._streams = None


async def clients(count: int, server: Server, work: Callable[[Connection], Awaitable[None]]) -> None:
    """So many at the same time, each with a connection of its own."""

    async def one() -> None:
        connection = Connection(server)
        await work(connection)
        await connection.close()

    await asyncio.gather(*(one() for _ in range(count)))


def random_body(chosen: random.Random) -> bytes:
    """What a broken or hostile client might send: bytes, JSON, forms, and what looks nearly like them."""
    values: list[Any] = [
        None,
        True,
        -1,
        1e308,
        "",
        "a dog",
        "\ud800",
        [],
        {},
        ["a", 1],
        [["a", "b"]],
        "9" * 5000,
    ]
    names = (
        "q source target format alternatives stream text target_lang messages model n pairs api_key".split()
    )
    likely = {"q": "A dog.", "source": "auto", "target": "de", "text": "a", "model": "en-de"}
    match chosen.randrange(4):
        case 0:
            return chosen.randbytes(chosen.randrange(60))
        case 1:
            body = json.dumps(
                likely | {name: chosen.choice(values) for name in chosen.sample(names, 2)}
            ).encode()
            place = chosen.randrange(len(body))
            return body if chosen.random() < 0.5 else body[:place] + chosen.randbytes(1) + body[place + 1 :]
        case 2:
            return "&".join(
                f"{name}={chosen.randbytes(3).hex()}%{name}" for name in chosen.sample(names, 3)
            ).encode()
        case _:
            parts = [
                b"--x\r\n",
                b'Content-Disposition: form-data; name="q"\r\n\r\n',
                b"a\r\n",
                b"--x--\r\n",
                b"\xff",
            ]
            return b"".join(chosen.choices(parts, k=5))
