"""The entry point of attention: errors, and the choice of implementation."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt_cli.attention import attention, padded_attention, plain_attention
from nmt_cli.attention.attention_options import Options
from nmt_cli.ragged import Layout
from tests.attention.conftest import MakeBatch, projected


def test_layouts_of_unequal_numbers_of_segments_are_refused(random_ragged: MakeBatch) -> None:
    tensors, q, _ = random_ragged([2, 3], [1, 2])
    with pytest.raises(ValueError, match="q holds 2 segments, but k holds 3"):
        attention.attend_projected(*projected(*tensors), q, Layout.of([1, 1, 1]))


@pytest.mark.parametrize("settings", [{"causal": True}, {"window": 3}], ids=str)
def test_causal_attention_and_windows_need_one_layout(
    settings: dict[str, Any], random_ragged: MakeBatch
) -> None:
    tensors, q, k = random_ragged([2, 3], [2, 3])
    with pytest.raises(ValueError, match="need one layout for queries and keys"):
        attention.attend_projected(*projected(*tensors), q, k, Options(**settings))


def test_dropout_without_a_seed_is_refused(random_ragged: MakeBatch) -> None:
    tensors, q, k = random_ragged([2, 3])
    with pytest.raises(ValueError, match="dropout needs a seed"):
        attention.attend_projected(*projected(*tensors), q, k, Options(drop=0.1))


def test_attention_on_the_host_equals_the_reference(random_ragged: MakeBatch) -> None:
    tensors, q, k = random_ragged([2, 0, 7], d_k=24, d_v=40)
    settings: dict[str, Any] = {"causal": True, "window": 3, "drop": 0.2, "seed": torch.tensor(1)}
    ours = attention.attend_projected(*projected(*tensors), q, k, Options(**settings))
    theirs = plain_attention.attend(*tensors, q, k, Options(**settings))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("settings", [{}, {"causal": True}, {"window": 3}])
@pytest.mark.parametrize("lengths", [range(20), [3] * 40, [9, 0, 0, *[1] * 30], [0] * 40])
def test_without_gradients_many_segments_are_computed_a_few_at_a_time(
    settings: dict[str, Any],
    lengths: Sequence[int],
    random_ragged: MakeBatch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tensors, q, k = random_ragged(list(lengths), d_k=8, d_v=16)
    seen: list[int] = []

    def attend(*inputs: Any) -> Tensor:
        seen.append(len(inputs[3].lengths))
        return padded_attention.attend(*inputs)

    monkeypatch.setattr(attention, "padded_attention", SimpleNamespace(attend=attend))
    with torch.no_grad():
        ours = attention.attend_projected(*projected(*tensors), q, k, Options(**settings))
    assert sum(seen) == len(lengths) and max(seen) <= attention.PART["cpu"] < len(lengths)
    torch.testing.assert_close(
        ours, plain_attention.attend(*tensors, q, k, Options(**settings)), rtol=0, atol=1e-12
    )


def test_without_gradients_many_segments_may_differ_in_queries_and_keys(random_ragged: MakeBatch) -> None:
    queries, keys = list(range(40)), list(range(1, 41))[::-1]
    tensors, q, k = random_ragged(queries, keys)
    with torch.no_grad():
        ours = attention.attend_projected(*projected(*tensors), q, k)
    torch.testing.assert_close(ours, plain_attention.attend(*tensors, q, k), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("device", "key_width", "value_width", "dtype", "expected"),
    [
        ("cpu", 64, 64, torch.float16, "padded"),
        ("cuda", 64, 64, torch.float32, "fused"),
        ("cuda", 8, 256, torch.float32, "fused"),
        ("cuda", 512, 512, torch.bfloat16, "fused"),
        ("cuda", 512, 64, torch.float32, "padded"),
        ("cuda", 64, 520, torch.float16, "padded"),
        ("cuda", 12, 64, torch.float32, "padded"),
        ("cuda", 64, 4, torch.float32, "padded"),
        ("cuda", 64, 64, torch.float64, "padded"),
    ],
)
def test_heads_that_the_kernel_cannot_hold_fall_back(
    device: str, key_width: int, value_width: int, dtype: torch.dtype, expected: str
) -> None:
    assert attention.implementation(torch.device(device), key_width, value_width, dtype) == expected
