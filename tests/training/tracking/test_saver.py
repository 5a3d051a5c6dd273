"""Which checkpoints of a run are kept, and the state after a failed save."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nmt_cli.checkpoints.finding import BEST, LAST, checkpoints
from nmt_cli.checkpoints.model_folder import Identity, weights
from nmt_cli.checkpoints.run_folder import Checkpoint
from nmt_cli.training.config import CheckpointConfig
from nmt_cli.training.progress import Clock, Position
from nmt_cli.training.tracking import saver as saver_module
from nmt_cli.training.tracking.events import Event, Saved
from nmt_cli.training.tracking.saver import Moved, Saver
from tests.training.runs import Tiny

Make = Callable[..., Saver]


@pytest.fixture
def position() -> Position:
    return Position()


@pytest.fixture
def saving(tmp_path: Path, identity: Identity, tiny: Tiny, position: Position, events: list[Event]) -> Make:
    """Return a saver in `tmp_path` whose checkpoints contain a tiny model without optimiser."""
    model = identity.build()

    def saving(first: bool = True, **config: int) -> Saver:
        process = SimpleNamespace(first=first, world=1)
        alone = {"meet": lambda doing: None, "from_first": lambda value: value}
        settings = SimpleNamespace(checkpoints=CheckpointConfig(**config))
        trainer = SimpleNamespace(group=SimpleNamespace(process=process, **alone), config=settings)
        snapshot: Any = SimpleNamespace(
            resumed=True,
            identity=identity,
            trainer=trainer,
            position=position,
            checkpoint=lambda: Checkpoint(position.step, weights(model), {}, {"epoch": 0}),
        )
        clock = Clock(position, tiny().training, devices=1)
        return Saver(tmp_path, snapshot, clock, events.append)

    return saving


def save_at(saver: Saver, position: Position, step: int, score: float | None = None) -> None:
    position.step = step
    if score is not None:
        position.scores[str(step)] = score
    saver.save()
    saver.wait()


def test_the_newest_and_the_best_stay_and_links_lead_to_them(
    tmp_path: Path, saving: Make, position: Position, events: list[Event]
) -> None:
    saver = saving(keep_last=2, keep_best=1)
    for step, score in ((1, 10.0), (2, 30.0), (3, 20.0), (4, 30.0), (5, 5.0)):
        save_at(saver, position, step, score)
    assert list(checkpoints(tmp_path)) == [4, 5]
    assert (tmp_path / BEST).resolve().name == "step-00000004"
    assert (tmp_path / LAST).resolve().name == "step-00000005"
    assert [event.step for event in events if isinstance(event, Saved)] == [1, 2, 3, 4, 5]
    assert saver.step == 5


def test_of_equal_scores_the_newest_are_the_best(tmp_path: Path, saving: Make, position: Position) -> None:
    saver = saving(keep_last=1, keep_best=2)
    for step in range(1, 20):  # BLEU is 0 before the first correct word
        save_at(saver, position, step, 0.0)
        assert saver.best_steps() == {step, max(step - 1, 1)}
        assert (tmp_path / BEST).resolve().name == f"step-{step:08}"
    save_at(saver, position, 20, -1.0)
    assert list(checkpoints(tmp_path)) == [18, 19, 20]


def test_without_validation_only_the_newest_stay(tmp_path: Path, saving: Make, position: Position) -> None:
    saver = saving(keep_last=1)
    for step in (1, 2, 3):
        save_at(saver, position, step)
    assert list(checkpoints(tmp_path)) == [3] and not (tmp_path / BEST).exists()


def test_only_existing_checkpoints_can_be_the_best(saving: Make, position: Position) -> None:
    saver = saving(keep_best=2)
    position.scores |= {"1": 50.0, "2": 40.0}
    save_at(saver, position, 3, 1.0)
    assert saver.best_steps() == {3}


@pytest.mark.parametrize("replaced", [False, True])
def test_a_removed_run_folder_is_not_created_again(
    tmp_path: Path, saving: Make, position: Position, replaced: bool
) -> None:
    saver = saving()
    save_at(saver, position, 3)
    moved = tmp_path.rename(tmp_path.with_name("elsewhere"))
    if replaced:
        tmp_path.mkdir()
    with pytest.raises(Moved, match=r"was moved, .* step 1,400 is not saved. .* to resume from step 3\.$"):
        save_at(saver, position, 1400)
    assert [*tmp_path.parent.glob(f"{tmp_path.name}/*")] == []
    assert list(checkpoints(moved)) == [3]
    moved.rename(tmp_path)


def test_other_ranks_write_nothing(tmp_path: Path, saving: Make, position: Position) -> None:
    save_at(saving(first=False), position, 1)
    assert not checkpoints(tmp_path)


def test_after_a_failed_save_the_next_attempt_waits_as_long_as_after_a_successful_one(
    saving: Make, position: Position, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = saving()
    saver._began -= 1000.0

    def full(*_: object) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saver_module, "save_checkpoint", full)
    with pytest.raises(OSError, match="No space"):
        save_at(saver, position, 1)
    assert saver.age < 500 and saver.step == 0
