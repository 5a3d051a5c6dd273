"""The weights of a Transformer in the form that the compiled functions read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nmt_cli.model.config import ModelConfig
from nmt_cli.model.embedding import Embedding, LearnedPositions, Sinusoids
from nmt_cli.model.layers import Residual, Ssru
from nmt_cli.model.self_positions import RelativeBias, SelfPositions
from nmt_cli.model.transformer import DecoderLayer, EncoderLayer, Transformer
from nmt_cli.runtime.kernels.loading import compiled_kernels

KERNELS = "engine.kernels.steps"
"""The module with the function that Python calls."""

BLOCK = 64
"""Outputs of a block of a packed matrix, see `kernels/products.py`."""

ACTIVATIONS = "relu", "gelu", "gelu_tanh", "swish"
NO_ACTIVATION = len(ACTIVATIONS)
"""The numbers of activations in `kernels/layers.py` are their indices."""

KNOWN: Mapping[str, Sequence[object]] = {
    "window": (0,),
    "norm": ("post", "pre"),
    "norm_kind": ("layer", "rms"),
    "activation": ACTIVATIONS,
    "decoder_history": ("attention", "ssru"),
    "positions": ("sinusoidal", "marian", "learned", "rotary", "relative"),
    "start": ("mark", "zeros"),
}
"""The choices of a model that the functions know, of those that they have to apply by name."""

X, INPUT, WIDE, MIXED, Y, LOGITS = range(6)
"""The buffers of `kernels/layers.py`."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The input of a stack: token vectors and positions."""

    vectors: NDArray[np.float32]
    scale: float
    added: Sinusoids | LearnedPositions | None
    """Positions that are added to the vectors."""

    acting: SelfPositions | None
    """Positions that act in self-attention."""

    @staticmethod
    def of(side: Embedding, acting: SelfPositions | None) -> Inputs:
        """Copy the input of a stack. The weights of a model may be a mapped file, which others change."""
        return Inputs(_array(side.matrix).copy(), side.scale, deepcopy(side.positions), deepcopy(acting))

    def refuse_longer(self, tokens: int) -> None:
        """Raise `UserError` if not all of `tokens` tokens have a position."""
        if self.added:
            self.added.table_for(torch.arange(tokens), tokens)

    def embedding(self, kernels: Any, longest: int, used: int, distances: Tensor) -> Any:
        """Return `steps.Embedding` for sentences of at most `longest` tokens, of which the first `used` need
        positions. `distances` are those of relative positions."""
        added = waves = bias = np.empty((0, 0), np.float32)
        if self.added:
            added = _array(self.added.table_for(torch.arange(used), longest))
        if isinstance(self.acting, RelativeBias):
            bias = _array(self.acting(distances).T)
        elif self.acting:
            waves = _array(self.acting.table_for(torch.arange(used), longest))
        return kernels.Embedding(self.vectors, added, np.float32(self.scale), waves, bias)


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Packed:
    """A model as arrays."""

    kernels: Any
    """The module `KERNELS`."""

    model: Transformer
    weights: Any
    """`layers.Weights`."""

    encoder: NDArray[np.int64]
    decoder: NDArray[np.int64]
    """The programs of both stacks, see `kernels/steps.py`."""

    inputs: list[Inputs]
    """The inputs of encoder and decoder."""

    matrices: list[NDArray[Any]]
    """The packed matrices, whose addresses are in `weights`."""

    @property
    def source(self) -> int:
        """Numbers that a decoder layer keeps of a source token: keys and values of all heads."""
        config = self.model.config.of_decoder
        return config.heads * (config.d_k + config.d_v)

    @property
    def cached(self) -> int:
        """Numbers that a decoder layer keeps of a target token: also keys and values, or an SSRU's state."""
        return self.model.config.width if self.model.config.decoder_history == "ssru" else self.source

    @property
    def int8(self) -> bool:
        """True if the weights have 8 bits."""
        return self.matrices[0].dtype == np.int8

    @property
    def widest(self) -> int:
        """Maximum outputs of a matrix inside the layers."""
        # Without the last one, the output matrix, whose results have their own buffer.
        return int(self.weights.matrices[:-1, 2].max())

    def encoding(self, longest: int) -> Any:
        """Return `steps.Task` to encode sentences of at most `longest` tokens. Raise `UserError` if the model
        has fewer learned positions."""
        distances = torch.arange(1 - longest, longest)
        embedding = self.inputs[0].embedding(self.kernels, longest, longest, distances)
        norm = 0 if self.model.config.norm == "pre" else -1
        return self.kernels.Task(self.encoder, norm, embedding, start=-1, steps=0)

    def extending(self, longest: int, steps: int) -> Any:
        """Return `steps.Task` to extend hypotheses, to at most `longest` tokens. The search refuses caps
        beyond learned positions."""
        config, start = self.model.config, self.model.start
        embedding = self.inputs[1].embedding(self.kernels, longest, 1, torch.arange(1 - longest, 1))
        norm = 2 * config.encoder_layers + 1 if config.norm == "pre" else -1
        return self.kernels.Task(self.decoder, norm, embedding, -1 if start is None else start, steps)

    def release(self) -> None:
        """Free the memory of the weights. The model cannot be decoded afterwards."""
        self.inputs.clear()
        self.matrices.clear()


