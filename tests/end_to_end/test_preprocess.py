"""`nmt preprocess` with several workers, kills, signals, pipes, missing permissions and a full disk."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess, Popen

import pytest

from nmt_cli.data.dataset import open_dataset
from tests.end_to_end.processes import PATIENCE

Run = Callable[..., CompletedProcess[str]]
Start = Callable[..., Popen[str]]
Digests = Callable[[Path], dict[str, str]]
Pairs = Sequence[tuple[str, str]]

LANGUAGES = ("--source-lang", "en", "--target-lang", "de")
CHARACTERS = ("preprocess", *LANGUAGES, "--workers", "1", "--tokenizer", "char")

STAGES = ("source.txt", "tokenizer.json", "train.target.tokens.npy", "filter-report.json")
"""Files that show how far a run has come, in the order in which they are written."""


def wait_for(folder: Path, name: str, process: Popen[str], since: int = 0) -> None:
    """Wait until a file `name` below `folder` has content that is newer than `since`.

    `since` is a time in nanoseconds. Check that the process does not end before.
    """
    while True:
        is_finished = process.poll() is not None
        if any(name in files and written(Path(parent) / name, since) for parent, _, files in os.walk(folder)):
            return
        assert not is_finished, process.communicate()[1]
        time.sleep(0.001)


def written(path: Path, since: int) -> bool:
    """Return whether a file exists, is not empty, and is newer than `since`."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return False
    return stat.st_size > 0 and stat.st_mtime_ns > since


def last_written(folder: Path) -> int:
    """Return the time of the newest file below `folder` in nanoseconds, or 0."""
    return max((path.stat().st_mtime_ns for path in folder.rglob("*")), default=0)


def members(group: int) -> list[str]:
    """Return the command names of the running processes of a process group."""
    names = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, fields = stat.read_text().rpartition(") ")
        except OSError:
            continue
        state, _, process_group = fields.split()[:3]
        if int(process_group) == group and state != "Z":
            names.append(name)
    return names


