"""`nmt translate` in pipes, on a terminal, interrupted, and with models that translate badly."""

import gzip
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen
from typing import Any

import pytest

from tests.end_to_end.processes import PATIENCE, children_of
from tests.fork_server import CHANGE

Run = Callable[..., CompletedProcess[str]]

ONE_THREAD = ("--device", "cpu", "--threads", "1")
SEVERAL = ("--threads", "3")
"""Each thread has its own process."""

Piped = Callable[..., CompletedProcess[bytes]]
Started = Callable[..., AbstractContextManager[Popen[bytes]]]


@pytest.fixture
def started(forked_nmt: Callable[..., Popen[bytes]]) -> Started:
    """Return a context that runs `nmt translate` with the streams of `Popen`, and kills it at the end."""

    @contextmanager
    def started(*arguments: object, stdin: int = PIPE, **streams: Any) -> Iterator[Popen[bytes]]:
        with forked_nmt("translate", *ONE_THREAD, *arguments, stdin=stdin, **streams) as process:
            try:
                yield process
            finally:
                process.kill()

    return started


@pytest.fixture
def piped(started: Started) -> Piped:
    """Return a function that runs `nmt translate` with data on stdin, and returns the completed process."""

    def piped(data: bytes, *arguments: object) -> CompletedProcess[bytes]:
        with started(*arguments) as process:
            output, errors = process.communicate(data, PATIENCE)
        return CompletedProcess(process.args, process.returncode, output, errors)

    return piped


def answer(process: Popen[bytes], line: bytes) -> bytes:
    """Send a line without closing stdin, and return the next line on stdout."""
    assert process.stdin and process.stdout
    process.stdin.write(line)
    process.stdin.flush()
    return process.stdout.readline()


def end_of(process: Popen[bytes]) -> tuple[int, bytes]:
    """Wait for the end of a process, and return its exit code and stderr."""
    assert process.stderr
    return process.wait(PATIENCE), process.stderr.read()


@pytest.fixture
def translate(nmt: Run, tmp_path: Path) -> Callable[..., tuple[str, str]]:
    """Return a function that translates a text in this process, and returns stdout and stderr."""

    def translate(text: str, *arguments: object) -> tuple[str, str]:
        (tmp_path / "in").write_bytes(text.encode())
        result = nmt("translate", *arguments, *ONE_THREAD, "--input", tmp_path / "in", "--quiet")
        assert result.returncode == 0, result.stderr
        return result.stdout, result.stderr

    return translate


Translate = Callable[..., tuple[str, str]]


def test_every_line_has_a_translation_with_any_characters(piped: Piped, made_models: Path) -> None:
    data = "\ufeffabc def\n\n  \t \nab\r\nC\u2028D\u0085E\vF\fG\rH\u2029\nlast without end".encode()
    result = piped(data, made_models / "copies")
    assert result.stdout.decode() == "abc def\n\n\nab\nC D E F G H\nlast without end\n"
    assert result.returncode == 0
    assert result.stderr.decode().startswith("6 lines in ")


def test_bytes_that_are_not_utf_8_are_replaced_with_a_warning(piped: Piped, made_models: Path) -> None:
    data = b"abc\n\xff\xfe\x00\x80\n\xc3(\nabc\n"
    result = piped(data, made_models / "copies", "--quiet")
    assert result.stdout.count(b"\n") == 4
    assert result.stdout.splitlines()[0] == result.stdout.splitlines()[3] == b"abc"
    assert "lines 2, 3: bytes that are not UTF-8 became U+FFFD" in result.stderr.decode()


@pytest.mark.parametrize("threads", [ONE_THREAD, SEVERAL])
def test_empty_input_gives_empty_output(piped: Piped, made_models: Path, threads: Sequence[str]) -> None:
    result = piped(b"", made_models / "copies", "--quiet", *threads)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


