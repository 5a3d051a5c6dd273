"""How many tokens fit a device: halves of a rank's share, until one is worked on."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.data.batching.batch import MicroBatch
from nmt_cli.data.config import BatchConfig
from nmt_cli.errors import UserError
from nmt_cli.ragged import Layout
from nmt_cli.training.step.fitting import HEADROOM, fitting_tokens
from nmt_cli.training.step.trainer import Trainer

BATCH = BatchConfig(tokens=1000, longest=50)


@dataclass
class Device:
    """Stands for a trainer on a device with room for so many tokens."""

    room: int
    error: Exception = field(default_factory=lambda: torch.OutOfMemoryError("made up"))
    tried: list[MicroBatch] = field(default_factory=list)
    precision: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(device=torch.device("cpu")))

    def try_out(self, batch: MicroBatch) -> None:
        self.tried.append(batch)
        if batch.real_source_tokens + batch.real_target_tokens > self.room:
            raise self.error


def fitting(device: Device, share: int, batch: BatchConfig = BATCH) -> int:
    return fitting_tokens(cast(Trainer, device), share, batch)


def test_a_share_that_fits_is_taken_whole() -> None:
    assert fitting(device := Device(room=800), 800) == 800
    assert len(device.tried) == 1


@pytest.mark.parametrize(("room", "halves"), [(798, 1), (399, 1), (398, 2), (199, 2), (99, 3)])
def test_a_share_that_does_not_fit_is_halved_until_it_does_and_some_room_left(room: int, halves: int) -> None:
    assert fitting(device := Device(room), 800) == int(800 // 2**halves * HEADROOM)
    assert len(device.tried) == halves + 1


def test_what_is_tried_are_the_longest_pairs_there_may_be() -> None:
    fitting(device := Device(room=400), 800)
    for batch, pairs in zip(device.tried, (8, 4), strict=True):
        assert batch.source.lengths.tolist() == [50] * (pairs - 1) + [49]
        assert batch.target.lengths.tolist() == [50] * pairs


def test_a_share_shorter_than_one_pair_is_tried_with_one() -> None:
    assert fitting(device := Device(room=100), 7) == 100
    assert [batch.target.lengths.tolist() for batch in device.tried] == [[50]]


def test_a_pair_that_fits_nowhere_is_refused_with_its_length() -> None:
    with pytest.raises(UserError, match="a pair of 50 tokens on each side does not fit the memory of cpu"):
        fitting(Device(room=98), 800)


def test_an_error_of_another_kind_is_not_hidden() -> None:
    with pytest.raises(RuntimeError, match="no such instruction"):
        fitting(Device(0, RuntimeError("no such instruction")), 800)


@pytest.mark.slow
def test_what_was_compiled_for_the_trial_serves_the_batches_of_training(identity: Identity) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(identity.build(), backend="eager", dynamic=True, fullgraph=True)
    fitting(device := Device(room=10_000), 800)
    (trial,) = device.tried
    sizes = [([5, 9, 18], [7, 3, 14]), ([8, 1, 1, 6], [2, 9, 9, 4]), ([8, 8], [8, 8])]
    layouts = [(trial.source, trial.target), *([Layout.of(side, 32) for side in both] for both in sizes)]
    with torch._dynamo.config.patch(error_on_recompile=True):
        for source, target in layouts:
            ids = [torch.zeros(len(side.segments), dtype=torch.int64) for side in (source, target)]
            compiled(*ids, source, target)
    torch._dynamo.reset()
