"""Ranks with different settings: each raises one line that names the differences."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from nmt_cli.data.dataset import Dataset
from nmt_cli.training.setup import agreement
from nmt_cli.training.setup.agreement import refuse_other_checkpoints, refuse_other_orders
from nmt_cli.training.step.distributed import Group
from nmt_cli.training.step.trainer import MixedPrecision
from tests.checks import refusal
from tests.training.runs import Tiny

FP32, BF16 = (MixedPrecision(name, torch.device("cpu")) for name in ("fp32", "bf16"))
SAME = "Let all of them see the same run folder."


class Gathered:
    """Plays the group on one rank after the other. `gather` returns all values so far."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.values: list[Mapping[str, str]] = []

    def gather(self, value: Mapping[str, str]) -> Sequence[Mapping[str, str]]:
        self.values.append(value)
        return self.values


@pytest.fixture
def group() -> Group:
    return cast(Group, Gathered())


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("schedule.factor=2.0", "(schedule.factor: 1.0 and 2.0)"),
        ("training.seed=2", "(training.seed: 1 and 2)"),
        ("batch.tokens=500", "(batch.tokens: 400 and 500)"),
    ],
)
def test_another_setting_is_named(
    group: Group, dataset: Dataset, tiny: Tiny, assignment: str, message: str
) -> None:
    for _ in range(2):
        refuse_other_orders(group, dataset, tiny(), FP32)
    assert refusal(refuse_other_orders, group, dataset, tiny(assignment), FP32) == (
        f"processes 0 and 2 differ {message}. Start all of them with the same command, on the same dataset "
        "and kind of device."
    )


def test_an_automatic_precision_is_compared_as_what_it_gives_on_the_device(
    group: Group, dataset: Dataset, tiny: Tiny
) -> None:
    automatic = tiny("training.precision=auto")
    refuse_other_orders(group, dataset, automatic, FP32)
    refuse_other_orders(group, dataset, tiny("training.precision=fp32"), FP32)
    message = "processes 0 and 2 differ (training.precision: fp32 and bf16). Start"
    assert refusal(refuse_other_orders, group, dataset, automatic, BF16).startswith(message)


def test_muon_needs_equal_processors(
    group: Group, dataset: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    muon = tiny("optimizer.kind=muon")
    refuse_other_orders(group, dataset, muon, FP32)
    monkeypatch.setattr(agreement, "processor_name", lambda: "Z80")
    assert "and Z80). Start" in refusal(refuse_other_orders, group, dataset, muon, FP32)


def test_another_attention_is_refused(
    group: Group, dataset: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_other_orders(group, dataset, tiny(), FP32)
    monkeypatch.setattr(agreement, "implementation", lambda *arguments: "fused")
    message = refusal(refuse_other_orders, group, dataset, tiny(), FP32)
    assert "differ (attention: padded and fused)" in message


def test_a_rank_without_our_kernels_is_refused(
    group: Group, dataset: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_other_orders(group, dataset, tiny(), FP32)
    monkeypatch.setenv("NMT_KERNELS", "plain")
    message = refusal(refuse_other_orders, group, dataset, tiny(), FP32)
    assert "differ (NMT_KERNELS: tried and plain). Start" in message


def test_some_of_many_differences_are_named(group: Group, dataset: Dataset, tiny: Tiny) -> None:
    refuse_other_orders(group, dataset, tiny(), FP32)
    other = tiny(*(f"optimizer.{name}=0.5" for name in ("beta2", "epsilon", "clip_norm", "ema")))
    message = refusal(refuse_other_orders, group, dataset, other, FP32)
    assert "; optimizer.clip_norm: 0.0 and 0.5; and 1 more)" in message


def test_another_dataset_is_refused_but_a_copy_is_not(
    group: Group, dataset: Dataset, tiny: Tiny, tmp_path: Path
) -> None:
    refuse_other_orders(group, dataset, tiny(), FP32)
    own = "training.max_tokens_per_device=100"
    refuse_other_orders(group, replace(dataset, folder=tmp_path), tiny(own), FP32)
    files: dict[str, Any] = dict(dataset.manifest["files"])
    files["train.source.tokens.npy"] = files["train.target.tokens.npy"]
    other = replace(dataset, manifest={**dataset.manifest, "files": files})
    message = refusal(refuse_other_orders, group, other, tiny(), FP32)
    assert re.search(r"0 and 2 differ \(dataset: SHA-256 \w+ and SHA-256 \w+\). Start", message)


def test_a_checkpoint_that_a_rank_does_not_see_or_sees_differently_is_refused(
    group: Group, tmp_path: Path
) -> None:
    for _ in range(2):
        refuse_other_checkpoints(group, None, SAME)
    group = cast(Group, Gathered())
    state = tmp_path / "state.json"
    for content in ("1", "1", "2", None):
        state.unlink() if content is None else state.write_text(content)
        if content == "1":
            refuse_other_checkpoints(group, tmp_path, SAME)
            continue
        message = refusal(refuse_other_checkpoints, group, tmp_path, SAME)
        assert re.search(
            rf"0 and 2 differ \(state.json: SHA-256 \w+ and (SHA-256 \w+|{state} is missing)\)\. {SAME}",
            message,
        )
        cast(Any, group).values.pop()


def test_a_state_that_is_a_pipe_does_not_block(group: Group, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "state.json")
    refuse_other_checkpoints(group, tmp_path, SAME)  # reading it reports the problem
