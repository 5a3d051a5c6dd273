"""Runs in this process: their end, their checkpoints and their reaction to failures."""

import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt_cli.checkpoints.finding import checkpoints, find_model
from nmt_cli.checkpoints.run_folder import read_state, save_checkpoint
from nmt_cli.data.dataset import Dataset
from nmt_cli.data.preprocessing.pipeline import Outcome
from nmt_cli.training.tracking.events import Doing, Event, Progress, Saved, Validated, Warned
from tests.checks import differing, refusal
from tests.training.runs import (
    Complaint,
    Go,
    lines_of,
    notes,
    of_kind,
    steps_of,
    tensors_of,
    timeless,
    warnings,
)


def test_a_run_takes_its_steps_and_leaves_a_whole_folder(go: Go, run: Path) -> None:
    complete, events = go()
    assert complete
    assert steps_of(run) == [1, 2, 3, 4]
    assert list(checkpoints(run)) == [4]
    files = {"checkpoints", "config.toml", "environment.jsonl", "last", "log.jsonl", "report.html"}
    assert {path.name for path in run.iterdir()} == files
    assert of_kind(Saved, events) == [4]
    assert lines_of(run)[-1]["loss"] < lines_of(run)[0]["loss"]


def test_a_run_ends_with_its_last_epoch(go: Go, run: Path) -> None:
    complete, _ = go("training.max_epochs=2", "training.max_steps=1000", "batch.tokens=2000")
    assert complete
    epochs = [line["epoch"] for line in lines_of(run)]
    assert set(epochs) == {0, 1}
    for epoch in (0, 1):
        assert sum(line["pairs"] for line in lines_of(run) if line["epoch"] == epoch) == 300


@pytest.mark.parametrize(
    "limits",
    [("training.max_steps=6",), ("training.max_epochs=2", "training.max_steps=1000", "batch.tokens=2000")],
    ids=["steps", "epochs"],
)
def test_the_time_left_is_nothing_at_the_last_step(go: Go, limits: tuple[str, ...]) -> None:
    _, events = go(*limits, "training.log_every=1")
    left = [event.seconds_left for event in events if isinstance(event, Progress)]
    assert left[-1] == 0
    assert all(seconds > 0 for seconds in left[:-1])


def test_progress_events_have_memory_and_bleu(go: Go) -> None:
    _, events = go("training.log_every=1", "validation.every_steps=2")
    message = [event for event in events if isinstance(event, Progress)]
    assert [event.bleu is None for event in message] == [True, True, False, False]
    assert all(50e6 < event.memory < 100e9 for event in message)
    doing = [(event.what, event.step) for event in events if isinstance(event, Doing)]
    steps = [("training", step) for step in (1, 2, 3, 4)]
    assert [done for done in doing if done[0] == "training"] == steps
    assert [step for what, step in doing if what == "validating"] == [2, 4]
    assert doing[-1] == ("saving", 4)


def test_a_linear_schedule_ends_with_the_hours_of_the_run(go: Go, run: Path) -> None:
    schedule = ("schedule.kind=linear", "schedule.warmup=1", "schedule.peak=1.0")
    go(*schedule, "training.max_hours=0.0003", "training.max_steps=100000")
    rates = [line["learning_rate"] for line in lines_of(run)]
    assert 0 <= rates[-1] < 0.5
    assert rates == sorted(rates, reverse=True)


def test_a_run_ends_when_its_time_is_up_and_stays_ended(go: Go, run: Path) -> None:
    limits = ("training.max_hours=1e-6", "training.max_steps=1000")
    for _ in range(2):
        complete, events = go(*limits)
        assert complete
        taken = len(steps_of(run))
        assert 1 <= taken < 1000
        assert list(checkpoints(run)) == [taken]
        reason = f"1e-06 hours are over; the run ends at step {taken} (training.max_hours)"
        assert [note for note in notes(events) if not note.startswith("preflight")] == [reason]


@pytest.mark.parametrize("metric", ["bleu", "chrf", "nll"])
def test_the_best_checkpoints_stay_and_the_best_of_them_is_the_model(go: Go, run: Path, metric: str) -> None:
    keep = ("checkpoints.keep_last=1", "checkpoints.keep_best=2", "training.max_steps=8")
    _, events = go(*keep, f"validation.metric={metric}", "validation.every_steps=1", "schedule.warmup=3")
    lines = [line for line in lines_of(run) if "valid" in line]
    score = {line["step"]: -line["nll"] if metric == "nll" else line[metric] for line in lines}
    ranked = sorted(score, key=lambda step: (-score[step], -step))
    assert set(checkpoints(run)) == {8, *ranked[:2]}
    assert find_model(run).resolve().name == f"step-{ranked[0]:08}"
    firsts = [step for step in score if all(score[step] > score[other] for other in range(1, step))]
    assert [event.step for event in events if isinstance(event, Validated) and event.best] == firsts


