"""Runs in this process: how they resume, and errors that keep them from starting."""

import fcntl
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.checkpoints.finding import checkpoints
from nmt_cli.checkpoints.model_folder import TERMS, read_model
from nmt_cli.checkpoints.run_folder import read_state
from nmt_cli.corpus.raw_files import sha256
from nmt_cli.data import guard as guard_module
from nmt_cli.data.dataset import Dataset
from nmt_cli.data.preprocessing.pipeline import Outcome
from nmt_cli.errors import UserError
from nmt_cli.training.tracking.events import Doing, Event, Progress, Saved, Validated, Warned
from tests.checks import differing
from tests.training.runs import (
    Complaint,
    Go,
    lines_of,
    messages,
    of_kind,
    steps_of,
    tensors_of,
    timeless,
    warnings,
)

Make = Callable[..., Outcome]

PATIENCE = 60.0

DROPPING = ("model.residual_dropout=0.3", "model.attention_dropout=0.2")
SLOW_START = "schedule.warmup=50"
"""A learning rate at which a few steps change the model only a little."""


def test_a_complete_run_has_nothing_left_to_do(go: Go, run: Path, digests: Callable[..., Any]) -> None:
    go("validation.every_steps=2")
    before = digests(run)
    complete, events = go("validation.every_steps=2")
    assert complete
    assert digests(run) == before
    assert messages(events) == []


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("training.max_steps=3", "has 4 steps already, more than --max-steps=3. Raise it, or choose "),
        ("model.width=32", "model.width: 16 -> 32"),
    ],
)
def test_settings_with_which_a_run_cannot_resume_are_refused_and_nothing_changes(
    go: Go, run: Path, digests: Callable[..., Any], complaint: Complaint, setting: str, problem: str
) -> None:
    go()
    before = digests(run)
    assert problem in complaint(setting)
    assert digests(run) == before


def test_a_run_resumes_with_more_steps_and_reports_the_change(go: Go, run: Path) -> None:
    go()
    _, events = go("training.max_steps=6", "training.log_every=1")
    assert messages(events)[0] == "changed: training.max_steps: 4 -> 6"
    assert of_kind(Progress, events) == [5, 6]
    assert steps_of(run) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "kind",
    [
        [],
        ["optimizer.kind=adamw", "schedule.kind=cosine"],
        ['start.freeze=["encoder.*"]'],
        ["optimizer.ema=0.9"],
        ["optimizer.kind=muon"],
        ["model.norm_kind=rms", "model.gated=true", "model.positions=rotary"],
        ["model.positions=relative", "model.tie=embeddings"],
        ["loss.r_drop=2"],
    ],
    ids=["", "adamw", "frozen", "averaged", "muon", "rotary", "relative", "r-drop"],
)
def test_a_stopped_run_resumes_bit_by_bit(go: Go, tmp_path: Path, kind: list[str]) -> None:
    settings = (*DROPPING, *kind, "training.max_steps=7", "training.log_every=1", "validation.every_steps=3")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    go(*settings, out=whole)
    for step in (2, 5):
        complete, events = go(*settings, out=parts, stop_at=step)
        assert not complete
        assert of_kind(Saved, events)[-1] == step
    assert go(*settings, out=parts)[0]
    assert timeless(parts) == timeless(whole)
    for file in ("model", "optimizer", *(["ema"] if "optimizer.ema=0.9" in kind else [])):
        assert not differing(tensors_of(whole, file), tensors_of(parts, file))
    assert read_state(parts / "last")["scores"] == read_state(whole / "last")["scores"]


