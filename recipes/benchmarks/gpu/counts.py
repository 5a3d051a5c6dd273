"""What a step of the plain model asks of a GPU, counted without one: operations, and the bytes they touch.

python -m recipes.benchmarks.gpu.counts [base|big|toy] [--tokens 25000] [--residual-stream bf16]

Nothing is computed: tensors have a shape and no content. Operations are those of PyTorch, eager, before a
compiler fuses any; the attention and the loss are one each, whatever they launch.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Literal, cast
from unittest.mock import patch

import click
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from nmt_cli.attention import dispatch as attention
from nmt_cli.data.loader import Loader
from nmt_cli.model import embedding, layers
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.pointwise import dispatch as pointwise
from nmt_cli.model.transformer import Transformer
from nmt_cli.text.vocabulary import Vocabulary
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.step import flat
from nmt_cli.training.step.distributed import Group, Process
from nmt_cli.training.step.optimizer import Optimizer
from nmt_cli.training.step.trainer import MixedPrecision, Trainer
from recipes.benchmarks.gpu.step import ENTRIES, SIZES, _batches, _local

GB = 1e9

Stream = Literal["fp32", "bf16"]


class Counted(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's class is untyped
    """Operations by name, and the bytes of what they read and write, views not counted."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        result = func(*args, **kwargs or {})
        name = func.overloadpacket.__name__
        if not func.is_view and not name.startswith(
            ("empty", "new_empty", "detach", "device", "set_", "split")
        ):
            self.operations[name] += 1
            touched = pytree.tree_leaves((args, kwargs, result))
            self.bytes[name] += sum(x.numel() * x.element_size() for x in touched if isinstance(x, Tensor))
        return result


@click.command()
@click.argument("size", type=click.Choice(list(SIZES)), default="base")
@click.option("--tokens", default=25_000, show_default=True, help="Of each side of a batch.")
@click.option("--residual-stream", type=click.Choice(["fp32", "bf16"]), default="fp32", show_default=True)
def main(size: str, tokens: int, residual_stream: Stream) -> None:
    """Print the counts of the micro-batch of a step, forward, loss and backward, and of what is done once."""
    print(json.dumps(counts(size, tokens, residual_stream), indent=1))


def counts(size: str, tokens: int, residual_stream: Stream = "fp32") -> dict[str, Any]:
    """Of the one micro-batch of a step in bf16, as a GPU would be given it."""
    part = _batches(tokens, None, ENTRIES[size])[1]
    with _as_on_a_gpu(), FakeTensorMode(allow_non_fake_inputs=True):
        one = _trainer(replace(SIZES[size], residual_stream=residual_stream), ENTRIES[size])
        with Counted() as counted:
            one._forward_backward(part, part.real_target_tokens, first=True)
        with Counted() as once:
            one.step(1, 1e-3, replace(_local(part), micro_batches=[]), cast(Loader, None))
    return {
        "size": size,
        "tokens": tokens,
        "operations": counted.operations.total(),
        "GB": round(counted.bytes.total() / GB, 2),
        "once a step": {
            "operations": once.operations.total(),
            "GB": round(once.bytes.total() / GB, 2),
        },
        "by name": {
            name: {"operations": count, "GB": round(counted.bytes[name] / GB, 3)}
            for name, count in counted.operations.most_common()
        },
    }


@contextmanager
def _as_on_a_gpu() -> Iterator[None]:
    """What is chosen by device is what a GPU would be given."""
    with ExitStack() as stack:
        for room in (attention, pointwise):
            stack.enter_context(patch.object(room, "implementation", lambda *_: "fused"))
        for module in (layers, embedding, pointwise):
            stack.enter_context(patch.object(module, "dropout", _dropout))
        stack.enter_context(patch.object(flat, "has_own_memory", lambda _: True))
        yield


def _dropout(x: Tensor, probability: float, training: bool) -> Tensor:
    return torch.native_dropout(x, probability, True)[0] if probability and training else x


def _trainer(shape: ModelConfig, size: int) -> Trainer:
    entries = Vocabulary(("",) * size, end=0, start=0, unknown=1)
    model = Transformer(shape, entries, entries, joint=True)
    config, cpu = TrainConfig(model=shape), torch.device("cpu")
    precision, group = MixedPrecision("bf16", cpu), Group(Process(), cpu, 60)
    return Trainer(model, Optimizer(model, config.optimizer), config, precision, group, model)


if __name__ == "__main__":
    main()