def wait_for_the_end_of(processes: Sequence[int]) -> None:
    """Wait until all processes with these ids have ended."""
    until = time.monotonic() + PATIENCE
    while any(map(is_alive, processes)):
        assert time.monotonic() < until
        time.sleep(0.01)


def is_alive(process: int) -> bool:
    """Return whether a process runs. A zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="threads have their own processes only on Linux"
)


each_signal = pytest.mark.parametrize(
    ("number", "code", "message"),
    [(signal.SIGINT, 130, b"Error: interrupted.\n"), (signal.SIGTERM, 143, b"Error: terminated.\n")],
    ids=["Ctrl-C", "SIGTERM"],
)


@each_signal
def test_a_single_line_is_translated_at_once_and_a_signal_ends_the_wait(
    started: Started, made_models: Path, number: int, code: int, message: bytes
) -> None:
    with started(made_models / "copies") as process:
        assert answer(process, b"abc\n") == b"abc\n"
        assert answer(process, b"\n") == b"\n"
        assert answer(process, b"de\nhalf a line") == b"de\n"
        process.send_signal(number)
        assert end_of(process) == (code, message)


@on_linux
@each_signal
def test_a_signal_to_all_processes_is_reported_once_and_ends_them(
    started: Started, made_models: Path, number: int, code: int, message: bytes
) -> None:
    """A terminal sends signals to all processes in the foreground."""
    with started(made_models / "copies", *SEVERAL, start_new_session=True) as process:
        assert answer(process, b"abc\n") == b"abc\n"
        children = children_of(process.pid)
        assert len(children) == 3
        for _ in range(2):
            os.killpg(process.pid, number)
        assert end_of(process) == (code, message)
    wait_for_the_end_of(children)


@on_linux
def test_worker_processes_end_when_the_command_is_killed(started: Started, made_models: Path) -> None:
    with started(made_models / "copies", *SEVERAL) as process:
        assert answer(process, b"abc\n") == b"abc\n"
        children = children_of(process.pid)
        process.kill()
        process.wait()
        wait_for_the_end_of(children)


@on_linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_lines_of_killed_workers_are_translated_again_with_one_warning(
    started: Started, made_models: Path, number: int
) -> None:
    lines = [b"%dabc\n" % number for number in range(400)]
    with started(made_models / "copies", *SEVERAL) as process:
        assert answer(process, lines[0]) == lines[0]
        children = children_of(process.pid)
        assert process.stdin and process.stdout
        process.stdin.write(b"".join(lines[1:200]))
        process.stdin.flush()
        assert select.select([process.stdout], [], [], PATIENCE)[0]  # the workers have begun
        for child in children:
            os.kill(child, number)
        output, errors = process.communicate(b"".join(lines[200:]), PATIENCE)
    assert output.splitlines(keepends=True) == lines[1:]
    # A crash also prints a traceback, for developers.
    assert [line for line in errors.decode().splitlines() if line.startswith(("Warning", "Error"))] == [
        "Warning: a worker process died, and its lines are translated again. "
        "If this happens often, memory may be short. Use fewer --threads."
    ]
    assert process.returncode == 0


TWO_GPUS = """
import torch
from nmt_cli.translation import loading
loading.first_devices = lambda kind, count: [torch.device("cpu")] * count
loading.start_of_workers = lambda device: "spawn"
"""


@pytest.fixture
def with_two_gpus(
    start_nmt: Callable[..., Popen[str]], made_models: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Popen[str]]:
    """Return a function that starts `nmt translate` with two devices that are used like GPUs."""
    monkeypatch.setenv(CHANGE, TWO_GPUS)
    return lambda: start_nmt("translate", made_models / "copies", "--devices", 2, stdin=PIPE)


@on_linux
def test_each_gpu_has_a_process_that_is_replaced_if_killed(with_two_gpus: Callable[[], Popen[str]]) -> None:
    process = with_two_gpus()
    assert process.stdin and process.stdout
    # So many that the other worker cannot translate all before the death is noticed.
    lines = [f"{number}abc\n" for number in range(2000)]
    process.stdin.write("".join(lines[:50]))
    process.stdin.flush()
    assert process.stdout.readline() == lines[0]
    workers = spawned_by(process.pid)
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    process.stdin.write("".join(lines[50:]))
    process.stdin.close()
    assert process.stdout.read() == "".join(lines[1:])
    assert process.wait(PATIENCE) == 0
    assert process.stderr and "Warning: a worker process died" in process.stderr.read()
    wait_for_the_end_of(workers)


@on_linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C to all", "killed command"])
def test_processes_of_gpus_end_with_the_command(with_two_gpus: Callable[[], Popen[str]], number: int) -> None:
    process = with_two_gpus()
    assert process.stdin and process.stdout
    process.stdin.write("abc\n")
    process.stdin.flush()
    assert process.stdout.readline() == "abc\n"
    children = children_of(process.pid)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
        assert process.wait(PATIENCE) == 130
        assert process.stderr and process.stderr.read() == "Error: interrupted.\n"
    else:
        process.kill()
    wait_for_the_end_of(children)


def spawned_by(process: int) -> list[int]:
    """Return the process ids of the worker processes that a process has spawned."""
    return [
        child
        for child in children_of(process)
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


@pytest.mark.parametrize("threads", [ONE_THREAD, SEVERAL])
@pytest.mark.parametrize("times", [1, 3])
def test_ctrl_c_during_endless_input_ends_the_command_at_once(
    started: Started, made_models: Path, times: int, threads: Sequence[str]
) -> None:
    source = Popen(["yes", "abc def gh"], stdout=PIPE)
    assert source.stdout
    with source, started(made_models / "copies", *threads, stdin=source.stdout.fileno()) as process:
        assert process.stdout
        process.stdout.readline()
        for _ in range(times):
            process.send_signal(signal.SIGINT)
            time.sleep(0.01)
        for _ in process.stdout:
            pass
        end = end_of(process)
        source.kill()
    assert end == (130, b"Error: interrupted.\n")


@pytest.mark.parametrize("threads", [ONE_THREAD, SEVERAL])
def test_the_command_ends_without_a_message_when_its_reader_ends(
    nmt_script: Path, made_models: Path, threads: Sequence[str]
) -> None:
    script = 'yes "abc def" | "$0" translate "$@" | head -n 1; exit ${PIPESTATUS[1]}'
    result = subprocess.run(
        ["bash", "-c", script, nmt_script, made_models / "copies", *ONE_THREAD, *threads],
        capture_output=True,
        timeout=PATIENCE,
    )
    assert (result.returncode, result.stdout, result.stderr) == (141, b"abc def\n", b"")


@pytest.mark.parametrize("name", ["out", "out.gz"])
def test_an_interrupted_run_leaves_no_new_file_and_keeps_an_old_output(
    started: Started, made_models: Path, tmp_path: Path, name: str
) -> None:
    out = tmp_path / name
    if name == "out":
        out.write_text("older")
    with started(made_models / "copies", "--output", out) as process:
        assert process.stdin and process.stdout
        process.stdin.write(b"abc\n" * 100)
        process.stdin.flush()
        while not any(path.name.endswith("unfinished") for path in tmp_path.iterdir()):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert end_of(process) == (130, b"Error: interrupted.\n")
    assert [path.read_text() for path in tmp_path.iterdir()] == (["older"] if name == "out" else [])


def read_until(terminal: int, expected: bytes) -> None:
    """Read from a terminal until the expected text has appeared."""
    text = b""
    while expected not in text:
        text += os.read(terminal, 1000)


def test_on_a_terminal_it_prints_instructions_and_translates_each_line(
    started: Started, made_models: Path
) -> None:
    terminal, stream = pty.openpty()
    with started(made_models / "copies", stdin=stream, stdout=stream) as process:
        os.close(stream)
        assert process.stderr
        assert process.stderr.readline() == b"Type a sentence and press Enter to translate it. Ctrl-D ends.\n"
        for line in (b"abc", b"def gh"):
            os.write(terminal, line + b"\n")
            read_until(terminal, line + b"\r\n" + line + b"\r\n")  # the echo and the translation
        os.write(terminal, b"\x04")
        assert end_of(process) == (0, b"")
    os.close(terminal)


def peak_of(process: Popen[bytes]) -> float:
    """Return the maximum memory of a process so far in megabytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
