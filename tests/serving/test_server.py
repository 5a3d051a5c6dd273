"""The server as a process: it ends when it is asked to, and not before all are answered."""

import json
import os
import re
import resource
import signal
import socket
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen

import pytest

pytestmark = pytest.mark.slow
PATIENCE = 60.0
SENTENCES = 150


Started = Callable[..., AbstractContextManager[tuple[Popen[bytes], str]]]


@pytest.fixture
def started(forked_nmt: Callable[..., Popen[bytes]], made_models: Path) -> Started:
    """A server with these options, and its address."""

    @contextmanager
    def started(
        *options: str, threads: int = 1, files: tuple[int, int] | None = None
    ) -> Iterator[tuple[Popen[bytes], str]]:
        model = made_models / "copies"
        words = ("serve", model, "--port", "0", "--threads", threads, "--device", "cpu", *options)
        with forked_nmt(*words) as process:
            if files:
                resource.prlimit(process.pid, resource.RLIMIT_NOFILE, files)
            try:
                (address,) = re.findall(r"http://\S+:\d+/", said(process))
                yield process, address
            finally:
                if process.poll() is None:
                    process.kill()

    return started


def said(process: Popen[bytes]) -> str:
    """The next line on stderr."""
    assert process.stderr
    return process.stderr.readline().decode()


def translated(address: str, text: str) -> object:
    fields = {"q": [f"{text} {number}." for number in range(SENTENCES)], "source": "en", "target": "de"}
    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(f"{address}translate", json.dumps(fields).encode(), headers)
    with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
        return json.loads(answer.read())["translatedText"]


def characters(address: str) -> int:
    with urllib.request.urlopen(f"{address}metrics", timeout=PATIENCE) as answer:
        (count,) = re.findall(r"^nmt_characters_total (\d+)$", answer.read().decode(), re.M)
    return int(count)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_what_was_taken_in_is_answered_before_the_end(started: Started, number: int) -> None:
    clients = ["Anna", "Bert", "Carl", "Dora"]
    with started(threads=2) as (process, address), ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(translated, address, name) for name in clients]
        whole = sum(len(f"{name} {number}.") for name in clients for number in range(SENTENCES))
        end = time.monotonic() + PATIENCE
        while characters(address) < whole and time.monotonic() < end:
            pass
        process.send_signal(number)
        for name, answer in zip(clients, answers, strict=True):
            assert answer.result() == [f"{name} {number}." for number in range(SENTENCES)]
        assert process.wait(PATIENCE) == 0
        told = said(process) + said(process)
    assert "ending" in told and "requests were answered." in told


def test_a_second_signal_ends_at_once(started: Started) -> None:
    with started("--set", "search.beam=64") as (process, address), ThreadPoolExecutor(1) as threads:
        answer = threads.submit(translated, address, "A long text of many words")
        end = time.monotonic() + PATIENCE
        while not characters(address) and time.monotonic() < end:
            pass
        process.send_signal(signal.SIGTERM)
        assert "ending" in said(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 143
        assert isinstance(answer.exception(), OSError)


def test_an_address_that_is_taken_is_told(
    started: Started, forked_nmt: Callable[..., Popen[bytes]], made_models: Path
) -> None:
    with started() as (_, address):
        port = address.rstrip("/").rpartition(":")[2]
        with forked_nmt("serve", made_models / "copies", "--port", port, "--device", "cpu") as second:
            _, told = second.communicate()
    assert second.returncode == 1
    assert told.decode().startswith(f"Error: cannot listen on 127.0.0.1:{port}: ")


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "ä" * 64, "nowhere.invalid"])
def test_a_host_that_is_none_is_one_line(
    forked_nmt: Callable[..., Popen[bytes]], made_models: Path, host: str
) -> None:
    with forked_nmt("serve", made_models / "copies", "--host", host, "--port", "0") as process:
        _, message = process.communicate()
    assert process.returncode == 1
    assert re.fullmatch(rf"Error: --host {host}.*\n", message.decode())


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process are set as Linux does")
def test_more_idle_connections_than_files_leave_the_server_answering(started: Started) -> None:
    with started(files=(64, 256)) as (process, address), ExitStack() as stack:
        host, port = address.removeprefix("http://").rstrip("/").split(":")
        for number in range(400):
            connection = stack.enter_context(socket.create_connection((host, int(port)), PATIENCE))
            connection.sendall(b"GET / HTT" if number % 2 else b"")
            if number % 50 == 0:
                assert characters(address) == 0
        assert len(str(translated(address, "A dog"))) > SENTENCES
        process.terminate()
        assert process.stderr and len(process.stderr.read().splitlines()) <= 3


def test_several_processes_may_share_a_port(started: Started) -> None:
    with started("--set", "server.share_port=true") as (first, address):
        port = address.rstrip("/").rpartition(":")[2]
        with started("--set", "server.share_port=true", "--port", port) as (_, same):
            assert same == address
            first.terminate()
            assert first.wait(PATIENCE) == 0
            assert len(str(translated(address, "A dog"))) > SENTENCES


def test_a_worker_that_is_killed_costs_no_request_and_holds_no_connection(started: Started) -> None:
    with started("--set", "search.beam=16", threads=2) as (process, address):
        with ThreadPoolExecutor(2) as threads:
            answers = [threads.submit(translated, address, name) for name in ("Anna", "Bert")]
            end = time.monotonic() + PATIENCE
            while not characters(address) and time.monotonic() < end:
                pass
            os.kill(children(process.pid)[0], signal.SIGKILL)
            for name, answer in zip(("Anna", "Bert"), answers, strict=True):
                assert answer.result() == [f"{name} {number}." for number in range(SENTENCES)]
        # A copy of a connection in the new worker would keep it open, and this would wait for its end.
        request = b"GET /health HTTP/1.0\r\n\r\n"
        host, port = address.removeprefix("http://").rstrip("/").split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
            connection.sendall(request)
            whole = b"".join(iter(lambda: connection.recv(1000), b""))
        assert whole.endswith(b'{"status":"ok"}')


def children(parent: int) -> list[int]:
    """The processes that it has started."""
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