def test_steps_logged_after_the_checkpoint_are_taken_again(go: Go, run: Path) -> None:
    go("checkpoints.every_steps=2", "training.max_steps=6")
    shutil.rmtree(checkpoints(run)[6])
    before = timeless(run)
    with (run / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 7, "lo')
    go("checkpoints.every_steps=2", "training.max_steps=6")
    assert timeless(run) == before


def test_a_run_killed_before_its_first_checkpoint_begins_again(go: Go, run: Path) -> None:
    go()
    before = timeless(run)
    shutil.rmtree(run / "checkpoints")
    go()
    assert timeless(run) == before


def test_other_micro_batches_give_the_same_losses_to_rounding(go: Go, tmp_path: Path) -> None:
    go("training.max_steps=6", SLOW_START, out=tmp_path / "large")
    small = "training.max_tokens_per_device=100"
    go("training.max_steps=3", SLOW_START, small, out=tmp_path / "small")
    go("training.max_steps=6", SLOW_START, "training.max_tokens_per_device=40", out=tmp_path / "small")
    large, small_ones = (lines_of(tmp_path / name) for name in ("large", "small"))
    for name in ("loss", "nll", "gradient_norm"):
        expected = [line[name] for line in large]
        assert [line[name] for line in small_ones] == pytest.approx(expected, rel=1e-4)


def test_the_seed_decides_weights_and_batches(go: Go, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        go(f"training.seed={seed}", out=tmp_path / name)
    assert timeless(tmp_path / "a") == timeless(tmp_path / "b")
    assert timeless(tmp_path / "a")[0]["loss"] != timeless(tmp_path / "c")[0]["loss"]
    assert timeless(tmp_path / "a")[0]["pairs"] != timeless(tmp_path / "c")[0]["pairs"]


def test_a_folder_that_is_not_a_dataset_is_refused_before_files_are_written(
    tmp_path: Path, run: Path, complaint: Complaint
) -> None:
    assert complaint(dataset=tmp_path).startswith(f"{tmp_path} is not a dataset folder")
    assert not run.exists()


@pytest.fixture
def copied(tmp_path: Path, toy_dataset: Path) -> Path:
    """Return a copy of `toy_dataset` that a test may change."""
    return Path(shutil.copytree(toy_dataset, tmp_path / "copied"))


def last_bit(content: bytes) -> bytes:
    return content[:-2] + bytes([content[-2] ^ 1, content[-1]])


def all_ones(content: bytes) -> bytes:
    return content[:128] + b"\xff" * (len(content) - 128)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("train.source.tokens.npy", last_bit),
        ("train.source.tokens.npy", all_ones),
        ("train.target.offsets.npy", last_bit),
        ("train.target.offsets.npy", all_ones),
        ("train.source.tokens.npy", lambda content: content[:-2]),
        ("train.source.tokens.npy", lambda content: b""),
        ("dev.target.raw.txt", last_bit),
        ("dataset.json", lambda content: content[:-9]),
        ("tokenizer/tokenizer.json", lambda content: content.replace(b'"en"', b'"eo"')),
    ],
    ids=["a bit", "ones", "an offset", "offsets of ones", "cut", "empty", "raw", "manifest", "tokeniser"],
)
def test_a_damaged_dataset_is_reported_and_nothing_is_saved(
    run: Path, copied: Path, name: str, change: Callable[[bytes], bytes], complaint: Complaint
) -> None:
    (copied / name).write_bytes(change((copied / name).read_bytes()))
    assert str(copied / name) in complaint(dataset=copied)
    assert checkpoints(run) == {}


@pytest.mark.parametrize(
    ("settings", "stop_at", "last_step"),
    [((), None, 4), (("checkpoints.every_steps=1",), None, 1), (("checkpoints.every_steps=1",), 1, 1)],
    ids=["at the end", "a save is due", "the user stops the run"],
)
def test_nothing_is_saved_before_the_dataset_is_verified(
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    complaint: Complaint,
    settings: tuple[str, ...],
    stop_at: int | None,
    last_step: int,
) -> None:
    steps_taken = threading.Event()

    def slow(dataset: Dataset) -> None:
        steps_taken.wait(PATIENCE)
        raise UserError("it is damaged")

    def verify_after_the_last_step(event: Event) -> None:
        if isinstance(event, Progress) and event.step == last_step:
            threading.Timer(0.3, steps_taken.set).start()

    monkeypatch.setattr(guard_module, "verify", slow)
    assert complaint(*settings, report=verify_after_the_last_step, stop_at=stop_at) == "it is damaged"
    assert steps_of(run) == [*range(1, last_step + 1)]
    assert checkpoints(run) == {}


def at_step(step: int, do: Callable[[], object]) -> Callable[[Event], None]:
    def report(event: Event) -> None:
        if isinstance(event, Doing) and (event.what, event.step) == ("training", step):
            do()

    return report


