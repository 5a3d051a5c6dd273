"""Padded attention equals the reference, forward and backward."""

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.attention import padded_attention, plain_attention
from nmt_cli.attention.attention_options import Options
from nmt_cli.ragged import Layout

Batch = tuple[tuple[Tensor, Tensor, Tensor], Layout, Layout]
MakeBatch = Callable[..., Batch]
Differentiate = Callable[..., list[Tensor]]

LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=6)
OPTIONS = st.fixed_dictionaries(
    {"causal": st.booleans(), "window": st.integers(0, 6), "drop": st.sampled_from([0.0, 0.3])}
)

again = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def assert_same(batch: Batch, differentiate: Differentiate, **options: Any) -> None:
    seed = torch.tensor(11)
    theirs = differentiate(plain_attention.attend, batch, seed=seed, **options)
    ours = differentiate(padded_attention.attend, batch, seed=seed, **options)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@again
@given(lengths=LENGTHS, options=OPTIONS)
def test_self_attention_is_the_definitions(
    lengths: list[int], options: dict[str, Any], random_ragged: MakeBatch, differentiate: Differentiate
) -> None:
    assert_same(random_ragged(lengths, d_k=8, d_v=4), differentiate, **options)


@again
@given(pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6))
@pytest.mark.parametrize("drop", [0.0, 0.3])
def test_cross_attention_is_the_definitions(
    drop: float, pairs: list[tuple[int, int]], random_ragged: MakeBatch, differentiate: Differentiate
) -> None:
    queries, keys = zip(*pairs, strict=True)
    assert_same(random_ragged(queries, keys, d_k=8, d_v=4), differentiate, drop=drop)


@pytest.mark.parametrize("options", [{}, {"causal": True, "drop": 0.3}], ids=str)
@pytest.mark.parametrize("longest_with_weights", [padded_attention.LONG, 0], ids=["short", "long"])
def test_a_bias_by_distance_is_added_to_the_scores(
    longest_with_weights: int,
    options: dict[str, Any],
    random_ragged: MakeBatch,
    differentiate: Differentiate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(padded_attention, "LONG", longest_with_weights)
    batch, bias = random_ragged([3, 0, 6, 1]), torch.randn(2, 17, dtype=torch.float64, requires_grad=True)
    assert_same(batch, differentiate, bias_HD=bias.detach(), **options)
    layout, chosen = batch[1], Options(seed=torch.tensor(11), bias_HD=bias, **options)
    gradients = []
    for attend in (padded_attention.attend, plain_attention.attend):
        out = attend(*batch[0], layout, layout, chosen)
        gradients.append(torch.autograd.grad(out.pow(3).sum(), bias)[0])
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)
    assert gradients[0].abs().max() > 0.1


def test_a_bias_moves_attention_to_the_chosen_distance() -> None:
    layout, bias = Layout.of([4]), torch.zeros(1, 7)
    bias[0, 2] = 100.0  # the key just before the query
    value = torch.arange(4.0)[:, None, None]
    out = padded_attention.attend(
        torch.zeros(4, 1, 2), torch.zeros(4, 1, 2), value, layout, layout, Options(bias_HD=bias)
    )
    assert out.flatten().tolist() == pytest.approx([1.5, 0.0, 1.0, 2.0])


@pytest.mark.parametrize("options", [{"causal": True}, {"window": 3, "drop": 0.2}], ids=str)
def test_a_layout_may_be_padded_to_more_than_its_longest_segment(
    options: dict[str, Any], random_ragged: MakeBatch, differentiate: Differentiate
) -> None:
    tensors, _, _ = random_ragged([3, 5])
    roomy = Layout.of([3, 5], longest=16)
    assert_same((tensors, roomy, roomy), differentiate, **options)