def test_validation_is_at_its_steps_and_at_the_last(go: Go, run: Path) -> None:
    _, events = go("validation.every_steps=2", "training.max_steps=5")
    assert of_kind(Validated, events) == [2, 4, 5]
    state = read_state(run / "last")
    assert (state["step"], list(state["scores"])) == (5, ["2", "4", "5"])


def ends_of_epochs(run: Path) -> list[int]:
    """Return the last step of each epoch in the log, the unfinished one left out."""
    epochs = {line["epoch"]: line["step"] for line in lines_of(run) if "valid" not in line}
    return [step for epoch, step in epochs.items() if epoch < max(epochs)]


def test_a_run_stopped_anywhere_near_the_end_of_an_epoch_continues_as_if_it_were_not(
    go: Go, tmp_path: Path
) -> None:
    epochs = ("batch.tokens=2000", "model.residual_dropout=0.3", "training.max_steps=8")
    go(*epochs, out=tmp_path / "steps")
    first, second = ends_of_epochs(tmp_path / "steps")
    settings = (*epochs, f"validation.every_steps={first}", f"checkpoints.every_steps={second}")
    go(*settings, out=tmp_path / "whole")
    for before, step in pairwise((0, first - 1, first, first + 1, second, 8)):
        complete, events = go(*settings, out=tmp_path / "parts", stop_at=step)
        assert not complete
        # If the part before stopped at a validation, this part validates first.
        assert of_kind(Validated, events) == ([before] if before and before % first == 0 else [])
        assert of_kind(Saved, events)[-1] == step
    _, events = go(*settings, out=tmp_path / "parts")
    assert of_kind(Validated, events) == [8]
    assert timeless(tmp_path / "parts") == timeless(tmp_path / "whole")
    for file in ("model", "optimizer"):
        assert not differing(tensors_of(tmp_path / "parts", file), tensors_of(tmp_path / "whole", file))
    states = [read_state(tmp_path / name / "last") for name in ("parts", "whole")]
    assert states[0]["scores"] == states[1]["scores"]


def test_a_stop_saves_without_validation_which_follows_when_the_run_resumes(go: Go, run: Path) -> None:
    settings = ("validation.every_steps=2", "training.max_steps=4")
    complete, events = go(*settings, stop_at=4)
    assert not complete
    assert (of_kind(Validated, events), of_kind(Saved, events)) == ([2], [2, 4])
    complete, events = go(*settings)
    assert complete
    assert (of_kind(Validated, events), list(read_state(run / "last")["scores"])) == ([4], ["2", "4"])


