"""The preflight finds failures early, reports the needs of a run, and leaves no trace."""

import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from nmt_cli.checkpoints import run_folder
from nmt_cli.checkpoints.finding import checkpoints
from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.checkpoints.run_folder import read_state
from nmt_cli.checkpoints.verified_files import read_tensors
from nmt_cli.data.batching.batch import MicroBatch, Rounding
from nmt_cli.data.batching.loader import Cut
from nmt_cli.data.config import BatchConfig
from nmt_cli.data.dataset import Dataset, Sentences, Split
from nmt_cli.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout
from nmt_cli.runtime.kernels.families import refused
from nmt_cli.runtime.kernels.torch_private import compiled_for_all_sizes
from nmt_cli.training.progress import Position
from nmt_cli.training.setup import preflight as preflight_module
from nmt_cli.training.setup import start as start_module
from nmt_cli.training.setup import trial
from nmt_cli.training.setup.preflight import estimate
from nmt_cli.training.setup.trial import (
    HEADROOM,
    LongestBatch,
    assembled,
    first_cut,
    longest_pairs,
    try_longest,
)
from nmt_cli.training.step.distributed import Process
from nmt_cli.training.step.trainer import Trainer
from nmt_cli.training.validation.judge import Judge, Judgement
from nmt_cli.units import duration
from tests.checks import differing, refusal
from tests.training.runs import Complaint, Go, NewRun, Tiny, lines_of, notes, tensors_of, timeless, warnings

FullDisk = Callable[[int], AbstractContextManager[None]]

DROPPING = (
    *("model.residual_dropout=0.3", "model.attention_dropout=0.2", "validation.every_steps=2"),
    *("optimizer.ema=0.9", "checkpoints.every_steps=1", "training.log_every=1"),
)


def assert_nothing_begun(run: Path) -> None:
    assert (run / "log.jsonl").read_bytes() == b""
    assert not (run / "checkpoints").exists()


@pytest.mark.slow
@pytest.mark.parametrize("compiled", ["off", "on"])
def test_it_leaves_no_trace_losses_are_bit_identical_without_it(
    go: Go, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: str
) -> None:
    monkeypatch.setattr(torch, "compile", lambda model, dynamic: model)  # keeps filler and rounding
    settings = (*DROPPING, f"training.compile={compiled}")
    go(*settings, out=tmp_path / "with")
    config, cpu = tiny(*settings), torch.device("cpu")
    monkeypatch.setattr(start_module, "tried_cut", lambda *arguments: first_cut(config, cpu, Process()))
    go(*settings, out=tmp_path / "without")
    runs = [tmp_path / name for name in ("with", "without")]
    first, second = (timeless(run) for run in runs)
    assert first == second
    assert len(first) == 6
    for file in ("model", "ema", "optimizer"):
        assert not differing(*(tensors_of(run, file) for run in runs))
    one, two = ({path.name for path in run.rglob("*")} for run in runs)
    assert one == two
    states = [read_state(run / "last") for run in runs]
    assert [state["scores"] for state in states] == [states[0]["scores"]] * 2


def test_it_reports_the_needs_of_the_run_before_the_first_step(go: Go) -> None:
    _, events = go("training.max_steps=2", "validation.every_steps=1")
    messages = notes(events)[:3]
    assert [message[:10] for message in messages] == ["preflight ", "preflight:", "preflight:"]
    message = "\n".join(messages)
    parts = (
        "the longest batch, ",
        " tokens, took ",
        " at most; products in ",
        ": a checkpoint every 10 minutes",
    )
    more = ("7 of them ", " free\n", ": 2 steps take about ", " at this speed, plus validation every step")
    assert [part for part in (*parts, *more) if part not in message] == []
    assert not any("preflight" in text for text in notes(go("training.max_steps=3")[1]))