def test_other_segments_do_not_affect_a_segment(random_ragged: MakeBatch) -> None:
    tensors, q, k = random_ragged([3, 5, 2])
    clean = padded_attention.attend(*tensors, q, k)
    for x in tensors:
        x.detach()[3:8] = 100
    ours = padded_attention.attend(*tensors, q, k)
    for part in (slice(0, 3), slice(8, 10)):
        torch.testing.assert_close(ours[part], clean[part], rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method.* is deprecated:DeprecationWarning")  # PyTorch's own use
def test_the_compiler_may_fuse_earlier_operations() -> None:
    """Fuse the computation of queries, keys and values, so that they have no memory to view."""
    layout = Layout.of([3, 1, 4])
    packed = torch.randn(8, 3, 2, 4, dtype=torch.float64, requires_grad=True)

    def attend(packed_T3HD: Tensor) -> Tensor:
        q, k, v = (packed_T3HD * 2).unbind(1)
        return padded_attention.attend(q, k, v, layout, layout)

    compiled = torch.compile(attend, fullgraph=True)
    ours, theirs = compiled(packed), attend(packed)
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(out.square().sum(), packed)[0] for out in (ours, theirs)]
    torch.testing.assert_close(*gradients)


@again
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    window=st.integers(1, 7),
    options=st.fixed_dictionaries({"causal": st.booleans(), "drop": st.sampled_from([0.0, 0.3])}),
)
def test_windows_in_blocks_are_the_definitions(
    lengths: list[int],
    window: int,
    options: dict[str, Any],
    random_ragged: MakeBatch,
    differentiate: Differentiate,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(padded_attention, "MIN_BLOCK", 4)
        assert_same(random_ragged(lengths, d_k=8, d_v=4), differentiate, window=window, **options)


@pytest.mark.parametrize("options", [{}, {"causal": True}], ids=str)
def test_a_long_segment_with_a_small_window_is_computed_in_blocks(
    options: dict[str, Any],
    random_ragged: MakeBatch,
    differentiate: Differentiate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shapes: list[tuple[int, ...]] = []
    attention = padded_attention._Attention.apply

    def noted(*inputs: Any) -> Tensor:
        shapes.append(tuple(inputs[3].shape))
        out: Tensor = attention(*inputs)  # type: ignore[no-untyped-call]
        return out

    monkeypatch.setattr(padded_attention._Attention, "apply", noted)
    assert_same(random_ragged([600, 130], heads=1, d_k=8, d_v=4), differentiate, window=32, **options)
    assert shapes == [(2 * 19, 32, 48 if options else 63)]


@pytest.mark.parametrize("scale", [1.0, 6.0], ids=["usual scores", "strong scores"])
@pytest.mark.parametrize("autocast", [False, True], ids=["plain", "autocast"])
def test_in_bf16_it_errs_at_most_twice_as_much_as_pytorchs_own(scale: float, autocast: bool) -> None:
    drawn = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(64, 4, 64, generator=drawn) for _ in range(3))
    q, k, v = ((x * scale).bfloat16() if x is q else x.bfloat16() for x in (q, k, v))
    layout = Layout.of([64])
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        ours = padded_attention.attend(q, k, v, layout, layout)
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    own = F.scaled_dot_product_attention(q, k, v).transpose(0, 1)
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double()).transpose(0, 1)
    assert ours.dtype == torch.bfloat16
    assert (ours.double() - exact).norm() <= 2 * (own.double() - exact).norm()


@pytest.mark.parametrize("drop", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_windows_in_blocks_of_half_precision_have_exact_scores(
    dtype: torch.dtype, drop: float, random_ragged: MakeBatch, differentiate: Differentiate
) -> None:
    (q, k, v), layout, _ = random_ragged([200, 150], heads=2, d_k=64, d_v=64)
    batch = tuple((x * scale).to(dtype) for x, scale in ((q, 16), (k, 1), (v, 1))), layout, layout
    options = {"window": 16, "drop": drop, "seed": torch.tensor(11)}
    exact = differentiate(plain_attention.attend, batch, torch.float64, **options)
    for ours, theirs in zip(differentiate(padded_attention.attend, batch, **options), exact, strict=True):
        assert ours.dtype == dtype
        assert (ours - theirs).norm() <= torch.finfo(dtype).eps * theirs.norm()


@pytest.mark.parametrize(("causal", "length"), [(False, 7), (True, 7), (False, 1), (False, 600)])
def test_a_single_segment_has_the_same_bits_with_and_without_gradients(causal: bool, length: int) -> None:
    torch.manual_seed(1)
    q, k, v = torch.randn(length, 3, 4, 8).unbind(1)
    layout = Layout.of([length])
    expected = padded_attention.attend(q, k, v, layout, layout, Options(causal))
    with torch.inference_mode():
        actual = padded_attention.attend(q, k, v, layout, layout, Options(causal))
    assert torch.equal(actual, expected)
