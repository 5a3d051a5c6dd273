"""Folders and files are written completely or not at all."""

import fcntl
import gzip
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

from nmt_cli.errors import UserError
from nmt_cli.runtime.atomic import (
    check_writable,
    exchanged,
    file_written_whole,
    folder_written_whole,
    reporting_full_disk,
    temporary_folder,
)

DIES_AT_RENAME = """
import os, sys
from pathlib import Path
from nmt_cli.runtime import atomic
from nmt_cli.runtime.atomic import folder_written_whole

atomic.exchanged = lambda one, other: False
left, rename = int(sys.argv[2]), Path.rename

def rename_or_die(self, target):
    global left
    left -= 1
    return rename(self, target) if left else os._exit(9)

Path.rename = rename_or_die
with folder_written_whole(Path(sys.argv[1])) as folder:
    (folder / "file").write_text("unfinished")
    if not left:
        os._exit(9)
"""


def write(out: Path, content: str) -> None:
    with folder_written_whole(out) as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "file").write_text(content)


def content(out: Path) -> str:
    return (out / "deep" / "file").read_text()


def test_a_folder_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    with folder_written_whole(out) as folder:
        (folder / "file").write_text("whole")
        assert not out.exists()
    assert (out / "file").read_text() == "whole"
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_a_folder_replaces_an_older_one(tmp_path: Path) -> None:
    write(tmp_path / "out", "old")
    (tmp_path / "out" / "more").touch()
    write(tmp_path / "out", "new")
    assert content(tmp_path / "out") == "new"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["deep"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_the_older_folder_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    write(tmp_path / "out", "old")
    with pytest.raises(error), folder_written_whole(tmp_path / "out") as folder:
        (folder / "file").touch()
        raise error
    assert content(tmp_path / "out") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_error_removes_the_parents_that_were_made_and_are_empty(tmp_path: Path) -> None:
    out = tmp_path / "made" / "shared" / "deep" / "out"
    with pytest.raises(ValueError), folder_written_whole(out) as folder:
        (folder.parent.parent / "of another run").touch()
        raise ValueError
    assert [path.name for path in tmp_path.rglob("*")] == ["made", "shared", "of another run"]


@pytest.mark.parametrize(
    ("older", "rename"),
    [(False, 0), (False, 1), (True, 0), (True, 1), (True, 2)],
    ids=["new, writing", "new, at the end", "replacing, writing", "replacing, at the end", "half replaced"],
)
def test_writing_succeeds_after_a_run_was_killed(tmp_path: Path, older: bool, rename: int) -> None:
    out = tmp_path / "out"
    if older:
        write(out, "old")
    dead = subprocess.run([sys.executable, "-c", DIES_AT_RENAME, str(out), str(rename)])
    assert dead.returncode == 9
    assert not (out / "file").exists()
    if older and rename < 2:
        assert content(out) == "old"
    write(out, "new")
    assert content(out) == "new"
    assert [path.name for path in out.iterdir()] == ["deep"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_older_folder_survives_a_killed_run_and_a_failed_one(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "old")
    subprocess.run([sys.executable, "-c", DIES_AT_RENAME, str(out), "2"])
    with pytest.raises(ValueError, match="no luck"), folder_written_whole(out):
        raise ValueError("no luck")
    assert content(out) == "old"


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with folder_written_whole(out) as folder:
        (folder / "file").write_text("first")
        with pytest.raises(UserError, match=r"another run is writing .*out now"), folder_written_whole(out):
            raise AssertionError("both may write")
        assert (folder / "file").exists()
    assert (out / "file").read_text() == "first"


@pytest.mark.parametrize("name", ["out", "not/yet/there", "older"])
def test_checking_whether_a_folder_can_be_written_leaves_nothing(tmp_path: Path, name: str) -> None:
    write(tmp_path / "older", "old")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "older").rglob("*")}
    check_writable(tmp_path / name)
    assert list(tmp_path.iterdir()) == [tmp_path / "older"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "older").rglob("*")} == before


UNWRITABLE: list[tuple[Callable[[Path], object], str]] = [
    *((check_writable, name) for name in ("file/out", "file/not/there", "new/" + 300 * "x", 250 * "x")),
    (lambda out: folder_written_whole(out).__enter__(), "file/out"),
    (lambda out: file_written_whole(out).__enter__(), "file/out"),
]


@pytest.mark.parametrize(("write_or_check", "name"), UNWRITABLE)
def test_a_folder_or_file_that_can_not_be_written_is_an_error(
    tmp_path: Path, write_or_check: Callable[[Path], object], name: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=f"{tmp_path / name} can't be written: .*. Choose another"):
        write_or_check(tmp_path / name)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.parametrize("older", [False, True])
