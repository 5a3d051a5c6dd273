"""One step: gradients of a global batch, summed over micro-batches and ranks, and the optimiser's update."""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt_cli.data.batching.batch import MicroBatch
from nmt_cli.data.batching.loader import Loader, LocalBatch
from nmt_cli.errors import UserError
from nmt_cli.loss.dispatch import cross_entropy
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.devices import autocast
from nmt_cli.runtime.kernels.torch_private import update_loss_scale
from nmt_cli.runtime.memory import LACKS, out_of_memory, release_unused
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.step.distributed import Group
from nmt_cli.training.step.flat import Gradients, Halves
from nmt_cli.training.step.optimizer import Optimizer

SCALE, GOOD_STEPS = "loss_scale", "loss_scale.good_steps"
FIRST_SCALE, GROWTH_STEPS = 2.0**15, 2000


@dataclass(frozen=True, slots=True)
class MixedPrecision:
    """The number format of matrix products; weights, sums and the loss are fp32 with any of them."""

    name: str
    device: torch.device

    def autocast(self) -> AbstractContextManager[object]:
        """The context in which each forward pass is to run."""
        return autocast(self.device, self.dtype)

    @property
    def dtype(self) -> torch.dtype:
        """What the factors of matrix products are converted to."""
        return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[self.name]

    @property
    def scaled(self) -> bool:
        """Whether small gradients would become 0 without a loss scale."""
        return self.name == "fp16"


class LossScale:
    """The dynamic loss scale of fp16; it stays on the device, so that the host never waits for it."""

    def __init__(self, precision: MixedPrecision) -> None:
        self.active = precision.scaled
        self.scale = torch.full((), FIRST_SCALE if self.active else 1.0, device=precision.device)
        self.good_steps = torch.zeros((), dtype=torch.int32, device=precision.device)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps of it."""
        return {SCALE: self.scale, GOOD_STEPS: self.good_steps} if self.active else {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `tensors` gave, if that was of a run with a loss scale."""
        if self.active and SCALE in tensors:
            self.scale.copy_(tensors[SCALE])
            self.good_steps.copy_(tensors[GOOD_STEPS])

    def update(self, bad: Tensor) -> None:
        """Halve the scale after a bad step (`bad` is 1), double it after `GROWTH_STEPS` good ones in a
        row."""
        if self.active:
            update_loss_scale(self.scale, self.good_steps, bad, GROWTH_STEPS)


