"""The host never waits for the GPU between the forward pass and the gradients of a step."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from nmt_cli.attention import attention
from nmt_cli.attention.groups import grouped
from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.data.batching.batch import MicroBatch
from nmt_cli.data.batching.loader import Loader, LocalBatch
from nmt_cli.loss import chunked_loss
from nmt_cli.loss.plain_loss import IGNORED
from nmt_cli.model import keyed_dropout
from nmt_cli.model.pointwise import plain_relu_and_dropout
from nmt_cli.ragged import Layout
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.step import flat
from nmt_cli.training.step.distributed import Group, Process
from nmt_cli.training.step.optimizer import Optimizer
from nmt_cli.training.step.trainer import MixedPrecision, Trainer
from tests.launches import Strict

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is imported

CPU = torch.device("cpu")
REAL = torch.ones(3)
LONGEST = 8

LENGTHS = (([5, 3], [1, 6]), ([4, 4], [3, 4]), ([3, 5], [6, 1]), ([1, 7], [4, 3]))
"""Different lengths of sources and targets with the same sum."""


def micro_batch(
    sources: Sequence[int], targets: Sequence[int], seed: int, longest: int = LONGEST
) -> MicroBatch:
    draw = torch.Generator().manual_seed(seed)
    source, target = (Layout.of(lengths, longest) for lengths in (sources, targets))
    source_T, target_T = (
        torch.randint(3, 9, (len(layout.segments),), generator=draw) for layout in (source, target)
    )
    labels = target_T.clone()
    labels[-targets[-1] :] = IGNORED
    counts = len(source_T), len(target_T) - targets[-1]
    pairs, links = np.arange(len(sources)), torch.zeros((2, 3), dtype=torch.int64)
    layouts = grouped(source), grouped(target, source)
    return MicroBatch(pairs, source_T, target_T, labels, *layouts, *counts, links)


@pytest.fixture
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(attention, "implementation", lambda *_: "fused")
    monkeypatch.setattr(keyed_dropout, "dropped", plain_relu_and_dropout.dropped)
    monkeypatch.setattr(flat, "has_own_memory", lambda _: True)
    yield


def on_device(part: MicroBatch) -> MicroBatch:
    """Return a micro-batch with fake device tensors and real host tensors that plan attention."""
    there = part.to("meta")

    def fake(thing: Any) -> Any:
        if isinstance(thing, Tensor):
            return torch.empty_like(thing, device=CPU) if thing.is_meta else thing
        if not is_dataclass(thing) or isinstance(thing, type):
            return thing
        return replace(thing, **{field.name: fake(getattr(thing, field.name)) for field in fields(thing)})

    faked: MicroBatch = fake(there)
    return faked


@pytest.mark.usefixtures("_as_on_a_gpu")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"decoder_history": "ssru", "activation": "gelu"},
        {"norm": "pre", "positions": "learned", "longest": 16},
    ],
    ids=str,
)
def test_nothing_waits_for_the_device_from_forward_to_gradients(
    identity: Identity, tiny: Callable[..., TrainConfig], precision: str, changed: dict[str, Any]
) -> None:
    shape = replace(identity.config, residual_dropout=0.1, attention_dropout=0.2, **changed)
    guided = "training.guided_alignment=0.1"
    config, real = tiny(guided), micro_batch(*LENGTHS[0], seed=1)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = replace(identity, config=shape).build()
        optimizer, group = Optimizer(model, config.optimizer), Group(Process(), CPU, 1.0)
        one = Trainer(model, optimizer, config, MixedPrecision(precision, CPU), group, model)
        part = on_device(real)
        batch = LocalBatch(0, 0, [part, part], pairs=4, source_tokens=10, target_tokens=10, dropped=0)
        for clip in ("0", "1"):
            one.config = tiny(guided, f"optimizer.clip_norm={clip}")
            with Strict():
                one.step(1, 1e-3, batch, cast(Loader, None))


@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
@pytest.mark.parametrize("kind", ["adam", "muon"])
def test_no_optimiser_waits_for_the_device(
    identity: Identity, tiny: Callable[..., TrainConfig], kind: str, scaled: bool
) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        optimizer = Optimizer(identity.build(), tiny(f"optimizer.kind={kind}").optimizer)
        gradients, bad = torch.zeros_like(optimizer.parameters.vector), torch.zeros(())
        with Strict():
            optimizer.step(gradients, 1e-3, bad, torch.ones(()) if scaled else None)


def test_the_walk_over_chunks_of_the_loss_waits_for_nothing() -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        x, weight, targets = torch.empty(10, 4), torch.empty(7, 4), torch.zeros(10, dtype=torch.int64)
        arguments = (x, weight, targets, 0.1, torch.ones(()), True, True)
        with Strict():
            chunked_loss.walk(*arguments, rows=lambda *_: None, chunk=4, unit=8)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x.sum().item(),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x * torch.tensor(2.0, device=x.device),
        lambda x: x + REAL,
        lambda x: bool(x.any()),
    ],
    ids=["item", "nonzero", "masked", "constant", "host", "bool"],
)
def test_an_operation_that_waits_is_detected(wrong: Callable[[Tensor], object]) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.ones(3)
        with Strict(), pytest.raises((AssertionError, RuntimeError)):
            wrong(x)
