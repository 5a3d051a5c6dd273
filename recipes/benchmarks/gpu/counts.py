"""Count the operations of a step on a GPU, and the bytes they touch, without a GPU.

python -m recipes.benchmarks.gpu.counts [base|big|toy] [--tokens 25000]
python -m recipes.benchmarks.gpu.counts [attention|search]

Nothing is computed: tensors have a shape and no content. Operations are those of eager PyTorch, before a
compiler fuses any. Attention and loss count as one operation each. `attention` counts launches of attention.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, cast
from unittest.mock import patch

import click
import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from nmt_cli.attention import attention as any_attention
from nmt_cli.attention import gpu_attention
from nmt_cli.attention.groups import groups_of
from nmt_cli.data.batching.batch import Rounding
from nmt_cli.data.batching.loader import Loader
from nmt_cli.decoding.batch import LOOK_EVERY
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.search.hypotheses import Sentence
from nmt_cli.decoding.search.search import Search
from nmt_cli.model import embedding, layers
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.pointwise import relu_and_dropout as pointwise
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout
from nmt_cli.text.vocabulary import Vocabulary
from nmt_cli.training.step import flat
from recipes.benchmarks.gpu.step import ENTRIES, SIZES, local_batch, micro_batches, trainer
from recipes.benchmarks.lengths import batches, wmt_like

GB = 1e9
WIDTH = 64
"""Channels per head."""

OF_LOGITS = ("log_softmax", "_log_softmax", "amax", "topk", "to", "_to_copy")
"""Operations that read or write all logits of a step."""


class Counted(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's class is untyped
    """Count operations by name, and the bytes that they read and write, without views."""

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
@click.option("--tokens", default=25_000, show_default=True, help="Tokens of each side of a batch.")
def main(size: str, tokens: int) -> None:
    """Print the counts of a training step, of attention, or of a step of search."""
    if size == "attention":
        result: dict[str, Any] = attention(tokens)
    else:
        result = search() if size == "search" else counts(size, tokens)
    print(json.dumps(result, indent=1))


def counts(size: str, tokens: int) -> dict[str, Any]:
    """Return counts for a micro-batch in bf16, forward and backward, and for the work once per step."""
    part = micro_batches(tokens, None, ENTRIES[size])[1]
    with _as_on_a_gpu(), FakeTensorMode(allow_non_fake_inputs=True):
        one = trainer(SIZES[size], ENTRIES[size], device=torch.device("cpu"))
        with Counted() as counted:
            one._forward_backward(part, part.real_target_tokens, first=True)
        with Counted() as once:
            one.step(1, 1e-3, replace(local_batch(part), micro_batches=[]), cast(Loader, None))
    return {
        "size": size,
        "tokens": tokens,
        "operations": counted.operations.total(),
        "GB": round(counted.bytes.total() / GB, 2),
        "once a step": {"operations": once.operations.total(), "GB": round(once.bytes.total() / GB, 2)},
        "by name": {
            name: {"operations": count, "GB": round(counted.bytes[name] / GB, 3)}
            for name, count in counted.operations.most_common()
        },
    }


@contextmanager
def _as_on_a_gpu() -> Iterator[None]:
    """Until the block ends, choose kernels as if there was a GPU."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(any_attention, "implementation", lambda *_: "fused"))
        stack.enter_context(patch.object(pointwise, "usable", lambda *_: True))
        for module in (layers, embedding):
            stack.enter_context(patch.object(module, "dropout", _dropout))
        stack.enter_context(patch.object(flat, "has_own_memory", lambda _: True))
        yield


def _dropout(x: Tensor, probability: float, training: bool, layout: Layout | None) -> Tensor:
    return torch.native_dropout(x, probability, True)[0] if probability and training else x


def attention(tokens: int) -> dict[str, dict[str, Any]]:
    """Return kernel launches of a layer's attention with lengths as in WMT, and the filled share of their
    tiles. Heads have 64 channels in 16 bits. Filler counts as segments. Rows of keys count like rows of
    queries."""
    result: dict[str, dict[str, Any]] = {}
    for name, pairs in batches(wmt_like(), tokens).items():
        filler = Rounding.of(tokens).dummies(pairs[:, 0], pairs[:, 1])
        both = (np.concatenate((pairs[:, side], filler[side])) for side in (0, 1))
        source, target = (Layout.of(lengths) for lengths in both)
        cases = {"self": (source, source), "causal": (target, target), "cross": (target, source)}
        result |= {f"{name} {case}": _launches(*sides) for case, sides in cases.items()}
    return result


def _launches(q: Layout, k: Layout) -> dict[str, Any]:
    groups = groups_of(q, k)
    tiles, blocks = gpu_attention.plan(
        groups.counts.tolist(), WIDTH, torch.bfloat16.itemsize, shared=227 << 10
    )
    in_tiles = sum(tile.groups for tile in tiles)
    filled = int(groups.ranges.view(-1, 2)[: 2 * in_tiles, 1].sum())
    return {
        "forward": len(tiles) + (1 if blocks else 0),
        "backward": len(tiles) + (2 if blocks else 0),
        "groups": in_tiles,
        "filled": round(filled / sum(2 * tile.groups * tile.options["TILE"] for tile in tiles), 2),
        "streamed": blocks.groups if blocks else 0,
    }


def search(beam: int = 4, steps: int = 16) -> dict[str, Any]:
    """Return counts for a step of beam search with six layers in bf16, as on a CPU and as on a GPU. A narrow
    model has the same number of operations as a wide model, and the same bytes per logit."""
    return {
        "as on a CPU": _search(beam, steps, any_attention.PART, 1),
        "as on a GPU": _search(beam, steps, {}, LOOK_EVERY),
    }


def _search(beam: int, steps: int, part: dict[str, int], look_every: int) -> dict[str, Any]:
    entries, sentences = Vocabulary(("",) * 2000, end=0, start=0, unknown=1), 8
    shape = ModelConfig(width=64, feed_forward=64, heads=2)
    torch.manual_seed(1)
    model = Transformer(shape, entries, entries, joint=True).eval().bfloat16()
    config = SearchConfig(beam=beam, min_length=steps + 1)
    one = Search(Ensemble([model]), config, look_every)
    one.join([Sentence(key, [5] * (key + 3)) for key in range(sentences)])
    with ExitStack() as stack:
        stack.enter_context(patch.object(any_attention, "PART", part))
        counted = stack.enter_context(Counted())
        for _ in range(steps):
            one.step()
    logits = sentences * beam * len(entries) * steps
    return {
        "operations": round(counted.operations.total() / steps, 1),
        "bytes a logit": round(sum(counted.bytes[name] for name in OF_LOGITS) / logits, 2),
        "by name": {name: round(count / steps, 1) for name, count in counted.operations.most_common()},
    }


if __name__ == "__main__":
    main()
