"""The server as a process: signals, addresses and limits."""

import json
import os
import re
import resource
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from subprocess import Popen

import pytest

from tests.serving.conftest import PATIENCE, soon

pytestmark = pytest.mark.slow
SENTENCES = 150


Started = Callable[..., AbstractContextManager[tuple[Popen[bytes], str]]]


@pytest.fixture
def started(forked_nmt: Callable[..., Popen[bytes]], made_models: Path) -> Started:
    """Return a context manager that starts a server and yields it with its address."""

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
                (address,) = re.findall(r"http://\S+:\d+/", next_message(process))
                yield process, address
            finally:
                if process.poll() is None:
                    process.kill()

    return started


def next_message(process: Popen[bytes]) -> str:
    """Return the next line on stderr."""
    assert process.stderr
    return process.stderr.readline().decode()


def translated(address: str, text: str) -> object:
    fields = {"q": [f"{text} {number}." for number in range(SENTENCES)], "source": "en", "target": "de"}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}translate", json.dumps(fields).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.loads(answer.read())["translatedText"]


def characters(address: str) -> int:
    with urllib.request.urlopen(f"{address}metrics", timeout=PATIENCE) as answer:
        (count,) = re.findall(r"^nmt_characters_total (\d+)\.0$", answer.read().decode(), re.M)
    return int(count)


def wait_for_characters(address: str, count: int) -> None:
    """Wait until the server has accepted `count` characters."""
    end = time.monotonic() + PATIENCE
    while characters(address) < count and time.monotonic() < end:
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=str)
def test_accepted_requests_are_answered_before_the_end(started: Started, number: int) -> None:
    clients = ["Anna", "Bert", "Carl", "Dora"]
    with started(threads=2) as (process, address), ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(translated, address, name) for name in clients]
        count = sum(len(f"{name} {number}.") for name in clients for number in range(SENTENCES))
        wait_for_characters(address, count)
        process.send_signal(number)
        for name, answer in zip(clients, answers, strict=True):
            assert answer.result() == [f"{name} {number}." for number in range(SENTENCES)]
        assert process.wait(PATIENCE) == 0
        output = next_message(process) + next_message(process)
    assert "ending" in output and "requests were answered." in output


def test_a_second_signal_ends_at_once(started: Started) -> None:
    with started("--set", "search.beam=64") as (process, address), ThreadPoolExecutor(1) as threads:
        answer = threads.submit(translated, address, "A long text of many words")
        wait_for_characters(address, 1)
        process.send_signal(signal.SIGTERM)
        assert "ending" in next_message(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 143
        assert isinstance(answer.exception(), OSError)


def test_a_closed_terminal_ends_the_server_as_sigterm_does(started: Started) -> None:
    """The terminal sends SIGHUP to all processes of the server, perhaps twice."""
    with started(threads=2) as (process, address), ThreadPoolExecutor(1) as threads:
        answer = threads.submit(translated, address, "Anna")
        wait_for_characters(address, 1)
        for _ in range(2):
            for one in (process.pid, *children(process.pid)):
                os.kill(one, signal.SIGHUP)
            time.sleep(0.05)
        assert len(str(answer.result())) > SENTENCES
        assert process.wait(PATIENCE) == 0
        assert process.stderr and len(process.stderr.read().splitlines()) == 2


def test_a_server_under_nohup_survives_its_terminal(
    start: Callable[..., Popen[str]], made_models: Path
) -> None:
    words = ("serve", made_models / "copies", "--port", "0", "--device", "cpu")
    process = start(["nohup", sys.executable, "-m", "nmt_cli", *words])
    assert process.stderr
    (address,) = re.findall(r"http://\S+:\d+/", process.stderr.readline())
    process.send_signal(signal.SIGHUP)
    assert len(str(translated(address, "A dog"))) > SENTENCES
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_workers_of_a_killed_server_end_without_a_message(started: Started) -> None:
    with started(threads=2) as (process, _):
        workers = children(process.pid)
        process.kill()
        process.wait(PATIENCE)
        assert soon(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
        assert process.stderr and process.stderr.read() == b""


STUCK = """
import sys, threading
from nmt_cli.serving import server, service
server.CLIENT_SECONDS = server.THREAD_SECONDS = 0.1
service.cut = lambda *arguments: print("stuck", file=sys.stderr, flush=True) or threading.Event().wait()
from nmt_cli.cli.main import program
program()
"""


def test_a_signal_ends_the_server_whatever_its_threads_do(
    start: Callable[..., Popen[str]], made_models: Path
) -> None:
    options = ("--port", "0", "--device", "cpu", "--set", "server.most_seconds=0.5")
    process = start([sys.executable, "-c", STUCK, "serve", made_models / "copies", *options])
    assert process.stderr
    (address,) = re.findall(r"http://\S+:\d+/", process.stderr.readline())
    with pytest.raises(urllib.error.HTTPError, match="504"):
        translated(address, "A long text")
    assert process.stderr.readline() == "stuck\n"
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_an_address_in_use_is_reported(
    started: Started, forked_nmt: Callable[..., Popen[bytes]], made_models: Path
) -> None:
    with started() as (_, address):
        port = address.rstrip("/").rpartition(":")[2]
        with forked_nmt("serve", made_models / "copies", "--port", port, "--device", "cpu") as second:
            _, message = second.communicate()
    assert second.returncode == 1
    assert message.decode().startswith(f"Error: cannot listen on 127.0.0.1:{port}: ")


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "ä" * 64, "nowhere.invalid"])
def test_an_invalid_host_is_reported_in_one_line(
    forked_nmt: Callable[..., Popen[bytes]], made_models: Path, host: str
) -> None:
    with forked_nmt("serve", made_models / "copies", "--host", host, "--port", "0") as process:
        _, message = process.communicate()
    assert process.returncode == 1
    assert re.fullmatch(rf"Error: --host {host}.*\n", message.decode())


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process are set as Linux does")
def test_the_server_answers_with_more_idle_connections_than_files(started: Started) -> None:
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


