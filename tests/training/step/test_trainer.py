"""A step against plain float64 autograd on the whole batch, and steps that fail."""

import hashlib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.data.batching.batch import Rounding, assemble
from nmt_cli.data.batching.loader import Cut, Loader, LocalBatch, prepare
from nmt_cli.data.batching.planner import EveryPairOnce
from nmt_cli.data.batching.schedule import Batches, GlobalBatch
from nmt_cli.data.config import BatchConfig
from nmt_cli.data.dataset import Dataset, Split
from nmt_cli.loss.chunked_loss import cross_entropy
from nmt_cli.model.transformer import Transformer
from nmt_cli.training.step import trainer as step_module
from nmt_cli.training.step.distributed import Group, Process
from nmt_cli.training.step.optimizer import Optimizer
from nmt_cli.training.step.trainer import MixedPrecision, Trainer, seed_everything
from tests.checks import differing, refusal
from tests.training.runs import Tiny, flat

CPU = torch.device("cpu")
PAIRS = np.arange(3, 27)
WHOLE = Cut(0, 1, 10**6)
SMOOTH = "optimizer.epsilon=0.01"
"""With a large epsilon, gradients that agree to rounding give weights that agree to rounding."""

Forward = Callable[..., Tensor]
New = Callable[[], Transformer]
NewTrainer = Callable[..., Trainer]


@pytest.fixture(scope="module")
def split(dataset: Dataset) -> Split:
    return dataset.splits["train"]


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory, split: Split) -> Iterator[Loader]:
    """Return a loader, which halves steps."""
    plan = EveryPairOnce(len(split), BatchConfig(), seed=1)
    batches = Batches(split, plan, tmp_path_factory.mktemp("plan"), planner=True)
    with closing(Loader(batches, WHOLE, CPU)) as loader:
        yield loader


def cut(split: Split, how: Cut = WHOLE) -> LocalBatch:
    return prepare(split, GlobalBatch(0, 0, PAIRS, 0), how)


@pytest.fixture(scope="module")
def new_trainer(identity: Identity, tiny: Tiny) -> NewTrainer:
    """Return a function that makes a trainer of a new model, with settings of `tiny`.

    `spoil` turns the model into the forward pass. `drop` is the probability of all dropouts.
    """

    def new_trainer(
        *settings: str,
        spoil: Callable[[Transformer], Forward] | None = None,
        precision: str = "fp32",
        rank: int = 0,
        drop: float = 0.0,
    ) -> Trainer:
        names = ("residual", "attention", "activation")
        drops: dict[str, Any] = {f"{name}_dropout": drop for name in names}
        torch.manual_seed(1)
        model = replace(identity, config=replace(identity.config, **drops)).build()
        config, group = tiny(*settings), Group(Process(rank=rank), CPU, 1.0)
        forward = spoil(model) if spoil else model
        optimizer = Optimizer(model, config.optimizer)
        return Trainer(model, optimizer, config, MixedPrecision(precision, CPU), group, forward)

    return new_trainer


def r_drop_settings(weight: float) -> list[str]:
    """Return the settings of R-Drop, which needs dropout in the settings too. Return [] for weight 0."""
    return [f"loss.r_drop={weight}", "model.residual_dropout=0.1"] if weight else []


def by_definition(
    model: Transformer, split: Split, smoothing: float, r_drop: float = 0.0
) -> tuple[float, float, Tensor]:
    """Return in float64 the sums of smoothed loss and NLL over PAIRS, and the gradient of the mean loss."""
    exact = deepcopy(model).double()
    exact.zero_grad()
    seed_everything(1, 1)  # the dropout masks of step 1
    whole = assemble(split, PAIRS, draws=2 if r_drop else 1)
    targets = assemble(split, PAIRS).target_tokens
    decoded = exact(whole.source_tokens, whole.target_tokens, whole.source, whole.target)
    logits = exact.logits(decoded)
    log_ps = logits.log_softmax(-1).view(-1, len(targets), logits.shape[-1])
    log_p = log_ps.mean(0)
    nll = -log_p[torch.arange(len(targets)), targets].sum()
    smoothed = (1 - smoothing) * nll - smoothing * log_p.mean(-1).sum()
    if r_drop:
        divergences = [F.kl_div(q, p, log_target=True, reduction="sum") for p, q in (log_ps, log_ps.flip(0))]
        smoothed = smoothed + r_drop / 4 * sum(divergences)
    (smoothed / len(targets)).backward()  # type: ignore[no-untyped-call]  # untyped in torch
    gradients = [parameter.grad.flatten() for parameter in exact.parameters() if parameter.grad is not None]
    return smoothed.item(), nll.item(), torch.cat(gradients)