def test_a_run_does_not_compare_scores_of_different_validation_sets(
    go: Go, run: Path, make: Callable[..., Outcome], toy: str, dev: str, toy_dataset: Path, tmp_path: Path
) -> None:
    go("validation.every_steps=2", "training.max_steps=2")
    for side in ("en", "de"):
        lines = Path(f"{dev}.{side}").read_text(encoding="utf-8").splitlines(keepends=True)
        half = "".join(lines[: len(lines) // 2])
        (tmp_path / f"half.{side}").write_text(half, encoding="utf-8")
    make(tmp_path / "data", [toy], valid=[str(tmp_path / "half")], reuse=toy_dataset)
    assert refusal(go, "validation.every_steps=2", dataset=tmp_path / "data") == (
        f"{run} was validated on another first set, so its scores cannot be compared with later ones. "
        "Restore the set, or choose another --out."
    )
    assert go("validation.every_steps=2")[0]


def test_patience_counts_validations(go: Go, run: Path) -> None:
    still = ("schedule.kind=constant", "schedule.peak=1e-30", "schedule.warmup=0", "validation.metric=nll")
    _, events = go("validation.every_steps=3", *still, "validation.patience=2", "training.max_steps=100")
    assert len(of_kind(Validated, events)) == 3
    assert of_kind(Validated, events)[-1] == steps_of(run)[-1] == max(checkpoints(run))


def test_a_dataset_without_validation_sets_can_be_trained_on(
    go: Go, tmp_path: Path, make: Callable[..., Outcome], toy: str
) -> None:
    make(tmp_path / "data", [toy])
    complete, events = go("validation.every_steps=2", dataset=tmp_path / "data")
    assert complete
    assert of_kind(Validated, events) == []


@contextmanager
def limits_as_before() -> Iterator[None]:
    """Restore the limit on file sizes after the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def limit_files(size: int) -> None:
    """Simulate a full disk, on which no file can grow."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def test_training_continues_while_a_checkpoint_is_written_unchanged(
    go: Go, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = threading.Event()

    def slowly(*arguments: Any) -> Path:
        assert second.wait(60), "the second step waits for the first one to be saved"
        return save_checkpoint(*arguments)

    def watch(event: Event) -> None:
        if isinstance(event, Doing) and event.step == 2:
            second.set()

    go("training.max_steps=1", out=tmp_path / "one step")
    monkeypatch.setattr("nmt_cli.training.tracking.saver.save_checkpoint", slowly)
    often = ("checkpoints.every_steps=1", "checkpoints.keep_last=9", "training.max_steps=4")
    _, events = go(*often, report=watch)
    assert of_kind(Saved, events) == [1, 2, 3, 4]
    for file in ("model", "optimizer"):
        assert not differing(tensors_of(run, file, step=1), tensors_of(tmp_path / "one step", file))


def test_a_full_disk_at_a_save_is_reported_and_training_continues(go: Go, run: Path) -> None:
    soft = resource.getrlimit(resource.RLIMIT_FSIZE)[0]

    def full_from_the_first_save_to_the_second(event: Event) -> None:
        if isinstance(event, Saved) and event.step == 1:
            limit_files(9000)
        elif isinstance(event, Warned):
            limit_files(soft)

    with limits_as_before():
        saving = ("checkpoints.every_steps=1", "training.max_steps=3")
        complete, events = go(*saving, report=full_from_the_first_save_to_the_second)
    assert complete
    (warning,) = warnings(events)
    problem = f"step 2 could not be saved, training continues: {run}/checkpoints/step-00000002 can't"
    assert warning.startswith(problem)
    assert list(checkpoints(run)) == [1, 3]
    assert steps_of(run) == [1, 2, 3]


def test_a_full_disk_at_the_last_save_is_an_error_and_the_one_before_it_stays(
    go: Go, run: Path, complaint: Complaint
) -> None:
    def full_from_the_first_save_on(event: Event) -> None:
        if isinstance(event, Saved):
            limit_files(9000)

    with limits_as_before():
        settings = ("checkpoints.every_steps=2", "training.max_steps=3")
        message = complaint(*settings, report=full_from_the_first_save_on)
    assert "step-00000003 can't be written" in message
    assert list(checkpoints(run)) == [2]
    assert go(*settings)[0]
    assert steps_of(run) == [1, 2, 3]


EXPLODING = ("schedule.kind=constant", "schedule.warmup=0", "schedule.peak=1e25", "training.max_steps=30")


def test_many_steps_in_a_row_that_are_not_finite_end_the_run_with_advice(
    run: Path, complaint: Complaint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt_cli.training.progress.GIVE_UP_AFTER", 3)
    message = complaint(*EXPLODING, "training.log_every=1")
    assert message.startswith(
        "loss or gradient were not finite in 3 steps in a row, up to step 4. Lower the "
    )
    assert "optimizer.clip_norm=1" in message
    assert [line["skipped"] for line in lines_of(run)] == [False, True, True, True]


def test_steps_that_are_left_out_are_counted_over_a_stop(
    go: Go, run: Path, complaint: Complaint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt_cli.training.progress.GIVE_UP_AFTER", 5)
    settings = (*EXPLODING, "training.log_every=1")
    _, events = go(*settings, stop_at=3)
    assert [event.skipped for event in events if isinstance(event, Progress)] == [0, 1, 1]
    assert "in 5 steps in a row, up to step 6." in complaint(*settings)
    assert all(tensor.isfinite().all() for tensor in tensors_of(run, step=3).values())


def test_pairs_that_are_too_long_are_left_out_and_counted_once(go: Go, dataset: Dataset) -> None:
    limits = ("batch.longest=20", "training.max_epochs=3", "training.max_steps=900")
    _, events = go(*limits, "schedule.warmup=1")
    train = dataset.splits["train"]
    lengths = np.maximum(np.diff(train.source.offsets), np.diff(train.target.offsets))
    long = int((lengths > 20).sum())
    message = f"{long:,} pairs have more than 20 tokens on a side and are left out (batch.longest)"
    assert long
    assert warnings(events) == [message]