def test_a_file_appears_only_when_it_is_complete(tmp_path: Path, older: bool) -> None:
    path = tmp_path / "out"
    if older:
        path.write_bytes(b"old")
    with file_written_whole(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old" if older else not path.exists()
    assert path.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_gz_files_are_compressed_to_the_same_bytes_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, now in (("one.gz", 10**9), ("other.gz", 2 * 10**9)):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        with file_written_whole(tmp_path / name) as file:
            file.write(b"a line\n" * 1000)
    packed = (tmp_path / "one.gz").read_bytes()
    assert gzip.decompress(packed) == b"a line\n" * 1000
    assert len(packed) < 100
    assert packed == (tmp_path / "other.gz").read_bytes()


@pytest.mark.parametrize("name", ["out", "out.gz"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_the_older_file_and_nothing_else(
    tmp_path: Path, error: type[BaseException], name: str
) -> None:
    (tmp_path / name).write_bytes(b"old")
    with pytest.raises(error), file_written_whole(tmp_path / name) as file:
        file.write(b"new")
        raise error
    assert (tmp_path / name).read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_target_of_a_link_is_written_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "out").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "far" / "out")
    with file_written_whole(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "far" / "out").read_bytes() == b"new"
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["out"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with file_written_whole(pipe) as file:
        file.write(b"new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("name", ["out", "out.gz"])
def test_a_full_disk_is_an_error_and_leaves_nothing(
    tmp_path: Path, full_disk: Callable[[int], AbstractContextManager[None]], name: str
) -> None:
    path = tmp_path / name
    error = pytest.raises(UserError, match=f"{path} can't be written: .*. Free some space")
    with full_disk(1000), error, file_written_whole(path) as file:
        file.write(os.urandom(100_000))
    assert not any(tmp_path.iterdir())


WAITS_IN_A_TEMPORARY_FOLDER = """
from nmt_cli.runtime.atomic import temporary_folder

with temporary_folder("nmt-test-") as folder:
    (folder / "plan").write_text("of a killed process")
    print(folder, flush=True)
    input()
"""


def test_temporary_folders_of_killed_processes_are_removed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    command = [sys.executable, "-c", WAITS_IN_A_TEMPORARY_FOLDER]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as killed,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as working,
    ):
        assert killed.stdout and working.stdout
        left, used = (
            Path(printed.readline().decode().strip()) for printed in (killed.stdout, working.stdout)
        )
        killed.kill()
        killed.wait()
        foreign = tmp_path / "nmt-test-file"
        foreign.write_text("no folder")
        for path in (left, used):
            os.utime(path, (0, 0))
        with temporary_folder("nmt-test-") as folder:
            assert sorted(tmp_path.iterdir()) == sorted([folder, used, foreign])
        assert (used / "plan").exists()
        working.communicate(b"\n")
    assert [*tmp_path.iterdir()] == [foreign]


def test_a_new_temporary_folder_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new folder is never locked, as its owner could not lock it at that moment."""
    locked, flock = [], fcntl.flock

    def noted(file: int, how: int) -> None:
        locked.append(os.fstat(file).st_ino)
        flock(file, how)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(fcntl, "flock", noted)
    new = tmp_path / "nmt-test-new"
    new.mkdir()
    with temporary_folder("nmt-test-") as folder:
        assert new.exists()
        assert locked == [folder.stat().st_ino]


def test_a_rewritten_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o640)
    with file_written_whole(path) as file:
        file.write(b"new")
    assert (path.stat().st_mode & 0o777, path.read_bytes()) == (0o640, b"new")


def test_an_interrupt_right_after_creating_the_file_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open

    def interrupted(path: Path, mode: str) -> None:
        opened(path, mode).close()
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "open", interrupted)
    with pytest.raises(KeyboardInterrupt), file_written_whole(tmp_path / "out"):
        pass
    assert not any(tmp_path.iterdir())


DIES_IN_A_FILE = """
import os, sys
from pathlib import Path
from nmt_cli.runtime.atomic import file_written_whole

with file_written_whole(Path(sys.argv[1])) as file:
    file.write(b"unfinished")
    file.flush()
    os.kill(os.getpid(), 9)
"""


def test_unfinished_files_of_killed_processes_are_removed_and_no_others(tmp_path: Path) -> None:
    out = tmp_path / "out.gz"
    subprocess.run([sys.executable, "-c", DIES_IN_A_FILE, str(out)])
    (left,) = tmp_path.iterdir()
    other_files = [tmp_path / ".other.1.unfinished", tmp_path / ".out.gz.1.unfinished"]
    with other_files[0].open("wb"), other_files[1].open("wb") as at_work:
        fcntl.flock(at_work, fcntl.LOCK_EX)
        with file_written_whole(out) as file:
            assert not left.exists()
            file.write(b"whole")
    assert gzip.decompress(out.read_bytes()) == b"whole"
    assert {*tmp_path.iterdir()} == {out, *other_files}


def test_an_array_that_does_not_fit_on_the_disk_is_an_error(
    tmp_path: Path, full_disk: Callable[[int], AbstractContextManager[None]]
) -> None:
    path = tmp_path / "array.npy"
    error = pytest.raises(UserError, match=f"{path} can't be written: .*. Free some space")
    with full_disk(1000), error, reporting_full_disk(path), path.open("wb") as file:
        np.save(file, np.zeros(100_000))


def test_a_loop_of_symbolic_links_is_an_error(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / name).symlink_to(other)
    for out in (tmp_path / "a", tmp_path / "a" / "x"):
        with pytest.raises(UserError), file_written_whole(out):
            pass
        with pytest.raises(UserError), folder_written_whole(out):
            pass


def test_two_folders_exchange_names_or_stay_unchanged(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    done = exchanged(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one" / ("other" if done else "one")).exists()
    assert (tmp_path / "other" / ("one" if done else "other")).exists()


def test_a_c_library_without_the_call_is_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    assert not exchanged(tmp_path / "one", tmp_path / "other")
