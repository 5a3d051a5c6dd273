"""Limits on the number and duration of connections."""

import asyncio
import errno
import resource
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from threading import Event

import pytest
from starlette.types import Receive, Scope, Send

from nmt_cli.serving import connections, server
from nmt_cli.serving.apis.answers import CLIENT_GONE
from nmt_cli.serving.connections import RareReports, raise_file_limit
from tests.serving.conftest import PATIENCE, Client, listening, soon

HEALTH = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
HEALTH_ONLY = HEALTH.replace(b"Host", b"Connection: close\r\nHost")
POST = b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
BODY = b'{"q": "A dog.", "source": "en", "target": "de"}'
BODY_BEGUN = POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY[:9]
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def send(address: tuple[str, int], data: bytes = b"") -> socket.socket:
    """Return a connection after sending `data`, or the part of it before the server ended the connection."""
    connection = socket.create_connection(address, PATIENCE)
    with suppress(ConnectionError):
        connection.sendall(data)
    return connection


def received(connection: socket.socket) -> bytes:
    """Return everything received until the connection ends or is reset."""
    data = b""
    with connection, suppress(ConnectionError):
        while chunk := connection.recv(1000):
            data += chunk
    return data


def accepts(address: tuple[str, int]) -> bool:
    """Return whether the server accepts a new connection."""
    try:
        send(address).close()
    except ConnectionError:
        return False
    return True


def test_a_new_connection_replaces_the_one_that_waited_longest(
    client: Client, capfd: pytest.CaptureFixture[str]
) -> None:
    with listening(client.app, limit=4) as address:
        idle = [send(address, data) for data in (b"", b"", *[POST + b"Content-Length: 100\r\n\r\n{"] * 2)]
        busy = []
        for _ in range(20):
            busy.append(send(address, HEALTH))
            assert b"200 OK" in busy[-1].recv(1000)
        assert [received(one) for one in idle] == [b""] * 4
        for connection in busy:
            connection.close()
    assert capfd.readouterr().err.count("4 connections are open") == 1


def test_idle_connections_do_not_displace_a_running_request(client: Client) -> None:
    text = b" ".join([b"a b c"] * 500)  # long enough that the request is seen running
    body = b'{"q": "%b", "source": "en", "target": "de"}' % text
    with listening(client.app, limit=4) as address:
        running = send(address, POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert soon(lambda: client.service.waiting > 0)
        idle = [send(address) for _ in range(12)]
        assert b'"%b"' % text in received(running)
        for connection in idle:
            connection.close()


@pytest.mark.parametrize("begin", [b"", HEALTH[:20], b"\r\n", HEALTH + HEALTH[:20]], ids=repr)
def test_a_client_without_a_complete_header_is_disconnected(
    client: Client, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    monkeypatch.setattr(connections, "CLIENT_SECONDS", 0.1)
    with listening(client.app) as address:
        assert received(send(address, begin)).count(b"200 OK") == begin.startswith(HEALTH)


def test_the_end_does_not_wait_for_clients_that_hold_back_a_body(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CLIENT_SECONDS", 0.1)
    gone = partial(
        client.service.metrics.value, "nmt_requests_total", route="/translate", status=str(CLIENT_GONE)
    )
    before = gone()
    with listening(client.app) as address:
        silent = send(address, BODY_BEGUN)
        assert b"200 OK" in received(send(address, HEALTH_ONLY))  # so the head before was read
    assert gone() == before + 1
    assert received(silent) == b""


def test_a_body_that_arrives_at_the_end_is_answered(client: Client) -> None:
    with ThreadPoolExecutor(1) as threads:
        with listening(client.app) as address:
            slow = send(address, BODY_BEGUN)
            assert b"200 OK" in received(send(address, HEALTH_ONLY))

            def finish() -> None:
                assert soon(lambda: not accepts(address))
                slow.sendall(BODY[9:])

            finishing = threads.submit(finish)
        finishing.result()
        assert b'"translatedText":"A dog."' in received(slow)


def test_little_is_read_after_a_refusal(client: Client) -> None:
    sent, chunk = 0, b"10000\r\n" + bytes(0x10000) + b"\r\n"
    with listening(client.app) as address:
        connection = send(address, CHUNKED)
        with suppress(ConnectionError):
            while sent < 100_000_000:
                sent += connection.send(chunk)
        assert sent < 20_000_000
        assert received(connection).startswith(b"HTTP/1.1 413")


def test_a_short_body_after_its_refusal_keeps_the_connection(client: Client) -> None:
    size = 1_300_000
    with listening(client.app) as address:
        connection = send(address, POST + b"Content-Length: %d\r\n\r\n" % size + bytes(size) + HEALTH_ONLY)
        answers = received(connection)
    assert answers.startswith(b"HTTP/1.1 413") and answers.endswith(b'{"status":"ok"}')


async def endless(_: Scope, __: Receive, send: Send) -> None:
    """Send more than the buffers of a connection can take."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for number in range(300):
        await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": number < 299})


def test_a_client_that_reads_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CLIENT_SECONDS", 0.1)
    ended = Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await endless(scope, receive, send)
        ended.set()

    with listening(app) as address, send(address, HEALTH):
        assert ended.wait(PATIENCE)


def test_a_client_that_reads_nothing_does_not_hold_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CLIENT_SECONDS", 0.1)
    with ExitStack() as stack:
        address = stack.enter_context(listening(endless, seconds=0.1))
        connection = send(address, HEALTH)
        assert connection.recv(1)
        stack.close()  # ends the server
        connection.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01 nonsense\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        POST + b"Content-Length: x\r\n\r\n",
        CHUNKED + b"not a chunk\r\n",
        CHUNKED + b"150000\r\n" + bytes(0x150000) + b"\r\nnot a chunk\r\n",
        HEALTH + b"nonsense\r\n\r\n",
    ],
    ids=lambda sent: repr(sent[:60]),
)
def test_malformed_requests_print_nothing(
    client: Client, capfd: pytest.CaptureFixture[str], sent: bytes
) -> None:
    with listening(client.app) as address:
        for _ in range(50):
            connection = send(address, sent)
            with suppress(OSError):  # of a connection that was reset
                connection.shutdown(socket.SHUT_WR)
            received(connection)
        with send(address, HEALTH) as connection:
            assert b"200 OK" in connection.recv(1000)
    assert capfd.readouterr().err == ""


def test_exhausted_files_are_reported_once(capfd: pytest.CaptureFixture[str]) -> None:
    loop, report = asyncio.new_event_loop(), RareReports()
    for _ in range(100):
        report.of_loop(loop, {"message": "accept", "exception": OSError(errno.EMFILE, "Too many open files")})
        report.of_loop(loop, {"message": "data_received", "exception": ValueError("a secret")})
    loop.close()
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
