"""Limits on the number and duration of connections."""

import asyncio
import errno
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from nmt_cli.serving import connections
from nmt_cli.serving.connections import RareReports, raise_file_limit
from nmt_cli.serving.server import uvicorn_server
from tests.serving.conftest import PATIENCE, Client

HEALTH = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]
Story = Callable[[Connect], Awaitable[None]]


@pytest.fixture
def run(client: Client) -> Callable[..., None]:
    """Return a function that runs `story` with a server: `run(story, limit)`. It allows `limit`
    connections."""

    @asynccontextmanager
    async def serving(limit: int) -> AsyncIterator[Connect]:
        report = RareReports()
        asyncio.get_running_loop().set_exception_handler(report.of_loop)
        server = uvicorn_server(client.app, limit, report)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            task = asyncio.create_task(server.serve([listening]))
            opened: list[asyncio.StreamWriter] = []

            async def connect() -> Streams:
                streams = await asyncio.open_connection(*listening.getsockname())
                opened.append(streams[1])
                return streams

            yield connect
            for writer in opened:
                writer.close()
            await asyncio.gather(*(writer.wait_closed() for writer in opened), return_exceptions=True)
            server.should_exit = True
            await task

    async def main(story: Story, limit: int) -> None:
        async with asyncio.timeout(PATIENCE), serving(limit) as connect:
            await story(connect)

    return lambda story, limit=100: asyncio.run(main(story, limit))


async def healthy(connect: Connect) -> None:
    reader, writer = await connect()
    writer.write(HEALTH)
    assert b"200 OK" in await reader.readline()


async def closed(reader: asyncio.StreamReader) -> bytes:
    """Return everything received until the connection ends or is reset."""
    received = bytearray()
    try:
        while data := await reader.read(1000):
            received += data
    except ConnectionError:
        pass
    return bytes(received)


def test_a_new_connection_replaces_the_one_that_waited_longest(
    run: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    async def story(connect: Connect) -> None:
        idle = [await connect() for _ in range(4)]
        for _, writer in idle[:2]:
            writer.write(POST + b"Content-Length: 100\r\n\r\n{")
        for _ in range(20):
            await healthy(connect)
        for reader, _ in idle:
            assert await closed(reader) == b""

    run(story, limit=4)
    assert capfd.readouterr().err.count("4 connections are open") == 1


def test_idle_connections_do_not_displace_a_running_request(run: Callable[..., None], client: Client) -> None:
    async def story(connect: Connect) -> None:
        reader, writer = await connect()
        text = b" ".join([b"a b c"] * 500)  # long enough that the request is seen running
        body = b'{"q": "%b", "source": "en", "target": "de"}' % text
        writer.write(POST + f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        while not client.service.waiting:
            await asyncio.sleep(0)
        idle = [await connect() for _ in range(12)]
        assert b'"%b"' % text in await closed(reader)
        assert len(idle) == 12

    run(story, limit=4)


@pytest.mark.parametrize("begin", [b"", HEALTH[:20], b"\r\n", HEALTH + HEALTH[:20]], ids=repr)
def test_a_client_without_a_complete_header_is_disconnected(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    monkeypatch.setattr(connections, "CLIENT_SECONDS", 0.1)

    async def story(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(begin)
        assert (await closed(reader)).count(b"200 OK") == begin.startswith(HEALTH)

    run(story)


def test_little_is_read_after_a_refusal(run: Callable[..., None]) -> None:
    def send(address: tuple[str, int]) -> tuple[int, bytes]:
        sent, chunk = 0, b"10000\r\n" + bytes(0x10000) + b"\r\n"
        with socket.create_connection(address) as connection:
            connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
            with suppress(ConnectionError):
                while sent < 100_000_000:
                    sent += connection.send(chunk)
            return sent, connection.recv(1000)

    async def story(connect: Connect) -> None:
        _, writer = await connect()
        sent, answer = await asyncio.to_thread(send, writer.get_extra_info("peername"))
        assert sent < 20_000_000
        assert answer.startswith(b"HTTP/1.1 413")

    run(story)


def test_a_short_body_after_its_refusal_keeps_the_connection(run: Callable[..., None]) -> None:
    async def story(connect: Connect) -> None:
        reader, writer = await connect()
        size = 1_300_000
        writer.write(POST + f"Content-Length: {size}\r\n\r\n".encode() + bytes(size) + HEALTH)
        received = b""
        while b'{"status":"ok"}' not in received:
            received += await reader.read(1000)
        assert received.startswith(b"HTTP/1.1 413")

    run(story)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01 nonsense\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        POST + b"Content-Length: x\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nnot a chunk\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n150000\r\n" + bytes(0x150000) + b"\r\nnot a chunk\r\n",
        HEALTH + b"nonsense\r\n\r\n",
    ],
    ids=lambda sent: repr(sent[:60]),
)
def test_malformed_requests_do_not_fill_the_log(
    run: Callable[..., None], capfd: pytest.CaptureFixture[str], sent: bytes
) -> None:
    async def story(connect: Connect) -> None:
        for _ in range(50):
            reader, writer = await connect()
            writer.write(sent)
            writer.write_eof()
            await closed(reader)
        await healthy(connect)

    run(story)
    assert len(capfd.readouterr().err.splitlines()) <= 1


def test_exhausted_files_are_reported_once(capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        loop, report = asyncio.get_running_loop(), RareReports()
        for _ in range(100):
            report.of_loop(
                loop, {"message": "accept", "exception": OSError(errno.EMFILE, "Too many open files")}
            )
            report.of_loop(loop, {"message": "data_received", "exception": ValueError("a secret")})

    asyncio.run(main())
    files, fault = capfd.readouterr().err.splitlines()
    assert files == "Error: cannot accept connections: Too many open files. Raise ulimit -n."
    assert fault == "Error: a bug in nmt, in a connection: ValueError: data_received"


def test_the_file_limit_is_raised_to_that_of_the_system_or_the_maximum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    try:
        allowed = raise_file_limit()
        assert 100 <= allowed < resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 200
        monkeypatch.setattr(connections, "MAX_FILES", 150)
        assert raise_file_limit() == 150 - 75
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