def test_nothing_is_saved_after_the_dataset_changed(
    go: Go, run: Path, copied: Path, complaint: Complaint
) -> None:
    path = copied / "train.source.tokens.npy"
    before = path.read_bytes()

    def change() -> None:
        with path.open("r+b") as file:
            file.write(last_bit(before))

    settings = ("checkpoints.every_steps=2", "training.max_steps=6")
    message = complaint(*settings, dataset=copied, report=at_step(3, change))
    assert message.startswith(f"{path} was changed while it was in use")
    assert list(checkpoints(run)) == [2]
    path.write_bytes(before)
    assert go(*settings, dataset=copied)[0]
    assert steps_of(run) == [1, 2, 3, 4, 5, 6]


def test_files_cut_short_during_training_are_reported_without_a_crash(
    run: Path, copied: Path, complaint: Complaint
) -> None:
    path = copied / "train.target.tokens.npy"
    settings = ("checkpoints.every_steps=2", "training.max_steps=1000")

    def cut() -> None:
        # Cut while the loader waits. While it reads a batch, the process would crash.
        (loader,) = (each for each in threading.enumerate() if each.name == "loader")
        while sys._current_frames()[loader.ident or 0].f_code.co_name != "wait":
            time.sleep(0.01)
        os.truncate(path, 200)

    message = complaint(*settings, dataset=copied, report=at_step(3, cut))
    assert message.startswith(f"{path} was changed while it was in use")
    assert list(checkpoints(run)) == [2]


def test_a_moved_dataset_is_reported_after_the_run_is_saved_and_its_validation_is_not_skipped(
    go: Go, run: Path, tmp_path: Path, copied: Path, complaint: Complaint
) -> None:
    settings = ("validation.every_steps=4", "training.max_steps=6", "batch.tokens=1500")
    go(*settings, out=tmp_path / "whole")
    move = at_step(2, lambda: copied.rename(tmp_path / "moved"))
    message = complaint(*settings, dataset=copied, report=move)
    assert message == (
        "the dataset was moved, removed or replaced, so step 4 cannot be validated. "
        "Put it back, and run the same command again to resume from step 4."
    )
    assert list(checkpoints(run)) == [4]
    assert of_kind(Validated, go(*settings, dataset=tmp_path / "moved")[1]) == [4, 6]
    assert timeless(run) == timeless(tmp_path / "whole")


def test_a_run_of_another_dataset_is_refused(
    go: Go, tmp_path: Path, make: Make, dev: str, toy: str, toy_dataset: Path, complaint: Complaint
) -> None:
    go()
    make(tmp_path / "same-vocabulary", [dev], reuse=toy_dataset)
    message = complaint(dataset=tmp_path / "same-vocabulary")
    assert message.endswith("step-00000004 was trained on another dataset. Choose another --out.")
    make(tmp_path / "other-vocabulary", [toy], "tokenizer.kind=word")
    message = complaint(dataset=tmp_path / "other-vocabulary")
    assert message.endswith("step-00000004 was trained with another vocabulary. Choose another --out.")


def test_a_run_with_terms_resumes_exactly_and_records_them(
    go: Go, run: Path, tmp_path: Path, make: Make, toy_pairs: Any, toy: str, complaint: Complaint
) -> None:
    terms, data, whole = tmp_path / "terms.tsv", tmp_path / "with-symbols", tmp_path / "whole"
    make(data, [toy], "tokenizer.terms=true")
    words = {source.split()[0].lower(): target.split()[0] for source, target in toy_pairs}
    terms.write_text("".join(f"{source}\t{target}\n" for source, target in words.items()), encoding="utf-8")
    settings = ("augment.terms=1", f"augment.terms_file={terms}", "training.max_steps=8")
    go(*settings, dataset=data, out=whole)
    go(*settings, dataset=data, stop_at=3)
    assert list(checkpoints(run)) == [3]
    moved = ("augment.terms=1", f"augment.terms_file={shutil.copy(terms, tmp_path / 'copy')}", settings[2])
    assert go(*moved, dataset=data)[0]
    assert not differing(tensors_of(run), tensors_of(whole))
    (read,) = {read_model(checkpoint).identity.trained_on[TERMS] for checkpoint in checkpoints(run).values()}
    assert read == sha256(terms)
    plain = tmp_path / "plain"
    go("training.max_steps=8", dataset=data, out=plain)
    assert differing(tensors_of(plain), tensors_of(whole))
    terms.write_text("a\tb\n", encoding="utf-8")
    message = complaint(*settings, dataset=data)
    assert message.endswith(
        "step-00000008 was trained with another augment.terms_file. Choose another --out."
    )


