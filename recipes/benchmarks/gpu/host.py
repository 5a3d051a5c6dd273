"""Time the host's part of attention, of a step and of the loader, with kernels that do nothing. No GPU is
needed.

python -m recipes.benchmarks.gpu.host OUT.json [--repeats 300]
"""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import click
import numpy as np
import torch

from nmt_cli.attention import attention as any_attention
from nmt_cli.attention import gpu_attention
from nmt_cli.attention.attention_options import Options
from nmt_cli.attention.groups import Groups, grouped
from nmt_cli.attention.projections import Heads
from nmt_cli.data.batching.batch import Rounding
from nmt_cli.data.batching.loader import Cut, Loader, prepare
from nmt_cli.data.batching.schedule import GlobalBatch
from nmt_cli.data.dataset import Sentences, Split
from nmt_cli.loss import chunked_loss, gpu_row_losses
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.pointwise import relu_and_dropout as pointwise
from nmt_cli.ragged import Layout
from nmt_cli.training.step import flat
from recipes.benchmarks.gpu.step import local_batch, micro_batches, trainer
from recipes.benchmarks.gpu.stubs import stubbed_triton
from recipes.benchmarks.lengths import wmt_like

NARROW = ModelConfig(width=16, feed_forward=16, heads=2)
"""As many layers as base. Its operations take next to no time besides the host's."""

LENGTHS = np.full(40, 28)


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--repeats", default=300, show_default=True, help="Calls of attention per measurement.")
def main(out: Path, repeats: int) -> None:
    """Measure, print and write OUT."""
    torch.set_num_threads(1)
    with stubbed_triton():
        turns = max(3, repeats // 30)
        measured: dict[str, Any] = {"attention_us": attention(repeats)}
        measured["step_ms"] = {
            name: step(turns, compiled=name == "compiled") for name in ("eager", "compiled")
        }
        measured["loader_ms"] = {f"{world} ranks": loader(world) for world in (1, 8)}
    print(json.dumps(measured, indent=1))
    out.write_text(json.dumps(measured, indent=1))


def attention(repeats: int) -> dict[str, float]:
    """Return microseconds of one layer's causal self-attention in bf16: of the operators, as compiled code
    calls them, and of eager passes through the layers of an encoder."""
    layout, heads = grouped(Layout.of(LENGTHS)), Heads(8, 64, 64)
    size = len(layout.segments)
    packed = [
        torch.randn(size, 3 * 512, dtype=torch.bfloat16).requires_grad_()
        for _ in range(NARROW.encoder_layers)
    ]
    d_out = torch.randn(size, 8, 64, dtype=torch.bfloat16)

    def attend_all() -> list[torch.Tensor]:
        options = Options(causal=True)
        return [gpu_attention.attend_projected([x], heads, layout, layout, options) for x in packed]

    def both() -> None:
        torch.autograd.grad(attend_all(), packed, [d_out] * len(packed))

    groups = layout.groups
    assert isinstance(groups, Groups)
    batch = [groups.counts, groups.ranges, layout.mask_keys, layout.segments, layout.positions]
    rest = [packed[0].detach()], heads, batch, True, 0, 0.0, None
    forward, backward = torch.ops.nmt.attend, torch.ops.nmt.attend_backward
    lse = torch.ops.nmt.attend(*rest)[1]
    with torch.no_grad():
        result = {
            "forward": _best(lambda: forward.default(*rest), repeats),
            "backward": _best(lambda: backward.default(d_out, lse, *rest), repeats),
        }
    result["eager forward"] = _best(attend_all, repeats) / len(packed)
    result["eager forward and backward"] = _best(both, repeats) / len(packed)
    return {name: round(1e6 * seconds, 1) for name, seconds in result.items()}


def step(repeats: int, *, compiled: bool) -> float:
    """Return milliseconds of a step of a narrow model with the layers of base: eager, or by Inductor's code
    for a CPU, whose kernels and matrix products do nothing either."""
    part = micro_batches(500, None, 97)[1]
    with as_on_a_gpu() as stack:
        if compiled:
            from torch._inductor import config
            from torch._inductor.async_compile import AsyncCompile
            from torch._inductor.select_algorithm import extern_kernels

            stack.enter_context(patch.object(AsyncCompile, "cpp_pybinding", lambda *_, **__: lambda *_: None))
            # oneDNN takes longer to start a product than a GPU's library.
            for product in "mm", "addmm":
                stack.enter_context(patch.object(extern_kernels, product, lambda *_, out, **__: out))
            stack.enter_context(config.patch({"cpp.simdlen": 1, "fx_graph_cache": False}))
        one = trainer(NARROW, 97, compiled, torch.device("cpu"))
        take = lambda: one.step(1, 1e-4, local_batch(part), cast(Loader, None))  # noqa: E731
        return round(1e3 * _best(take, repeats), 2)


def loader(world: int) -> float:
    """Return milliseconds that the thread of the loader computes for a batch of 25,000 tokens per side, with
    lengths as in WMT, of which rank 0 of `world` gets its share. So long can it hold Python's lock, for which
    the thread of the step may wait."""
    pairs = wmt_like()[:100_000]
    pairs = pairs[pairs.sum(1).argsort()]
    words = np.random.default_rng(1).integers(4, 97, pairs.sum(), dtype=np.uint16)
    split = Split("train", "train", *(Sentences(words, np.concatenate(([0], x.cumsum()))) for x in pairs.T))
    ends = pairs.max(1).cumsum().searchsorted(np.arange(1, 40) * 25_000).tolist()
    batches = [GlobalBatch(0, 0, np.arange(*both), 0) for both in pairwise(ends)]
    cut = Cut(0, world, 50_000, Rounding.of(25_000 // world))
    seconds = _best(lambda: [prepare(split, batch, cut) for batch in batches], 1)
    return round(1e3 * seconds / len(batches), 2)


def as_on_a_gpu() -> ExitStack:
    """Return a context in which all kernels are chosen as on a GPU. Use it within `stubbed_triton`."""
    stack = ExitStack()
    stack.enter_context(patch.object(any_attention, "implementation", lambda *_: "fused"))
    stack.enter_context(patch.object(pointwise, "usable", lambda *_: True))
    rows = gpu_row_losses.rows, chunked_loss.CHUNK_ON_GPU, gpu_row_losses.UNIT
    stack.enter_context(patch.object(chunked_loss, "_implementation", lambda _: rows))
    stack.enter_context(patch.object(flat, "has_own_memory", lambda _: True))
    return stack


def _best(call: Callable[[], object], repeats: int, rounds: int = 6) -> float:
    """Return the seconds of processor time of a call: the best mean of several rounds."""
    call()
    best = float("inf")
    for _ in range(rounds):
        began = time.thread_time()
        for _ in range(repeats):
            call()
        best = min(best, (time.thread_time() - began) / repeats)
    return best


if __name__ == "__main__":
    main()
