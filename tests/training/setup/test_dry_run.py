"""The forecast of a run against the run itself."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.data.dataset import Dataset, open_dataset
from nmt_cli.model.cost import parameters, training_flops
from nmt_cli.training.setup.dry_run import forecast
from nmt_cli.training.tracking.events import Event
from tests.checks import refusal
from tests.training.runs import Complaint, Go, NewRun, Planned, Tiny, lines_of, notes, warnings


@pytest.mark.parametrize("settings", [(), ("batch.longest=20", "training.seed=3")], ids=["all", "some"])
def test_it_plans_the_batches_that_the_run_takes(
    go: Go, planned: Planned, run: Path, settings: tuple[str, ...]
) -> None:
    limits = ("training.max_epochs=2", "training.max_steps=500")
    plan = planned(*settings, *limits)
    go(*settings, *limits)
    first = [line for line in lines_of(run) if line["epoch"] == 0]
    assert plan.epoch.batches == len(first)
    for key in ("pairs", "source_tokens", "target_tokens"):
        assert getattr(plan.epoch, key) == sum(line[key] for line in first)
    assert plan.epoch.dropped == 300 - plan.epoch.pairs
    assert abs(plan.steps - len(lines_of(run))) <= 2  # the second epoch has other batches


def test_it_forecasts_filler_and_micro_batches(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda model, dynamic: model)  # keeps only the rounding
    settings = ("training.max_tokens_per_device=150", "training.max_epochs=1", "training.max_steps=99")
    assert planned(*settings).epoch.filler == 0
    assert 4 < planned(*settings).epoch.micro_batches < 8
    assert 2 < planned(*settings, devices=2).epoch.micro_batches < 4
    compiled = planned("training.compile=on", "batch.tokens=4000")
    assert 0 < compiled.epoch.filler < 0.1


def test_it_forecasts_parameters_memory_and_the_size_of_checkpoints(
    go: Go, planned: Planned, tmp_path: Path, identity: Identity
) -> None:
    frozen = 'start.freeze=["encoder.*"]'
    for settings in ((), ("optimizer.ema=0.9",), (frozen,), ("optimizer.kind=muon",)):
        plan = planned(*settings)
        model = identity.build()
        assert plan.parameters == parameters(model)
        encoder = sum(p.numel() for name, p in model.named_parameters() if name.startswith("encoder."))
        assert plan.trained == plan.parameters - encoder * (settings == (frozen,))
        go(*settings, out=tmp_path / f"{len(settings)}{settings[:1]}")
        folder = (tmp_path / f"{len(settings)}{settings[:1]}" / "last").resolve()
        tensors = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        assert plan.disk.checkpoint == pytest.approx(tensors, rel=0.2)
        assert plan.disk.checkpoint < tensors
        assert plan.disk.count == 7
        assert plan.weights_memory == plan.disk.checkpoint + 4 * plan.trained
        assert plan.trial.memory > plan.weights_memory


def test_it_says_how_long_warmup_takes_and_warns_if_that_is_most_of_the_run(planned: Planned) -> None:
    events: list[Event] = []
    assert planned("schedule.warmup=3", "training.max_steps=6", report=events.append).warmup == 3
    linear = ("schedule.kind=linear", "training.max_steps=1000")
    assert planned(*linear, report=events.append).warmup == 100
    endless = ("training.max_steps=1000000000", "schedule.warmup=100000000")
    timed = planned("schedule.kind=linear", *endless, "training.max_hours=1", report=events.append)
    assert timed.warmup == pytest.approx(timed.steps / 10, abs=1)
    assert warnings(events) == []
    assert planned("training.max_steps=1000", report=events.append).warmup == 4000
    (warning,) = warnings(events)
    assert "rises for 4,000 steps (schedule.warmup), but the run has about 1,000." in warning


def test_the_flops_are_those_of_all_steps(planned: Planned, tiny: Tiny, identity: Identity) -> None:
    plan = planned("training.max_steps=1000")
    vocabulary = len(identity.tokenizers.target.vocabulary.entries)
    epoch = plan.epoch
    all_tokens = training_flops(tiny().model, vocabulary, epoch.source_tokens, epoch.target_tokens)
    assert plan.flops == pytest.approx(1000 * all_tokens / epoch.batches, rel=1e-2)
    assert plan.steps == 1000
    assert plan.seconds > 0


def test_nothing_is_written(planned: Planned, tmp_path: Path) -> None:
    planned()
    assert list(tmp_path.iterdir()) == []


def test_settings_that_the_run_would_refuse_are_refused(planned: Planned, tmp_path: Path) -> None:
    for setting, message in (
        (f'start.model="{tmp_path}"', "is not a model"),
        ('start.freeze=["x"]', "no parameter is named x"),
        ("batch.longest=1", "All 300 training pairs have"),
        ("training.precision=fp16", "cpu has only"),
    ):
        assert message in refusal(planned, setting)


def test_a_folder_that_the_run_would_refuse_is_refused(
    planned: Planned,
    go: Go,
    run: Path,
    toy: str,
    make: Callable[..., object],
    tmp_path: Path,
    new_run: NewRun,
) -> None:
    run.write_text("a file")
    assert refusal(planned) == f"{run} is a file. Choose another --out."
    run.unlink()
    go()
    events: list[Event] = []
    planned("training.max_steps=9", report=events.append)
    assert f"{run} has 4 steps of this plan already" in notes(events)
    for setting, message in (
        ("model.width=32", "model.width: 16 -> 32"),
        ("training.max_steps=3", "has 4 steps already, more than --max-steps=3"),
    ):
        assert message in refusal(planned, setting)
    make(tmp_path / "other", [toy], "tokenizer.kind=word")
    other = replace(new_run(), dataset=open_dataset(tmp_path / "other"))
    message = refusal(forecast, other, 1)
    assert "was trained with another vocabulary" in message


def test_frozen_and_copied_parameters_are_reported(planned: Planned, go: Go, tmp_path: Path) -> None:
    go(out=tmp_path / "model")
    events: list[Event] = []
    planned(f'start.model="{tmp_path}/model"', 'start.freeze=["encoder.*"]', report=events.append)
    message = notes(events)
    assert [text.split()[0] for text in message] == ["starting", "frozen:"]


def test_a_run_without_its_settings_is_refused_with_another_model_as_by_the_run(
    planned: Planned, go: Go, run: Path, complaint: Complaint
) -> None:
    go()
    (run / "config.toml").unlink()
    message = complaint("model.norm=pre")
    assert "model.norm: " in message
    assert refusal(planned, "model.norm=pre") == message


def test_a_run_that_resumes_does_not_need_the_model_that_it_started_from(
    planned: Planned, go: Go, tmp_path: Path
) -> None:
    go(out=tmp_path / "model")
    start = f'start.model="{tmp_path}/model"'
    go(start)
    shutil.rmtree(tmp_path / "model")
    events: list[Event] = []
    planned(start, "training.max_steps=9", report=events.append)
    assert [text.split()[1:4] for text in notes(events)] == [["has", "4", "steps"]]


def test_the_longest_batch_is_tried(planned: Planned, dataset: Dataset) -> None:
    split = dataset.splits["train"]
    longest = int((np.diff(split.source.offsets) + np.diff(split.target.offsets)).max())
    plan = planned()
    assert longest < plan.trial.tokens <= 800
    assert planned("training.max_tokens_per_device=1").trial.tokens == longest