@torch.no_grad()
def packed(model: Transformer, int8: bool, listing: bool = False) -> Packed | None:
    """Return the packed model, or None without Numba or for a model that the functions do not know.

    With `listing`, it can restrict the vocabulary to shortlists.
    """
    config = model.config
    known = all(getattr(config, name) in choices for name, choices in KNOWN.items())
    if not known or not (kernels := compiled_kernels(KERNELS)):
        return None
    encoder, decoder = cast(list[EncoderLayer], [*model.encoder]), cast(list[DecoderLayer], [*model.decoder])
    table = _Table(int8)
    program = _Program(kernels, config, norm=1)
    for one in encoder:
        program.attend_own(table.add(one.attention.query_key_value, one.attention.output))
        program.feed_forward(table.add(one.feed_forward.inner, one.feed_forward.outer))
    program_of_decoder = _Program(kernels, config.of_decoder, norm=2 * len(encoder) + 2, decoder=True)
    for number, layer in enumerate(decoder):
        own, cross = layer.attention, layer.cross
        if isinstance(own, Ssru):
            program_of_decoder.advance_states(table.add(own.forget, own.value))
        else:
            program_of_decoder.attend_own(table.add(own.query_key_value, own.output))
        program.keep_source(number, table.add(cross.key_value))
        program_of_decoder.attend_source(table.add(cross.query, cross.output))
        program_of_decoder.feed_forward(table.add(layer.feed_forward.inner, layer.feed_forward.outer))
    program_of_decoder.multiply(table.add_matrix(model.output_matrix, model.output_bias), INPUT, LOGITS)
    by_rows = _array(model.output_matrix) if listing else np.empty((0, 0), np.float32)
    norms = [
        *_norms(
            [one for x in encoder for one in (x.after_attention, x.after_feed_forward)], model.encoder_norm
        ),
        *_norms(
            [one for x in decoder for one in (x.after_attention, x.after_cross, x.after_feed_forward)],
            model.decoder_norm,
        ),
    ]
    weights = kernels.Weights(
        matrices=np.array(table.rows, np.int64),
        floats=np.concatenate(table.floats),
        sums=np.concatenate(table.sums),
        norms=np.stack(norms),
        epsilon=np.float32(config.norm_epsilon),
        rms=config.norm_kind == "rms",
        # A copy, because the weights of a model may be a mapped file.
        rows_VI=np.empty((0, 0), np.float32) if int8 else by_rows.copy(),
        bytes_VI=_rounded(by_rows, 64)[0] if int8 else np.empty((0, 0), np.int8),
    )
    target = Inputs.of(model.target_embedding, model.decoder_positions)
    source = Inputs.of(model.source_embedding, model.encoder_positions)
    if model.source_embedding.matrix is model.target_embedding.matrix:
        source = replace(source, vectors=target.vectors)
    return Packed(
        kernels,
        model,
        weights,
        encoder=np.array(program.rows, np.int64),
        decoder=np.array(program_of_decoder.rows, np.int64),
        inputs=[source, target],
        matrices=table.memory,
    )


class _Program:
    """The operations of an encoder or decoder, which `kernels/steps.py` explains."""

    def __init__(self, kernels: Any, config: ModelConfig, norm: int, decoder: bool = False) -> None:
        """`norm` is the number of the norm after the first sub-layer."""
        self.rows: list[tuple[int, int, int, int, int]] = []
        self._kernels, self._config, self._norm, self._decoder = kernels, config, norm, decoder
        self._layer = -1

    def multiply(self, matrix: int, inputs: int, outputs: int, activation: int = NO_ACTIVATION) -> None:
        """Append a product of a buffer with a matrix."""
        self.rows.append((self._kernels.MULTIPLY, matrix, inputs, outputs, activation))

    def attend_own(self, matrix: int) -> None:
        """Append self-attention, by the matrix of queries, keys and values and the one after it."""
        kernels, config = self._kernels, self._config
        self._layer += 1
        self.multiply(matrix, INPUT, WIDE)
        if config.positions == "rotary":
            self.rows.append((kernels.TURN, config.heads, config.d_k, 0, 0))
        self._attend(kernels.ATTEND_PATH if self._decoder else kernels.ATTEND_SENTENCE)
        self.multiply(matrix + 1, MIXED, Y)
        self._add_up()

    def advance_states(self, matrix: int) -> None:
        """Append an SSRU. The matrices of its gate and of its values begin at `matrix`."""
        self._layer += 1
        self.multiply(matrix, INPUT, WIDE)
        self.multiply(matrix + 1, INPUT, MIXED)
        self.rows.append((self._kernels.SSRU, self._layer, 0, 0, 0))
        self._add_up()

    def keep_source(self, layer: int, matrix: int) -> None:
        """Append the keys and values of the source for a decoder layer, by `matrix`."""
        self.multiply(matrix, INPUT, WIDE)
        self.rows.append((self._kernels.KEEP_SOURCE, layer, 0, 0, 0))

    def attend_source(self, matrix: int) -> None:
        """Append attention to the source. The matrices of queries and outputs begin at `matrix`."""
        self.multiply(matrix, INPUT, WIDE)
        self._attend(self._kernels.ATTEND_SOURCE)
        self.multiply(matrix + 1, MIXED, Y)
        self._add_up()

    def feed_forward(self, matrix: int) -> None:
        """Append a feed-forward layer, whose two matrices begin at `matrix`."""
        activation = ACTIVATIONS.index(self._config.activation)
        self.multiply(matrix, INPUT, WIDE, NO_ACTIVATION if self._config.gated else activation)
        if self._config.gated:
            self.rows.append((self._kernels.GATE, self._config.feed_forward, activation, 0, 0))
        self.multiply(matrix + 1, WIDE, Y)
        self._add_up()

    def _attend(self, kind: int) -> None:
        config = self._config
        self.rows.append((kind, self._layer, config.heads, config.d_k, config.d_v))

    def _add_up(self) -> None:
        self.rows.append((self._kernels.ADD_UP, self._norm, int(self._config.norm == "post"), 0, 0))
        self._norm += 1


