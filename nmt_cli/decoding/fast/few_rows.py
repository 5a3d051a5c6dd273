"""A step of the decoder for a few rows on a CPU, and the encoder of a line that is alone: one compiled
function, in as many threads as are free.

A step of a lone line reads each weight once and does little with it. What lies between products, of no weight
in a large batch, then takes as long as they do while Python walks from one to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nmt_cli.attention.cached import ROUND, Paths, whole_segments
from nmt_cli.attention.projections import Heads
from nmt_cli.decoding.fast.int8 import InBytes, product_of_few
from nmt_cli.model.cache import DecodingCache
from nmt_cli.model.embedding import Embedding
from nmt_cli.model.layer_cache import Step
from nmt_cli.model.layers import Residual, SelfAttention
from nmt_cli.model.transformer import DecoderLayer, EncoderLayer, Transformer
from nmt_cli.ragged import Layout
from nmt_cli.runtime.kernels import standby
from nmt_cli.runtime.kernels.arrays import as_array
from nmt_cli.runtime.kernels.loading import compiled_kernels
from nmt_cli.runtime.kernels.torch_private import LaidOut

MOST_ROWS = ROUND
"""Not more: `cached.Rows` would round these up."""

Matrix = LaidOut | InBytes
Layer = EncoderLayer | DecoderLayer
Caches = tuple[tuple[Tensor, Tensor, Tensor, Tensor], NDArray[np.int64], object]
PHASES = 11
"""Of a layer at most, see `compiled.step`."""

MOST_PIECES = 48
"""Of a sentence that is encoded so: more of them are multiplied as fast by PyTorch."""


@dataclass(frozen=True, slots=True)
class Stack:
    """An encoder or decoder whose weights are laid out in a way that the compiled step can read."""

    embedding: Embedding
    matrices_LM: NDArray[np.int64]
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
    widest: int
    """The most outputs of a layer's matrix."""

    @staticmethod
    def of(embedding: Embedding, layers: Sequence[Layer], last_norm: nn.Module) -> Stack | None:
        """None where its weights are not readable."""
        each = [_matrices(layer) for layer in layers]
        if not layers or not all(all(map(_readable, matrices)) for matrices in each):
            return None
        first = each[0][0]
        attention, post = cast(SelfAttention, layers[0].attention), layers[0].after_attention.post
        norms = [one.norm for layer in layers for one in _residuals(layer)]
        ordered = [norms[0], *norms] if post else [*norms, cast(nn.LayerNorm, last_norm)]
        return Stack(
            embedding=embedding,
            matrices_LM=np.array([[one.blocks for one in matrices] for matrices in each]),
            biases_LC=np.stack([np.concatenate(list(map(_bias, matrices))) for matrices in each]),
            scales_LC=np.stack([np.concatenate(list(map(_scale, matrices))) for matrices in each]),
            levels=first.levels if isinstance(first, InBytes) else 0,
            norms_N2D=np.stack([[_array(norm.weight), _array(norm.bias)] for norm in ordered]),
            epsilon=norms[0].eps,
            post=post,
            shape=attention.shape,
            widest=max(len(_bias(one)) for one in each[0]),
        )

    def step(
        self,
        kernels: ModuleType,
        tokens_R: NDArray[np.int64],
        positions_R: NDArray[np.int64],
        longest: int,
        caches: Caches,
        nodes_RH: NDArray[np.int64],
        own: Paths,
        source: Paths,
    ) -> Tensor:
        """Return [R, D]: the output for tokens at positions less than `longest`. A negative token has zeros.

        `caches` are a layer's own keys and values and those of the source, the addresses of the caches of all
        layers, and an object that keeps them in memory.
        """
        (own_keys, _, source_keys, _), addresses, _ = caches
        heads, width, value_width = self.shape
        vectors = self.embedding.matrix.detach().numpy()
        positions = self.embedding.positions.table_for(torch.from_numpy(positions_R), longest)
        sizes = (
            len(own_keys),
            heads,
            own_keys.shape[2],
            source_keys.shape[2],
            width,
            value_width,
            self.levels,
        )
        x, out, y = np.empty((3, len(tokens_R), vectors.shape[1]), np.float32)
        wide, mixed = (
            np.empty((len(tokens_R), columns), np.float32) for columns in (self.widest, heads * value_width)
        )
        work = partial(
            standby.keeping,
            caches,
            kernels.step,
            np.zeros((2, PHASES * len(self.matrices_LM) + 1), np.int64),
            *(tokens_R, positions_R, vectors, positions.detach().numpy(), np.float32(self.embedding.scale)),
            *(self.matrices_LM, addresses, np.empty(0, as_array(own_keys).dtype)),
            *(self.biases_LC, self.scales_LC, self.norms_N2D, np.float32(self.epsilon), self.post),
            *(x, out, wide, mixed, y, np.array(sizes)),
            *(nodes_RH, own.sentences_R, own.nodes_RM, own.counts_R),
            *(source.sentences_R, source.nodes_RM, source.counts_R),
        )
        standby.beside(work)
        return torch.from_numpy(out)


