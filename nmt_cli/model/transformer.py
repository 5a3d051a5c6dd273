"""The Transformer: an encoder, a decoder, and the matrices between token ids and vectors.

Training calls `forward`, and passes the result to the loss through `projected`. Decoding calls `begin` once
for a batch, then `step` and `logits` for each token.

All tensors are flat, as in `layers.py`: S source tokens, T target tokens, R rows of a decoding step, D
channels, V entries of the target vocabulary.
"""

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.errors import UserError
from nmt_cli.model.cache import DecodingCache, begin_cache
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.embedding import Embedding, Sinusoids, embedding_matrix
from nmt_cli.model.layer_cache import LayerCache, Step
from nmt_cli.model.layers import (
    CrossAttention,
    FeedForward,
    Residual,
    SelfAttention,
    Ssru,
    norm_of,
    scale_down,
)
from nmt_cli.model.self_positions import RelativeBias, SelfPositions, self_positions
from nmt_cli.ragged import Layout
from nmt_cli.text.vocabulary import Vocabulary

GUIDED_HEAD = 0
"""The head of the last decoder layer that training.guided_alignment teaches alignments, as in Marian."""

BIAS_COLUMNS = 8
"""Columns that `projected` adds for the output bias. Tensor cores need a multiple of 8."""


class EncoderLayer(nn.Module):
    """One encoder layer: self-attention and a feed-forward layer."""

    def __init__(self, config: ModelConfig, positions: SelfPositions | None = None) -> None:
        super().__init__()
        self.attention = SelfAttention(config, positions, causal=False)
        self.feed_forward = FeedForward(config)
        self.after_attention, self.after_feed_forward = Residual(config), Residual(config)
        if config.init == "depth-scaled":
            scale_down([self.attention.output, self.feed_forward.outer], 2 * config.encoder_layers)

    def forward(self, x_SD: Tensor, source: Layout) -> Tensor:
        """Return [S, D]: the output of the layer for each source token."""
        x_SD = self.after_attention(x_SD, lambda x: self.attention(x, source), source)
        out: Tensor = self.after_feed_forward(x_SD, lambda x: self.feed_forward(x, source), source)
        return out


class DecoderLayer(nn.Module):
    """One decoder layer: causal self-attention or an SSRU, attention to the source, feed-forward."""

    def __init__(self, config: ModelConfig, positions: SelfPositions | None = None) -> None:
        super().__init__()
        has_ssru = config.decoder_history == "ssru"
        self.attention: Ssru | SelfAttention = (
            Ssru(config) if has_ssru else SelfAttention(config, positions, causal=True)
        )
        self.cross = CrossAttention(config)
        self.feed_forward = FeedForward(config)
        self.after_attention, self.after_cross = Residual(config), Residual(config)
        self.after_feed_forward = Residual(config)
        if config.init == "depth-scaled":
            own = self.attention.value if isinstance(self.attention, Ssru) else self.attention.output
            scale_down([own, self.cross.output, self.feed_forward.outer], 3 * config.decoder_layers)

    def forward(self, x_TD: Tensor, encoded_SD: Tensor, target: Layout, source: Layout) -> Tensor:
        """Return [T, D]: the output of the layer for each target token."""
        x_TD = self.after_attention(x_TD, lambda x: self.attention(x, target), target)
        x_TD = self.after_cross(x_TD, lambda x: self.cross(x, encoded_SD, target, source), target)
        out: Tensor = self.after_feed_forward(x_TD, lambda x: self.feed_forward(x, target), target)
        return out

    def step(self, x_RD: Tensor, cache: LayerCache, step: Step) -> Tensor:
        """Return [R, D]: the output of the layer for the newest token of each row."""
        x_RD = self.after_attention(x_RD, lambda x: self.attention.step(x, cache, step))
        x_RD = self.after_cross(x_RD, lambda x: self.cross.step(x, cache, step))
        out: Tensor = self.after_feed_forward(x_RD, self.feed_forward)
        return out


