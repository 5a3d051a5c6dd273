"""Builds micro-batches: pairs of a split as flat tensors, read from the mapped arrays.

The tokens of all sentences of a side follow each other in one tensor, without padding. A segment is one
sentence in it. Filler, short dummy segments, rounds up the shape of a micro-batch if the model is compiled,
so that few shapes occur.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from nmt_cli.attention.groups import grouped
from nmt_cli.data.batching.cut import Lengths
from nmt_cli.data.batching.plan import Indices
from nmt_cli.data.dataset import LINK_BITS, Sentences, Split
from nmt_cli.loss.plain_loss import IGNORED
from nmt_cli.ragged import Layout

SHORT = 16
"""Maximum tokens of a dummy segment."""

SHARE = 48
"""Minimum number of rounding units in a micro-batch, so that filler is a small part of either side."""

LEAST_LONGEST = 32
"""Minimum length that layouts report as their longest."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """How to round up the shape of a micro-batch with dummy segments."""

    unit: int
    """The number of tokens of each side and the number of segments become multiples of `unit`."""

    @classmethod
    def of(cls, tokens: int) -> "Rounding":
        """Return the rounding whose unit is the largest power of two up to `tokens` / `SHARE`, or 1."""
        # The largest power of two that is at most 1 / `SHARE` of the tokens.
        return cls(unit=1 << max(tokens // SHARE, 1).bit_length() - 1)

    def dummies(self, source_lengths: Lengths, target_lengths: Lengths) -> tuple[Indices, Indices]:
        """Return the lengths of the dummy segments of source and target, which make up the shape. There are
        equally many on both sides.

        With them, segments and tokens of both sides are multiples of `unit`. Each dummy has 1 to `SHORT`
        tokens.
        """
        tokens = int(source_lengths.sum()), int(target_lengths.sum())
        count = -len(source_lengths) % self.unit
        while True:
            missing = [count + -(side + count) % self.unit for side in tokens]
            # Short dummies keep attention cheap, so more tokens need more dummies.
            if max(missing) <= count * SHORT:
                source, target = (_spread(side, count) for side in missing)
                return source, target
            count += self.unit

    def reach(self, longest: int) -> int:
        """Return the maximum length that layouts report: `longest`, rounded up to a power of two and to
        `LEAST_LONGEST`, so that few values occur."""
        return max(LEAST_LONGEST, 1 << (longest - 1).bit_length())


def _spread(tokens: int, count: int) -> Indices:
    """Return `count` lengths that add up to `tokens` and differ by at most 1. Return none for `count` 0."""
    return np.diff(np.arange(count + 1) * tokens // max(count, 1))


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The input of one forward pass. Source segment i and target segment i are a pair. Every segment ends
    with an end token. After the pairs, filler may follow: dummy segments that consist of end tokens. With two
    draws of dropout, all segments follow once more, with other dropout masks."""

    pairs: Indices
    """The number of each pair in the split, in the order of the segments of the first draw, without
    filler."""

    source_tokens: Tensor
    """[source tokens], int64."""

    target_tokens: Tensor
    """[target tokens], int64."""

    labels: Tensor
    """[target tokens], int64. The target tokens, with `IGNORED` in place of filler."""

    source: Layout
    target: Layout

    real_source_tokens: int
    real_target_tokens: int
    """Tokens of the pairs in all draws, with end tokens and without filler."""

    links: Tensor | None = None
    """[2, links], int64. The target token and the source token of each link, counted in the micro-batch. None
    without alignments."""

    @property
    def filler(self) -> int:
        """The total number of filler tokens of both sides."""
        both = len(self.source_tokens) + len(self.target_tokens)
        return both - self.real_source_tokens - self.real_target_tokens

    def to(self, device: torch.device | str) -> "MicroBatch":
        """Return the micro-batch on `device`. Copies from pinned memory to a GPU may still be running."""
        return self._changed(lambda x: x.to(device, non_blocking=True))

    def pin_memory(self) -> "MicroBatch":
        """Return the micro-batch in pinned memory, so that copies to a GPU run in the background."""
        return self._changed(Tensor.pin_memory)

    def _changed(self, change: Callable[[Tensor], Tensor]) -> "MicroBatch":
        """Return a micro-batch in which `change` replaces every tensor except the lengths of layouts."""
        return replace(
            self,
            source_tokens=change(self.source_tokens),
            target_tokens=change(self.target_tokens),
            labels=change(self.labels),
            source=self.source.changed(change),
            target=self.target.changed(change),
            links=None if self.links is None else change(self.links),
        )