@dataclass(frozen=True, slots=True)
class FewRows:
    """A model that the compiled step can read."""

    kernels: ModuleType
    start: int
    """Or -1 for zeros; see `Transformer.start`."""

    encoder: Stack
    decoder: Stack
    output: Matrix
    longest: int
    """Pieces of a sentence that it encodes."""

    @staticmethod
    def of(model: Transformer) -> FewRows | None:
        """For a model whose products are packed, and norms are not yet; None where it has to do without."""
        if not _readable(output := model.packed_output) or model.config.activation != "relu":
            return None
        encoder, decoder = (
            Stack.of(embedding, cast(list[Layer], list(layers)), norm)
            for embedding, layers, norm in (
                (model.source_embedding, model.encoder, model.encoder_norm),
                (model.target_embedding, model.decoder, model.decoder_norm),
            )
        )
        if not encoder or not decoder or not (kernels := compiled_kernels("decoding.fast")):
            return None
        start = -1 if model.start is None else model.start
        longest = 0 if model.config.encoder_window else MOST_PIECES
        return FewRows(kernels, start, encoder, decoder, cast(Matrix, output), longest)

    def fits(self, rows: int) -> bool:
        """See `WholeStep`."""
        return rows <= MOST_ROWS

    def can_step(self, step: Step) -> bool:
        """See `WholeStep`."""
        return isinstance(step.own, Paths) and self.fits(len(step.own.counts_R)) and step.coverage is None

    def step(self, tokens_R: Tensor, cache: DecodingCache, step: Step, longest: int) -> Tensor:
        """See `WholeStep`."""
        assert isinstance(step.own, Paths) and isinstance(step.source, Paths)
        positions = np.minimum(cache.ages.numpy()[step.own.sentences_R], longest - 1)
        tokens = np.where(positions == 0, self.start, tokens_R.numpy())
        nodes = step.nodes_RH.numpy()
        return self.decoder.step(
            self.kernels, tokens, positions, longest, _caches(cache), nodes, step.own, step.source
        )

    def can_encode(self, sentences: int, longest: int) -> bool:
        """See `WholeStep`."""
        return sentences == 1 and longest <= self.longest

    def encode(self, source_S: Tensor, source: Layout) -> Tensor:
        """See `WholeStep`."""
        own, nodes_TH, keys, values = whole_segments(source, self.encoder.shape, self.kernels)
        kept = keys, values, keys, values
        addresses = np.array([[each.data_ptr() for each in kept]] * len(self.encoder.matrices_LM))
        caches, positions = (kept, addresses, kept), source.positions.long().numpy()
        given = self.kernels, source_S.numpy(), positions, source.longest, caches
        return self.encoder.step(*given, nodes_TH.numpy(), own, own)

    def logits(self, decoded_RD: Tensor) -> Tensor:
        """See `WholeStep`."""
        if isinstance(self.output, InBytes):
            return self.output(decoded_RD)
        bias, no_scale = _bias(self.output), _scale(self.output)
        return product_of_few(self.kernels, decoded_RD, self.output.blocks, bias, no_scale, 0)


def _caches(cache: DecodingCache) -> Caches:
    kept = [layer.all_tensors for layer in cache.layers]
    return kept[0], cache.addresses(), kept


def _matrices(layer: Layer) -> list[Matrix]:
    """In the order in which a step needs them."""
    attention, feed_forward = layer.attention, layer.feed_forward
    own = [getattr(attention, name, None) for name in ("query_key_value", "output")]  # an SSRU has none
    cross = [layer.cross.query, layer.cross.output] if isinstance(layer, DecoderLayer) else []
    each = [*own, *cross, feed_forward.inner, feed_forward.outer]
    return [cast(Matrix, getattr(linear, "compute", None)) for linear in each]


def _readable(matrix: object) -> bool:
    return isinstance(matrix, LaidOut | InBytes) and bool(matrix.blocks)


def _scale(matrix: Matrix) -> NDArray[np.float32]:
    return _array(matrix.matrix.scale) if isinstance(matrix, InBytes) else np.empty(0, np.float32)


def _residuals(layer: Layer) -> list[Residual]:
    cross = [layer.after_cross] if isinstance(layer, DecoderLayer) else []
    return [layer.after_attention, *cross, layer.after_feed_forward]


def _bias(matrix: Matrix) -> NDArray[np.float32]:
    return _array(matrix.bias) if matrix.bias is not None else np.zeros(matrix.outputs, np.float32)


def _array(x: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = x.detach().numpy()
    return array