class Transformer(nn.Module):
    """An encoder-decoder Transformer. Its `config` has the shape and the variant of each part."""

    def __init__(
        self,
        config: ModelConfig,
        source: Vocabulary,
        target: Vocabulary,
        *,
        joint: bool,
        guided: bool = False,
    ) -> None:
        """Create a random model.

        joint: whether both sides have one vocabulary.
        guided: whether training teaches the attention of `GUIDED_HEAD` the alignments of words.

        Raise `UserError` for one matrix of both embeddings without a joint vocabulary.
        """
        super().__init__()
        has_own_source = config.tie not in ("all", "embeddings")
        if not (has_own_source or joint):
            raise UserError(
                f"model.tie is {config.tie}, but source and target have vocabularies of their own. "
                "Set model.tie=decoder, or preprocess with --joint."
            )
        self.config = config
        self.source_vocabulary, self.target_vocabulary = source, target
        # The paper uses one matrix for both embeddings and the output projection (`tie=all`).
        entries = len(target)
        target_VD = embedding_matrix(entries, config.width)
        source_VD = embedding_matrix(len(source), config.width) if has_own_source else target_VD
        self.source_embedding, self.target_embedding = (
            Embedding(config, source_VD),
            Embedding(config, target_VD),
        )
        has_own_output = config.tie in ("embeddings", "none")
        self.output_matrix = embedding_matrix(entries, config.width) if has_own_output else target_VD
        self.output_bias = nn.Parameter(torch.zeros(entries)) if config.output_bias else None
        # All layers of a stack share its relative positions.
        self.encoder_positions = self_positions(config, causal=False)
        self.decoder_positions = self_positions(config.of_decoder, causal=True)
        self.encoder = nn.ModuleList(
            EncoderLayer(config, self.encoder_positions) for _ in range(config.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(config.of_decoder, self.decoder_positions) for _ in range(config.decoder_layers)
        )
        # Pre-norm normalises the output of the last sub-layer of each stack too.
        self.encoder_norm, self.decoder_norm = (
            norm_of(config) if config.norm == "pre" else nn.Identity() for _ in range(2)
        )
        self.guided = guided
        """Whether attention of `GUIDED_HEAD` to the source was trained on alignments of words."""

    @property
    def start(self) -> int | None:
        """The decoder input before the first token. None is a vector of zeros."""
        return None if self.config.start == "zeros" else self.target_vocabulary.start

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.output_matrix.device

    def forward(self, source_S: Tensor, target_T: Tensor, source: Layout, target: Layout) -> Tensor:
        """Return [T, D]: for each target token, the features that predict it from the source and the earlier
        target tokens.

        `target_T` is not shifted: this method shifts it.
        """
        encoded_SD = self.encode(source_S, source)
        # Decoder inputs are the targets, shifted by one. The shift crosses sentences, but `_embed_inputs`
        # replaces the first input of each sentence by the start token.
        x_TD = self._embed_inputs(target_T.roll(1), target.positions, target.longest, target)
        for layer in self.decoder:
            x_TD = layer(x_TD, encoded_SD, target, source)
        out: Tensor = self.decoder_norm(x_TD)
        return out

    def encode(self, source_S: Tensor, source: Layout) -> Tensor:
        """Return [S, D]: the encoder output. Each layer is called as a module, so hooks see its inputs."""
        x_SD = self.source_embedding(source_S, source.positions, source.longest, layout=source)
        for layer in self.encoder:
            x_SD = layer(x_SD, source)
        out: Tensor = self.encoder_norm(x_SD)
        return out

    def logits(self, decoded_TD: Tensor) -> Tensor:
        """Return [T, V]: the score of each vocabulary entry, before the softmax. Training uses
        `projected`."""
        return F.linear(decoded_TD, self.output_matrix, self.output_bias)

    def projected(self, decoded_TD: Tensor) -> tuple[Tensor, Tensor]:
        """Return features [T, E] and a matrix [V, E], whose product is the logits. The loss takes both, since
        all logits would fill the memory.

        An output bias is one more column of the matrix, where the feature is 1. Columns of zeros follow it,
        to keep products fast.
        """
        if self.output_bias is None:
            return decoded_TD, self.output_matrix
        bias_V8 = F.pad(self.output_bias[:, None], (0, BIAS_COLUMNS - 1))
        one_T8 = F.pad(torch.ones_like(decoded_TD[:, :1]), (0, BIAS_COLUMNS - 1))
        return torch.cat([decoded_TD, one_T8], 1), torch.cat([self.output_matrix, bias_V8], 1)

    def begin(self, source_S: Tensor, source: Layout, slots: int) -> DecodingCache:
        """Encode sentences that include end tokens. Return a cache with `slots` empty hypotheses for each."""
        encoded_SD = self.encode(source_S, source)
        keys_values = [layer.cross.keys_values(encoded_SD) for layer in self._decoder_layers()]
        return begin_cache(self.config.of_decoder, keys_values, source, slots, self.output_matrix.dtype)

    def step(self, tokens_R: Tensor, rows_R: Tensor, cache: DecodingCache, longest: int) -> Tensor:
        """Return [R, D]: the decoder output for the next token of each hypothesis, as `forward` computes it.

        tokens_R: the newest token of each hypothesis, or any token for an empty one.
        rows_R: the slots in use, ascending.
        cache: gets the tokens.
        longest: more than the tokens of each hypothesis.
        """
        positions, window = self.decoder_positions, self.config.window
        relative = positions if isinstance(positions, RelativeBias) else None
        step = cache.step(rows_R, window, self.output_matrix.dtype, relative)
        sentences_R = step.rows.from_slots // cache.slots
        # `Rows` adds dummy rows. Their results are not used.
        tokens_R = F.pad(tokens_R, (0, len(sentences_R) - len(rows_R)))
        # Hypotheses of finished sentences may be longer than `longest`.
        positions_R = cache.ages[sentences_R].clamp(max=longest - 1)
        x_RD = self._embed_inputs(tokens_R, positions_R, longest)
        if isinstance(positions, Sinusoids):
            step = replace(step, waves_RK=positions(positions_R, longest))
        for layer, layer_cache in zip(self._decoder_layers(), cache.layers, strict=True):
            x_RD = layer.step(x_RD, layer_cache, step)
        out: Tensor = self.decoder_norm(x_RD[: len(rows_R)])
        cache.ages += 1
        return out

    def _embed_inputs(
        self, previous_T: Tensor, positions_T: Tensor, longest: int, layout: Layout | None = None
    ) -> Tensor:
        """Return [T, D]: the embeddings of the decoder's inputs `previous_T`.

        At position 0, the input is the start token. Without a start token, its embedding is zeros, so that
        only the position is left. In training, `layout` has the segments of the tokens.
        """
        first_T, start = positions_T == 0, self.start
        if start is not None:
            previous_T = previous_T.masked_fill(first_T, start)
        zeroed_T = first_T if start is None else None
        out: Tensor = self.target_embedding(previous_T, positions_T, longest, zeroed_T, layout)
        return out

    def _decoder_layers(self) -> list[DecoderLayer]:
        return cast(list[DecoderLayer], list(self.decoder))
