"""The fused kernels on a GPU: bfloat16, races, waits, and real batch sizes."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt_cli.attention import padded_attention, plain_attention
from nmt_cli.attention.attention import WIDEST
from nmt_cli.attention.attention_options import Options
from tests.attention.conftest import Differentiate, MakeBatch, fused_attend

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SETTINGS: list[dict[str, Any]] = [{}, {"causal": True}, {"window": 30}, {"causal": True, "drop": 0.1}]
LENGTHS = [1, 0, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 300]


@pytest.fixture
def seed() -> Tensor:
    return torch.tensor(7, device="cuda")


def corpus(tokens: int) -> list[int]:
    """Return lengths of sentences as in a corpus, with up to `tokens` tokens in total."""
    drawn = np.random.default_rng(1).lognormal(3.0, 0.7, tokens).clip(1, 250).astype(int)
    return list(drawn[: int(np.searchsorted(drawn.cumsum(), tokens))])


def errors(exact: list[Tensor], others: list[Tensor]) -> list[float]:
    return [float((x - right).abs().max()) for x, right in zip(others, exact, strict=True)]


def assert_earned(exact: list[Tensor], plain: list[Tensor], ours: list[Tensor]) -> None:
    names = ("out", "dq", "dk", "dv")
    for name, right, theirs, mine in zip(
        names, exact, errors(exact, plain), errors(exact, ours), strict=True
    ):
        assert mine <= 2 * theirs + 1e-5 * float(right.abs().max()), f"{name}: {mine} > 2 * {theirs}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [8, 40, 64, 128, 256, 512])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_every_type_and_width_errs_at_most_twice_as_much_as_plain_pytorch(
    settings: dict[str, Any],
    width: int,
    dtype: torch.dtype,
    seed: Tensor,
    random_ragged: MakeBatch,
    differentiate: Differentiate,
) -> None:
    if width > WIDEST[dtype.itemsize]:
        pytest.skip("PyTorch's attention takes such heads")
    batch = random_ragged(LENGTHS, heads=5, d_k=width, d_v=width, dtype=dtype, device="cuda")
    exact = differentiate(plain_attention.attend, batch, torch.float64, seed=seed, **settings)
    plain = differentiate(plain_attention.attend, batch, seed=seed, **settings)
    assert_earned(exact, plain, differentiate(fused_attend, batch, seed=seed, **settings))


@pytest.mark.parametrize("lengths", [[30] * 40, [1000]], ids=["one tile", "streaming"])
def test_float32_is_never_tf32(
    lengths: list[int], random_ragged: MakeBatch, differentiate: Differentiate
) -> None:
    batch = random_ragged(lengths, d_k=64, d_v=64, dtype=torch.float32, device="cuda")
    exact = differentiate(plain_attention.attend, batch, torch.float64)
    assert max(errors(exact, differentiate(fused_attend, batch))) < 2e-5  # TF32 errs by about 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fifty_runs_are_equal_to_the_bit(
    dtype: torch.dtype, seed: Tensor, random_ragged: MakeBatch, differentiate: Differentiate
) -> None:
    batch = random_ragged(LENGTHS * 4, heads=8, d_k=64, d_v=64, dtype=dtype, device="cuda")
    settings = {"causal": True, "drop": 0.1, "seed": seed}
    first = differentiate(fused_attend, batch, **settings)
    for _ in range(50):
        assert all(map(torch.equal, differentiate(fused_attend, batch, **settings), first))


def test_a_segment_of_thousands_of_tokens_errs_no_more(
    seed: Tensor, random_ragged: MakeBatch, differentiate: Differentiate
) -> None:
    batch = random_ragged([4000, 3], heads=2, d_k=64, d_v=64, dtype=torch.bfloat16, device="cuda")
    for settings in SETTINGS:
        exact = differentiate(plain_attention.attend, batch, torch.float64, seed=seed, **settings)
        plain = differentiate(plain_attention.attend, batch, seed=seed, **settings)
        assert_earned(exact, plain, differentiate(fused_attend, batch, seed=seed, **settings))


@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
def test_a_batch_of_25_000_tokens_errs_no_more_than_padded(
    cross: bool, seed: Tensor, random_ragged: MakeBatch, differentiate: Differentiate
) -> None:
    lengths = corpus(25_000)
    keys = [max(0, n + (i % 7) - 3) for i, n in enumerate(lengths)] if cross else None
    batch = random_ragged(lengths, keys, heads=2, d_k=64, d_v=64, dtype=torch.bfloat16, device="cuda")
    settings = {"causal": not cross, "drop": 0.1, "seed": seed}
    exact = differentiate(padded_attention.attend, batch, torch.float64, **settings)
    plain = differentiate(padded_attention.attend, batch, **settings)
    assert_earned(exact, plain, differentiate(fused_attend, batch, **settings))


def test_a_launch_never_waits_for_the_device(seed: Tensor, random_ragged: MakeBatch) -> None:
    tensors, q, k = random_ragged(LENGTHS, [*LENGTHS[1:], 5], dtype=torch.bfloat16, device="cuda")

    def step() -> None:
        torch.autograd.grad(fused_attend(*tensors, q, k, Options(drop=0.1, seed=seed)).sum(), tensors)

    step()  # kernels are loaded on first use
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
