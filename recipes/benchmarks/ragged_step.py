"""Times a training step on the CPU, ragged and padded. Prints a table to keep in README.md.

python -m recipes.benchmarks.ragged_step     needs NMT_DATA

Forward and backward of the preset `small`, dropout included, the optimiser left out; the same weights run as
most toolkits run them: every layer on [batch, longest, channels], and the loss on all places, filler ignored.

S source tokens, T target tokens, D channels, H heads; B sentences, M and N the longest of each side.
"""

import statistics
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import cast

import click
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.config import preset_path
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.embedding import Embedding
from nmt_cli.model.layers import CrossAttention, SelfAttention
from nmt_cli.model.transformer import DecoderLayer, EncoderLayer, Transformer
from nmt_cli.ragged import Layout
from nmt_cli.text.vocabulary import Vocabulary
from recipes.benchmarks.lengths import VOCABULARY, Pairs, batches, multi30k

TOKENS = 4096
REPEATS = 7
IGNORED = -100
START = 0
ENTRIES = Vocabulary(("",) * VOCABULARY, end=0, start=START, unknown=1)


@dataclass(frozen=True)
class Batch:
    """The same random ids in both forms."""

    source_S: Tensor
    targets_T: Tensor
    source: Layout
    target: Layout
    source_BM: Tensor
    inputs_BN: Tensor
    targets_BN: Tensor
    seen_B11M: Tensor
    """Which places of the source hold tokens."""

    @classmethod
    def of(cls, pairs: Pairs) -> "Batch":
        """Sentences of these lengths."""
        source, target = (Layout.of(np.ascontiguousarray(side)) for side in pairs.T)
        draw = torch.Generator().manual_seed(1)
        source_S, targets_T = (
            torch.randint(len(ENTRIES), (len(layout.segments),), generator=draw)
            for layout in (source, target)
        )
        inputs_BN = _padded(targets_T, target, 0).roll(1, 1)
        inputs_BN[:, 0] = START
        return cls(
            *(source_S, targets_T, source, target),
            *(_padded(source_S, source, 0), inputs_BN, _padded(targets_T, target, IGNORED)),
            _padded(torch.ones_like(source_S), source, 0).bool()[:, None, None],
        )


@click.command()
def main() -> None:
    """Print the table, a batch at a time."""
    pairs = multi30k()
    if pairs is None:
        raise SystemExit("set NMT_DATA to a folder that holds multi30k/train.en and so on.")
    torch.manual_seed(1)
    small = ModelConfig(**tomllib.loads(preset_path("small").read_text())["model"])
    model = Transformer(small, ENTRIES, ENTRIES, joint=True)
    print(f"{date.today()}, CPU, {torch.get_num_threads()} threads, torch {torch.__version__}\n")
    print(
        "| Multi30k, batch | pairs | target tokens: real, padded | ragged ms | padded ms | padded : ragged |"
    )
    print("|---|---|---|---|---|---|", flush=True)
    for name, cut in batches(pairs, TOKENS).items():
        batch = Batch.of(cut)
        _check(model, batch)
        losses = (partial(ragged_loss, model, batch), partial(padded_loss, model, batch))
        ragged, padded = _in_turns(model, *losses)
        ratio = statistics.median(theirs / ours for ours, theirs in zip(ragged, padded, strict=True))
        size = f"{len(cut)} | {len(batch.targets_T):,}, {batch.inputs_BN.numel():,}"
        medians = f"{statistics.median(ragged):.0f} | {statistics.median(padded):.0f}"
        print(f"| {name} | {size} | {medians} | {ratio:.2f} |", flush=True)


def ragged_loss(model: Transformer, batch: Batch) -> Tensor:
    """The mean over target tokens."""
    decoded_TD = model(batch.source_S, batch.targets_T, batch.source, batch.target)
    return F.cross_entropy(model.logits(decoded_TD), batch.targets_T)