def test_memory_does_not_grow_with_the_input(started: Started, made_models: Path) -> None:
    """A leak of a kilobyte per line would be 8 MB per growth. A busy machine may add a few MB."""

    def growth(lines: int) -> float:
        """Translate `lines` lines, and return the growth of the maximum memory in megabytes."""
        assert process.stdin and process.stdout
        before = peak_of(process)
        process.stdin.write(b"".join(b"line %05d\n" % number for number in range(lines)))
        process.stdin.flush()
        assert {process.stdout.readline() for _ in range(lines)} == {b"\n"}
        return peak_of(process) - before

    with started(made_models / "silent", "--quiet", "--beam", "1") as process:
        growth(20_000)  # more than are read ahead
        assert any(growth(8_000) < 4 for _ in range(16))


@pytest.mark.parametrize("compressed", [False, True])
def test_files_are_translated_compressed_and_uncompressed(
    made_models: Path, tmp_path: Path, nmt: Run, compressed: bool
) -> None:
    text = "abc def\n\nlast"
    source, target = tmp_path / "in", tmp_path / ("out.gz" if compressed else "out")
    source.write_bytes(gzip.compress(text.encode()) if compressed else text.encode())
    result = nmt(
        "translate", made_models / "copies", *ONE_THREAD, "--input", source, "--output", target, "--quiet"
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    content = gzip.decompress(target.read_bytes()) if compressed else target.read_bytes()
    assert content.decode() == "abc def\n\nlast\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", target.name]


