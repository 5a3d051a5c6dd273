"""The run folder: one run in it at a time, and what happens where that can't be seen to."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from nmt_cli.errors import UserError
from nmt_cli.training.assembling.folder import NO_LOCKS, claimed, newest_checkpoint
from nmt_cli.training.record.events import Event, Warned


def without_locks(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def flock(folder: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.mark.parametrize("number", NO_LOCKS, ids=lambda number: errno.errorcode[number])
def test_a_file_system_without_locks_is_warned_of_and_the_run_goes_on(
    run: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    without_locks(monkeypatch, number)
    events: list[Event] = []
    with claimed(run, events.append):
        assert run.is_dir()
    (warning,) = events
    assert isinstance(warning, Warned)
    assert warning.text.startswith(
        f"{run} can't be locked ({os.strerror(number)}), so nothing keeps a second"
    )


def test_what_else_goes_wrong_with_a_lock_is_an_error(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_locks(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"), claimed(run, lambda event: None):
        pass


def test_a_second_run_is_kept_out_until_the_first_has_ended(run: Path) -> None:
    events: list[Event] = []
    with claimed(run, events.append):
        with pytest.raises(UserError, match="another process is training in"), claimed(run, events.append):
            pass
        with pytest.raises(UserError, match="another process is training in"), claimed(run, events.append):
            pass
    with claimed(run, events.append):
        assert newest_checkpoint(run) is None
    assert events == []
