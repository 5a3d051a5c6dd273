"""After a kill or a power cut at any moment, every file is the complete old or new one."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nmt_cli import config as settings
from nmt_cli.checkpoints.finding import BEST, checkpoints, find_model
from nmt_cli.checkpoints.model_folder import Identity, read_model, weights, write_model
from nmt_cli.checkpoints.run_folder import (
    OPTIMIZER,
    Checkpoint,
    keep_only,
    point,
    read_state,
    save_checkpoint,
    sweep,
)
from nmt_cli.checkpoints.verified_files import read_tensors
from nmt_cli.data.dataset import TOKENIZERS, open_dataset
from nmt_cli.data.guard import verify
from nmt_cli.data.preprocessing.pipeline import Outcome
from nmt_cli.model.config import ModelConfig
from nmt_cli.runtime.atomic import file_written_whole, folder_written_whole, recover
from nmt_cli.text.tokenizers import load_tokenizers
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.progress import Position
from nmt_cli.training.settings import CONFIG, keep_settings
from nmt_cli.training.tracking.history import COUNTS, MEASURED
from nmt_cli.training.tracking.log import LOG, cut_behind
from tests.power_cuts import Recording

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="reads the open files of the process from /proc"
)


def test_the_recording_shows_writes_that_are_not_synchronised(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_bytes(b"old")

    def careless() -> None:
        (tmp_path / "out" / "new").write_bytes(b"new")
        (tmp_path / "out" / "new").replace(tmp_path / "out" / "file")

    states = Recording(tmp_path / "out", careless).states(tmp_path)
    assert {(state / "file").read_bytes() for state in states} == {b"old", b"new", b""}


def test_a_file_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "file").write_bytes(b"old")

    def write() -> None:
        with file_written_whole(out / "file") as file:
            file.write(b"new")

    states = Recording(out, write).states(tmp_path / "states")
    assert {(state / "file").read_bytes() for state in states} == {b"old", b"new"}


@pytest.mark.parametrize("can_exchange", [True, False])
def test_an_overwritten_dataset_is_the_old_or_the_new_one(
    tmp_path: Path,
    make: Callable[..., Outcome],
    toy: str,
    can_exchange: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not can_exchange:
        monkeypatch.setattr("nmt_cli.runtime.atomic.exchanged", lambda first, second: False)
    (tmp_path / "parent").mkdir()
    out = tmp_path / "parent" / "out"
    make(out, [toy])
    recording = Recording(out.parent, lambda: make(out, [toy], "filter.max_words=5", overwrite=True))
    limits = set()
    for state in recording.states(tmp_path / "states"):
        if can_exchange:
            assert (state / "out" / "dataset.json").exists()
        recover(state / "out")
        dataset = open_dataset(state / "out")
        verify(dataset)
        limits.add(dataset.manifest["settings"]["filter"]["max_words"])
    assert len(limits) == 2


def test_settings_and_log_of_a_run_are_the_old_or_the_new_ones(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    old, new = (settings.read(TrainConfig, assignments=[f"training.max_steps={steps}"]) for steps in (5, 7))
    keep_settings(run, old)
    entries = dict.fromkeys((*COUNTS, *MEASURED), 1)
    lines = [json.dumps({**entries, "step": step}).encode() + b"\n" for step in (1, 2)]
    (run / LOG).write_bytes(b"".join(lines))

    def resume() -> None:
        keep_settings(run, new)
        cut_behind(run / LOG, Position(step=1))

    limits, logs = set(), set()
    for state in Recording(run, resume).states(tmp_path / "states"):
        limits.add(settings.read(TrainConfig, state / CONFIG).training.max_steps)
        logs.add((state / LOG).read_bytes())
    assert (limits, logs) == ({5, 7}, {b"".join(lines), lines[0]})


@pytest.fixture
def saved(toy_dataset: Path) -> tuple[Identity, Callable[[Path, int], None]]:
    """Return a model, and a function that saves a checkpoint of it in a run and removes older ones."""
    sizes = ModelConfig(encoder_layers=1, decoder_layers=1, width=16, heads=2, feed_forward=32)
    identity = Identity(sizes, load_tokenizers(toy_dataset / TOKENIZERS), {})
    torch.manual_seed(1)
    tensors = weights(identity.build())

    def save(run: Path, step: int) -> None:
        checkpoint = save_checkpoint(run, identity, Checkpoint(step, tensors, {"x": torch.ones(step)}, {}))
        point(run, BEST, checkpoint)
        keep_only(run, {step})

    return identity, save


def test_a_run_has_the_old_or_the_new_checkpoint(
    tmp_path: Path, saved: tuple[Identity, Callable[[Path, int], None]]
) -> None:
    _, save = saved
    run = tmp_path / "run"
    run.mkdir()
    save(run, 1)
    steps = set()
    for state in Recording(run, lambda: save(run, 2)).states(tmp_path / "states"):
        assert read_model(find_model(state)).description["step"] in (1, 2)
        sweep(state)
        for step, checkpoint in checkpoints(state).items():
            assert read_state(checkpoint)["step"] == step
            assert len(read_tensors(checkpoint / OPTIMIZER)["x"]) == step
        steps.add((*checkpoints(state),))
    assert steps == {(1,), (1, 2), (2,)}


def test_an_average_is_the_old_or_the_new_model(
    tmp_path: Path, saved: tuple[Identity, Callable[[Path, int], None]]
) -> None:
    identity, _ = saved
    (tmp_path / "parent").mkdir()
    out = tmp_path / "parent" / "out"

    def write(name: str) -> None:
        torch.manual_seed(len(name))
        with folder_written_whole(out) as folder:
            write_model(folder, replace(identity), weights(identity.build()), {"name": name})

    write("old")
    states = Recording(out.parent, lambda: write("newer")).states(tmp_path / "states")
    assert {read_model(state / "out").description["name"] for state in states} == {"old", "newer"}
