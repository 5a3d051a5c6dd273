"""The one door to attention: what it refuses, and to whom it sends the rest."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt_cli.attention import dispatch, reference
from nmt_cli.ragged import Layout

MakeBatch = Callable[..., tuple[tuple[Tensor, Tensor, Tensor], Layout, Layout]]


def test_layouts_of_unequal_numbers_of_segments_are_refused(random_ragged: MakeBatch) -> None:
    tensors, q, k = random_ragged([2, 3], [1, 1, 1])
    with pytest.raises(ValueError, match="q holds 2 segments, but k holds 3"):
        dispatch.attend(*tensors, q, k)


@pytest.mark.parametrize("settings", [{"causal": True}, {"window": 3}], ids=str)
def test_causal_attention_and_windows_need_one_layout(
    settings: dict[str, Any], random_ragged: MakeBatch
) -> None:
    tensors, q, k = random_ragged([2, 3], [2, 3])
    with pytest.raises(ValueError, match="need one layout for queries and keys"):
        dispatch.attend(*tensors, q, k, **settings)


def test_dropout_without_a_seed_is_refused(random_ragged: MakeBatch) -> None:
    tensors, q, k = random_ragged([2, 3])
    with pytest.raises(ValueError, match="dropout needs a seed"):
        dispatch.attend(*tensors, q, k, drop=0.1)


def test_the_host_computes_what_the_definition_says(random_ragged: MakeBatch) -> None:
    tensors, q, k = random_ragged([2, 0, 7], d_k=24, d_v=40)
    settings: dict[str, Any] = {"causal": True, "window": 3, "drop": 0.2, "seed": torch.tensor(1)}
    ours, theirs = (f(*tensors, q, k, **settings) for f in (dispatch.attend, reference.attend))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("device", "key_width", "value_width", "expected"),
    [
        ("cpu", 64, 64, "padded"),
        ("cuda", 64, 64, "fused"),
        ("cuda", 8, 256, "fused"),
        ("cuda", 512, 64, "padded"),
        ("cuda", 64, 264, "padded"),
        ("cuda", 12, 64, "padded"),
        ("cuda", 64, 4, "padded"),
    ],
)
def test_heads_that_the_kernel_cannot_hold_fall_back(
    device: str, key_width: int, value_width: int, expected: str
) -> None:
    assert dispatch.implementation(torch.device(device), key_width, value_width) == expected