def test_with_r_drop_a_step_has_each_pair_twice(new_run: NewRun) -> None:
    measured = LongestBatch(400, 1.0, 0, Cut(0, 1, 8192), total_seconds=2.0)

    def seconds(*settings: str) -> float:
        return estimate(new_run(*settings), measured, Position())[1]

    assert seconds("loss.r_drop=1", "model.residual_dropout=0.1") == 2 * seconds() > 0


@pytest.mark.parametrize(("times", "measured"), [([100.0, 2.0], 2.0), ([200.0, 2.0], 200.0)])
def test_the_time_is_that_of_a_warm_batch_unless_a_cold_one_takes_minutes(
    go: Go, monkeypatch: pytest.MonkeyPatch, times: list[float], measured: float
) -> None:
    left = iter(times)
    monkeypatch.setattr(trial, "_timed", lambda *arguments: next(left))
    _, events = go("training.max_steps=2")
    assert f"tokens, took {duration(measured)} and " in notes(events)[0]


def test_a_disk_that_is_too_full_for_a_checkpoint_is_reported_first(
    run: Path, full_disk: FullDisk, complaint: Complaint
) -> None:
    with full_disk(9000):
        message = complaint()
    assert message.startswith(f"{run}/checkpoints can't be written: ")
    assert_nothing_begun(run)


def test_a_disk_without_space_for_all_checkpoints_is_reported_first(
    go: Go, run: Path, monkeypatch: pytest.MonkeyPatch, complaint: Complaint
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=300_000))
    message = complaint("checkpoints.keep_last=9", "checkpoints.keep_best=2")
    assert message.startswith(f"{run} will hold 12 checkpoints of ")
    assert re.search(r" of \d+ kB, \d+ kB in total, but only 300 kB are free. Free some space", message)
    assert_nothing_begun(run)
    assert go("checkpoints.keep_last=1", "checkpoints.keep_best=0")[0]


def test_a_disk_that_returns_other_bytes_is_reported_first(
    run: Path, monkeypatch: pytest.MonkeyPatch, complaint: Complaint
) -> None:
    def other_bytes(path: Path) -> dict[str, torch.Tensor]:
        return {name: tensor + 1 for name, tensor in read_tensors(path).items()}

    monkeypatch.setattr(run_folder, "read_tensors", other_bytes)
    assert "returns other bytes than were written" in complaint()
    assert_nothing_begun(run)


def test_a_validation_that_fails_is_reported_first(
    run: Path, monkeypatch: pytest.MonkeyPatch, complaint: Complaint
) -> None:
    asked = []

    def judge(self: Judge, model: Transformer, split: Split, only: Sequence[int]) -> Judgement:
        lengths = np.diff(split.source.offsets) + np.diff(split.target.offsets)
        asked.append((split.name, sorted(lengths[[*only]]), sorted(lengths)[-len(only) :]))
        raise UserError("it can't be judged")

    monkeypatch.setattr(Judge, "judge", judge)
    assert complaint("validation.every_steps=1000") == "it can't be judged"
    assert_nothing_begun(run)
    ((name, tried, longest),) = asked
    assert (name, len(tried)) == ("dev", preflight_module.SENTENCES)
    assert tried == longest