def _norms(residuals: Sequence[Residual], last: nn.Module) -> list[NDArray[np.float32]]:
    """Return weight and bias [2, D] of the norms of a stack: before the first sub-layer, and after each.

    `last` is the norm at the end of a stack with pre-norm. With post-norm, nothing is normed before the first
    sub-layer, and the first result is not used.
    """
    own = [one.norm for one in residuals]
    ordered = own[:1] + own if isinstance(last, nn.Identity) else [*own, cast(nn.LayerNorm, last)]
    results = []
    for norm in ordered:
        weight, bias = _array(norm.weight), getattr(norm, "bias", None)
        results.append(np.stack([weight, np.zeros_like(weight) if bias is None else _array(bias)]))
    return results


class _Table:
    """Packed matrices, and the rows of `Weights.matrices` that describe them."""

    def __init__(self, int8: bool) -> None:
        self._int8, self._count = int8, 0
        self.rows: list[tuple[int, int, int, int, int]] = []
        self.floats, self.sums = list[NDArray[np.float32]](), list[NDArray[np.int32]]()
        self.memory: list[NDArray[Any]] = []

    def add(self, *linears: nn.Linear) -> int:
        """Append the matrices of linear layers. Return the number of the first."""
        return min([self.add_matrix(linear.weight, linear.bias) for linear in linears])

    def add_matrix(self, weight: Tensor, bias: Tensor | None) -> int:
        """Append a matrix [outputs, inputs], and return its number."""
        outputs, inputs = weight.shape
        matrix, scale = _array(weight), -1
        first = self._append(np.zeros(outputs, np.float32) if bias is None else _array(bias))
        if self._int8:
            rounded, largest = _rounded(matrix)
            self.sums[-1] = rounded.sum(1, dtype=np.int32)
            scale = self._append(largest)
        blocks = laid_out(rounded if self._int8 else matrix)
        self.memory.append(blocks)
        self.rows.append((blocks.ctypes.data, inputs, outputs, first, scale))
        return len(self.rows) - 1

    def _append(self, values: NDArray[np.float32]) -> int:
        """Append numbers of the outputs of a matrix. Return the index of the first."""
        first = self._count
        self.floats.append(values)
        self.sums.append(np.zeros(len(values), np.int32))
        self._count += len(values)
        return first


def _rounded(matrix: NDArray[np.float32], multiple: int = 1) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return a matrix [outputs, inputs] in 8 bits, with zeros up to a multiple of inputs, and the scale of
    each output."""
    # A row of zeros must not be divided by 0.
    largest = np.abs(matrix).max(1, initial=np.finfo(np.float32).tiny) / np.float32(127)
    rounded = np.rint(matrix / largest[:, None]).astype(np.int8)
    return np.pad(rounded, ((0, 0), (0, -matrix.shape[1] % multiple))), largest


def laid_out(matrix: NDArray[Any]) -> NDArray[Any]:
    """Return a matrix [outputs, inputs] in blocks: [blocks, inputs, 64, 1], or [blocks, inputs / 4, 64, 4] of
    bytes. Missing outputs and inputs are zeros."""
    together = 4 if matrix.dtype == np.int8 else 1
    padded = np.pad(matrix, ((0, -matrix.shape[0] % BLOCK), (0, -matrix.shape[1] % together)))
    blocks = padded.reshape(len(padded) // BLOCK, BLOCK, -1, together)
    return np.ascontiguousarray(blocks.transpose(0, 2, 1, 3))


def _array(x: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = x.detach().float().contiguous().numpy()
    return array