class Trainer:
    """Takes optimiser steps; what it measures stays on the device, so that the host can run ahead."""

    def __init__(
        self,
        model: Transformer,
        optimizer: Optimizer,
        config: TrainConfig,
        precision: MixedPrecision,
        group: Group,
        forward: Callable[..., Tensor],
    ) -> None:
        """Make a trainer. `forward` is the model, compiled or not."""
        self.model, self.optimizer, self.config = model, optimizer, config
        self.precision, self.group = precision, group
        self._halves = Halves(model, precision.dtype) if precision.dtype != torch.float32 else None
        self.gradients = Gradients(optimizer.parameters, self._halves)
        self.scale = LossScale(precision)
        self._forward = forward

    def step(self, number: int, rate: float, batch: LocalBatch, loader: Loader) -> Tensor:
        """Take a step with learning rate `rate`, unless its gradients are not finite.

        Returns [5], on the device: sums of smoothed loss and of NLL, gradient norm, 1 if the step was left
        out, and the loss scale.
        """
        self._share(number, batch, loader)
        # Of sums over all ranks, so that all of them find the same and leave out the same steps.
        norm, losses = self._summed()
        bad = (~(norm.isfinite() & losses.isfinite().all())).float()
        self._update(rate, norm, bad)
        if self.optimizer.split:
            self.group.share_parts(self.optimizer.parameters.vector)
        measured = torch.stack([*losses, norm, bad, self.scale.scale])
        # After it was measured: what is logged is the scale of this step.
        self.scale.update(bad)
        return measured

    def try_out(self, part: MicroBatch) -> None:
        """Use as much memory as a step on `part` does, without changing a weight."""
        self._refresh()
        self._forward_backward(part, part.real_target_tokens, first=True)
        nothing = torch.ones((), device=self.precision.device)
        self._update(0.0, nothing, bad=nothing)

    def _refresh(self) -> None:
        if self._halves:
            self._halves.refresh()

    def _summed(self) -> tuple[Tensor, Tensor]:
        """The gradients' norm and the losses, over all ranks.

        The sums of the gradients are with them; of those of a split optimiser only what it updates here.
        """
        gradients, losses = self.gradients.flat, self.gradients.losses
        if not self.optimizer.split:
            self.group.sum(self.gradients.all)
            return gradients.norm() / self.scale.scale, losses
        self.group.sum_parts(gradients)
        norm = torch.linalg.vector_norm(gradients[self.optimizer.share], dtype=torch.float64)
        # One sum of three numbers, precise enough for the square root to be that of the whole.
        told = torch.cat([norm.square()[None], losses])
        self.group.sum(told)
        return told[0].sqrt().float() / self.scale.scale, told[1:].float()

    def _share(self, number: int, batch: LocalBatch, loader: Loader) -> None:
        """Add up gradients and losses of this rank's micro-batches; starts over with halves if memory runs
        out."""
        self._refresh()
        if not batch.micro_batches:
            self.gradients.all.zero_()
        while True:
            try:
                for index, part in enumerate(batch.micro_batches):
                    seed_everything(self.config.training.seed, number, self.group.process.rank, index)
                    self._forward_backward(part, batch.target_tokens, first=index == 0)
                return
            except LACKS as error:
                if not out_of_memory(error):
                    raise
                if self.config.training.deterministic:
                    raise UserError(
                        f"step {number} does not fit the memory of {self.precision.device}, and in smaller "
                        "parts it would give other bits; lower --max-tokens-per-device, or train without "
                        "--deterministic."
                    ) from error
                smaller = len(batch.micro_batches) < sum(len(part.pairs) for part in batch.micro_batches)
                if not smaller:
                    raise UserError(
                        f"a single pair does not fit the memory of {self.precision.device} in step {number}; "
                        "lower batch.longest, or take a smaller model."
                    ) from error
            release_unused(self.precision.device)
            batch = loader.halved(batch)

    def _forward_backward(self, part: MicroBatch, target_tokens: int, *, first: bool) -> None:
        """Add the gradients and losses of a micro-batch to those before it; the `first` has none."""
        # Tokens of the whole global batch: the sum over micro-batches and ranks is the gradient of its mean.
        factor = self.scale.scale / target_tokens
        # From here on the host must not wait for the device.
        with self.precision.autocast(), self._halves.in_place() if self._halves else nullcontext():
            decoded = self._forward(part.source_tokens, part.target_tokens, part.source, part.target)
            smoothed, nll = cross_entropy(
                *self.model.projected(decoded.to(self.precision.dtype)),
                part.labels,
                smoothing=self.config.loss.smoothing,
                grad_scale=factor,
            )
        self.gradients.add(smoothed, factor, torch.stack([smoothed.detach(), nll]), first=first)

    def _update(self, rate: float, norm: Tensor, bad: Tensor) -> None:
        gradients = self.gradients.flat[self.optimizer.share]
        if limit := self.config.optimizer.clip_norm:
            # Where the norm is not finite, the factor is made 0; the step is left out anyway.
            gradients.mul_((limit / norm.clamp(min=1e-6)).clamp(max=1.0).nan_to_num(0.0))
        self.optimizer.step(gradients, rate, bad, self.scale.scale if self.scale.active else None)


def seed_everything(*numbers: int | str) -> None:
    """Seed PyTorch by these numbers, so that a resumed run draws the same without any saved state."""
    digest = hashlib.sha256(repr(numbers).encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:8], "little"))
