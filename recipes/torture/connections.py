"""Open connections that misuse `nmt serve`: idle, slow, malformed, endless, and more than it may have.

python -m recipes.torture.connections --rounds 4      all kinds at once in each round, in a random order

Meanwhile, one client requests /health, which must respond within two seconds, and another one requests the
same translation repeatedly. At the end the server must obey SIGTERM, and its log must be short.
"""

import asyncio
import json
import multiprocessing
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path
from random import Random
from typing import Any

import click

from nmt_cli.serving.connections import raise_file_limit
from recipes.torture.table import Tally, print_table

MODEL = Path(__file__).resolve().parents[2] / "tests" / "golden" / "model"
COMMAND = (sys.executable, "-m", "nmt_cli", "serve", str(MODEL), "--port", "0", "--threads", "1")
FILES = 512
"""Maximum number of open files of the server."""

START_SECONDS, HEALTH_SECONDS, CLOSED_SECONDS = 900.0, 2.0, 90.0
"""Maximum durations of the start, of a response from /health, and of a misused connection."""

MAX_LOG_BYTES = 4096

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
HEALTH = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
POST = b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


async def idle(streams: Streams, random: Random) -> None:
    """Send nothing."""


async def half_header(streams: Streams, random: Random) -> None:
    """Send part of a header."""
    streams[1].write(HEALTH[: random.randrange(1, len(HEALTH) - 1)])


async def slow_header(streams: Streams, random: Random) -> None:
    """Send a header that never ends, a few bytes at a time."""
    streams[1].write(b"GET / HTTP/1.1\r\n")
    while not streams[1].is_closing():
        streams[1].write(b"X-A: b\r\n")
        await streams[1].drain()
        await asyncio.sleep(random.random())


async def slow_body(streams: Streams, random: Random) -> None:
    """Send a body a few bytes at a time."""
    streams[1].write(POST + b"Content-Length: 10000\r\n\r\n")
    while not streams[1].is_closing():
        streams[1].write(b" ")
        await streams[1].drain()
        await asyncio.sleep(random.random())


