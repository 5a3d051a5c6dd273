"""Runs that take the optimiser's state, the schedule or the position in the data from another run."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nmt_cli.checkpoints.finding import checkpoints
from nmt_cli.checkpoints.run_folder import read_state
from nmt_cli.data.preprocessing.pipeline import Outcome
from nmt_cli.training.tracking.events import Validated
from tests.checks import differing, refusal
from tests.training.runs import Complaint, Go, lines_of, messages, notes, of_kind, tensors_of, timeless

SETTINGS = ("model.residual_dropout=0.3", "optimizer.ema=0.9", "checkpoints.keep_best=0", "batch.tokens=1500")
ALL = '["optimizer", "schedule", "data"]'


@pytest.fixture(scope="session")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("taken") / "run"


@pytest.fixture
def take(go: Go, parent: Path) -> Go:
    """Return `take(PARTS, ...)`, which starts a run from `parent`, of four steps, and takes parts of it."""
    if not parent.exists():
        go(*SETTINGS, "checkpoints.every_steps=3", out=parent)

    def take(parts: str, *settings: str, **arguments: object) -> object:
        return go(*SETTINGS, f'start.model="{parent}/last"', f"start.take={parts}", *settings, **arguments)

    return take  # type: ignore[return-value]


def test_a_run_that_takes_everything_continues_bit_for_bit_as_one_that_resumes(
    go: Go, take: Go, parent: Path, run: Path, tmp_path: Path
) -> None:
    more = ("training.max_steps=9", "validation.every_steps=4")
    resumed = Path(shutil.copytree(parent, tmp_path / "resumed", symlinks=True))
    go(*SETTINGS, *more, out=resumed)
    _, events = take(ALL, *more, stop_at=6)
    assert (
        f"starting from {parent}/last (26 of 26 parameters by name), with its optimizer and schedule and data"
        in (text for text in notes(events))
    )
    assert not [text for text in messages(events) if text.startswith("resuming")]
    _, events = take(ALL, *more)
    assert "resuming from step 6" in messages(events)
    assert timeless(run) == [line for line in timeless(resumed) if line["step"] > 4]
    assert {line["epoch"] for line in lines_of(run) if "epoch" in line} == {1, 2}
    for file in ("model", "optimizer", "ema"):
        assert not differing(tensors_of(run, file), tensors_of(resumed, file))


def test_the_optimiser_alone_keeps_moments_and_step_count_with_a_fresh_schedule_and_data(
    take: Go, parent: Path, tmp_path: Path
) -> None:
    still = ("training.max_steps=1", "schedule.kind=constant", "schedule.peak=1e-30", "schedule.warmup=0")
    after = {}
    for beta in (0.98, 0.5):
        out = tmp_path / str(beta)
        take('["optimizer"]', *still, f"optimizer.beta2={beta}", out=out)
        assert [(line["step"], line["epoch"]) for line in lines_of(out)] == [(1, 0)]
        assert not differing(tensors_of(out), tensors_of(parent))
        after[beta] = tensors_of(out, "optimizer")
        # The decay of the average grows with its updates, of which the parent had four.
        means, weights = tensors_of(parent, "ema"), tensors_of(parent)
        for name, mean in tensors_of(out, "ema").items():
            torch.testing.assert_close(mean, torch.lerp(means[name], weights[name], 1 - 6 / 15))
    before = tensors_of(parent, "optimizer")
    for name, moment in before.items():
        if name.endswith(".step"):
            assert (float(moment), float(after[0.98][name])) == (4.0, 5.0)
        if name.endswith(".exp_avg_sq"):
            square = 2 * after[0.5][name] - moment
            assert torch.allclose(after[0.98][name], 0.98 * moment + 0.02 * square, rtol=1e-5, atol=1e-9)
            assert moment.abs().max() > 0


def test_the_schedule_alone_continues_the_learning_rate_with_a_fresh_optimiser_and_data(
    go: Go, take: Go, parent: Path, run: Path, tmp_path: Path
) -> None:
    go(*SETTINGS, "training.max_steps=7", out=tmp_path / "whole")
    _, events = take('["schedule"]', "training.max_steps=7", "validation.every_steps=4")
    whole, ours = (
        lines_of(tmp_path / "whole"),
        [line for line in lines_of(run) if "loss" in line and "valid" not in line],
    )
    assert [line["learning_rate"] for line in ours] == [line["learning_rate"] for line in whole[4:]]
    assert batches_of(run) == batches_of(tmp_path / "whole")[:3]
    assert [line["step"] for line in ours] == [5, 6, 7]
    assert {float(t) for name, t in tensors_of(run, "optimizer").items() if name.endswith(".step")} == {3.0}
    assert (list(checkpoints(run)), of_kind(Validated, events)) == ([7], [7])
    assert any(text.startswith("preflight: 3 steps take about") for text in notes(events))


def batches_of(run: Path) -> list[list[int]]:
    """Return epoch and sizes of the batch of each step."""
    keys = ("epoch", "pairs", "source_tokens", "target_tokens")
    return [[line[key] for key in keys] for line in lines_of(run) if "valid" not in line]


@pytest.mark.parametrize("step", [3, 4], ids=["inside an epoch", "at its end"])
def test_the_data_alone_continues_after_the_last_batch(
    go: Go, take: Go, parent: Path, run: Path, tmp_path: Path, step: int
) -> None:
    go(*SETTINGS, "training.max_steps=7", out=tmp_path / "whole")
    model = f'start.model="{parent}/checkpoints/step-{step:08}"'
    take('["data"]', model, f"training.max_steps={7 - step}", "training.max_epochs=9")
    assert batches_of(run) == batches_of(tmp_path / "whole")[step:]
    assert [line["step"] for line in lines_of(run)] == [*range(1, 8 - step)]


@pytest.mark.parametrize(
    ("parts", "settings", "problem"),
    [
        (
            '["schedule"]',
            ["training.max_steps=4"],
            "last has reached training.max_steps=4 already. Raise this limit, or",
        ),
        (
            '["schedule"]',
            ["schedule.kind=plateau", "validation.every_steps=1", "training.max_steps=9"],
            "start.take has schedule, but the plateau schedule depends on earlier validations.",
        ),
        (
            '["data"]',
            ["batch.tokens=1600", "training.seed=2"],
            "last was trained on other batches (batch.tokens: 1500 -> 1600; training.seed: 1 -> 2). Restore",
        ),
        ('["weights"]', [], 'each item "optimizer" or "schedule" or "data"'),
        (
            '["optimizer"]',
            ["model.feed_forward=48"],
            "is not this model: encoder.0.feed_forward.inner.weight is ",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    take: Go, run: Path, parts: str, settings: list[str], problem: str
) -> None:
    assert problem in refusal(take, parts, *settings)
    assert checkpoints(run) == {}


def test_an_optimizer_without_state_of_the_trained_parameters_is_refused(
    go: Go, take: Go, tmp_path: Path
) -> None:
    go(*SETTINGS, 'start.freeze=["encoder.*"]', out=tmp_path / "frozen")
    others = 'start.freeze=["decoder.*", "output_matrix", "source_embedding.*"]'
    problem = refusal(take, '["optimizer"]', f'start.model="{tmp_path}/frozen/last"', others)
    assert "last has no state for optimizer.kind=adam. Leave optimizer out of start.take." in problem


@pytest.mark.parametrize(
    ("parts", "settings", "limit"),
    [
        ('["data"]', ["training.max_epochs=1"], "max_epochs=1"),
        ('["schedule"]', ["training.max_hours=1e-9", "training.max_steps=9"], "max_hours=1e-09"),
    ],
)
def test_a_run_without_a_step_left_is_refused(
    take: Go, parent: Path, run: Path, parts: str, settings: list[str], limit: str
) -> None:
    assert read_state(parent / "last")["epoch"] == 0  # its last step ended the epoch
    assert refusal(take, parts, *settings) == (
        f"{parent}/last has reached training.{limit} already. Raise this limit, or leave schedule and data "
        "out of start.take."
    )
    assert checkpoints(run) == {}


def test_a_model_without_state_and_other_datasets_are_refused(
    take: Go,
    parent: Path,
    complaint: Complaint,
    tmp_path: Path,
    make: Callable[..., Outcome],
    toy: str,
    toy_dataset: Path,
    dev: str,
) -> None:
    model = Path(shutil.copytree(parent / "last", tmp_path / "model"))
    for name in ("state.json", "optimizer.safetensors"):
        (model / name).unlink()
    message = complaint(*SETTINGS, f'start.model="{model}"', f"start.take={ALL}")
    assert message == (
        f"{model} is a model without the state of its training. Give a checkpoint or a run, or leave "
        "start.take out."
    )
    assert "take has no effect without a model to start from" in complaint(f"start.take={ALL}")
    make(tmp_path / "data", [dev], reuse=toy_dataset)
    message = refusal(take, '["data"]', dataset=tmp_path / "data")
    assert message == f"{parent}/last was trained on another dataset. Leave data out of start.take."
    make(tmp_path / "words", [toy], "tokenizer.kind=word")
    message = refusal(take, '["optimizer"]', dataset=tmp_path / "words")
    assert message == f"{parent}/last was trained with another vocabulary. Leave optimizer out of start.take."
