"""8-bit products err by no more than rounding does, whatever the other rows are."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numba import njit
from numpy.typing import NDArray
from torch import nn

from nmt_cli.engine.kernels import layers
from nmt_cli.engine.packing import Packed, packed
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.layers import SelfAttention
from tests.model.models import model_of
from tests.model.test_variants import SMALL

KERNELS: Any = layers
multiply = KERNELS.multiply
MULTIPLY_FIRST = np.array([0, 0, KERNELS.INPUT, KERNELS.Y, KERNELS.NONE])
"""The operation, matrix, buffers of inputs and outputs, and activation."""


@njit(nogil=True)
def product(rows, operation, weights, work):  # type: ignore[no-untyped-def]
    multiply(np.zeros(16, np.int64), 0, rows, operation, weights, work)


def packed_first(config: ModelConfig, int8: bool) -> tuple[Packed, nn.Linear]:
    """Return a packed model, and the layer of its first matrix."""
    torch.manual_seed(1)
    model = model_of(config, 8).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    actual = packed(model, int8)
    assert actual, "the tests need Numba"
    attention = model.encoder[0].attention
    assert isinstance(attention, SelfAttention)
    return actual, attention.query_key_value


def multiplied(engine: Packed, x: NDArray[np.float32], outputs: int) -> NDArray[np.float32]:
    """Return the products of rows with the first matrix."""
    rows, inputs = x.shape
    out, whole = np.empty((rows, outputs), np.float32), np.empty((rows, inputs + -inputs % 4), np.uint8)
    unused, unused_2 = np.empty(0, np.int64), np.empty((0, 0), np.int64)
    work = KERNELS.Work(
        buffers=(x, x, x, x, out, x),
        bytes_RC=whole,
        scales_R=np.empty(rows, np.float32),
        **dict.fromkeys(KERNELS.Work._fields[3:9], unused),
        steps_RW=unused_2,
        likely_RW=unused_2,
    )
    product(rows, MULTIPLY_FIRST, engine.weights, work)
    return out


def rows_of(count: int, width: int) -> NDArray[np.float32]:
    """Return random rows of very different sizes, one of zeros."""
    random = np.random.default_rng(1)
    x = random.standard_normal((count, width)) * np.logspace(-6, 6, count)[:, None]
    x[0, 0] *= 100  # an outlier
    x[1:2] = 0
    return x.astype(np.float32)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("width", [32, 42])
@pytest.mark.parametrize("rows", [1, 5, 30])
def test_8_bit_products_err_by_no_more_than_rounding_does(rows: int, width: int, bias: bool) -> None:
    """The error is below half a step of each weight's scale plus half a step of the row's."""
    shape = replace(SMALL, width=width, heads=2, key_width=8, value_width=6, attention_bias=bias)
    engine, linear = packed_first(shape, int8=True)
    weight, x = linear.weight.detach().double().numpy(), rows_of(rows, width)
    exact = x @ weight.T + (linear.bias.detach().double().numpy() if bias else 0)
    error = np.abs(multiplied(engine, x, len(weight)) - exact)
    weight_step, input_step = (np.abs(one).max(1) / 127 for one in (weight, x.astype(np.float64)))
    of_weights = np.abs(x).sum(1)[:, None] * weight_step / 2
    of_inputs = input_step[:, None] / 2 * (np.abs(weight) + weight_step[:, None] / 2).sum(1)
    assert error.max() > 0
    assert (error <= of_weights + of_inputs + 1e-6 * np.abs(exact) + 1e-5).all()


@pytest.mark.parametrize("int8", [True, False])
def test_the_bits_of_a_row_do_not_depend_on_other_rows(int8: bool) -> None:
    """Also for values that are not finite, which make their own row nan or infinite only."""
    engine, linear = packed_first(replace(SMALL, width=42, heads=2), int8)
    x, outputs = rows_of(40, 42), linear.out_features
    x[8, 3], x[9, 4] = np.nan, np.inf
    whole = multiplied(engine, x, outputs)
    for rows in (slice(0, 1), slice(5, 8), slice(10, 12), slice(10, 40)):
        assert np.array_equal(multiplied(engine, x[rows], outputs), whole[rows])
    assert not np.isfinite(whole[[8, 9]]).any() and np.isfinite(whole[10:]).all()
