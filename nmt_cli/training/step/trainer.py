"""Takes one step: sums gradients over micro-batches and ranks, and updates the weights.

A rank cuts its share of a global batch into micro-batches that fit its memory. A step whose losses or
gradients are not finite is left out: it changes no weight.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from nmt_cli.attention.guided_alignment import alignment_loss
from nmt_cli.data.batching.batch import MicroBatch
from nmt_cli.data.batching.loader import Loader, LocalBatch
from nmt_cli.errors import UserError
from nmt_cli.loss.chunked_loss import cross_entropy
from nmt_cli.model.transformer import GUIDED_HEAD, DecoderLayer, Transformer
from nmt_cli.runtime.devices import autocast, is_gpu
from nmt_cli.runtime.kernels.torch_private import update_loss_scale
from nmt_cli.runtime.memory import MEMORY_ERRORS, out_of_memory, release_unused
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.step.distributed import Group
from nmt_cli.training.step.flat import Gradients, Halves
from nmt_cli.training.step.optimizer import Optimizer

SCALE, GOOD_STEPS = "loss_scale", "loss_scale.good_steps"
FIRST_SCALE, GROWTH_STEPS = 2.0**15, 2000


@dataclass(frozen=True, slots=True)
class MixedPrecision:
    """The format of matrix products: fp32, tf32, bf16 or fp16. Weights, sums and the loss are always fp32."""

    name: str
    device: torch.device

    def autocast(self) -> AbstractContextManager[object]:
        """Return a context in which matrix products use this format. On a GPU, choose between fp32 and tf32
        for the whole process."""
        if is_gpu(self.device):
            torch.set_float32_matmul_precision("high" if self.name == "tf32" else "highest")
        return autocast(self.device, self.dtype)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the factors of matrix products."""
        return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.name, torch.float32)


class LossScale:
    """The dynamic loss scale of fp16, else 1. The scale stays on the device, so the host never waits."""

    def __init__(self, precision: MixedPrecision) -> None:
        self.active = precision.name == "fp16"
        """Whether training needs a loss scale, without which small gradients would become 0."""

        self.scale = torch.full((), FIRST_SCALE if self.active else 1.0, device=precision.device)
        self.good_steps = torch.zeros((), dtype=torch.int32, device=precision.device)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that a checkpoint stores, by name. If training is not in fp16, return {}."""
        return {SCALE: self.scale, GOOD_STEPS: self.good_steps} if self.active else {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the loss scale from `tensors`. If this run or `tensors` has none, do nothing."""
        if self.active and SCALE in tensors:
            self.scale.copy_(tensors[SCALE])
            self.good_steps.copy_(tensors[GOOD_STEPS])

    def update(self, bad: Tensor) -> None:
        """In fp16, halve the scale if `bad` is 1, and double it after `GROWTH_STEPS` good steps in a row."""
        if self.active:
            update_loss_scale(self.scale, self.good_steps, bad, GROWTH_STEPS)


class GuidedHead:
    """The head of attention to the source that learns alignments.

    Attention computes no weights that could be compared with alignments. So this class records the queries
    and keys of the head in each forward pass of training, and computes the weights from them.
    """

    def __init__(self, model: Transformer) -> None:
        """Record `GUIDED_HEAD` of the last decoder layer from now on."""
        cross = cast(DecoderLayer, model.decoder[-1]).cross
        width, recorded = cross.heads.keys, dict[str, Tensor]()
        # In the output of `key_value`, the keys of all heads come first.
        columns = slice(GUIDED_HEAD * width, (GUIDED_HEAD + 1) * width)
        self._recorded = recorded

        def record(name: str, projection: nn.Module, inputs: object, output_TC: Tensor) -> None:
            if projection.training:
                recorded[name] = output_TC[:, columns]

        cross.query.register_forward_hook(partial(record, "query"))
        cross.key_value.register_forward_hook(partial(record, "key"))

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Forget the forward pass in the block if the block fails, for example because memory ran out. The
        head's queries and keys would keep all activations in memory."""
        try:
            yield
        except BaseException:
            self._recorded.clear()
            raise

    def loss(self, part: MicroBatch) -> Tensor:
        """Return the `alignment_loss` of the last forward pass, which was on `part`."""
        assert part.links is not None
        query_TK, key_SK = self._recorded.pop("query"), self._recorded.pop("key")
        return alignment_loss(query_TK, key_SK, part.target, part.source, part.links)