def test_the_output_may_be_the_input_file(made_models: Path, tmp_path: Path, nmt: Run) -> None:
    file = tmp_path / "text"
    file.write_text("abc\ndef\n")
    for _ in range(2):
        assert nmt("translate", made_models / "copies", "--input", file, "--output", file).returncode == 0
        assert file.read_text() == "abc\ndef\n"


def test_a_truncated_compressed_file_is_an_error_without_output(
    made_models: Path, tmp_path: Path, nmt: Run
) -> None:
    source = tmp_path / "in.gz"
    source.write_bytes(gzip.compress(os.urandom(3000).hex().encode())[:-1000])
    result = nmt("translate", made_models / "copies", "--input", source, "--output", tmp_path / "out")
    message = f"Error: {source} is cut off: its compressed data ends too early. Copy it again.\n"
    assert (result.returncode, result.stderr) == (1, message)
    assert [path.name for path in tmp_path.iterdir()] == ["in.gz"]


def test_many_lines_keep_their_number_and_order(made_models: Path, translate: Translate) -> None:
    lines = ["abcdefghij klmnop"[: 1 + i * 7 % 16].strip() * (i % 5 > 0) for i in range(300)]
    settings = ("--set", "search.rows=8", "--beam", "2")
    text = "".join(f"{line}\n" for line in lines)
    assert translate(text, made_models / "copies", *settings)[0] == text


def objects(text: str) -> list[dict[str, object]]:
    """Return the JSON objects of a text, one per line."""
    return [json.loads(line) for line in text.splitlines()]


