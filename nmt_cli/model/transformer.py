"""The Transformer: an encoder, a decoder, and the matrices between ids and vectors.

Whoever trains calls `forward` and gives what comes of it to the loss by `projected`; whoever decodes calls
`begin` once and then `step` and `logits` for each token. Nobody else needs to know what is inside.

Everything runs on flat tokens: S of the source, T of the target, D channels, V entries of the vocabulary.
"""

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.attention.padded import padded
from nmt_cli.errors import UserError
from nmt_cli.model import cache as cached
from nmt_cli.model.cache import DecodingCache, LayerCache, Step, WholeStep
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.embedding import Embedding, embedding_matrix
from nmt_cli.model.layers import LAST_NORMS, CrossAttention, FeedForward, Residual, SelfAttention
from nmt_cli.model.ssru import Ssru
from nmt_cli.ragged import Layout
from nmt_cli.text.vocabulary import Vocabulary

BIAS_COLUMNS = 8
"""What the output matrix grows by for a bias in the loss; tensor cores want multiples of 8."""


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


HISTORIES: dict[str, Callable[[ModelConfig], SelfAttention | Ssru]] = {
    "attention": partial(SelfAttention, causal=True),
    "ssru": Ssru,
}
"""What a decoder's layer begins with."""


class DecoderLayer(nn.Module):
    """Causal self-attention or what stands for it, attention to the source, and feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention, self.cross = HISTORIES[config.decoder_history](config), CrossAttention(config)
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

    def __init__(self, config: ModelConfig, source: Vocabulary, target: Vocabulary, *, joint: bool) -> None:
        """`joint` says that the two vocabularies are one."""
        super().__init__()
        if config.tie == "all" and not joint:
            raise UserError(
                "model.tie is all, but source and target have vocabularies of their own; "
                "set model.tie=decoder, or preprocess with --joint."
            )
        self.config = config
        self.source_vocabulary, self.target_vocabulary = source, target
        entries = len(target)
        target_VD = embedding_matrix(entries, config.width)
        apart = config.tie != "all"
        self.source_embedding = Embedding(
            config, embedding_matrix(len(source), config.width) if apart else target_VD
        )
        self.target_embedding = Embedding(config, target_VD)
        untied = config.tie == "none"
        self.output_matrix = embedding_matrix(entries, config.width) if untied else target_VD
        self.output_bias = nn.Parameter(torch.zeros(entries)) if config.output_bias else None
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.encoder_norm, self.decoder_norm = (LAST_NORMS[config.norm](config) for _ in range(2))
        # Set by `packed.pack` where a translator computes with other numbers than the weights'.
        self.packed_output: Callable[[Tensor], Tensor] | None = None
        self.few_rows: WholeStep | None = None
        self.cache_dtype: torch.dtype | None = None
        """Of the keys and values that decoding keeps; None for that of the weights."""

    @property
    def start(self) -> int | None:
        """What the decoder is given before the first token; None for zeros."""
        return None if self.config.start == "zeros" else self.target_vocabulary.start

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.output_matrix.device

    def forward(self, source_S: Tensor, target_T: Tensor, source: Layout, target: Layout) -> Tensor:
        """[T, D]: what foretells each token of the target, given the source and the tokens before it."""
        encoded_SD = self.encode_by_layers(source_S, source)
        # Over the whole flat batch: what moves from one sentence to the next, `_embedded` replaces by the
        # start.
        x_TD = self._embedded(target_T.roll(1), target.positions, target.longest)
        for layer in self.decoder:
            x_TD = layer(x_TD, encoded_SD, target, source)
        out: Tensor = self.decoder_norm(x_TD)
        return out

    def encode(self, source_S: Tensor, source: Layout) -> Tensor:
        """Return [S, D], by one compiled function if the source is a single short sentence."""
        if self.few_rows and self.few_rows.can_encode(len(source.lengths), source.longest):
            return self.few_rows.encode(source_S, source)
        return self.encode_by_layers(source_S, source)

    def encode_by_layers(self, source_S: Tensor, source: Layout) -> Tensor:
        """Return [S, D]. Each layer is called as a module, so that hooks see its inputs."""
        x_SD = self.source_embedding(source_S, source.positions, source.longest)
        for layer in self.encoder:
            x_SD = layer(x_SD, source)
        out: Tensor = self.encoder_norm(x_SD)
        return out

    def logits(self, decoded_TD: Tensor) -> Tensor:
        """[T, V]; training never holds them, see `nmt_cli.loss`."""
        if self.few_rows and self.few_rows.fits(len(decoded_TD)):
            return self.few_rows.logits(decoded_TD)
        if self.packed_output:
            return self.packed_output(decoded_TD)
        return F.linear(decoded_TD, self.output_matrix, self.output_bias)

    def projected(self, decoded_TD: Tensor) -> tuple[Tensor, Tensor]:
        """Features [T, E] and a matrix [V, E] whose product is the logits; the loss takes no more than that.

        A bias is one more column of the matrix, for a feature that is 1; empty ones keep products fast.
        """
        if self.output_bias is None:
            return decoded_TD, self.output_matrix
        bias_V8 = F.pad(self.output_bias[:, None], (0, BIAS_COLUMNS - 1))
        one_T8 = F.pad(torch.ones_like(decoded_TD[:, :1]), (0, BIAS_COLUMNS - 1))
        return torch.cat([decoded_TD, one_T8], 1), torch.cat([self.output_matrix, bias_V8], 1)

    def begin(self, source_S: Tensor, source: Layout, places: int) -> DecodingCache:
        """What decoding keeps of these sentences, each with end mark: `places` hypotheses, none begun yet."""
        encoded_SD = self.encode(source_S, source)
        sentences, device, room = len(source.lengths), encoded_SD.device, cached.FIRST_STEPS * places
        seen_BS = torch.arange(source.longest, device=device) < source.starts.diff()[:, None]
        return DecodingCache(
            layers=[
                self._layer_cache(layer.cross.keys_values(encoded_SD), source, seen_BS, places)
                for layer in self._decoder_layers()
            ],
            source_seen=seen_BS,
            paths=torch.zeros(sentences, places, room, dtype=torch.bool, device=device),
            depths=torch.zeros(sentences, room, dtype=torch.int64, device=device),
            ages=torch.zeros(sentences, dtype=torch.int64, device=device),
        )

    def step(self, tokens_R: Tensor, rows_R: Tensor, cache: DecodingCache, longest: int) -> Tensor:
        """[R, D]: as `forward`, for the next token of each place in use, of which there are `rows_R`,
        ascending; none of their sentences has `longest` tokens yet. `tokens_R` are the newest of each;
        what is given for a hypothesis without tokens does not matter."""
        step = cache.step(rows_R, self.config.decoder_window, self.output_matrix.dtype)
        if self.few_rows and self.few_rows.can_step(step):
            out = self.few_rows.step(tokens_R, cache, step, longest)
        else:
            sentences_R = step.rows.from_places // cache.places
            # The rows are rounded up, see `Rows`; what the dummies get does not matter.
            tokens_R = F.pad(tokens_R, (0, len(sentences_R) - len(rows_R)))
            # Of sentences that are done nobody asks whether they were too long.
            x_RD = self._embedded(tokens_R, cache.ages[sentences_R].clamp(max=longest - 1), longest)
            for layer, kept in zip(self._decoder_layers(), cache.layers, strict=True):
                x_RD = layer.step(x_RD, kept, step)
            out = self.decoder_norm(x_RD[: len(rows_R)])
        cache.ages += 1
        return out

    def _embedded(self, before_T: Tensor, positions_T: Tensor, longest: int) -> Tensor:
        """[T, D]: the tokens before those at `positions_T`; before the first one, the start."""
        first_T, start = positions_T == 0, self.start
        if start is None:
            out: Tensor = self.target_embedding(before_T, positions_T, longest, blank=first_T)
        else:
            out = self.target_embedding(before_T.masked_fill(first_T, start), positions_T, longest)
        return out

    def _decoder_layers(self) -> list[DecoderLayer]:
        return cast(list[DecoderLayer], list(self.decoder))

    def _layer_cache(
        self, keys_values: tuple[Tensor, Tensor], source: Layout, seen_BS: Tensor, places: int
    ) -> LayerCache:
        unseen_BHS1 = ~seen_BS[:, None, :, None]
        dtype = self.cache_dtype or keys_values[0].dtype
        all_padded = (padded(x.to(dtype), source) for x in keys_values)
        # Padding is weighed with 0, but must be finite for that.
        keys, values = (x.masked_fill(unseen_BHS1, 0.0).contiguous() for x in all_padded)
        sentences, summed = len(source.lengths), self.config.decoder_history == "ssru"
        own = (sentences, 0 if summed else self.config.heads, cached.FIRST_STEPS * places)
        precise = torch.promote_types(self.output_matrix.dtype, torch.float32)
        states = (sentences, places, self.config.width)
        return LayerCache(
            own_keys=keys.new_zeros(*own, self.config.d_k),
            own_values=keys.new_zeros(*own, self.config.d_v),
            source_keys=keys,
            source_values=values,
            states=keys.new_zeros(states, dtype=precise) if summed else None,
        )
