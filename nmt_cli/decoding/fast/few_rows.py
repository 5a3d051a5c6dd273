"""A decoder step of a few rows, or the encoder of a single sentence, as one compiled function on a CPU.

For few rows, a step reads each weight once and computes little. The operations between products, which cost
little in a large batch, then take as long as the products if Python starts each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nmt_cli.attention.cached import ROUND, Paths, whole_segments
from nmt_cli.attention.projections import Heads
from nmt_cli.decoding.fast.int8 import InBytes, product_of_few
from nmt_cli.model.cache import DecodingCache
from nmt_cli.model.config import ModelConfig
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
"""Maximum number of rows. `cached.Rows` would round up larger numbers."""

Matrix = LaidOut | InBytes
Layer = EncoderLayer | DecoderLayer
Caches = tuple[tuple[Tensor, Tensor, Tensor, Tensor], NDArray[np.int64], object]
PHASES = 11
"""Maximum number of phases of a layer: the parallel parts of `compiled.step`."""

MOST_PIECES = 48
"""Maximum tokens of a sentence to encode. PyTorch is as fast for longer ones."""


@dataclass(frozen=True, slots=True)
class Stack:
    """An encoder or decoder whose weights have a layout that the compiled step can read."""

    kernels: ModuleType
    embedding: Embedding
    weights: Any
    """`compiled.Weights`. The model keeps the memory of the matrices."""

    heads: Heads
    widest: int
    """Maximum number of outputs of a matrix in a layer."""

    @staticmethod
    def of(
        kernels: ModuleType, embedding: Embedding, layers: Sequence[Layer], last_norm: nn.Module
    ) -> Stack | None:
        """Return the stack of `layers`. Return None without layers, or if kernels cannot read the weights."""
        matrices_of_layers = [_matrices(layer) for layer in layers]
        if not layers or not all(all(map(_readable, matrices)) for matrices in matrices_of_layers):
            return None
        first = matrices_of_layers[0][0]
        attention, post = cast(SelfAttention, layers[0].attention), layers[0].after_attention.post
        norms = [cast(nn.LayerNorm, one.norm) for layer in layers for one in _residuals(layer)]
        ordered = [norms[0], *norms] if post else [*norms, cast(nn.LayerNorm, last_norm)]
        weights = kernels.Weights(
            matrices_LM=np.array([[one.blocks for one in matrices] for matrices in matrices_of_layers]),
            biases_LC=np.stack([np.concatenate([*map(_bias, matrices)]) for matrices in matrices_of_layers]),
            scales_LC=np.stack([np.concatenate([*map(_scale, matrices)]) for matrices in matrices_of_layers]),
            norms_N2D=np.stack([[_array(norm.weight), _array(norm.bias)] for norm in ordered]),
            levels=first.levels if isinstance(first, InBytes) else 0,
            epsilon=np.float32(norms[0].eps),
            post=post,
        )
        widest = max(len(_bias(one)) for one in matrices_of_layers[0])
        return Stack(kernels, embedding, weights, attention.heads, widest)

    def step(
        self,
        tokens_R: NDArray[np.int64],
        positions_R: NDArray[np.int64],
        longest: int,
        caches: Caches,
        nodes_RH: NDArray[np.int64],
        own: Paths,
        source: Paths,
    ) -> Tensor:
        """Return [R, D]: the output for R tokens at positions below `longest`. Negative ids are zero vectors.

        `caches` has one layer's keys and values, the addresses of all layers' tensors, and their owner. Store
        new keys and values at `nodes_RH`. Rows attend to the nodes `own` and `source`.
        """
        kernels, (heads, key_width, value_width) = self.kernels, self.heads
        (own_keys, _, source_keys, _), addresses, _ = caches
        vectors = self.embedding.matrix.detach().numpy()
        assert self.embedding.positions  # `has_compiled_layers`
        table = self.embedding.positions.table_for(torch.from_numpy(positions_R), longest)
        x, out, y = np.empty((3, len(tokens_R), vectors.shape[1]), np.float32)
        wide, mixed = (
            np.empty((len(tokens_R), columns), np.float32) for columns in (self.widest, heads * value_width)
        )
        work = partial(
            standby.keeping,
            caches,
            kernels.step,
            np.zeros((2, PHASES * len(self.weights.matrices_LM) + 1), np.int64),
            kernels.Tokens(
                tokens_R, positions_R, vectors, table.detach().numpy(), np.float32(self.embedding.scale)
            ),
            self.weights,
            kernels.Cache(
                addresses_L4=addresses,
                like=np.empty(0, as_array(own_keys).dtype),
                new_nodes_RH=nodes_RH,
                sentences=len(own_keys),
                heads=heads,
                own_nodes=own_keys.shape[2],
                source_nodes=source_keys.shape[2],
                key_width=key_width,
                value_width=value_width,
            ),
            kernels.Seen(own.sentences_R, own.nodes_RM, own.counts_R),
            kernels.Seen(source.sentences_R, source.nodes_RM, source.counts_R),
            kernels.Buffers(x_RD=x, input_RD=out, wide_RC=wide, mixed_RC=mixed, y_RD=y),
        )
        standby.beside(work)
        return torch.from_numpy(out)


@dataclass(frozen=True, slots=True)
class FewRows:
    """A model in a form that the compiled step can read."""

    kernels: ModuleType
    start: int
    """Id of the start mark, or -1 if the decoder starts with a zero vector."""

    encoder: Stack
    decoder: Stack
    output: Matrix
    longest: int
    """Maximum tokens of a sentence to encode."""

    @staticmethod
    def of(model: Transformer) -> FewRows | None:
        """Return the compiled form of a CPU model, or None if layers, kernels or weights do not suit."""
        if not _readable(output := model.packed_output) or not has_compiled_layers(model.config):
            return None
        if not (kernels := compiled_kernels("decoding.fast")):
            return None
        encoder, decoder = (
            Stack.of(kernels, embedding, cast(list[Layer], list(layers)), norm)
            for embedding, layers, norm in (
                (model.source_embedding, model.encoder, model.encoder_norm),
                (model.target_embedding, model.decoder, model.decoder_norm),
            )
        )
        if not encoder or not decoder:
            return None
        start = -1 if model.start is None else model.start
        longest = 0 if model.config.encoder_window else MOST_PIECES
        return FewRows(kernels, start, encoder, decoder, cast(Matrix, output), longest)

    def fits(self, rows: int) -> bool:
        """Return whether `rows` is at most `MOST_ROWS`."""
        return rows <= MOST_ROWS

    def can_step(self, step: Step) -> bool:
        """Return whether `step` has lists of nodes (`Paths`), at most `MOST_ROWS` rows, and no coverage."""
        return isinstance(step.own, Paths) and self.fits(len(step.own.counts_R)) and step.coverage is None

    def step(self, tokens_R: Tensor, cache: DecodingCache, step: Step, longest: int) -> Tensor:
        """Return [R, D]: the decoder output after each newest token. Store its keys and values in `cache`."""
        assert isinstance(step.own, Paths) and isinstance(step.source, Paths)
        positions = np.minimum(cache.ages.numpy()[step.own.sentences_R], longest - 1)
        tokens = np.where(positions == 0, self.start, tokens_R.numpy())
        tensors = [layer.all_tensors for layer in cache.layers]
        caches, nodes = (tensors[0], cache.addresses(), tensors), step.nodes_RH.numpy()
        return self.decoder.step(tokens, positions, longest, caches, nodes, step.own, step.source)

    def can_encode(self, sentences: int, longest: int) -> bool:
        """Return whether the batch is one sentence of at most `self.longest` tokens, as `encode` needs."""
        return sentences == 1 and longest <= self.longest

    def encode(self, source_S: Tensor, source: Layout) -> Tensor:
        """Return [S, D]: the encoder's output for the tokens of one sentence, with the layout `source`."""
        own, nodes_TH, keys, values = whole_segments(source, self.encoder.heads, self.kernels)
        cache = keys, values, keys, values
        addresses = np.array([[x.data_ptr() for x in cache]] * len(self.encoder.weights.matrices_LM))
        caches, positions = (cache, addresses, cache), source.positions.long().numpy()
        tokens, nodes = source_S.numpy(), nodes_TH.numpy()
        return self.encoder.step(tokens, positions, source.longest, caches, nodes, own, own)

    def logits(self, decoded_RD: Tensor) -> Tensor:
        """Return [R, V]: the logits for the decoder output, from float or 8-bit weights."""
        if isinstance(self.output, InBytes):
            return self.output(decoded_RD)
        bias, no_scale = _bias(self.output), _scale(self.output)
        return product_of_few(self.kernels, decoded_RD, self.output.blocks, bias, no_scale, 0)


def has_compiled_layers(config: ModelConfig) -> bool:
    """Return whether `compiled.step` knows the norm, the activation and the positions of the layers."""
    plain = config.norm_kind == "layer" and config.activation == "relu" and not config.gated
    return plain and config.positions not in ("rotary", "relative")


def _matrices(layer: Layer) -> list[Matrix]:
    """Return the matrices of a layer in the order of a step, with None for missing or unpacked matrices."""
    attention, feed_forward = layer.attention, layer.feed_forward
    own = [getattr(attention, name, None) for name in ("query_key_value", "output")]  # an SSRU has none
    cross = [layer.cross.query, layer.cross.output] if isinstance(layer, DecoderLayer) else []
    linears = [*own, *cross, feed_forward.inner, feed_forward.outer]
    return [cast(Matrix, getattr(linear, "compute", None)) for linear in linears]


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