def assert_as_defined(trainer: Trainer, measured: Tensor, exact: tuple[float, float, Tensor]) -> None:
    smoothed, nll, gradient = exact
    assert measured[:2].tolist() == pytest.approx([smoothed, nll], rel=1e-6)
    assert measured[2].item() == pytest.approx(gradient.norm().item(), rel=1e-5)
    assert (trainer.gradients.flat - gradient).norm() < 3e-6 * gradient.norm()
    assert measured[3:].tolist() == [0.0, 1.0]


@settings(max_examples=10)
@given(
    max_tokens=st.integers(1, 1500),
    unit=st.sampled_from([0, 4, 16]),
    smoothing=st.sampled_from([0.0, 0.1]),
    drops=st.sampled_from([(0.0, 0.0), (0.2, 0.0), (0.2, 3.0)]),
)
def test_a_step_is_float64_autograd_on_the_whole_batch_however_it_is_cut(
    loader: Loader,
    split: Split,
    new_trainer: NewTrainer,
    max_tokens: int,
    unit: int,
    smoothing: float,
    drops: tuple[float, float],
) -> None:
    drop, r_drop = drops
    trainer = new_trainer(f"loss.smoothing={smoothing}", *r_drop_settings(r_drop), drop=drop)
    exact = by_definition(trainer.model, split, smoothing, r_drop)
    how = Cut(0, 1, max_tokens, Rounding(unit) if unit else None, trainer.config.loss.draws)
    step = cut(split, how)
    assert_as_defined(trainer, trainer.step(1, 0.0, step, loader), exact)


@pytest.mark.parametrize(("drop", "r_drop"), [(0.0, 0.0), (0.3, 0.0), (0.3, 5.0)])
def test_the_shares_of_three_ranks_sum_up_to_the_step_of_one(
    loader: Loader, split: Split, new_trainer: NewTrainer, drop: float, r_drop: float
) -> None:
    trainers = [new_trainer(*r_drop_settings(r_drop), rank=rank, drop=drop) for rank in range(3)]
    exact = by_definition(trainers[0].model, split, 0.1, r_drop)
    shares = [cut(split, Cut(rank, 3, 200, draws=2 if r_drop else 1)) for rank in range(3)]
    measured = [trainer.step(1, 0.0, share, loader) for trainer, share in zip(trainers, shares, strict=True)]
    losses = torch.stack(measured).sum(0)[:2].tolist()
    assert losses == pytest.approx(exact[:2], rel=1e-6)
    gradient = torch.stack([trainer.gradients.flat for trainer in trainers]).sum(0)
    assert (gradient - exact[2]).norm() < 3e-6 * exact[2].norm()


def test_a_rank_without_a_pair_adds_nothing(loader: Loader, split: Split, new_trainer: NewTrainer) -> None:
    trainer = new_trainer()
    step = cut(split, Cut(30, 31, 200))
    assert step.micro_batches == []
    assert trainer.step(1, 0.0, step, loader).tolist() == [0, 0, 0, 0, 1]
    assert not trainer.gradients.flat.any()


class Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's class is untyped
    """Counts operations by name."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **kwargs or {})


def test_on_a_gpu_gradients_are_added_by_one_operation(
    split: Split, new_trainer: NewTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (part,) = cut(split).micro_batches
    trainers, counts = [], []
    for gpu in (False, True):
        monkeypatch.setattr("nmt_cli.training.step.flat.has_own_memory", lambda device, gpu=gpu: gpu)
        trainer = new_trainer()
        for first in (True, False):
            with Calls() as calls:
                trainer._forward_backward(part, part.real_target_tokens, first=first)
            counts.append(calls.counts)
        trainers.append(trainer)
    assert torch.equal(trainers[0].gradients.all, trainers[1].gradients.all)
    parameters = len([*trainers[0].model.parameters()])
    assert counts[2]["_foreach_copy_"] == counts[3]["_foreach_add_"] == 1
    assert counts[1]["add_"] - counts[3]["add_"] == parameters + 1  # and the losses
    assert not counts[2]["zero_"]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("changed", [{}, {"attention_bias": True, "decoder_history": "ssru"}], ids=str)
def test_copies_in_half_precision_equal_autocast_bit_by_bit(
    split: Split, identity: Identity, tiny: Tiny, precision: str, changed: dict[str, Any]
) -> None:
    other = replace(identity, config=replace(identity.config, residual_dropout=0.2, **changed))
    torch.manual_seed(1)
    model, config = other.build(), tiny()
    autocast, step = deepcopy(model), cut(split, Cut(0, 1, 300))
    group, fused = Group(Process(), CPU, 1.0), Optimizer(model, config.optimizer)
    trainer = Trainer(model, fused, config, MixedPrecision(precision, CPU), group, model)
    assert len(step.micro_batches) > 2
    for number in (1, 2):  # the second step has other weights
        autocast.load_state_dict(model.state_dict())
        autocast.zero_grad()
        trainer._add_gradients(number, step, cast(Loader, None))
        for part in step.micro_batches:
            seed_everything(config.training.seed, number)
            with trainer.precision.autocast():
                decoded = autocast(part.source_tokens, part.target_tokens, part.source, part.target)
                features = autocast.projected(decoded.to(trainer.precision.dtype))
                factor = trainer.scale.scale / step.target_tokens
                smoothed, _ = cross_entropy(*features, part.labels, smoothing=0.1, grad_scale=factor)
            smoothed.backward(factor)  # type: ignore[no-untyped-call]  # untyped in torch
        views = trainer.optimizer.parameters.views(trainer.gradients.flat)
        for (name, parameter), gradient in zip(autocast.named_parameters(), views, strict=True):
            assert parameter.grad is not None and torch.equal(gradient, parameter.grad), name
        trainer._update(0.01, torch.ones(()), torch.zeros(()))


def test_gradients_and_losses_are_summed_over_the_ranks_at_once(
    loader: Loader, split: Split, new_trainer: NewTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = new_trainer()
    summed: list[Tensor] = []
    monkeypatch.setattr(trainer.group, "sum", summed.append)
    measured = trainer.step(1, 0.0, cut(split), loader)
    assert [tensor.numel() for tensor in summed] == [flat(trainer.model).numel() + 2]
    assert torch.equal(summed[0][-2:], measured[:2])


class Sabotage:
    """The model with a fault in some calls, counted from 1."""

    def __init__(self, model: Transformer, calls: set[int]) -> None:
        self.model, self.calls, self.count = model, calls, 0

    def __call__(self, *inputs: object) -> Tensor:
        self.count += 1
        out: Tensor = self.model(*inputs)
        return self.spoil(out) if self.count in self.calls else out

    def spoil(self, out: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory.")


class InBackward(Sabotage):
    def spoil(self, out: Tensor) -> Tensor:
        out.register_hook(self.fail)  # type: ignore[no-untyped-call]  # untyped in torch
        return out

    def fail(self, gradient: Tensor) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")


class OfTheMachine(Sabotage):
    def spoil(self, out: Tensor) -> Tensor:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to")


@pytest.mark.parametrize("kind", [Sabotage, InBackward, OfTheMachine], ids=["forward", "backward", "host"])
@pytest.mark.parametrize("calls", [{1}, {3}, {4}, {2, 4, 9}], ids=str)
def test_running_out_of_memory_does_not_change_the_step(
    loader: Loader, split: Split, new_trainer: NewTrainer, kind: type[Sabotage], calls: set[int]
) -> None:
    undisturbed, disturbed = new_trainer(SMOOTH), new_trainer(SMOOTH, spoil=partial(kind, calls=calls))
    forward = cast(Sabotage, disturbed._forward)
    step = cut(split, Cut(0, 1, 300))
    assert len(step.micro_batches) == 4
    for number in (1, 2):
        expected, actual = (trainer.step(number, 0.01, step, loader) for trainer in (undisturbed, disturbed))
        assert actual.tolist() == pytest.approx(expected.tolist(), rel=2e-6)
        difference = disturbed.gradients.flat - undisturbed.gradients.flat
        assert difference.norm() < 3e-6 * undisturbed.gradients.flat.norm()
    assert forward.count > 8 + max(calls) // 4
    assert (flat(disturbed.model) - flat(undisturbed.model)).abs().max() < 1e-6


class Small(Sabotage):
    """A device whose memory holds `tokens` target tokens."""

    def __init__(self, model: Transformer, tokens: int) -> None:
        super().__init__(model, set())
        self.tokens = tokens

    def __call__(self, *inputs: object) -> Tensor:
        if isinstance(inputs[1], Tensor) and len(inputs[1]) > self.tokens:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().__call__(*inputs)


def test_micro_batches_are_halved_until_they_fit(
    loader: Loader, split: Split, new_trainer: NewTrainer
) -> None:
    trainer = new_trainer(spoil=partial(Small, tokens=60))
    exact = by_definition(trainer.model, split, 0.1)
    assert_as_defined(trainer, trainer.step(1, 0.0, cut(split), loader), exact)


def test_a_pair_that_does_not_fit_ends_the_run_in_one_line(
    loader: Loader, split: Split, new_trainer: NewTrainer
) -> None:
    trainer = new_trainer(spoil=partial(Small, tokens=10))
    before = flat(trainer.model)
    assert refusal(trainer.step, 7, 0.1, cut(split), loader) == (
        "a single pair does not fit the memory of cpu in step 7. Lower batch.longest, or use a smaller model."
    )
    assert torch.equal(flat(trainer.model), before)


def test_an_error_other_than_a_lack_of_memory_is_raised(
    loader: Loader, split: Split, new_trainer: NewTrainer
) -> None:
    def broken(*_: object) -> Tensor:
        raise RuntimeError("expected all tensors on one device")

    with pytest.raises(RuntimeError, match="on one device"):
        new_trainer(spoil=lambda model: broken).step(1, 0.1, cut(split), loader)


class LossSpoilt(Sabotage):
    """A loss that is nan."""

    def spoil(self, out: Tensor) -> Tensor:
        return out * torch.nan


class GradientSpoilt(Sabotage):
    """A finite loss with an infinite gradient."""

    def spoil(self, out: Tensor) -> Tensor:
        out.register_hook(self.blow_up)  # type: ignore[no-untyped-call]  # untyped in torch
        return out

    def blow_up(self, gradient: Tensor) -> Tensor:
        return gradient * torch.inf


@pytest.mark.parametrize("kind", [LossSpoilt, GradientSpoilt], ids=["loss", "gradient"])
@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["optimizer.clip_norm=1.0"],
        ["optimizer.kind=adamw", "optimizer.weight_decay=0.1"],
        ["optimizer.kind=muon"],
    ],
    ids=["plain", "clipped", "decayed", "muon"],
)
@pytest.mark.parametrize("bad", [1, 3], ids="step {}".format)
def test_a_step_that_is_not_finite_is_left_out_and_marked(
    loader: Loader, split: Split, new_trainer: NewTrainer, kind: type[Sabotage], settings: list[str], bad: int
) -> None:
    step = cut(split, Cut(0, 1, 600))
    assert len(step.micro_batches) == 2
    trainer = new_trainer(*settings, spoil=partial(kind, calls={2 * bad}))
    model = trainer.model
    for number in range(1, bad):
        assert trainer.step(number, 0.01, step, loader)[3] == 0
    weights = flat(model)
    state = {name: t.clone() for name, t in trainer.optimizer.tensors().items()}
    measured = trainer.step(bad, 0.01, step, loader)
    assert measured[3] == 1
    assert measured[:2].isfinite().all() == (kind is GradientSpoilt)
    assert torch.equal(flat(model), weights)
    assert not differing(trainer.optimizer.tensors(), state)
    assert trainer.step(bad + 1, 0.01, step, loader)[3] == 0
    assert flat(model).isfinite().all()
    assert not torch.equal(flat(model), weights)
    steps = {float(t) for name, t in trainer.optimizer.tensors().items() if name.endswith("step")}
    assert steps == {float(bad)}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("share", [0.5, 2.0], ids=["a longer gradient", "a shorter gradient"])
def test_only_longer_gradients_are_scaled_down_to_the_norm(
    loader: Loader, split: Split, new_model: New, new_trainer: NewTrainer, share: float, precision: str
) -> None:
    norm = by_definition(new_model(), split, 0.1)[2].norm().item()
    trainer = new_trainer(f"optimizer.clip_norm={share * norm}", precision=precision)
    measured = trainer.step(1, 0.0, cut(split), loader)
    rough = 1e-2 if precision == "fp16" else 1e-5
    assert measured[2].item() == pytest.approx(norm, rel=rough)
    applied = trainer.gradients.flat.norm()  # the optimiser divides by the scale
    assert applied.item() == pytest.approx(min(share, 1.0) * norm, rel=rough)


def test_a_step_uses_its_learning_rate(loader: Loader, split: Split, new_trainer: NewTrainer) -> None:
    small, large = new_trainer(SMOOTH), new_trainer(SMOOTH)
    before = flat(small.model)
    small.step(1, 0.001, cut(split), loader)
    large.step(1, 0.01, cut(split), loader)
    ratio = (flat(large.model) - before).norm() / (flat(small.model) - before).norm()
    assert ratio.item() == pytest.approx(10.0, rel=1e-3)


def test_random_numbers_follow_from_seed_and_step_alone(
    loader: Loader, split: Split, new_trainer: NewTrainer
) -> None:
    step = cut(split, Cut(0, 1, 600))
    seen: list[float] = []

    def looking(model: Transformer) -> Forward:
        def forward(*inputs: object) -> Tensor:
            seen.append(torch.rand(()).item())
            out: Tensor = model(*inputs)
            return out

        return forward

    def draws(seed: int, rank: int, number: int) -> list[float]:
        """Return the first random number of each micro-batch of a step."""
        trainer = new_trainer(f"training.seed={seed}", spoil=looking, rank=rank)
        torch.rand(number)
        seen.clear()
        trainer.step(number, 0.0, step, loader)
        return list(seen)

    steps = list(product((1, 2), (0, 1), (1, 2, 11)))
    actual = {each: draws(*each) for each in steps}
    assert all(actual[seed, 0, number] == actual[seed, 1, number] for seed, _, number in steps)
    assert all(first == second for first, second in actual.values())
    assert len({first for first, _ in actual.values()}) == 6
    assert {each: draws(*each) for each in reversed(steps)} == actual


def test_seeding_draws_as_pytorchs_own_and_prints_no_call_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = int.from_bytes(hashlib.sha256(b"(1, 7)").digest()[:8], "little")
    torch.manual_seed(seed)
    expected, on_gpus = torch.rand(3), list[int]()
    # PyTorch prints the stack for each kind of device that has not started.
    monkeypatch.setattr(traceback, "format_stack", lambda: pytest.fail("a call stack is printed"))
    seed_everything(1, 7)
    assert torch.equal(torch.rand(3), expected)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", on_gpus.append)
    seed_everything(1, 7)
    assert on_gpus == [seed]


@pytest.mark.parametrize(("precision", "error"), [("bf16", 0.02), ("fp16", 0.003)])
def test_a_step_in_half_precision_is_the_same_step_but_rougher(
    loader: Loader, split: Split, new_trainer: NewTrainer, precision: str, error: float
) -> None:
    exact, rough = new_trainer(SMOOTH), new_trainer(SMOOTH, precision=precision)
    before = flat(exact.model)
    expected, actual = (trainer.step(1, 0.01, cut(split), loader) for trainer in (exact, rough))
    assert actual[:3].tolist() == pytest.approx(expected[:3].tolist(), rel=error)
    assert actual[4] == (step_module.FIRST_SCALE if precision == "fp16" else 1.0)
    difference = (flat(rough.model) - flat(exact.model)).norm()
    assert 0 < difference < 2 * error * (flat(exact.model) - before).norm()
    assert all(parameter.dtype == torch.float32 for parameter in rough.model.parameters())


def test_an_overflow_in_fp16_is_a_step_left_out_and_a_smaller_scale(
    loader: Loader, split: Split, new_trainer: NewTrainer
) -> None:
    trainer = new_trainer(spoil=partial(GradientSpoilt, calls={1}), precision="fp16")
    model, before = trainer.model, flat(trainer.model)
    assert trainer.step(1, 0.01, cut(split), loader)[3:].tolist() == [1, step_module.FIRST_SCALE]
    assert torch.equal(flat(model), before)
    assert trainer.step(2, 0.01, cut(split), loader)[3:].tolist() == [0, step_module.FIRST_SCALE / 2]
    assert not torch.equal(flat(model), before)
