"""Log-probabilities and the highest values of a row, compiled and in PyTorch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.decoding.next_token import dispatch


@pytest.mark.parametrize("threads", [1, 2])
@given(
    rows=st.integers(1, 5),
    entries=st.integers(1, 300),
    spread=st.sampled_from([0.0, 1.0, 30.0, 1000.0]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    contiguous=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_log_probabilities_are_those_of_exact_arithmetic(
    threads: int, rows: int, entries: int, spread: float, dtype: torch.dtype, contiguous: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(rows, entries, generator=generator) * spread - 3).to(dtype)
    exact = logits.double().log_softmax(-1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: threads)
        given = logits.clone()
        with torch.no_grad():
            ours = dispatch.log_softmax(given if contiguous else given.mT.contiguous().mT)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours.double(), exact, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_log_probabilities_have_gradients(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    logits = torch.zeros(1, 4, requires_grad=True)
    torch.autograd.backward(dispatch.log_softmax(logits + 0.0)[0, 0])
    assert logits.grad is not None and logits.grad.tolist() == [[0.75, -0.25, -0.25, -0.25]]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_a_row_with_nan_or_infinity_has_no_probabilities(
    threads: int, number: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    with torch.no_grad():
        actual = dispatch.log_softmax(torch.tensor([[0.0, number, 1.0], [0.0, -torch.inf, 0.0]]))
    assert actual[0].isnan().any() and not (actual[0] > -torch.inf).any()
    assert actual[1].exp().tolist() == [0.5, 0.0, 0.5]


@pytest.mark.parametrize("numba", [True, False])
@pytest.mark.parametrize(("entries", "count"), [(3, 3), (700, 5), (1000, 2)])
def test_the_highest_values_of_each_row_equal_a_sort(
    entries: int, count: int, numba: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    rows = torch.randn(6, entries)
    rows[0, 1:] = -torch.inf
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    if not numba:
        monkeypatch.setattr(dispatch, "_kernels", lambda _: None)
    highest, columns = dispatch.top(rows, count)
    ordered = rows.sort(dim=1, descending=True)
    assert torch.equal(highest, ordered.values[:, :count])
    assert torch.equal(columns[1:], ordered.indices[1:, :count]) and columns[0, 0] == 0
