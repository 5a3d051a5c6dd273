"""A micro-batch: pairs of a split as flat tensors, gathered from the mapped arrays."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from nmt_cli.attention.groups import grouped
from nmt_cli.data.batching.filler import Rounding
from nmt_cli.data.batching.plan import Indices
from nmt_cli.data.dataset import Sentences, Split
from nmt_cli.loss.reference import IGNORED
from nmt_cli.ragged import Layout


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What one forward sees: segment i of the source and segment i of the target are a pair.

    Behind the pairs may come filler, dummy segments of nothing but end marks. Every segment ends with an end
    mark.
    """

    pairs: Indices
    """Which pairs of the split these are, in the order of the segments; filler is not among them."""

    source_tokens: Tensor
    """[source tokens], int64."""

    target_tokens: Tensor
    """[target tokens], int64."""

    labels: Tensor
    """[target tokens], int64: the target tokens, but `IGNORED` in filler."""

    source: Layout
    target: Layout

    real_source_tokens: int
    real_target_tokens: int
    """Tokens of the pairs, end marks included, filler not."""

    @property
    def filler(self) -> int:
        """How many tokens of both sides are filler."""
        both = len(self.source_tokens) + len(self.target_tokens)
        return both - self.real_source_tokens - self.real_target_tokens

    def to(self, device: torch.device | str) -> "MicroBatch":
        """The same on `device`; does not wait for the copies where memory is pinned."""
        return replace(
            self,
            source_tokens=self.source_tokens.to(device, non_blocking=True),
            target_tokens=self.target_tokens.to(device, non_blocking=True),
            labels=self.labels.to(device, non_blocking=True),
            source=self.source.to(device),
            target=self.target.to(device),
        )

    def pin_memory(self) -> "MicroBatch":
        """The same in pinned memory, which a GPU copies from while the host goes on."""
        return replace(
            self,
            source_tokens=self.source_tokens.pin_memory(),
            target_tokens=self.target_tokens.pin_memory(),
            labels=self.labels.pin_memory(),
            source=self.source.pin_memory(),
            target=self.target.pin_memory(),
        )


def assemble(split: Split, pairs: Indices, rounding: Rounding | None = None) -> MicroBatch:
    """Gather some pairs of `split`, at least one, on the host; `rounding` adds filler."""
    lengths = [side.offsets[pairs + 1] - side.offsets[pairs] for side in (split.source, split.target)]
    dummies = rounding.dummies(*lengths) if rounding else (lengths[0][:0], lengths[1][:0])
    longest = rounding.reach(max(int(side.max()) for side in lengths)) if rounding else None
    source, target = (Layout.of(np.concatenate(both), longest) for both in zip(lengths, dummies, strict=True))
    real_source, real_target = (int(side.sum()) for side in lengths)
    target_tokens = _tokens(split.target, pairs, target)
    labels = target_tokens.clone()
    # Filler comes last, behind all real tokens.
    labels[real_target:] = IGNORED
    return MicroBatch(
        pairs=pairs,
        source_tokens=_tokens(split.source, pairs, source),
        target_tokens=target_tokens,
        labels=labels,
        source=grouped(source),
        target=grouped(target, source),
        real_source_tokens=real_source,
        real_target_tokens=real_target,
    )


def halved(split: Split, micro_batch: MicroBatch, rounding: Rounding | None = None) -> list[MicroBatch]:
    """The same pairs in two micro-batches of about half the tokens, on the host; a single pair stays one."""
    # Every other pair, as they come in order of length: the halves get about as many tokens each.
    halves = (micro_batch.pairs[::2], micro_batch.pairs[1::2])
    return [assemble(split, half, rounding) for half in halves if len(half)]


def _tokens(side: Sentences, pairs: Indices, layout: Layout) -> Tensor:
    """The tokens of these sentences, and end marks for the filler that the layout has behind them."""
    # A split does not know its vocabulary, but every sentence in it ends with the end mark.
    end = side.tokens[side.offsets[pairs[0] + 1] - 1]
    positions, segments = layout.positions.numpy(), layout.segments.numpy()
    real = int(layout.starts[len(pairs)])
    tokens = np.full(len(segments), end, dtype=np.int64)
    tokens[:real] = np.asarray(side.tokens)[side.offsets[pairs][segments[:real]] + positions[:real]]
    return torch.from_numpy(tokens)