async def endless_body(streams: Streams, random: Random) -> None:
    """Send a body that is far too large. Raise RuntimeError if the server reads the whole body."""
    streams[1].write(POST + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(10_000):
        streams[1].write(b"8000\r\n" + bytes(0x8000) + b"\r\n")
        await streams[1].drain()
    raise RuntimeError("the server has read a body of 300 MB")


async def malformed(streams: Streams, random: Random) -> None:
    """Send random bytes."""
    streams[1].write(random.randbytes(random.randrange(1, 200)) + b"\r\n\r\n")
    streams[1].write_eof()


async def websocket(streams: Streams, random: Random) -> None:
    """Request a WebSocket."""
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    streams[1].write(b"GET / HTTP/1.1\r\nHost: a\r\n" + upgrade + b"Sec-WebSocket-Version: 13\r\n\r\n")
    streams[1].write_eof()


async def bad_chunk(streams: Streams, random: Random) -> None:
    """End a body with an invalid chunk."""
    streams[1].write(
        POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{    \r\n" + random.randbytes(20) + b"\r\n"
    )
    streams[1].write_eof()


async def disconnect(streams: Streams, random: Random) -> None:
    """Request a translation, and disconnect."""
    streams[1].write(_request("A dog runs. " * 300))
    await asyncio.sleep(random.random() / 10)
    streams[1].close()


def _request(text: str) -> bytes:
    """Return the bytes of a request for a translation."""
    body = json.dumps({"q": text, "source": "en", "target": "de"}).encode()
    return POST + f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


TRANSLATE = _request("A dog runs. " * 3)
KINDS: dict[str, tuple[Callable[[Streams, Random], Coroutine[Any, Any, None]], int]] = {
    "idle": (idle, 2 * FILES),
    "half a header": (half_header, FILES),
    "header without an end": (slow_header, 50),
    "slow body": (slow_body, 50),
    "body without an end": (endless_body, 10),
    "not HTTP": (malformed, 200),
    "WebSocket handshake": (websocket, 200),
    "broken chunk": (bad_chunk, 200),
    "client disconnects": (disconnect, 20),
}
"""Each kind of connection, and the number of connections per round."""


@click.command()
@click.option("--rounds", default=4, type=click.IntRange(1), show_default=True, help="Number of rounds.")
@click.option("--seed", default=1, show_default=True)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Open only these kinds.")
def main(rounds: int, seed: int, kinds: Sequence[str]) -> None:
    """Print a table of connections. Exit with 1 if any is wrong."""
    raise_file_limit()
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder, (log := Path(folder) / "log").open("ab") as errors:
        with subprocess.Popen([*COMMAND, "--device", "cpu"], stderr=errors, preexec_fn=_few_files) as server:
            try:
                port = _port(server, log)
                campaign(tally, port, Random(seed), rounds, kinds or [*KINDS])
            finally:
                server.send_signal(signal.SIGTERM)
            code = server.wait(CLOSED_SECONDS)
        size = log.stat().st_size
    tally.add("end of the server", "wrong" if code else "clean", f"exit code {code}")
    tally.add("size of the log", "clean" if size <= MAX_LOG_BYTES else "wrong", f"{size:,} bytes")
    print_table(tally, "connection")
    print(f"\nThe log has {size:,} bytes.")
    raise SystemExit(tally.failed)


def _few_files() -> None:
    """Limit the open files of this process."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES // 2, FILES))


def campaign(tally: Tally, port: int, random: Random, rounds: int, kinds: Sequence[str]) -> None:
    """Open the connections of each round at once, while other processes request /health and translations."""
    fork = multiprocessing.get_context("fork")
    stop, results = fork.Event(), fork.SimpleQueue()
    requests = {"/health meanwhile": (HEALTH, HEALTH_SECONDS), "translation meanwhile": (TRANSLATE, 60.0)}
    watchers = [
        fork.Process(target=_watch, args=(port, kind, *request, _response(port, request[0]), stop, results))
        for kind, request in requests.items()
    ]
    for watcher in watchers:
        watcher.start()
    asyncio.run(_rounds(tally, port, random, rounds, kinds))
    stop.set()
    for watcher in watchers:
        kind, good, wrong = results.get()
        for _ in range(good):
            tally.add(kind, "identical")
        for message in wrong:
            tally.add(kind, "wrong", message)
        watcher.join()


async def _rounds(tally: Tally, port: int, random: Random, rounds: int, kinds: Sequence[str]) -> None:
    for _ in range(rounds):
        connections = [kind for kind in kinds for _ in range(KINDS[kind][1])]
        random.shuffle(connections)
        await asyncio.gather(*(_misuse(tally, port, kind, random) for kind in connections))


async def _misuse(tally: Tally, port: int, kind: str, random: Random) -> None:
    """Open a connection of this kind, wait until the server closes it, and count the outcome."""
    await asyncio.sleep(random.random() * 5)
    try:
        async with asyncio.timeout(CLOSED_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            sending = asyncio.create_task(KINDS[kind][0]((reader, writer), random))
            try:
                with suppress(OSError):
                    while await reader.read(1 << 16):
                        pass
            finally:
                sending.cancel()
                writer.close()
            with suppress(asyncio.CancelledError, OSError):
                await sending
    except (TimeoutError, RuntimeError, OSError) as error:
        tally.add(kind, "wrong", f"{type(error).__name__}: {error}")
    else:
        tally.add(kind, "clean")


def _watch(
    port: int,
    kind: str,
    request: bytes,
    seconds: float,
    expected: bytes,
    stop: Event,
    results: "SimpleQueue[Any]",
) -> None:
    """Send `request` repeatedly until `stop` is set. Then put into `results` the kind, the number of right
    responses, and a message for each wrong response. A right response has the body of `expected` and comes
    within `seconds`."""
    good, wrong = 0, []
    while not stop.wait(0.2):
        start = time.monotonic()
        response = _response(port, request)
        took = time.monotonic() - start
        same = response.partition(b"\r\n\r\n")[2] == expected.partition(b"\r\n\r\n")[2]
        good += same and took <= seconds
        if not same or took > seconds:
            wrong.append(f"{took:.1f} s: {response[-80:]!r}")
    results.put((kind, good, wrong))


def _response(port: int, request: bytes) -> bytes:
    """Return the bytes of the response to `request`, or a description of the error of the connection."""
    try:
        with socket.create_connection(("127.0.0.1", port), CLOSED_SECONDS) as connection:
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))
    except OSError as error:
        return repr(error).encode()


def _port(server: subprocess.Popen[bytes], log: Path) -> int:
    """Return the port of the server when the server listens. Exit if the server does not start."""
    end = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < end:
        if ports := re.findall(rb"http://[\d.]+:(\d+)/", log.read_bytes()):
            return int(ports[0])
        time.sleep(0.1)
    raise SystemExit("nmt serve did not start")


if __name__ == "__main__":
    main()