class Trainer:
    """Takes optimiser steps. Measurements stay on the device, so that the host can begin the next step."""

    def __init__(
        self,
        model: Transformer,
        optimizer: Optimizer,
        config: TrainConfig,
        precision: MixedPrecision,
        group: Group,
        forward: Callable[..., Tensor],
    ) -> None:
        """Allocate gradients, half-precision copies, loss scale. `forward` is the model, compiled or not."""
        self.model, self.optimizer, self.config = model, optimizer, config
        self.precision, self.group = precision, group
        self._halves = Halves(model, precision.dtype) if precision.dtype != torch.float32 else None
        self.gradients = Gradients(optimizer.parameters, self._halves)
        self.scale = LossScale(precision)
        self._guided_head = GuidedHead(model) if config.training.guided_alignment else None
        self._forward = forward

    def step(self, number: int, rate: float, batch: LocalBatch, loader: Loader) -> Tensor:
        """Take step `number` with the learning rate `rate` on all ranks, and return what it measured, without
        waiting for the device.

        The result is [5], on the device: smoothed loss, NLL, gradient norm, 1 if the step was left out, and
        the loss scale. Both losses are sums over the target tokens of all ranks. A step whose losses or
        gradient norm are not finite is left out.
        """
        self._add_gradients(number, batch, loader)
        # Norm and losses are sums over all ranks, so all ranks leave out the same steps.
        if self.config.training.gradient_sums == "bf16":
            self.group.sum(self.gradients.flat, torch.bfloat16)
            self.group.sum(self.gradients.losses)  # bf16 would round a loss of 100,000 by hundreds
        else:
            self.group.sum(self.gradients.all)
        losses, norm = self.gradients.losses, self.gradients.flat.norm() / self.scale.scale
        bad = (~(norm.isfinite() & losses.isfinite().all())).float()
        self._update(rate, norm, bad)
        measured = torch.stack([*losses, norm, bad, self.scale.scale])
        # Updated last, because the log has the scale that this step used.
        self.scale.update(bad)
        return measured

    def try_out(self, part: MicroBatch, *, plain: bool = False) -> tuple[Tensor, Tensor]:
        """Take a step on `part` that changes no weight. Overwrite the gradients. Return the smoothed loss per
        token and the norm of the gradients, on the device. A `plain` step does without torch.compile."""
        forward, self._forward = self._forward, self.model if plain else self._forward
        try:
            self._refresh()
            self._forward_backward(part, part.real_target_tokens, first=True)
        finally:
            self._forward = forward
        norm = self.gradients.flat.norm() / self.scale.scale
        loss = self.gradients.losses[0] / part.real_target_tokens
        one = torch.ones((), device=self.precision.device)
        self._update(0.0, one, bad=one)
        return loss, norm

    def stop_compiling(self) -> None:
        """Compute without torch.compile from now on."""
        self._forward = self.model

    def _refresh(self) -> None:
        if self._halves:
            self._halves.refresh()

    def _add_gradients(self, number: int, batch: LocalBatch, loader: Loader) -> None:
        """Set gradients and losses to the sums over this rank's micro-batches of step `number`. Without
        micro-batches, they are 0.

        If memory runs out, the whole batch is started again with halved micro-batches. Raise `UserError` if
        each already has a single pair.
        """
        self._refresh()
        if not batch.micro_batches:
            self.gradients.all.zero_()
        while True:
            try:
                for index, part in enumerate(batch.micro_batches):
                    # Every micro-batch draws the same seeds of dropout masks, which depend on the pairs too.
                    seed_everything(self.config.training.seed, number)
                    self._forward_backward(part, batch.target_tokens, first=index == 0)
                return
            except MEMORY_ERRORS as error:
                if not out_of_memory(error):
                    raise
                if len(batch.micro_batches) >= sum(len(part.pairs) for part in batch.micro_batches):
                    raise UserError(
                        f"a single pair does not fit the memory of {self.precision.device} in step {number}. "
                        "Lower batch.longest, or use a smaller model."
                    ) from error
            release_unused(self.precision.device)
            batch = loader.halved(batch)

    def _forward_backward(self, part: MicroBatch, target_tokens: int, *, first: bool) -> None:
        """Compute the gradients and losses of a micro-batch, and add them to those of the earlier ones.

        target_tokens: the target tokens of the global batch. Divided by it, gradients of all micro-batches
            and ranks add up to those of the mean loss per token, times the loss scale.
        first: overwrite the earlier ones, which belong to the step before.

        Guided alignment adds its loss to the gradients, but not to the losses.
        """
        factor = self.scale.scale / target_tokens
        halves = self._halves.in_place() if self._halves else nullcontext()
        recording = self._guided_head.recording() if self._guided_head else nullcontext()
        # Nothing below may make the host wait for the device.
        with recording, self.precision.autocast(), halves:
            decoded = self._forward(part.source_tokens, part.target_tokens, part.source, part.target)
            smoothed, nll = cross_entropy(
                *self.model.projected(decoded.to(self.precision.dtype)),
                part.labels,
                smoothing=self.config.loss.smoothing,
                r_drop=self.config.loss.r_drop,
                grad_scale=factor,
            )
        loss = smoothed
        if self._guided_head:
            weight = self.config.training.guided_alignment / self.config.loss.draws
            loss = smoothed + weight * self._guided_head.loss(part)
        self.gradients.add(loss, factor, torch.stack([smoothed.detach(), nll]), first=first)

    def _update(self, rate: float, norm: Tensor, bad: Tensor) -> None:
        """Clip the gradients, whose norm is `norm`, to optimizer.clip_norm if it is set. Then update the
        parameters, unless `bad` is 1."""
        gradients = self.gradients.flat
        if limit := self.config.optimizer.clip_norm:
            # A norm that is not finite makes the factor 0. Such a step is left out anyway.
            gradients.mul_((limit / norm.clamp(min=1e-6)).clamp(max=1.0).nan_to_num(0.0))
        self.optimizer.step(gradients, rate, bad, self.scale.scale if self.scale.active else None)


def seed_everything(*numbers: int | str) -> None:
    """Seed PyTorch on the CPU and all GPUs with a hash of `numbers`, so that no random state has to be
    saved."""
    digest = hashlib.sha256(repr(numbers).encode()).digest()
    seed = int.from_bytes(digest[:8], "little")
    # `torch.manual_seed` also seeds kinds of devices that are absent, and prints the whole call stack into a
    # text for each. That took the host 0.4 ms per micro-batch.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch has no type for it
        torch.cuda.manual_seed_all(seed)
