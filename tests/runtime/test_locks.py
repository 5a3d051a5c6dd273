"""A lock has one holder. Without locks in the file system, there is only a warning."""

import errno
import fcntl
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt_cli.errors import Caution
from nmt_cli.runtime.atomic import folder_written_whole, temporary_folder
from nmt_cli.runtime.locks import UNSUPPORTED, is_locked, take_lock


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that makes every lock fail with an error number."""

    def failing(number: int) -> None:
        def flock(descriptor: int, operation: int) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(fcntl, "flock", flock)

    return failing


def test_a_lock_has_one_holder_at_a_time(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    try:
        take_lock(first, tmp_path)
        with pytest.raises(BlockingIOError):
            take_lock(second, tmp_path)
    finally:
        os.close(first)
    try:
        take_lock(second, tmp_path)
    finally:
        os.close(second)


@pytest.mark.parametrize("number", UNSUPPORTED)
def test_a_file_system_without_locks_is_a_warning(
    tmp_path: Path, failing: Callable[[int], None], number: int
) -> None:
    failing(number)
    warning = pytest.warns(Caution, match=rf"^the file system of {tmp_path} has no locks \(.*\), so nothing")
    with warning, folder_written_whole(tmp_path / "out") as folder:
        (folder / "file").write_text("whole")
    assert (tmp_path / "out" / "file").read_text() == "whole"
    with temporary_folder("nmt-test-") as temporary:
        assert temporary.is_dir()


def test_any_other_failure_of_a_lock_is_an_error_and_closes_all_files(
    tmp_path: Path, failing: Callable[[int], None]
) -> None:
    failing(errno.EIO)
    before = open_descriptors()
    with pytest.raises(OSError, match="Input/output error"), folder_written_whole(tmp_path / "out"):
        raise AssertionError("it may write")
    assert open_descriptors() == before


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd"))  # noqa: PTH208


def test_a_folder_is_locked_while_its_holder_runs(tmp_path: Path) -> None:
    with temporary_folder("nmt-test-") as folder:
        assert is_locked(folder)
        assert is_locked(folder)
    assert not is_locked(folder)
    assert not is_locked(tmp_path)


def test_without_locks_a_folder_counts_as_locked(tmp_path: Path, failing: Callable[[int], None]) -> None:
    failing(UNSUPPORTED[0])
    assert is_locked(tmp_path)