def short_of_memory(monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """Limit the memory to `most` source tokens. Return the list of tried numbers of tokens."""
    forward, tried = Transformer.forward, []

    def limited(self: Transformer, source: torch.Tensor, *rest: Any) -> torch.Tensor:
        tried.append(len(source))
        if len(source) > most:
            raise RuntimeError("can't allocate memory: you tried to allocate too much")
        return forward(self, source, *rest)

    monkeypatch.setattr(Transformer, "forward", limited)
    return tried


def test_a_longest_pair_that_does_not_fit_is_reported_first(
    run: Path, monkeypatch: pytest.MonkeyPatch, complaint: Complaint
) -> None:
    short_of_memory(monkeypatch, 10)
    assert "in 1 pairs, does not fit the memory of cpu. Lower batch.longest" in complaint()
    assert_nothing_begun(run)


def test_a_batch_that_does_not_fit_is_halved_as_in_training_with_a_warning(
    go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = short_of_memory(monkeypatch, 150)
    complete, events = go("training.max_steps=2")
    assert complete
    assert tried[0] > 300 > tried[1] > 150 > tried[2] > 60
    texts = warnings(events)
    problem = "tokens do not fit the memory of cpu. Lower --max-tokens-per-device"
    assert [problem in text for text in texts] == [True] * len(texts) != []


def test_a_warmup_that_takes_most_of_a_run_is_reported_before_the_first_step(go: Go, tmp_path: Path) -> None:
    (warning,) = warnings(go("training.max_steps=10", out=tmp_path / "noam")[1])
    assert warning.endswith("For a warm-up that fits, add --set schedule.kind=linear.")
    assert warnings(go("schedule.kind=linear", out=tmp_path / "linear")[1]) == []
    assert lines_of(tmp_path / "linear")[0]["learning_rate"] == pytest.approx(0.75 * 7e-4)


def halved_on_a_gpu(
    dataset: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, capacity: int, *settings: str
) -> tuple[list[int], int]:
    """Try the longest batch on a fake GPU that holds `capacity` tokens.

    Returns the tokens of each attempt and the limit of a micro-batch that the trial chose.
    """
    monkeypatch.setattr(trial, "has_own_memory", lambda device: True)
    attempts: list[int] = []

    def try_out(part: MicroBatch) -> None:
        attempts.append(part.real_source_tokens + part.real_target_tokens)
        if attempts[-1] > capacity:
            raise torch.OutOfMemoryError("out of memory")

    config, cpu = tiny(*settings), torch.device("cpu")
    fake = SimpleNamespace(config=config, precision=SimpleNamespace(device=cpu), try_out=try_out)
    cut = first_cut(config, cpu, Process())
    actual = try_longest(cast(Trainer, fake), dataset.splits["train"], cut, lambda event: None)
    return attempts, actual.cut.max_tokens


@pytest.mark.parametrize(("capacity", "halvings"), [(800, 0), (450, 1), (250, 2), (200, 3)])
def test_on_a_gpu_the_limit_of_a_micro_batch_is_halved_until_it_fits(
    dataset: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, capacity: int, halvings: int
) -> None:
    attempts, limit = halved_on_a_gpu(dataset, tiny, monkeypatch, capacity)
    assert len(attempts) == halvings + 2  # the last pass is for the time
    assert limit == (int(attempts[halvings - 1] / 2 * HEADROOM) if halvings else 800)
    assert limit <= capacity
    settings = "training.max_tokens_per_device=700"  # stays
    assert halved_on_a_gpu(dataset, tiny, monkeypatch, capacity, settings)[1] == 700


@pytest.mark.parametrize("at_once", [7, 100, 1 << 20])
@pytest.mark.parametrize(("longest", "most"), [(256, 400), (256, 8192), (20, 300), (256, 1)])
def test_the_longest_batch_holds_the_longest_pairs_that_training_takes(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, at_once: int, longest: int, most: int
) -> None:
    monkeypatch.setattr(trial, "PAIRS_READ_AT_ONCE", at_once)
    split = dataset.splits["train"]
    source, target = np.diff(split.source.offsets), np.diff(split.target.offsets)
    fits = np.maximum(source, target) <= longest
    ranked = np.sort((source + target)[fits])[::-1]
    expected = ranked[: max(1, int((np.cumsum(ranked) <= most).sum()))]
    actual = longest_pairs(split, BatchConfig(longest=longest), most)
    assert len(set(actual.tolist())) == len(actual)
    assert sorted((source + target)[actual], reverse=True) == expected.tolist()
    assert fits[actual].all()


def test_pairs_that_are_all_too_long_are_refused(dataset: Dataset) -> None:
    split = dataset.splits["train"]
    message = refusal(longest_pairs, split, BatchConfig(longest=1), 100)
    assert message.startswith("All 300 training pairs have more than 1 tokens on a side")
    sides = (Sentences(side.tokens, side.offsets[:3]) for side in (split.source, split.target))
    some = Split("train", "train", *sides)
    assert sorted(longest_pairs(some, BatchConfig(), 8192).tolist()) == [0, 1]


def split_of(source: list[int], target: list[int]) -> Split:
    """Return a split of pairs with these numbers of tokens."""
    sides = [np.concatenate([[0], np.cumsum(lengths)]) for lengths in (source, target)]
    return Split("train", "train", *(Sentences(np.ones(offsets[-1], np.int32), offsets) for offsets in sides))


@pytest.mark.parametrize(
    ("source", "target"),
    [([9, 4], [8, 3]), ([2], [1])],
    ids=["filler", "one"],
)
def test_a_compiled_model_sees_different_sides_in_the_trial(source: list[int], target: list[int]) -> None:
    split, pairs = split_of(source, target), np.arange(len(source))
    part = assembled(split, pairs, Rounding(unit=16))
    assert len(part.source_tokens) != len(part.target_tokens)
    equal = assembled(split_of(source, source), pairs, Rounding(unit=16))
    assert len(equal.source_tokens) == len(equal.target_tokens)
    assert equal.pairs.tolist() == pairs.tolist()


@pytest.mark.slow
def _failing(*_: Any) -> None:
    raise RuntimeError("no compiler\nand more")


def _wrong(model: Transformer) -> Callable[..., torch.Tensor]:
    """Return a compiled model whose features are far too large."""
    return lambda *inputs: 100 * model(*inputs)


@pytest.mark.parametrize(
    ("compiled", "reason"),
    [(lambda _: _failing, "RuntimeError: no compiler"), (_wrong, "its loss is ")],
    ids=["fails", "is wrong"],
)
def test_a_run_whose_compiled_model_cannot_be_used_goes_on_without_it(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: Callable[..., Any], reason: str
) -> None:
    monkeypatch.setattr(torch, "compile", lambda model, dynamic: compiled(model))
    complete, events = go("training.compile=on", "training.max_steps=2", out=tmp_path / "faulty")
    (text,) = warnings(events)
    assert complete and text.startswith(f"torch.compile is not used, which makes training slower: {reason}")
    assert "\n" not in text and not refused
    go("training.compile=off", "training.max_steps=2", out=tmp_path / "off")
    faulty, off = (
        [line["loss"] for line in lines_of(tmp_path / name) if "loss" in line] for name in ("faulty", "off")
    )
    assert faulty == off and faulty


def test_a_lack_of_memory_while_compiling_is_not_a_fault_of_the_compiler(
    monkeypatch: pytest.MonkeyPatch, dataset: Dataset, go: Go
) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(torch, "compile", lambda model, dynamic: full)
    assert "does not fit the memory" in refusal(lambda: go("training.compile=on"))


def test_training_uses_the_model_that_the_trial_compiled(identity: Identity) -> None:
    torch._dynamo.reset()
    compiled = compiled_for_all_sizes(identity.build(), backend="eager", fullgraph=True)
    part = assembled(split_of([50, 49, 50], [49, 50, 49]), np.arange(3), Rounding(unit=16))
    sizes = [([5, 9, 18], [7, 3, 14]), ([8, 1, 1, 6], [2, 9, 9, 4]), ([8, 8], [8, 8])]
    layouts = [(part.source, part.target), *([Layout.of(side, 32) for side in pair] for pair in sizes)]
    with torch._dynamo.config.patch(error_on_recompile=True):
        for source, target in layouts:
            ids = [torch.zeros(len(side.segments), dtype=torch.int64) for side in (source, target)]
            compiled(*ids, source, target)
    torch._dynamo.reset()


def test_leftovers_of_a_killed_preflight_are_removed(go: Go, run: Path) -> None:
    go("training.max_steps=1")
    left = run / "checkpoints/.step-trial.abc"
    left.mkdir()
    (left / "model.safetensors").touch()
    go("training.max_steps=2")
    assert not left.exists()
    assert list(checkpoints(run)) == [1, 2]