def test_several_processes_can_share_a_port(started: Started) -> None:
    with started("--set", "server.share_port=true") as (first, address):
        port = address.rstrip("/").rpartition(":")[2]
        with started("--set", "server.share_port=true", "--port", port) as (_, same):
            assert same == address
            first.terminate()
            assert first.wait(PATIENCE) == 0
            assert len(str(translated(address, "A dog"))) > SENTENCES


def test_processes_restart_one_after_the_other_without_a_refused_connection(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restart as systemd does with `Type=notify`: end a process, start it, and wait until it is ready."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    ended, statuses = threading.Event(), list[int]()

    def ask_often(address: str) -> None:
        while not ended.wait(0.1):
            with urllib.request.urlopen(f"{address}languages", timeout=PATIENCE) as answer:
                statuses.append(answer.status)

    def answered(count: int) -> bool:
        return len(statuses) >= count

    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        ExitStack() as stack,
        ThreadPoolExecutor(1) as threads,
    ):
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)

        def start(port: str) -> tuple[Popen[bytes], str]:
            options = ("--set", "server.share_port=true", "--port", port)
            process, address = stack.enter_context(started(*options))
            assert manager.recv(100) == b"READY=1"
            return process, address

        first, address = start("0")
        port = address.rstrip("/").rpartition(":")[2]
        second, _ = start(port)
        asking = threads.submit(ask_often, address)
        try:
            for process in (first, second):
                process.terminate()
                assert process.wait(PATIENCE) == 0
                start(port)
                assert soon(partial(answered, len(statuses) + 5))
        finally:
            ended.set()
        asking.result()
    assert {*statuses} == {200}


def test_a_killed_worker_loses_no_request_and_holds_no_connection(started: Started) -> None:
    with started("--set", "search.beam=16", threads=2) as (process, address):
        with ThreadPoolExecutor(2) as threads:
            answers = [threads.submit(translated, address, name) for name in ("Anna", "Bert")]
            wait_for_characters(address, 1)
            os.kill(children(process.pid)[0], signal.SIGKILL)
            for name, answer in zip(("Anna", "Bert"), answers, strict=True):
                assert answer.result() == [f"{name} {number}." for number in range(SENTENCES)]
        assert next_message(process) == (
            "Warning: replaced a worker of en-de: a translation process was killed, most likely because "
            "memory ran out. Use fewer --threads or smaller batches, for example --set search.rows=64.\n"
        )
        # A copy of a connection in the new worker would keep it open, and `recv` would block.
        request = b"GET /health HTTP/1.0\r\n\r\n"
        host, port = address.removeprefix("http://").rstrip("/").split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
            connection.sendall(request)
            response = b"".join(iter(lambda: connection.recv(1000), b""))
        assert response.endswith(b'{"status":"ok"}')


def children(parent: int) -> list[int]:
    """Return the child processes of `parent`."""
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