def padded_loss(model: Transformer, batch: Batch) -> Tensor:
    """The same by a padded model, of which ours lends the weights and what is done for each token alone."""
    x_BMD = _embedded(model.source_embedding, batch.source_BM)
    for layer in cast(list[EncoderLayer], list(model.encoder)):
        x_BMD = layer.after_attention(x_BMD, partial(_self_attention, layer.attention, batch.seen_B11M))
        x_BMD = layer.after_feed_forward(x_BMD, layer.feed_forward)
    encoded_BMD = model.encoder_norm(x_BMD)
    x_BND = _embedded(model.target_embedding, batch.inputs_BN)
    for decoder in cast(list[DecoderLayer], list(model.decoder)):
        attend = partial(_cross_attention, decoder.cross, encoded_BMD, batch.seen_B11M)
        history = cast(SelfAttention, decoder.attention)
        x_BND = decoder.after_attention(x_BND, partial(_self_attention, history, None))
        x_BND = decoder.after_cross(x_BND, attend)
        x_BND = decoder.after_feed_forward(x_BND, decoder.feed_forward)
    logits = model.logits(model.decoder_norm(x_BND))
    return F.cross_entropy(logits.flatten(0, 1), batch.targets_BN.flatten(), ignore_index=IGNORED)


def _embedded(embedding: Embedding, ids_BM: Tensor) -> Tensor:
    longest = ids_BM.shape[1]
    vectors: Tensor = embedding(ids_BM, torch.arange(longest), longest)
    return vectors


def _self_attention(layer: SelfAttention, seen_B11M: Tensor | None, x_BMD: Tensor) -> Tensor:
    """Causal where there is no mask: what is behind the end is hidden from all real tokens anyway."""
    query, key, value = _by_head(layer.query_key_value(x_BMD), layer.heads, 3)
    mixed_BHMV = F.scaled_dot_product_attention(
        query, key, value, attn_mask=seen_B11M, is_causal=seen_B11M is None
    )
    mixed: Tensor = layer.output(mixed_BHMV.transpose(1, 2).flatten(2))
    return mixed


def _cross_attention(layer: CrossAttention, encoded_BMD: Tensor, seen_B11M: Tensor, x_BND: Tensor) -> Tensor:
    (query,) = _by_head(layer.query(x_BND), layer.heads, 1)
    key, value = _by_head(layer.key_value(encoded_BMD), layer.heads, 2)
    mixed_BHNV = F.scaled_dot_product_attention(query, key, value, attn_mask=seen_B11M)
    mixed: Tensor = layer.output(mixed_BHNV.transpose(1, 2).flatten(2))
    return mixed


def _by_head(packed: Tensor, heads: int, parts: int) -> list[Tensor]:
    """[B, H, M, channels of a head], `parts` of the same width."""
    batch, longest, channels = packed.shape
    split = packed.view(batch, longest, parts, heads, channels // (parts * heads))
    return [split[:, :, part].transpose(1, 2) for part in range(parts)]


def _padded(ids: Tensor, layout: Layout, filler: int) -> Tensor:
    """[B, M]."""
    padded = ids.new_full((len(layout.lengths), layout.longest), filler)
    padded[layout.segments, layout.positions] = ids
    return padded


def _check(model: Transformer, batch: Batch) -> None:
    """Both forms have the same loss and gradients, when nothing is dropped."""
    model.eval()
    ragged, padded = ragged_loss(model, batch), padded_loss(model, batch)
    torch.testing.assert_close(padded, ragged)
    weights = list(model.parameters())
    gradients = zip(torch.autograd.grad(padded, weights), torch.autograd.grad(ragged, weights), strict=True)
    for theirs, ours in gradients:
        # Rounding may put a ReLU on its other side, so single elements can be further apart than the whole.
        torch.testing.assert_close((theirs - ours).norm() / ours.norm(), torch.tensor(0.0), rtol=0, atol=1e-2)
    model.train()


def _in_turns(model: Transformer, *losses: Callable[[], Tensor]) -> list[list[float]]:
    """Milliseconds of a step of each, which take turns."""
    times: list[list[float]] = [[] for _ in losses]
    for repeat in range(-1, REPEATS):
        for loss, taken in zip(losses, times, strict=True):
            model.zero_grad()
            seconds = -time.perf_counter()
            torch.autograd.backward(loss())
            seconds += time.perf_counter()
            if repeat >= 0:
                taken.append(1000 * seconds)
    return times


if __name__ == "__main__":
    main()