def assert_group_ends(group: int) -> None:
    """Check that all processes of a process group end soon. Skip the test without /proc."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("the running processes are read from /proc")
    deadline = time.monotonic() + PATIENCE
    while members(group) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert members(group) == []


def test_the_dataset_is_bit_identical_for_any_number_of_workers(
    tmp_path: Path, nmt: Run, large_arguments: list[str], large_dataset: Path, digests: Digests
) -> None:
    result = nmt(*large_arguments, "--workers", 3, "--out", tmp_path / "out")
    assert result.returncode == 0
    assert digests(tmp_path / "out") == digests(large_dataset)


def test_the_report_counts_the_pairs_that_both_stages_of_filters_drop(large_dataset: Path) -> None:
    train = json.loads((large_dataset / "filter-report.json").read_text())[0]
    dropped = {reason: entry["pairs"] for reason, entry in train["dropped"].items()}
    assert set(dropped) == {"duplicate", "too many subwords"}
    assert train["read"] == train["kept"] + sum(dropped.values())
    assert train["kept"] == len(open_dataset(large_dataset).splits["train"]) > 10_000


def test_a_kill_at_any_moment_leaves_no_incomplete_dataset_and_the_next_run_succeeds(
    tmp_path: Path,
    start_nmt: Start,
    nmt: Run,
    large_arguments: list[str],
    large_dataset: Path,
    digests: Digests,
) -> None:
    out = tmp_path / "out"
    seed = time.time_ns()
    draws = random.Random(seed)
    anywhere = (draws.choice(STAGES), draws.uniform(0.0, 0.5))
    # The earliest stage comes last, so that there is something to clean up.
    for stage, delay in (anywhere, *((stage, 0.0) for stage in reversed(STAGES))):
        shutil.rmtree(tmp_path / ".out.work", ignore_errors=True)  # a resumed run would skip stages
        before = last_written(tmp_path)
        process = start_nmt(*large_arguments, "--workers", 2, "--out", out)
        wait_for(tmp_path, stage, process, before)
        time.sleep(delay)
        process.kill()
        process.wait()
        assert_group_ends(process.pid)
        moment = f"{delay:.3f} s after {stage}, seed {seed}"
        assert not out.exists() or digests(out) == digests(large_dataset), moment
        shutil.rmtree(out, ignore_errors=True)
    assert any(tmp_path.iterdir())
    assert nmt(*large_arguments, "--workers", 1, "--out", out).returncode == 0
    assert digests(out) == digests(large_dataset)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_kill_while_overwriting_leaves_the_old_dataset(
    tmp_path: Path,
    start_nmt: Start,
    large_arguments: list[str],
    toy_dataset: Path,
    digests: Digests,
) -> None:
    shutil.copytree(toy_dataset, out := tmp_path / "out")
    process = start_nmt(*large_arguments, "--workers", 1, "--out", out, "--overwrite")
    wait_for(tmp_path, "pair-hashes.bin", process)
    process.kill()
    process.wait()
    assert digests(out) == digests(toy_dataset)


@pytest.mark.parametrize(
    ("number", "to_group", "stage", "code", "message"),
    [
        (signal.SIGINT, True, "source.txt", 130, "Error: interrupted."),
        (signal.SIGTERM, False, "train.target.tokens.npy", 143, "Error: terminated."),
        (signal.SIGTERM, True, "source.txt", 143, "Error: terminated."),
    ],
    ids=["Ctrl-C", "SIGTERM", "SIGTERM to all"],
)
def test_a_signal_ends_the_command_with_its_exit_code_and_leaves_no_files(
    tmp_path: Path,
    start_nmt: Start,
    large_arguments: list[str],
    number: int,
    to_group: bool,
    stage: str,
    code: int,
    message: str,
) -> None:
    process = start_nmt(*large_arguments, "--workers", 2, "--out", tmp_path / "out", "--quiet")
    wait_for(tmp_path, stage, process)
    (os.killpg if to_group else os.kill)(process.pid, number)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stdout, stderr.strip()) == (code, "", message)
    assert not any(tmp_path.iterdir())
    assert_group_ends(process.pid)


def test_a_second_run_with_the_same_output_is_refused_without_harm_to_the_first(
    tmp_path: Path,
    start_nmt: Start,
    nmt: Run,
    large_arguments: list[str],
    large_dataset: Path,
    digests: Digests,
) -> None:
    out = tmp_path / "out"
    first = start_nmt(*large_arguments, "--workers", 1, "--out", out, "--quiet")
    wait_for(tmp_path, "source.txt", first)
    first.send_signal(signal.SIGSTOP)
    second = nmt(*large_arguments, "--workers", 1, "--out", out)
    first.send_signal(signal.SIGCONT)
    assert second.returncode == 1
    assert second.stderr == f"Error: another run is writing {out} now. Wait for it, or choose another path.\n"
    assert first.wait(timeout=PATIENCE) == 0
    assert digests(out) == digests(large_dataset)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def error_of(process: Popen[str], text: str | None = None) -> str:
    """Send `text` to a process, check that it ends with code 1 and one line of error, and return the line."""
    stderr = process.communicate(text)[1]
    assert (process.returncode, stderr.count("\n")) == (1, 1), stderr
    return stderr


def table(pairs: Pairs) -> str:
    """Return pairs as lines of two columns."""
    return "".join(f"{source}\t{target}\n" for source, target in pairs)


def test_pairs_on_stdin_make_the_same_dataset_every_time(
    tmp_path: Path, start_nmt: Start, toy_pairs: Pairs, toy_dataset: Path, digests: Digests
) -> None:
    for name in ("one", "two", "two"):
        process = start_nmt(*CHARACTERS, "--train", "-", "--out", tmp_path / name, stdin=subprocess.PIPE)
        stderr = process.communicate(table(toy_pairs))[1]
        assert process.returncode == 0, stderr
    assert "two is up to date: inputs and settings have not changed" in stderr
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    for name in ("train.source.tokens.npy", "train.target.txt"):
        assert (tmp_path / "one" / name).read_bytes() == (toy_dataset / name).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("a\tb\nc\n", ["stdin line 2 has 1 columns", "one tab"]),
        ("", ["stdin is empty", "at least one"]),
    ],
)
def test_invalid_pairs_on_stdin_are_an_error_of_one_line(
    tmp_path: Path, start_nmt: Start, text: str, messages: list[str]
) -> None:
    process = start_nmt(*CHARACTERS, "--train", "-", "--out", tmp_path / "out", stdin=subprocess.PIPE)
    stderr = error_of(process, text)
    assert [message for message in messages if message not in stderr] == []
    assert not any(tmp_path.iterdir())


def test_named_pipes_are_read_once_and_make_the_same_dataset(
    tmp_path: Path, nmt: Run, toy: str, toy_dataset: Path
) -> None:
    for lang in ("en", "de"):
        os.mkfifo(pipe := tmp_path / lang)
        text = Path(f"{toy}.{lang}").read_bytes()
        threading.Thread(target=pipe.write_bytes, args=(text,), daemon=True).start()
    result = nmt(*CHARACTERS, "--train", f"{tmp_path}/en:{tmp_path}/de", "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    for name in ("train.source.tokens.npy", "train.target.txt"):
        assert (tmp_path / "out" / name).read_bytes() == (toy_dataset / name).read_bytes()


def test_it_never_loads_torch_and_prints_a_summary(tmp_path: Path, toy: str, dev: str) -> None:
    command = "from nmt_cli.cli.main import nmt; nmt(standalone_mode=False)"
    script = f"import sys; {command}; print('torch' in sys.modules)"
    arguments = [*CHARACTERS, "--train", toy, "--valid", dev, "--out", str(tmp_path / "out")]
    result = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "False\n")
    for words in ("toy", "300", "dev", "20", "Training pairs", f"{tmp_path}/out is complete"):
        assert words in result.stderr


def test_quiet_prints_only_warnings(nmt: Run, tmp_path: Path, toy: str, dev: str) -> None:
    arguments = (*CHARACTERS, "--train", toy, "--quiet", "--out", tmp_path / "out")
    assert (result := nmt(*arguments, "--valid", dev)).stderr == "", result
    (tmp_path / "odd.en").write_text("abc\n\n")
    (tmp_path / "odd.de").write_text("abc\nabc\n")
    result = nmt(*arguments, "--valid", tmp_path / "odd", "--overwrite")
    assert (
        result.stderr == "Warning: valid set 'odd': empty side in 1 of 2 pairs (kept; for example line 2)\n"
    )
    assert result.stdout == ""


@pytest.mark.parametrize("kind", ["sentencepiece", "bpe", "char"])
def test_lines_of_a_megabyte_are_dropped_and_reported_with_their_numbers(
    tmp_path: Path, start_nmt: Start, toy: str, kind: str
) -> None:
    long = ["x" * 1_000_000, "Ab9-" * 250_000, "x " * 500_000]
    for lang, lines in (("en", long), ("de", ["fade"] * 3)):
        text = Path(f"{toy}.{lang}").read_text()
        (tmp_path / f"c.{lang}").write_text("".join(f"{line}\n" for line in ("fade", *lines)) + text)
    arguments = ("preprocess", *LANGUAGES, "--workers", 1, "--tokenizer", kind, "--vocab-size", 64, "--quiet")
    process = start_nmt(*arguments, "--train", tmp_path / "c", "--out", tmp_path / "out")
    assert process.communicate(timeout=PATIENCE) == ("", "")
    dropped = json.loads((tmp_path / "out" / "filter-report.json").read_text())[0]["dropped"]
    numbers = [sample["number"] for entry in dropped.values() for sample in entry["samples"]]
    assert sorted(numbers) == [2, 3, 4]


def without_privileges() -> list[str]:
    """Return a prefix of a command that makes permissions apply to root too. Skip the test if it fails."""
    if os.geteuid() != 0:
        return []
    drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    if not shutil.which("setpriv") or subprocess.run([*drop, "true"]).returncode:
        pytest.skip("setpriv cannot remove the privileges of root")
    return drop


def test_an_output_folder_without_write_permission_is_an_error_of_one_line(
    tmp_path: Path, start_nmt: Start, toy: str
) -> None:
    below = without_privileges()
    (tmp_path / "read-only").mkdir(mode=0o555)
    out = tmp_path / "read-only" / "out"
    stderr = error_of(start_nmt(*CHARACTERS, "--train", toy, "--out", out, below=below))
    assert f"{out} can't be written: Permission denied. Choose another path" in stderr


def test_a_file_without_read_permission_is_an_error_of_one_line(
    tmp_path: Path, start_nmt: Start, toy: str
) -> None:
    below = without_privileges()
    for lang in ("en", "de"):
        shutil.copy(f"{toy}.{lang}", tmp_path / f"c.{lang}")
    (tmp_path / "c.de").chmod(0o200)
    process = start_nmt(*CHARACTERS, "--train", tmp_path / "c", "--out", tmp_path / "out", below=below)
    stderr = error_of(process)
    assert f"{tmp_path}/c.de can't be read: permission denied. Check".lower() in stderr.lower()
    assert not (tmp_path / "out").exists()


def on_small_disk(folder: Path, kilobytes: int) -> list[str]:
    """Return a prefix of a command that mounts a small disk at `folder`, and prints its files at the end.

    Skip the test if the disk cannot be mounted.
    """
    script = f'mount -t tmpfs -o size={kilobytes}k tmpfs "$0" && "$@"; code=$?; ls -A "$0" >&2; exit $code'
    command = ["unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c", script, str(folder)]
    if (
        not shutil.which("unshare")
        or subprocess.run([*command, "true"], stderr=subprocess.DEVNULL).returncode
    ):
        pytest.skip("a small disk cannot be mounted")
    return command


@pytest.mark.parametrize("kilobytes", [100, 1000, 3000], ids=["copying stdin", "cleaning", "encoding"])
def test_a_full_disk_is_an_error_of_one_line_and_leaves_no_files(
    tmp_path: Path, start_nmt: Start, large_arguments: list[str], kilobytes: int
) -> None:
    below = on_small_disk(tmp_path, kilobytes)
    train = large_arguments[large_arguments.index("--train") + 1]
    out = tmp_path / "out"
    with Path(f"{train}.en").open() as file:
        arguments = (*CHARACTERS, "--train", "-") if kilobytes == 100 else (*large_arguments, "--workers", 1)
        process = start_nmt(*arguments, "--out", out, "--quiet", below=below, stdin=file.fileno())
        stderr = error_of(process)
    assert "No space left on device. Free some space, or choose another path" in stderr
    assert str(tmp_path) in stderr


def test_a_limit_of_file_sizes_is_an_error_of_one_line(
    tmp_path: Path, start_nmt: Start, large_arguments: list[str]
) -> None:
    below = ("sh", "-c", 'ulimit -f 200 && exec "$@"', "sh")
    process = start_nmt(*large_arguments, "--workers", 1, "--out", tmp_path / "out", "--quiet", below=below)
    stderr = error_of(process)
    assert "File too large" in stderr
    assert str(tmp_path / "out") in stderr
    assert not any(tmp_path.iterdir())
