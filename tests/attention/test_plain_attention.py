"""The reference of ragged attention against PyTorch's attention of each segment."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.attention import plain_attention
from nmt_cli.attention.attention_options import Options
from nmt_cli.ragged import Layout
from tests.attention.conftest import MakeBatch

PLAIN: dict[str, Any] = {"causal": False, "window": 0}


def one_by_one(
    tensors: tuple[Tensor, Tensor, Tensor], q: Layout, k: Layout, causal: bool, window: int
) -> Tensor:
    """Compute PyTorch's attention for each segment, with a mask made key by key."""
    q_THK, k_SHK, v_SHV = tensors
    outputs = []
    for t, s in zip(q.slices(), k.slices(), strict=True):
        q_1HTK, k_1HSK, v_1HSV = (x.transpose(0, 1)[None] for x in (q_THK[t], k_SHK[s], v_SHV[s]))
        shape = (t.stop - t.start, s.stop - s.start)
        allowed = torch.tensor(
            [[_seen(query, key, causal, window) for key in range(shape[1])] for query in range(shape[0])]
        ).reshape(shape)
        out_1HTV = F.scaled_dot_product_attention(q_1HTK, k_1HSK, v_1HSV, attn_mask=allowed)
        outputs.append(out_1HTV[0].transpose(0, 1))
    return torch.cat(outputs)


def _seen(query: int, key: int, causal: bool, window: int) -> bool:
    if causal and key > query:
        return False
    around = [query + step for step in range(-(window // 2), (window - 1) // 2 + 1)]
    return not window or key in around


@pytest.mark.parametrize(
    "settings",
    [
        PLAIN,
        {"causal": True, "window": 0},
        {"causal": False, "window": 1},
        {"causal": False, "window": 4},
        {"causal": True, "window": 5},
    ],
    ids=str,
)
def test_it_is_pytorchs_attention_of_each_segment(settings: dict[str, Any], random_ragged: MakeBatch) -> None:
    tensors, q, k = random_ragged([1, 5, 0, 12], heads=3, d_k=8, d_v=24)
    ours = plain_attention.attend(*tensors, q, k, Options(**settings))
    torch.testing.assert_close(ours, one_by_one(tensors, q, k, **settings), rtol=0, atol=1e-12)


def test_queries_may_have_other_lengths_than_keys(random_ragged: MakeBatch) -> None:
    tensors, q, k = random_ragged([1, 5, 0, 12], [7, 1, 3, 4], heads=3, d_k=8, d_v=24)
    ours = plain_attention.attend(*tensors, q, k)
    torch.testing.assert_close(ours, one_by_one(tensors, q, k, **PLAIN), rtol=0, atol=1e-12)


def test_a_window_of_r_shows_r_keys_to_a_query_far_from_both_ends(random_ragged: MakeBatch) -> None:
    tensors, q, k = random_ragged([30], heads=1)
    for window in (1, 2, 5, 8):
        (weights,) = plain_attention.weights(*tensors[:2], q, k, Options(window=window))
        assert (weights[0, 15] > 0).sum() == window


def test_queries_of_a_segment_without_keys_get_zeros_and_give_none(random_ragged: MakeBatch) -> None:
    tensors, q, k = random_ragged([3, 2], [0, 4])
    out = plain_attention.attend(*tensors, q, k)
    assert torch.equal(out[:3], torch.zeros_like(out[:3])) and out[3:].all()
    (d_q,) = torch.autograd.grad(out.sum(), tensors[0])
    assert torch.equal(d_q[:3], torch.zeros_like(d_q[:3]))


def test_weights_are_of_each_segment_and_make_the_output(random_ragged: MakeBatch) -> None:
    tensors, q, k = random_ragged([2, 6], [3, 1])
    weights = plain_attention.weights(*tensors[:2], q, k)
    assert [tuple(w.shape) for w in weights] == [(2, 2, 3), (2, 6, 1)]
    values = [tensors[2][s].transpose(0, 1) for s in k.slices()]
    product = torch.cat([(w @ v).transpose(0, 1) for w, v in zip(weights, values, strict=True)])
    torch.testing.assert_close(product, plain_attention.attend(*tensors, q, k), rtol=0, atol=1e-14)


def test_dropout_sets_weights_to_zero_and_scales_the_others(random_ragged: MakeBatch) -> None:
    (queries, keys, _), q, k = random_ragged([6, 9], heads=2)
    unit = torch.cat([torch.eye(9, dtype=torch.float64)[:n] for n in (6, 9)])[:, None].expand(-1, 2, -1)
    (before, after) = (
        plain_attention.attend(queries, keys, unit, q, k, Options(drop=drop, seed=torch.tensor(3)))
        for drop in (0.0, 0.25)
    )
    kept = after != 0
    assert 0.5 < float(kept[before != 0].double().mean()) < 1
    torch.testing.assert_close(after[kept], before[kept] / 0.75, rtol=1e-12, atol=0)
