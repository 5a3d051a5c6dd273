"""Nothing is saved on a dataset that is not what was written: on any rank, however long looking takes."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nmt_cli.data.watch import Watch
from nmt_cli.errors import UserError
from nmt_cli.training.step.distributed import Group
from nmt_cli.training.tracking import dataset_check
from nmt_cli.training.tracking.dataset_check import DatasetCheck
from nmt_cli.training.tracking.events import Event, Note


def check(
    verified: "Future[None]", others: list[str], *, gone: bool = False
) -> tuple[DatasetCheck, list[Event]]:
    """With a second rank, which says each of `others` in turn, and then that all is well."""
    said = iter(others)
    watch = SimpleNamespace(refuse_cut=lambda: None, refuse_changed=lambda: None, gone=lambda: gone)
    group = SimpleNamespace(gather=lambda mine: [mine, next(said, "" if isinstance(mine, str) else False)])
    events: list[Event] = []
    return DatasetCheck(
        verified, cast(Watch, cast(Any, watch)), cast(Group, cast(Any, group)), events.append
    ), events


def done(error: BaseException | None = None) -> "Future[None]":
    verified: Future[None] = Future()
    verified.set_exception(error) if error else verified.set_result(None)
    return verified


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_check, "POLL_SECONDS", 0.0)


def test_a_sound_dataset_is_saved_on() -> None:
    sound, events = check(done(), [])
    sound.look()
    sound.refuse_unsound()
    assert events == [] and not sound.gone()


def test_a_fault_is_told_by_all_ranks() -> None:
    with pytest.raises(UserError, match="mine is damaged"):
        check(done(UserError("mine is damaged")), [])[0].refuse_unsound()
    with pytest.raises(UserError, match="theirs is damaged"):
        check(done(), ["theirs is damaged"])[0].refuse_unsound()


def test_a_check_under_way_is_waited_for_and_told_of_once_it_takes_long() -> None:
    slow, events = check(done(), ["under way"] * 100)
    slow.refuse_unsound()
    (note,) = events
    assert isinstance(note, Note) and "still under way" in note.text


def test_while_nothing_is_known_training_goes_on() -> None:
    check(Future(), [])[0].look()
    with pytest.raises(UserError, match="changed"):
        check(done(UserError("changed")), [])[0].look()


def test_a_dataset_that_is_gone_for_any_rank_is_gone() -> None:
    assert check(done(), [], gone=True)[0].gone()