def test_json_has_hypotheses_scores_and_flags_of_each_line(made_models: Path, translate: Translate) -> None:
    out, _ = translate("ab\n\n", made_models / "copies", "--format", "json", "--n-best", 2)
    first, second = objects(out)
    assert second == {
        "line": 2,
        "hypotheses": [],
        "flags": [],
        "repaired": False,
        "too_long": False,
        "failed": False,
        "confidence": 1.0,
    }
    assert (first["line"], first["flags"], first["too_long"], first["failed"]) == (1, [], False, False)
    hypotheses = first["hypotheses"]
    assert isinstance(hypotheses, list)
    best, other = hypotheses
    assert best.keys() >= {"text", "score", "log_probability", "tokens", "token_scores"}
    assert (best["text"], best["tokens"]) == ("ab", ["a", "b", "</s>"])
    assert len(best["token_scores"]) == 3
    assert sum(best["token_scores"]) == pytest.approx(best["log_probability"], abs=1e-4)
    assert best["score"] == pytest.approx(best["log_probability"] / ((5 + 3) / 6) ** 0.6, abs=1e-4)
    assert other["text"] != "ab"
    assert other["score"] < best["score"]


def test_a_translation_begins_with_the_prefix_after_a_tab(made_models: Path, translate: Translate) -> None:
    text = "abcdef\txy\nabc\n\tz\nabc\t\n"
    settings = ("--set", "input.prefix=true", "--length-penalty", 0)
    out, stderr = translate(text, made_models / "copies", *settings)
    assert out == "xycdef\nabc\n\nabc\n" and "beginning" not in stderr
    _, stderr = translate("abc\tx\nabc\txЖ\n", made_models / "copies", *settings)
    assert "Warning: line 2: the vocabulary lacks part of the given prefix." in stderr


def test_a_tab_is_a_space_without_prefixes(made_models: Path, translate: Translate) -> None:
    assert translate("abc\txy\n", made_models / "copies")[0] == "abc xy\n"


def test_lines_that_are_too_long_are_translated_in_parts_and_reported(
    made_models: Path, translate: Translate
) -> None:
    long = "First Sentence. Second One, Of Which There Is More. Third. And Fourth."
    text = f"short\n{long}\nshort\n{long}\n"
    out, stderr = translate(text, made_models / "copies")
    assert out.splitlines() == ["short", long, "short", long]
    assert stderr.splitlines() == ["Warning: lines 2, 4: too long, translated in parts."]


def test_a_line_may_have_as_many_tokens_as_the_model_has_positions(
    made_models: Path, translate: Translate
) -> None:
    line = "ab " * 200 + "c"
    out, stderr = translate(f"{line}\nab\n", made_models / "copies", "--format", "json")
    assert [entry["too_long"] for entry in objects(out)] == [True, False]
    assert objects(out)[0]["hypotheses"][0]["text"] == line  # type: ignore[index]
    assert "Warning: line 1: too long" in stderr


def test_a_model_with_another_tokeniser_is_refused(made_models: Path, tmp_path: Path, nmt: Run) -> None:
    model = shutil.copytree(made_models / "copies", tmp_path / "model")
    shutil.rmtree(model / "tokenizer")
    shutil.copytree(made_models / "other" / "tokenizer", model / "tokenizer")
    result = nmt("translate", model)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        f"Error: {model}/tokenizer is not the tokeniser that this model was trained with. "
        "Copy the complete model folder again.\n"
    )


SOURCE = "this is what the source says\n"


@pytest.mark.parametrize(
    ("model", "flags", "message"),
    [
        (
            "silent",
            ["empty"],
            "2 of 3 translations are empty (search.min_length=1 prevents this): lines 1, 3",
        ),
        (
            "loops",
            ["looping"],
            "2 of 3 translations loop (search.second_attempt=true tries again): lines 1, 3",
        ),
        (
            "copies",
            ["copied"],
            "2 of 3 translations copy their source (search.second_attempt=true tries again): lines 1, 3",
        ),
    ],
)
def test_empty_looping_and_copied_translations_are_reported_with_their_lines(
    made_models: Path, translate: Translate, model: str, flags: Sequence[str], message: str
) -> None:
    out, stderr = translate(f"{SOURCE}\n{SOURCE}", made_models / model, "--format", "json")
    assert [entry["flags"] for entry in objects(out)] == [flags, [], flags]
    assert stderr == f"Warning: {message}\n"