def test_a_damaged_checkpoint_is_reported_with_its_file(go: Go, run: Path, complaint: Complaint) -> None:
    go()
    path = checkpoints(run)[4] / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    assert complaint("training.max_steps=6").startswith(f"{path} is damaged")
    assert steps_of(run) == [1, 2, 3, 4]


def test_a_path_that_cannot_be_written_and_a_folder_with_other_files_are_refused(
    tmp_path: Path, complaint: Complaint, digests: Callable[..., Any]
) -> None:
    file, letters = tmp_path / "file", tmp_path / "letters"
    file.write_text("mine", encoding="utf-8")
    letters.mkdir()
    (letters / "dear.txt").touch()
    before = digests(tmp_path)
    assert complaint(out=file) == f"{file} is a file. Choose another --out."
    assert complaint(out=file / "run").startswith(f"{file / 'run'} can't be written: ")
    message = f"{letters} holds files but no config.toml, so it is not a run. Choose another --out."
    assert complaint(out=letters) == message
    assert digests(tmp_path) == before


def test_two_runs_never_share_a_folder(go: Go, run: Path, complaint: Complaint) -> None:
    run.mkdir()
    other = os.open(run, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    try:
        messages = [complaint() for _ in range(2)]
    finally:
        os.close(other)
    message = f"another process is training in {run} now. Wait for it, or choose another --out."
    assert messages == [message] * 2
    assert go("training.max_steps=1")[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("training.precision=fp16",), "training.precision is fp16, but cpu has only fp32, bf16."),
        (("batch.longest=1",), "All 300 training pairs have more than 1 tokens on a side. "),
        (("batch.tokens=1",), "All 300 training pairs have more than 1 tokens on a side. "),
        (("model.positions=learned", "model.longest=20"), "model.longest"),
        (("schedule.kind=cosine", "training.max_epochs=1"), "Give training.max_steps in place of max_epochs"),
    ],
    ids=["precision", "longest", "tokens", "positions", "cosine"],
)
def test_settings_that_do_not_fit_together_are_refused(
    settings: tuple[str, ...], message: str, complaint: Complaint
) -> None:
    assert message in complaint(*settings, "training.max_steps=100")


def test_one_matrix_for_two_vocabularies_is_refused(
    go: Go, tmp_path: Path, make: Make, toy: str, complaint: Complaint
) -> None:
    make(tmp_path / "data", [toy], "tokenizer.joint=false")
    assert "Set model.tie=decoder" in complaint(dataset=tmp_path / "data")
    assert go("model.tie=decoder", dataset=tmp_path / "data", out=tmp_path / "fresh")[0]


def test_bf16_trains_on_a_cpu(go: Go, run: Path) -> None:
    go("training.precision=bf16")
    assert np.isfinite([line["loss"] for line in lines_of(run)]).all()
    tensors = [*tensors_of(run).values(), *tensors_of(run, "optimizer").values()]
    assert {tensor.dtype for tensor in tensors} == {torch.float32}


def test_a_run_without_its_settings_resumes_with_a_warning(go: Go, run: Path, complaint: Complaint) -> None:
    go("training.max_steps=6", "checkpoints.every_steps=2")
    whole = timeless(run)
    shutil.rmtree(checkpoints(run)[6])
    (run / "config.toml").unlink()
    assert "model.norm: " in complaint("training.max_steps=6", "model.norm=pre")
    assert not (run / "config.toml").exists()
    _, events = go("training.max_steps=6")
    assert warnings(events) == [
        f"{run}/config.toml is missing, so only the settings of the model could be compared. "
        "It is written again."
    ]
    assert (timeless(run), (run / "config.toml").exists()) == (whole, True)


def test_a_run_copied_without_its_links_resumes_with_one_warning_for_each(
    go: Go, run: Path, tmp_path: Path, digests: Callable[..., Any]
) -> None:
    settings = ("validation.every_steps=2", "checkpoints.every_steps=2")
    go(*settings)
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    before = digests(copy / "last")
    complete, events = go(*settings, "training.max_steps=8", out=copy)
    assert complete
    warned = warnings(events)
    assert [text.split(" is a folder instead")[0] for text in warned] == [f"{copy}/best", f"{copy}/last"]
    assert (copy / "last").resolve() == checkpoints(copy)[8]
    assert digests(copy / "last.1") == before
    assert not [e for e in go(*settings, "training.max_steps=9", out=copy)[1] if isinstance(e, Warned)]
