"""A step of the decoder for a few rows on a CPU: one compiled function, in as many threads as are free.

A step of a lone line reads each weight once and does little with it. What lies between products, of no weight
in a large batch, then takes as long as they do while Python walks from one to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nmt_cli.attention.cached import ROUND, Paths
from nmt_cli.attention.projections import Heads
from nmt_cli.machine import standby
from nmt_cli.machine.arrays import as_array
from nmt_cli.machine.kernels import compiled_kernels
from nmt_cli.machine.torch_private import LaidOut
from nmt_cli.model.cache import LayerCache, Step
from nmt_cli.model.int8 import InBytes, product_of_few
from nmt_cli.model.layers import Residual, SelfAttention
from nmt_cli.model.transformer import DecoderLayer, Transformer

MOST_ROWS = ROUND
"""Not more: `cached.Rows` would round these up."""

Matrix = LaidOut | InBytes

PHASES = 11
"""Of a layer, see `compiled.step`."""


@dataclass(frozen=True, slots=True)
class FewRows:
    """A decoder whose weights are laid out in a way that the compiled step can read."""

    kernels: ModuleType
    matrices_L6: NDArray[np.int64]
    """Where they are; the model keeps them."""

    biases_LC: NDArray[np.float32]
    """Of a layer's matrices, one after another."""

    scales_LC: NDArray[np.float32]
    """Of their outputs, if weights are of 8 bits; else empty."""

    levels: int
    """See `InBytes`."""

    norms_N2D: NDArray[np.float32]
    """Those that stand behind each sub-layer, and before them the one that stands before all."""

    epsilon: float
    post: bool
    shape: Heads
    output: Matrix
    widest: int
    """The most outputs of a layer's matrix."""

    @staticmethod
    def of(model: Transformer) -> FewRows | None:
        """For a model whose products are packed, and norms are not yet; None where it has to do without."""
        layers = cast(list[DecoderLayer], list(model.decoder))
        each, output = [_matrices(layer) for layer in layers], model.packed_output
        readable = all(all(map(_readable, matrices)) for matrices in each) and _readable(output)
        if not layers or not readable or model.config.activation != "relu":
            return None
        if not (kernels := compiled_kernels("model")):
            return None
        attention, post = cast(SelfAttention, layers[0].attention), layers[0].after_attention.post
        norms = [one.norm for layer in layers for one in _residuals(layer)]
        ordered = [norms[0], *norms] if post else [*norms, cast(nn.LayerNorm, model.decoder_norm)]
        return FewRows(
            kernels=kernels,
            matrices_L6=np.array([[one.blocks for one in matrices] for matrices in each]),
            biases_LC=np.stack([np.concatenate(list(map(_bias, matrices))) for matrices in each]),
            scales_LC=np.stack([np.concatenate(list(map(_scale, matrices))) for matrices in each]),
            levels=output.levels if isinstance(output, InBytes) else 0,
            norms_N2D=np.stack([[_array(norm.weight), _array(norm.bias)] for norm in ordered]),
            epsilon=norms[0].eps,
            post=post,
            shape=attention.shape,
            output=cast(Matrix, output),
            widest=max(len(_bias(one)) for one in each[0]),
        )

    def suffices(self, rows: int) -> bool:
        """See `WholeStep`."""
        return rows <= MOST_ROWS

    def takes(self, rows: int, step: Step) -> bool:
        """See `WholeStep`."""
        return self.suffices(rows) and isinstance(step.own, Paths) and step.coverage is None

    def step(self, x_RD: Tensor, caches: Sequence[LayerCache], step: Step) -> Tensor:
        """See `WholeStep`."""
        assert isinstance(step.own, Paths) and isinstance(step.source, Paths)
        heads, width, value_width = self.shape
        x, (sentences, _, room, _) = x_RD.numpy(), caches[0].own_keys.shape
        sizes = sentences, heads, room, caches[0].source_keys.shape[2], width, value_width, self.levels
        given = x.copy() if self.post else np.empty_like(x)
        wide, mixed = (np.empty((len(x), size), np.float32) for size in (self.widest, heads * value_width))
        work = partial(
            _called,
            self.kernels.step,
            caches,
            np.zeros((2, PHASES * len(caches) + 1), np.int64),
            self.matrices_L6,
            np.array([[kept.data_ptr() for kept in _kept(cache)] for cache in caches]),
            np.empty(0, as_array(caches[0].own_keys).dtype),
            *(self.biases_LC, self.scales_LC, self.norms_N2D, self.epsilon, self.post),
            *(x, given, wide, mixed, np.empty_like(x)),
            *(np.array(sizes), step.nodes_RH.numpy()),
            *(step.own.sentences_R, step.own.nodes_RM, step.own.counts_R),
            *(step.source.sentences_R, step.source.nodes_RM, step.source.counts_R),
        )
        standby.beside(work)
        return torch.from_numpy(given)

    def logits(self, decoded_RD: Tensor) -> Tensor:
        """See `WholeStep`."""
        if isinstance(self.output, InBytes):
            return self.output(decoded_RD)
        bias, no_scale = _bias(self.output), _scale(self.output)
        return product_of_few(self.kernels, decoded_RD, self.output.blocks, bias, no_scale, self.levels)


def _called(step: Callable[..., None], caches: Sequence[LayerCache], *given: object) -> None:
    """Call `step`, which is told where `caches` are; they stay there while a thread may still look."""
    step(*given)


def _matrices(layer: DecoderLayer) -> list[Matrix]:
    """In the order in which a step needs them."""
    attention, cross, feed_forward = layer.attention, layer.cross, layer.feed_forward
    own = [getattr(attention, name, None) for name in ("query_key_value", "output")]  # an SSRU has none
    each = [*own, cross.query, cross.output, feed_forward.inner, feed_forward.outer]
    return [cast(Matrix, getattr(linear, "compute", None)) for linear in each]


def _readable(matrix: object) -> bool:
    return isinstance(matrix, LaidOut | InBytes) and bool(matrix.blocks)


def _scale(matrix: Matrix) -> NDArray[np.float32]:
    return _array(matrix.matrix.scale) if isinstance(matrix, InBytes) else np.empty(0, np.float32)


def _residuals(layer: DecoderLayer) -> list[Residual]:
    return [layer.after_attention, layer.after_cross, layer.after_feed_forward]


def _bias(matrix: Matrix) -> NDArray[np.float32]:
    return _array(matrix.bias) if matrix.bias is not None else np.zeros(matrix.outputs, np.float32)


def _array(x: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = x.detach().numpy()
    return array


def _kept(cache: LayerCache) -> list[Tensor]:
    return [cache.own_keys, cache.own_values, cache.source_keys, cache.source_values]