def assemble(split: Split, pairs: Indices, rounding: Rounding | None = None, draws: int = 1) -> MicroBatch:
    """Return the micro-batch of `pairs` in host memory.

    pairs: numbers of at least one pair. Segments are in this order.
    rounding: if given, filler is added up to multiples of its unit. The labels of filler are `IGNORED`.
    draws: how often each pair is in the micro-batch, with other dropout masks: 1, or 2 for R-Drop.
    """
    lengths = split.lengths(pairs)
    dummies = rounding.dummies(*lengths) if rounding else (lengths[0][:0], lengths[1][:0])
    longest = rounding.reach(max(int(side.max()) for side in lengths)) if rounding else None
    # Dropout masks follow the pair, whatever the micro-batch. Those of filler do not matter.
    mask_keys = np.concatenate((pairs, np.zeros_like(dummies[0])))
    sides = [np.concatenate(both) for both in zip(lengths, dummies, strict=True)]
    source, target = (Layout.of(side, longest, mask_keys) for side in sides)
    real_source, real_target = (int(side.sum()) for side in lengths)
    target_tokens = _tokens(split.target, pairs, target)
    labels = target_tokens.clone()
    # Filler follows all real tokens.
    labels[real_target:] = IGNORED
    source_tokens = _tokens(split.source, pairs, source)
    links = _links(split.links, pairs, source, target) if split.links else None
    if draws == 2:
        if links is not None:
            links = torch.cat((links, links + torch.tensor([[len(target_tokens)], [len(source_tokens)]])), 1)
        mask_keys = np.concatenate((mask_keys, ~mask_keys))  # negative, so no pair has such a key
        # The second draw has other keys, so it gets other dropout masks.
        source, target = (Layout.of(np.tile(side, 2), longest, mask_keys) for side in sides)
    return MicroBatch(
        pairs=pairs,
        source_tokens=source_tokens.repeat(draws),
        target_tokens=target_tokens.repeat(draws),
        labels=labels.repeat(draws),
        # Planned once for all layers, in the thread of the loader: 0.4 ms for 25,000 tokens on each side.
        source=grouped(source),
        target=grouped(target, source),
        real_source_tokens=real_source * draws,
        real_target_tokens=real_target * draws,
        links=links,
    )


def halved(
    split: Split, micro_batch: MicroBatch, rounding: Rounding | None = None, draws: int = 1
) -> list[MicroBatch]:
    """Return two micro-batches, each with every other pair. For a single pair, return one micro-batch."""
    # The pairs are sorted by length, so taking every other one gives halves of about equal tokens.
    halves = (micro_batch.pairs[::2], micro_batch.pairs[1::2])
    return [assemble(split, half, rounding, draws) for half in halves if len(half)]


def _tokens(side: Sentences, pairs: Indices, layout: Layout) -> Tensor:
    """Return the tokens of `pairs` in order, then an end token for each token of filler. `layout` has the
    lengths of both."""
    # A split has no vocabulary, but every sentence in it ends with the end token.
    end = side.tokens[side.offsets[pairs[0] + 1] - 1]
    positions, segments = layout.positions.numpy(), layout.segments.numpy()
    real = int(layout.starts[len(pairs)])
    tokens = np.full(len(segments), end, dtype=np.int64)
    tokens[:real] = np.asarray(side.tokens)[side.offsets[pairs][segments[:real]] + positions[:real]]
    return torch.from_numpy(tokens)


def _links(links: Sentences, pairs: Indices, source: Layout, target: Layout) -> Tensor:
    """Return [2, links]: the links of `pairs`, whose tokens have the layouts `source` and `target`."""
    starts = links.offsets[pairs]
    counts = links.offsets[pairs + 1] - starts
    layout = Layout.of(counts)
    segments = layout.segments.long()
    codes = np.asarray(links.tokens)[starts[segments] + layout.positions.numpy()]
    positions = np.stack((codes >> LINK_BITS, codes & (1 << LINK_BITS) - 1)).astype(np.int64)
    return torch.from_numpy(positions) + torch.stack((target.starts[segments], source.starts[segments]))
