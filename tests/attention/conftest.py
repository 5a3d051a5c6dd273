"""Random ragged batches, and the device of the fused kernels: a GPU or Triton's interpreter."""

import os
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt_cli.attention.attention_options import PLAIN, Options
from nmt_cli.attention.groups import grouped
from nmt_cli.attention.projections import Heads
from nmt_cli.ragged import Layout

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is imported

Batch = tuple[tuple[Tensor, Tensor, Tensor], Layout, Layout]
MakeBatch = Callable[..., Batch]
Differentiate = Callable[..., list[Tensor]]


def fused_attend(
    q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor, q: Layout, k: Layout, options: Options = PLAIN
) -> Tensor:
    """Compute attention by the fused kernels. The arguments are those of `plain_attention.attend`."""
    from nmt_cli.attention import gpu_attention

    return gpu_attention.attend_projected(*projected(q_THK, k_SHK, v_SHV), q, k, options)


def projected(q_THK: Tensor, k_SHK: Tensor, v_SHV: Tensor) -> tuple[list[Tensor], Heads]:
    """Return queries, keys and values as projections, the first arguments of `attend_projected`."""
    heads = Heads(q_THK.shape[1], q_THK.shape[2], v_SHV.shape[2])
    return [x.flatten(1) for x in (q_THK, k_SHK, v_SHV)], heads


@pytest.fixture(scope="session")
def device() -> str:
    """Return the device on which fused attention is tested: a GPU if there is one, else the CPU."""
    return "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def random_ragged() -> Callable[..., Batch]:
    """Return a function that makes random queries, keys and values with their layouts. Without `k_lengths`,
    queries and keys have the same layout."""

    def make(
        q_lengths: Sequence[int],
        k_lengths: Sequence[int] | None = None,
        *,
        heads: int = 2,
        d_k: int = 16,
        d_v: int = 16,
        dtype: torch.dtype = torch.float64,
        device: str = "cpu",
    ) -> Batch:
        partner = None if k_lengths is None else Layout.of(k_lengths)
        q = grouped(Layout.of(q_lengths), partner).to(device)
        k = partner.to(device) if partner else q
        chosen = torch.Generator().manual_seed(1)
        shapes = [(len(q.segments), heads, d_k), (len(k.segments), heads, d_k), (len(k.segments), heads, d_v)]
        drawn = [torch.randn(shape, generator=chosen, dtype=torch.float64) for shape in shapes]
        queries, keys, values = (x.to(device, dtype).requires_grad_() for x in drawn)
        return (queries, keys, values), q, k

    return make


@pytest.fixture
def differentiate() -> Callable[..., list[Tensor]]:
    """Return a function that returns the output of `attend` in `dtype`, and then the gradients."""

    def run(
        attend: Callable[..., Tensor], batch: Batch, dtype: torch.dtype | None = None, **settings: Any
    ) -> list[Tensor]:
        tensors, q, k = batch
        inputs = [x.detach().to(dtype or x.dtype).requires_grad_() for x in tensors]
        out = attend(*inputs, q, k, Options(**settings))
        chosen = torch.Generator().manual_seed(2)
        d_out = torch.randn(out.shape, generator=chosen, dtype=torch.float64)
        rounded = d_out.to(tensors[0]).to(out.dtype)
        return [out.detach(), *torch.autograd.grad(out, inputs, rounded)]

    return run


@pytest.fixture(autouse=True)
def _unplanned() -> None:
    """Forget the plans of earlier tests, which may have had other limits."""
    if find_spec("triton"):
        from nmt_cli.attention import gpu_attention

        gpu_attention._kept.cache_clear()


def stream_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, compute segments of any length in blocks."""
    from nmt_cli.attention import gpu_attention

    monkeypatch.setattr(gpu_attention, "LARGEST_TILE", 0)
    gpu_attention._kept.cache_clear()


@pytest.fixture
def streaming_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """During the test, compute segments of any length in blocks."""
    stream_all(monkeypatch)
    yield
