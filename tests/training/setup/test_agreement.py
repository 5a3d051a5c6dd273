"""Ranks with different settings: each raises one line that names the differences."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from nmt_cli.data.dataset import Dataset
from nmt_cli.errors import UserError
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.setup.agreement import refuse_other_checkpoints, refuse_other_orders
from nmt_cli.training.step.distributed import Group


class Gathered:
    """Plays the group on one rank after the other. `gather` returns all values so far."""

    def __init__(self) -> None:
        self.message: list[Mapping[str, str]] = []

    def gather(self, thing: Mapping[str, str]) -> Sequence[Mapping[str, str]]:
        self.message.append(thing)
        return self.message


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
    group: Group, dataset: Dataset, tiny: Callable[..., TrainConfig], assignment: str, message: str
) -> None:
    for _ in range(2):
        refuse_other_orders(group, dataset, tiny())
    with pytest.raises(UserError) as caught:
        refuse_other_orders(group, dataset, tiny(assignment))
    assert str(caught.value) == (
        f"processes 0 and 2 differ {message}; start all of them with the same command, on the same dataset."
    )


def test_of_many_differences_some_are_named(
    group: Group, dataset: Dataset, tiny: Callable[..., TrainConfig]
) -> None:
    refuse_other_orders(group, dataset, tiny())
    other = tiny(*(f"optimizer.{name}=0.5" for name in ("beta1", "beta2", "epsilon", "clip_norm", "ema")))
    with pytest.raises(UserError, match=r"epsilon: 1e-09 and 0.5; and 2 more\)"):
        refuse_other_orders(group, dataset, other)


def test_another_dataset_is_refused_and_the_same_elsewhere_is_not(
    group: Group, dataset: Dataset, tiny: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    refuse_other_orders(group, dataset, tiny())
    own = "training.max_tokens_per_device=100"
    refuse_other_orders(group, replace(dataset, folder=tmp_path), tiny(own))
    files: dict[str, Any] = dict(dataset.manifest["files"])
    files["train.source.tokens.npy"] = files["train.target.tokens.npy"]
    other = replace(dataset, manifest={**dataset.manifest, "files": files})
    with pytest.raises(UserError, match=r"0 and 2 differ \(dataset: SHA-256 \w+ and SHA-256 \w+\); start"):
        refuse_other_orders(group, other, tiny())


def test_a_checkpoint_that_one_does_not_see_or_sees_otherwise_is_refused(
    group: Group, tmp_path: Path
) -> None:
    for _ in range(2):
        refuse_other_checkpoints(group, None)
    group = cast(Group, Gathered())
    state = tmp_path / "state.json"
    for content in ("1", "1", "2", None):
        state.unlink() if content is None else state.write_text(content)
        if content == "1":
            refuse_other_checkpoints(group, tmp_path)
            continue
        with pytest.raises(
            UserError, match=rf"0 and 2 differ \({state}: SHA-256 \w+ and (SHA-256 \w+|missing)\)"
        ):
            refuse_other_checkpoints(group, tmp_path)
        cast(Any, group).message.pop()


def test_a_state_that_is_a_pipe_is_not_waited_for(group: Group, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "state.json")
    refuse_other_checkpoints(group, tmp_path)  # reading it reports the problem
