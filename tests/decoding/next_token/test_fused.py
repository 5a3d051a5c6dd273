"""The likeliest tokens of each row: the kernel and its reference against the definition."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nmt_cli.decoding.next_token import dispatch
from tests.launches import compiled_for_an_h100

Likeliest = Callable[[Tensor, int, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
ROWS = 6


@pytest.fixture(params=["fused", "reference"])
def likeliest(request: pytest.FixtureRequest) -> Likeliest:
    from nmt_cli.decoding.next_token import fused

    return fused.likeliest if request.param == "fused" else dispatch.plain_likeliest


def by_definition(
    logits_V: list[float], count: int, never_V: list[bool], never: int, only: int
) -> list[tuple[float, int]]:
    """Return the best log-probabilities of one row and their tokens, best first."""
    highest = max(logits_V)
    if highest == -math.inf:
        return []
    lse = highest + math.log(math.fsum(math.exp(x - highest) for x in logits_V))
    allowed = [token for token, out in enumerate(never_V) if not out and token != never]
    ordered = sorted([only] if only >= 0 else allowed, key=lambda token: -logits_V[token])
    return [(logits_V[token] - lse, token) for token in ordered[:count] if logits_V[token] > -math.inf]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("entries", "count"), [(2, 2), (37, 5), (64, 2), (200, 5), (129, 17)], ids=str)
def test_the_likeliest_allowed_tokens_are_returned(
    likeliest: Likeliest,
    entries: int,
    count: int,
    dtype: torch.dtype,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nmt_cli.decoding.next_token.fused.BLOCK", 64)
    draw = torch.Generator().manual_seed(entries)
    logits = torch.randn(ROWS, entries, generator=draw).mul_(4).to(dtype)
    logits[1] = logits[1].round()  # many values are equal
    logits[2, entries // 2 :] = -torch.inf  # banned before
    never = torch.rand(entries, generator=draw) < 0.1
    best = logits.float().argmax(1)
    never[best[0]] = True
    too_early = torch.tensor([-1, 0, -1, int(best[3]), -1, int(best[5])])
    only = torch.tensor([-1, -1, -1, -1, entries - 1, int(best[5])])
    given = (x.to(device) for x in (never, too_early, only))
    actual = [x.cpu() for x in likeliest(logits.to(device), count, *given)]
    assert actual[0].dtype == torch.float32 and actual[1].dtype == torch.int64
    assert {*actual[1].flatten().tolist()} <= {*range(entries)}
    for row in range(ROWS):
        expected = by_definition(
            logits[row].tolist(), count, never.tolist(), int(too_early[row]), int(only[row])
        )
        got = list(zip(actual[0][row].tolist(), actual[1][row].tolist(), strict=True))
        assert [token for _, token in got[: len(expected)]] == [token for _, token in expected], row
        assert [score for score, _ in got[: len(expected)]] == pytest.approx(
            [x for x, _ in expected], abs=2e-5
        )
        assert {score for score, _ in got[len(expected) :]} <= {-math.inf}


def test_a_row_with_all_tokens_banned_has_no_continuation(likeliest: Likeliest, device: str) -> None:
    logits, nothing = torch.randn(2, 9, device=device), torch.tensor([-1, -1], device=device)
    scores, tokens = likeliest(logits, 3, torch.ones(9, dtype=torch.bool, device=device), nothing, nothing)
    assert scores.tolist() == [[-math.inf] * 3] * 2
    assert ((tokens >= 0) & (tokens < 9)).all()


def test_without_a_gpu_the_reference_is_asked(device: str) -> None:
    nothing = torch.tensor([-1], device=device)
    free = torch.zeros(3, dtype=torch.bool, device=device)
    scores, tokens = dispatch.likeliest(
        torch.tensor([[0.0, 2.0, 1.0]], device=device), 2, free, nothing, nothing
    )
    assert tokens.tolist() == [[1, 2]]
    assert scores.exp().sum().item() == pytest.approx((math.e**2 + math.e) / (1 + math.e + math.e**2))


@pytest.mark.slow
def test_for_an_h100_rows_are_read_sixteen_bytes_at_a_time() -> None:
    aligned, unaligned = compiled_for_an_h100("next_token")
    assert (aligned["wide reads"], aligned["stack"]) == (2, 0) and unaligned["wide reads"] == 0
