"""The Transformer: an encoder, a decoder, and the matrices between ids and vectors.

Everything runs on flat tokens: S of the source, T of the target, D channels, V entries of the vocabulary.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.attention.padded import padded
from nmt_cli.errors import UserError
from nmt_cli.model import cache as cached
from nmt_cli.model.cache import DecodingCache, LayerCache, Step
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.embedding import Embedding, embedding_matrix
from nmt_cli.model.layers import CrossAttention, FeedForward, Residual, SelfAttention
from nmt_cli.ragged import Layout


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention, self.feed_forward = SelfAttention(config, causal=False), FeedForward(config)
        self.after_attention, self.after_feed_forward = Residual(config), Residual(config)

    def forward(self, x_SD: Tensor, source: Layout) -> Tensor:
        """[S, D] to [S, D]."""
        x_SD = self.after_attention(x_SD, lambda x: self.attention(x, source))
        out: Tensor = self.after_feed_forward(x_SD, self.feed_forward)
        return out


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the source, and feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention, self.cross = SelfAttention(config, causal=True), CrossAttention(config)
        self.feed_forward = FeedForward(config)
        self.after_attention, self.after_cross = Residual(config), Residual(config)
        self.after_feed_forward = Residual(config)

    def forward(self, x_TD: Tensor, encoded_SD: Tensor, target: Layout, source: Layout) -> Tensor:
        """[T, D] to [T, D]."""
        x_TD = self.after_attention(x_TD, lambda x: self.attention(x, target))
        x_TD = self.after_cross(x_TD, lambda x: self.cross(x, encoded_SD, target, source))
        out: Tensor = self.after_feed_forward(x_TD, self.feed_forward)
        return out

    def step(self, x_RD: Tensor, cache: LayerCache, step: Step) -> Tensor:
        """The next token of each row, [R, D] to [R, D]."""
        x_RD = self.after_attention(x_RD, lambda x: self.attention.step(x, cache, step))
        x_RD = self.after_cross(x_RD, lambda x: self.cross.step(x, cache, step))
        out: Tensor = self.after_feed_forward(x_RD, self.feed_forward)
        return out


class Transformer(nn.Module):
    """The one model; what it is made of is in its `config`."""

    def __init__(
        self, config: ModelConfig, source_vocabulary: int, target_vocabulary: int, *, joint: bool
    ) -> None:
        """Vocabularies by size; `joint` says that the two are one."""
        super().__init__()
        if config.tie == "all" and not joint:
            raise UserError(
                "model.tie is all, but source and target have vocabularies of their own; "
                "set model.tie=decoder, or preprocess with --joint."
            )
        self.config = config
        target_VD = embedding_matrix(target_vocabulary, config.width)
        apart = config.tie != "all"
        self.source_embedding = Embedding(
            config, embedding_matrix(source_vocabulary, config.width) if apart else target_VD
        )
        self.target_embedding = Embedding(config, target_VD)
        untied = config.tie == "none"
        self.output_matrix = embedding_matrix(target_vocabulary, config.width) if untied else target_VD
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.encoder_norm, self.decoder_norm = _last_norm(config), _last_norm(config)
        self.packed_output: Callable[[Tensor], Tensor] | None = None
        self.cache_dtype: torch.dtype | None = None
        """Of the keys and values that decoding keeps; None for that of the weights."""

    def forward(self, source_S: Tensor, inputs_T: Tensor, source: Layout, target: Layout) -> Tensor:
        """[T, D]: what the decoder makes of each target token, given the source and the tokens up to it."""
        encoded_SD = self.encode(source_S, source)
        x_TD = self.target_embedding(inputs_T, target.positions, target.longest)
        for layer in self.decoder:
            x_TD = layer(x_TD, encoded_SD, target, source)
        out: Tensor = self.decoder_norm(x_TD)
        return out

    def encode(self, source_S: Tensor, source: Layout) -> Tensor:
        """[S, D]."""
        x_SD = self.source_embedding(source_S, source.positions, source.longest)
        for layer in self.encoder:
            x_SD = layer(x_SD, source)
        out: Tensor = self.encoder_norm(x_SD)
        return out

    def logits(self, decoded_TD: Tensor) -> Tensor:
        """[T, V]; training never holds them, see `nmt_cli.loss`."""
        if self.packed_output:
            return self.packed_output(decoded_TD)
        return F.linear(decoded_TD, self.output_matrix)

    def start(self, encoded_SD: Tensor, source: Layout, places: int) -> DecodingCache:
        """A cache without target tokens, with `places` for hypotheses of each source sentence."""
        sentences, device = len(source.lengths), encoded_SD.device
        room = cached.BLOCK * places
        seen_BS = torch.arange(source.longest, device=device) < source.starts.diff()[:, None]
        return DecodingCache(
            layers=[
                self._layer_cache(layer.cross.keys_values(encoded_SD), source, seen_BS, room)
                for layer in self._decoder_layers()
            ],
            source_seen=seen_BS,
            paths=torch.zeros(sentences, places, room, dtype=torch.bool, device=device),
            depths=torch.zeros(sentences, room, dtype=torch.int64, device=device),
            ages=torch.zeros(sentences, dtype=torch.int64, device=device),
        )

    def step(self, tokens_R: Tensor, rows_R: Tensor, cache: DecodingCache, longest: int) -> Tensor:
        """[R, D]: as `forward`, for the next token of each place in use, of which there are `rows_R`,
        ascending; none of their sentences has `longest` tokens yet."""
        step = cache.step(rows_R, self.config.decoder_window, self.output_matrix.dtype)
        sentences_R = step.rows.from_places // cache.places
        tokens_R = F.pad(tokens_R, (0, len(sentences_R) - len(rows_R)))
        x_RD = self.target_embedding(tokens_R, cache.ages[sentences_R], longest)
        for layer, kept in zip(self._decoder_layers(), cache.layers, strict=True):
            x_RD = layer.step(x_RD, kept, step)
        cache.ages += 1
        out: Tensor = self.decoder_norm(x_RD[: len(rows_R)])
        return out

    def _decoder_layers(self) -> list[DecoderLayer]:
        return cast(list[DecoderLayer], list(self.decoder))

    def _layer_cache(
        self, keys_values: tuple[Tensor, Tensor], source: Layout, seen_BS: Tensor, room: int
    ) -> LayerCache:
        unseen_BHS1 = ~seen_BS[:, None, :, None]
        dtype = self.cache_dtype or keys_values[0].dtype
        all_padded = (padded(x.to(dtype), source) for x in keys_values)
        keys, values = (x.masked_fill(unseen_BHS1, 0.0).contiguous() for x in all_padded)
        own = (len(source.lengths), self.config.heads, room)
        return LayerCache(
            own_keys=keys.new_zeros(*own, self.config.d_k),
            own_values=keys.new_zeros(*own, self.config.d_v),
            source_keys=keys,
            source_values=values,
        )


def _last_norm(config: ModelConfig) -> nn.Module:
    if config.norm == "post":
        return nn.Identity()
    return nn.LayerNorm(config.width, eps=config.norm_epsilon)
