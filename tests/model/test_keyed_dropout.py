"""Dropout: the share of dropped elements, the scale of the others, the gradient, and equal masks."""

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt_cli.attention.dropout_masks import hashed, shifted
from nmt_cli.model.keyed_dropout import dropout
from nmt_cli.model.pointwise import plain_relu_and_dropout, relu_and_dropout
from nmt_cli.ragged import Layout

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def dropped(x: Tensor, probability: float, seed: int = 1, layout: Layout | None = None) -> Tensor:
    torch.manual_seed(seed)
    return dropout(x, probability, True, layout or Layout.of([len(x)]).to(x.device))


@pytest.mark.parametrize("probability", [0.01, 0.1, 0.3, 0.5, 0.9])
def test_the_share_of_dropped_elements_is_the_probability(probability: float) -> None:
    out = dropped(torch.ones(4000, 100), probability)
    deviation = (probability * (1 - probability) / 400_000) ** 0.5
    assert float((out == 0).double().mean()) == pytest.approx(probability, abs=4 * deviation + 2**-16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("probability", [0.1, 0.3])
def test_kept_elements_are_scaled_up_to_keep_the_mean(probability: float, dtype: torch.dtype) -> None:
    out = dropped(torch.ones(10, 100, dtype=dtype), probability)
    kept = out[out != 0]
    assert out.dtype == dtype
    assert len(set(kept.tolist())) == 1
    assert float(kept[0]) == pytest.approx(1 / (1 - probability), rel=max(2e-5, torch.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_gradient_is_dropped_for_dropped_values(dtype: torch.dtype) -> None:
    x = torch.ones(7, 33, dtype=dtype, requires_grad=True)
    out = dropped(x, 0.4)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert gradient.dtype == dtype
    assert torch.equal(gradient, out)


def test_one_seed_drops_the_same_elements_again() -> None:
    x = torch.randn(100, 10)
    assert torch.equal(dropped(x, 0.5, seed=7), dropped(x, 0.5, seed=7))
    assert not torch.equal(dropped(x, 0.5, seed=7), dropped(x, 0.5, seed=8))


def test_the_next_call_drops_other_elements() -> None:
    x = torch.ones(100, 100)
    zeros = torch.stack([dropped(x, 0.5), dropout(x, 0.5, True, Layout.of([100]))]) == 0
    assert float(zeros.all(0).double().mean()) == pytest.approx(0.25, abs=0.02)


def test_neighbours_are_dropped_independently() -> None:
    """Channels 0 and 2 share a hash, as do 1 and 3."""
    gone = (dropped(torch.ones(100_000, 4), 0.5) == 0).double()
    correlations = torch.corrcoef(gone.T) - torch.eye(4)
    assert float(correlations.abs().max()) < 0.015


@pytest.mark.parametrize(("probability", "training"), [(0.5, False), (0.0, True), (0.0, False)])
def test_nothing_changes_in_evaluation_or_without_a_probability(probability: float, training: bool) -> None:
    x = torch.randn(4, 5)
    before = torch.get_rng_state()
    assert dropout(x, probability, training, None) is x
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (1, 5), (4, 0), (0, 4), (3, 7), (2, 8)], ids=str)
def test_every_element_of_a_tensor_of_any_size_may_be_dropped(shape: tuple[int, ...]) -> None:
    drops = [dropped(torch.ones(shape), 0.5, seed) == 0 for seed in range(40)]
    assert drops[0].shape == shape
    assert torch.stack(drops).any(0).all()
    assert not torch.stack(drops).all(0).any()


def test_tensors_that_are_not_contiguous_are_dropped_in_the_same_way() -> None:
    ordered = torch.randn(30, 20)
    for x in (ordered.T.contiguous().T, torch.cat([ordered, ordered], dim=1)[:, :20]):
        assert not x.is_contiguous()
        assert torch.equal(dropped(x, 0.3), dropped(ordered, 0.3))


@pytest.mark.parametrize("probability", [1e-9, 0.999_999])
def test_probabilities_near_0_and_1_give_finite_results(probability: float) -> None:
    out = dropped(torch.ones(10, 100), probability)
    assert out.isfinite().all()
    assert float((out == 0).double().mean()) == pytest.approx(probability, abs=0.01)


@pytest.mark.gpu
def test_dropout_on_a_gpu_drops_gradients_where_it_dropped_values(cuda: str) -> None:
    x = torch.ones(1000, 100, device=cuda, requires_grad=True)
    out = dropped(x, 0.3)
    assert float((out == 0).double().mean()) == pytest.approx(0.3, abs=0.01)
    assert torch.equal(torch.autograd.grad(out.sum(), x)[0], out)
    assert torch.equal(out.cpu(), dropped(x.detach().cpu(), 0.3))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [1, 2, 33, 64])
@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_the_kernels_drop_the_elements_of_the_definition(
    dtype: torch.dtype, width: int, probability: float
) -> None:
    x, layout = torch.randn(40, width).to(dtype), Layout.of([7, 33], mask_keys=np.array([2**31 - 1, 5]))
    words = torch.tensor(2**61 + 12345), layout.mask_keys[layout.segments], layout.positions
    expected = plain_relu_and_dropout.dropped(x, *words, probability)
    torch.testing.assert_close(relu_and_dropout.dropped(x, *words, probability), expected, rtol=0.01, atol=0)
    assert torch.equal(relu_and_dropout.dropped(x, *words, probability) == 0, expected == 0)


def test_the_mask_of_a_segment_does_not_depend_on_its_batch() -> None:
    x = torch.ones(12, 50)
    both = dropped(x, 0.5, layout=Layout.of([5, 7], mask_keys=np.array([30, 40])))
    alone = dropped(x[5:], 0.5, layout=Layout.of([7], mask_keys=np.array([40])))
    other = dropped(x[5:], 0.5, layout=Layout.of([7], mask_keys=np.array([41])))
    assert torch.equal(both[5:], alone)
    assert not torch.equal(alone, other)


def _by_halves(x_TD: Tensor, seed: Tensor, keys_T: Tensor, positions_T: Tensor, probability: float) -> Tensor:
    """Drop elements by the definition of the first version: one hash, whose halves are side by side."""
    hashes = hashed(seed, keys_T[:, None], positions_T[:, None], torch.arange((x_TD.shape[1] + 1) // 2).int())
    bits_TD = torch.cat([shifted(hashes, 16), hashes & 0xFFFF], 1)[:, : x_TD.shape[1]]
    levels = round(probability * 65536)
    return torch.where(bits_TD >= levels, x_TD * (65536 / (65536 - levels)), 0.0)


def test_masks_are_those_of_the_first_version() -> None:
    keys_T, positions_T = torch.randint(-(2**31), 2**31 - 1, (20,)).int(), torch.arange(20).int() % 7
    for width in (*range(1, 35), 511, 512, 513, 1023):
        arguments = torch.randn(20, width), torch.tensor(2**61 + width), keys_T, positions_T, 0.3
        assert torch.equal(plain_relu_and_dropout.dropped(*arguments), _by_halves(*arguments))
