"""What a step of the plain model asks of a GPU, counted without one: operations, and the bytes they touch.

python -m recipes.benchmarks.gpu.counts [base|big|toy] [--tokens 25000] [--residual-stream bf16]
python -m recipes.benchmarks.gpu.counts [attention|search]

Nothing is computed: tensors have a shape and no content. Operations are those of PyTorch, eager, before a
compiler fuses any; the attention and the loss are one each, whatever they launch: what the attention does is
counted by `attention`.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Literal, cast
from unittest.mock import patch

import click
import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from nmt_cli.attention import dispatch, fused
from nmt_cli.attention.cached import Masked, Rows, Seen
from nmt_cli.data.batching.filler import Rounding
from nmt_cli.data.batching.loader import Loader
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.engine import LOOK_EVERY
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.search import steppers
from nmt_cli.decoding.search.hypotheses import Sentence
from nmt_cli.decoding.search.search import Search
from nmt_cli.model import cache, embedding, layers
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.pointwise import dispatch as pointwise
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout
from nmt_cli.text.vocabulary import Vocabulary
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.step import flat
from nmt_cli.training.step.distributed import Group, Process
from nmt_cli.training.step.optimizer import Optimizer
from nmt_cli.training.step.trainer import MixedPrecision, Trainer
from recipes.benchmarks.gpu.step import ENTRIES, SIZES, _batches, _local
from recipes.benchmarks.lengths import batches, wmt_like

GB = 1e9
WIDTH = 64
"""Channels of a head."""

OF_LOGITS = ("log_softmax", "_log_softmax", "amax", "topk", "to", "_to_copy")
"""What reads or writes all logits of a step; what bans or picks some of them touches a few."""

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
@click.argument("size", type=click.Choice([*SIZES, "attention", "search"]), default="base")
@click.option("--tokens", default=25_000, show_default=True, help="Of each side of a batch.")
@click.option("--residual-stream", type=click.Choice(["fp32", "bf16"]), default="fp32", show_default=True)
def main(size: str, tokens: int, residual_stream: Stream) -> None:
    """Print the counts of the micro-batch of a step, forward, loss and backward, and of what is done once; or
    what attention alone launches, or a step of search."""
    if size == "attention":
        told: dict[str, Any] = attention(tokens)
    else:
        told = search() if size == "search" else counts(size, tokens, residual_stream)
    print(json.dumps(told, indent=1))


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
        for room in (dispatch, pointwise):
            stack.enter_context(patch.object(room, "implementation", lambda *_: "fused"))
        for module in (layers, embedding, pointwise):
            stack.enter_context(patch.object(module, "dropout", _dropout))
        stack.enter_context(patch.object(flat, "has_own_memory", lambda _: True))
        yield


def _dropout(x: Tensor, probability: float, training: bool) -> Tensor:
    return torch.native_dropout(x, probability, True)[0] if probability and training else x


def attention(tokens: int) -> dict[str, dict[str, Any]]:
    """Of a layer's attention in batches with lengths as in WMT: launches, and how full their tiles are.

    Heads are of 64 channels in 16 bits. Filler is among the segments, and rows of queries and keys count
    alike.
    """
    told: dict[str, dict[str, Any]] = {}
    for name, pairs in batches(wmt_like(), tokens).items():
        filler = Rounding.of(tokens).dummies(pairs[:, 0], pairs[:, 1])
        both = (np.concatenate((pairs[:, side], filler[side])) for side in (0, 1))
        source, target = (Layout.of(lengths) for lengths in both)
        cases = {"self": (source, source), "causal": (target, target), "cross": (target, source)}
        told |= {f"{name} {case}": _launches(*sides) for case, sides in cases.items()}
    return told


def _launches(q: Layout, k: Layout) -> dict[str, Any]:
    groups = q.grouped(k).pair_groups
    assert groups is not None
    tiles, blocks = fused.plan(groups.counts, WIDTH, torch.bfloat16.itemsize)
    in_tiles = sum(tile.groups for tile in tiles)
    filled = int(groups.places.view(-1, 2)[: 2 * in_tiles, 1].sum())
    return {
        "forward": len(tiles) + (1 if blocks else 0),
        "backward": len(tiles) + (2 if blocks else 0),
        "groups": in_tiles,
        "filled": round(filled / sum(2 * tile.groups * tile.options["TILE"] for tile in tiles), 2),
        "streamed": blocks.groups if blocks else 0,
    }


def search(beam: int = 4, steps: int = 16) -> dict[str, Any]:
    """A step of beam search with six layers in bf16: as on a GPU, of fixed shape, attention and its end
    a kernel each; so, but by every log-probability; and as on a CPU.

    A narrow model has as many operations as a wide one, and for each logit the same bytes.
    """
    return {
        "as on a CPU": _search(beam, steps, Masked, 1),
        "as on a GPU, all log-probabilities": _search(beam, steps, _Launched, LOOK_EVERY, few=False),
        "as on a GPU": _search(beam, steps, _Launched, LOOK_EVERY),
    }


def _search(beam: int, steps: int, attention: type, look_every: int, few: bool = True) -> dict[str, Any]:
    entries, sentences = Vocabulary(("",) * 2000, end=0, start=0, unknown=1), 8
    shape = ModelConfig(width=64, feed_forward=64, heads=2)
    torch.manual_seed(1)
    model = Transformer(shape, entries, entries, joint=True).eval().bfloat16()
    config = SearchConfig(beam=beam, min_length=steps + 1)
    one = Search(Ensemble.of([model], config), config, look_every)
    one.join([Sentence(key, [5] * (key + 3)) for key in range(sentences)])
    with ExitStack() as stack:
        stack.enter_context(patch.object(cache, "seen_by", partial(_seen_by, attention)))
        stack.enter_context(patch.object(dispatch, "_compiled", lambda *_: None))
        stack.enter_context(patch.object(steppers, "likeliest", _likeliest))
        if not few:
            one._steppers = one._steppers[-1:]
        counted = stack.enter_context(Counted())
        for _ in range(steps):
            one.step()
    logits = sentences * beam * len(entries) * steps
    return {
        "operations": round(counted.operations.total() / steps, 1),
        "bytes a logit": round(sum(counted.bytes[name] for name in OF_LOGITS) / logits, 2),
        "by name": {name: round(count / steps, 1) for name, count in counted.operations.most_common()},
    }


def _likeliest(logits_RV: Tensor, count: int, *_: Tensor) -> tuple[Tensor, Tensor]:
    """Stands for the kernel: one operation that reads them once."""
    best, tokens = torch.topk(logits_RV, count)
    return best.float(), tokens


class _Launched:
    """Stands for the kernel, which needs a GPU: one operation, and its result has no content."""

    @staticmethod
    def attend(query_RHK: Tensor, keys_BHMK: Tensor, values_BHMV: Tensor) -> Tensor:
        """See `Seen`."""
        return query_RHK.new_zeros(len(query_RHK), query_RHK.shape[1] * values_BHMV.shape[3])


def _seen_by(kind: type, rows: Rows, seen_BNM: Tensor, dtype: torch.dtype, widths: tuple[int, int]) -> Seen:
    return Masked.of(rows, seen_BNM, dtype, 0) if kind is Masked else _Launched()


def _trainer(shape: ModelConfig, size: int) -> Trainer:
    entries = Vocabulary(("",) * size, end=0, start=0, unknown=1)
    model = Transformer(shape, entries, entries, joint=True)
    config, cpu = TrainConfig(model=shape), torch.device("cpu")
    precision, group = MixedPrecision("bf16", cpu), Group(Process(), cpu, 60)
    return Trainer(model, Optimizer(model, config.optimizer), config, precision, group, model)


if __name__ == "__main__":
    main()
