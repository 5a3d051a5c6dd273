"""Recorded launches: a tape of PyTorch's operations stands for a GPU, which repeats them as they were."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from nmt_cli.attention import dispatch
from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.data.batches.batch import MicroBatch
from nmt_cli.data.batches.loader import Loader, LocalBatch
from nmt_cli.loss import chunked
from nmt_cli.loss.reference import IGNORED
from nmt_cli.machine.replay import Recorder
from nmt_cli.ragged import Layout
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.step import flat, graphs
from nmt_cli.training.step.distributed import Group, Process
from nmt_cli.training.step.graphs import Graphs, Record
from nmt_cli.training.step.optimizer import Optimizer
from nmt_cli.training.step.trainer import MixedPrecision, Trainer, seed_everything
from tests.launches import Strict, Tape

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is imported

CPU = torch.device("cpu")
REAL = torch.ones(3)
LONGEST = 8

LENGTHS = (([5, 3], [1, 6]), ([4, 4], [3, 4]), ([3, 5], [6, 1]), ([1, 7], [4, 3]))
"""Of sources and targets: different ones, of as many tokens."""


def recorder(all_gradients: Callable[[], Tensor]) -> Record:
    """As a GPU does it: what is recorded is not done."""

    def record(work: Callable[[], None]) -> Callable[[], None]:
        before = all_gradients().clone()
        with torch.random.fork_rng(), Tape() as tape:
            work()
        all_gradients().copy_(before)

        def again() -> None:
            tape.again()

        return again

    return record


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
    pairs = np.arange(len(sources))
    return MicroBatch(pairs, source_T, target_T, labels, source.grouped(), target.grouped(source), *counts)


@pytest.fixture
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(dispatch, "implementation", lambda *_: "fused")
    monkeypatch.setattr(flat, "has_own_memory", lambda _: True)
    yield


@pytest.fixture
def trainer(identity: Identity, tiny: Callable[..., TrainConfig]) -> Callable[..., Trainer]:
    """The same weights each time, all kinds of dropout; with `record`, launches are recorded."""

    def trainer(record: Record | None = None, tell: Callable[[str], None] = print) -> Trainer:
        config = tiny()
        shape = replace(identity.config, residual_dropout=0.1, embedding_dropout=0.1, attention_dropout=0.2)
        torch.manual_seed(1)
        model = replace(identity, config=shape).build()
        recorded = Graphs(model, record, tell) if record else None
        group = Group(Process(), CPU, 1.0)
        return Trainer(
            model,
            Optimizer(model, config.optimizer),
            config,
            MixedPrecision("fp32", CPU),
            group,
            model,
            recorded,
        )

    return trainer


def work(trainer: Trainer, part: MicroBatch, seed: int, *, first: bool = True) -> Tensor:
    """The gradients and losses after a micro-batch."""
    seed_everything(seed)
    trainer._forward_backward(part, 10 + seed, first=first)
    return trainer.gradients.all.clone()


@pytest.mark.slow
@pytest.mark.usefixtures("_as_on_a_gpu")
def test_launches_that_are_repeated_with_other_contents_give_what_plain_ones_give(
    trainer: Callable[..., Trainer],
) -> None:
    recordings: list[Trainer] = []
    plain, repeating = trainer(), trainer(recorder(lambda: recordings[0].gradients.all))
    recordings.append(repeating)
    for number, lengths in enumerate(LENGTHS):
        part = micro_batch(*lengths, seed=number)
        first = number == 0  # the others add to what is there
        for each in (plain, repeating):
            each._refresh()
        expected, found = (work(each, part, number, first=first) for each in (plain, repeating))
        assert torch.equal(found, expected), number
        for each in (plain, repeating):  # recorded launches read the weights of their time
            each._update(0.01, torch.ones(()), torch.zeros(()))
    assert repeating._graphs is not None
    assert [graph.again is not None for graph in repeating._graphs._graphs.values()] == [False, True]


def test_only_so_many_recordings_are_kept_and_the_least_used_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graphs, "MOST", 2)
    seen: list[Callable[[], None]] = []

    def record(work: Callable[[], None]) -> Callable[[], None]:
        seen.append(work)
        return work

    recorded = Graphs(torch.nn.Identity(), record, print)
    parts = [micro_batch([3, n], [2, n], seed=n) for n in (1, 2, 3)]

    def run(*numbers: int) -> int:
        seen.clear()
        for number in numbers:
            recorded.run(lambda *_: None, parts[number], torch.ones(()), True)
        return len(seen)

    assert run(0, 0, 0, 1, 1, 0) == 2
    assert run(2) == 0  # takes the place of 1
    assert run(0, 2, 0, 2) == 1
    assert run(1, 1) == 1
    recorded.forget()
    assert run(1, 1, 1) == 1


def test_where_recording_fails_one_line_tells_it_and_training_goes_on() -> None:
    def failing(work: Callable[[], None]) -> Callable[[], None]:
        raise RuntimeError("operation not permitted when stream is capturing\nmore of it")

    told: list[str] = []
    seen: list[tuple[list[int], float, bool]] = []
    recorded = Graphs(torch.nn.Identity(), failing, told.append)
    parts = [micro_batch(*lengths, seed=number) for number, lengths in enumerate(LENGTHS)]
    for number, part in enumerate(parts):
        recorded.run(
            lambda part, factor, first: seen.append((part.target_tokens.tolist(), factor.item(), first)),
            *(part, torch.tensor(float(number)), number == 2),
        )
    assert seen == [(part.target_tokens.tolist(), number, number == 2) for number, part in enumerate(parts)]
    assert told == [
        "training.graphs is off from here on, since launches could not be recorded: "
        "operation not permitted when stream is capturing"
    ]


def test_want_of_memory_gives_up_what_was_recorded(
    trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, part = trainer(lambda work: work), micro_batch(*LENGTHS[0], seed=1)
    monkeypatch.setattr(one, "_work", lambda *_: None)
    for seed in (1, 2):
        work(one, part, seed)
    assert one._graphs is not None and one._graphs._graphs
    failing = [torch.OutOfMemoryError("CUDA out of memory.")]

    def once(*_: object) -> None:
        raise failing.pop()

    monkeypatch.setattr(one, "_work", once)
    batch = LocalBatch(0, 0, [part, micro_batch([3], [2], seed=2)], 4, 14, 12, 0)
    halving = type("Halving", (), {"halved": lambda self, step: replace(batch, micro_batches=[])})()
    one._share(1, batch, cast(Loader, halving))
    assert not failing and not one._graphs._graphs


def on_device(part: MicroBatch) -> MicroBatch:
    """As it comes from the loader: fakes of the device; what plans attention stays real."""
    there = part.to("meta")
    made = [torch.empty_like(x, device=CPU) if x.is_meta else x for x in graphs._tensors(there)]
    places = {id(x): fake for x, fake in zip(graphs._tensors(there), made, strict=True)}

    def fake(thing: Any) -> Any:
        if isinstance(thing, Tensor):
            return places[id(thing)]
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
    config, real = tiny(), micro_batch(*LENGTHS[0], seed=1)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = replace(identity, config=shape).build()
        optimizer, group = Optimizer(model, config.optimizer), Group(Process(), CPU, 1.0)
        one = Trainer(model, optimizer, config, MixedPrecision(precision, CPU), group, model)
        part, factor = on_device(real), torch.ones(())
        with Strict():
            one._refresh()
            for first in (True, False):
                one._work(part, factor, first)
            for clip in ("0", "1"):
                one.config = tiny(f"optimizer.clip_norm={clip}")
                norm, losses = one._summed()
                one._update(1e-3, norm, (~(norm.isfinite() & losses.isfinite().all())).float())


def test_the_walk_over_chunks_of_the_loss_waits_for_nothing() -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        x, weight, targets = torch.empty(10, 4), torch.empty(7, 4), torch.zeros(10, dtype=torch.int64)
        given = (x, weight, targets, 0.1, torch.ones(()), True, True)
        with Strict():
            chunked.walk(*given, rows=lambda *_: None, chunk=4, unit=8)


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
def test_what_waits_is_noticed(wrong: Callable[[Tensor], object]) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.ones(3)
        with Strict(), pytest.raises((AssertionError, RuntimeError)):
            wrong(x)


@pytest.mark.gpu
def test_a_gpu_gives_with_repeated_launches_what_it_gives_with_plain_ones(
    identity: Identity, tiny: Callable[..., TrainConfig]
) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    device, told, trainers = torch.device("cuda"), list[str](), list[Trainer]()
    shape = replace(identity.config, residual_dropout=0.1, attention_dropout=0.2)
    for recorder in (None, Recorder()):
        torch.manual_seed(1)
        model = replace(identity, config=shape).build().to(device)
        recorded = Graphs(model, recorder, told.append) if recorder else None
        optimizer, precision = Optimizer(model, tiny().optimizer), MixedPrecision("fp32", device)
        group = Group(Process(), device, 1.0)
        trainers.append(Trainer(model, optimizer, tiny(), precision, group, model, recorded))
    for number in range(6):
        part = micro_batch(*LENGTHS[number % len(LENGTHS)], seed=number).to(device)
        expected, found = (work(each, part, number, first=number != 4) for each in trainers)
        assert (found - expected).norm() <= 1e-6 * expected.norm(), number
        for each in trainers:
            each._update(0.01, torch.ones((), device=device), torch.zeros((), device=device))
    assert not told
