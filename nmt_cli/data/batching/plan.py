"""Plans epochs: the pairs of each global batch, as a pure function of lengths, seed, epoch and settings.

A global batch has the pairs of one step, for all ranks. An epoch is planned shard by shard, so memory and
start time do not grow with the corpus. A shard consists of blocks of neighbouring pairs from the whole
corpus, so reads are mostly sequential.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nmt_cli.data.array_files import Offsets, mapped_array
from nmt_cli.data.config import BatchConfig
from nmt_cli.data.dataset import Split
from nmt_cli.runtime.atomic import file_written_whole

BLOCK = 1024
"""Neighbouring pairs that are in the same shard."""

NOISE_BITS = 16
NOISE_REACH = 8
"""Pairs are sorted by length after each length grows at random by up to 1 / this, so epochs differ."""

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shard:
    """The global batches of one shard, in training order. A shard is a part of an epoch."""

    pairs: Indices
    """The pairs of all batches, in order."""

    bounds: Offsets
    """[batches + 1]. The position in `pairs` at which each batch begins, and last the end."""

    dropped: int
    """The number of pairs in this part of the epoch that were dropped as too long."""

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def batch(self, number: int) -> Indices:
        """Return the numbers of the pairs in batch `number` of this shard. `number` counts from 0."""
        return np.array(self.pairs[self.bounds[number] : self.bounds[number + 1]])

    def save(self, path: Path) -> None:
        """Write the file `path`, which appears complete or not at all. Raise `UserError` for a full disk."""
        head = np.array([self.dropped, len(self.bounds)], dtype=np.int64)
        with file_written_whole(path) as file:
            np.save(file, np.concatenate((head, self.bounds, self.pairs)))

    @classmethod
    def load(cls, path: Path) -> "Shard":
        """Return the shard that `save` wrote. Its pairs are mapped, so `batch` reads them from disk."""
        values: Indices = np.asarray(mapped_array(path))
        first = 2 + int(values[1])
        return cls(pairs=values[first:], bounds=np.array(values[2:first]), dropped=int(values[0]))


def shard_count(pairs: int, config: BatchConfig) -> int:
    """Return the number of shards in an epoch. `pairs` is the number of pairs in the corpus."""
    block = min(BLOCK, config.shard_pairs)
    return -(-_blocks(pairs, config) // (config.shard_pairs // block))


def plan_shard(split: Split, config: BatchConfig, seed: int, epoch: int, number: int) -> Shard:
    """Return the batches of shard `number`, in random order.

    A batch has pairs of similar length, and at most `config.tokens` tokens on each side. Pairs with over
    `config.max_length` tokens on a side are dropped and counted. All shards of an epoch together have each
    other pair once.
    """
    pairs = _drawn(len(split), config, seed, epoch, number)
    source, target = split.lengths(pairs)
    fits = fitting(source, target, config.max_length)
    dropped = len(pairs) - int(fits.sum())
    if dropped:
        pairs, source, target = pairs[fits], source[fits], target[fits]
    noise = random_bits(len(pairs), seed, epoch, number, purpose=1)
    # Each machine of a run plans for itself, so ties must be broken in the same way on all.
    order = np.argsort(length_key(source + target, noise), kind="stable")
    bounds = batch_bounds(sums(source[order]), sums(target[order]), config.tokens)
    # The batches are sorted by length, so shuffle them.
    batch_order = np.argsort(random_bits(len(bounds) - 1, seed, epoch, number, purpose=2), kind="stable")
    pairs = pairs[order]
    batches = [pairs[bounds[batch] : bounds[batch + 1]] for batch in batch_order]
    return Shard(
        pairs=np.concatenate([pairs[:0], *batches]),
        bounds=sums(np.diff(bounds)[batch_order]),
        dropped=dropped,
    )


def fitting(source: Indices, target: Indices, max_length: int) -> NDArray[np.bool_]:
    """Return, for each pair, whether both sides have 1 to `max_length` tokens."""
    # An empty side, which only a damaged file has, would cause an endless loop.
    return (np.maximum(source, target) <= max_length) & (np.minimum(source, target) > 0)


def length_key(lengths: Indices, noise: NDArray[np.uint64]) -> Indices:
    """Return a sort key for each pair: its length, plus a random part of up to 1 / `NOISE_REACH` of it.
    `noise` has 64 random bits for each pair."""
    # Integers are the same on every machine.
    raised = NOISE_REACH * 2**NOISE_BITS + (noise >> np.uint64(64 - NOISE_BITS)).astype(np.int64)
    return np.asarray(lengths * raised)


def _blocks(pairs: int, config: BatchConfig) -> int:
    return -(-pairs // min(BLOCK, config.shard_pairs))


def _drawn(pairs: int, config: BatchConfig, seed: int, epoch: int, number: int) -> Indices:
    """Return the pairs of shard `number` of a corpus with `pairs` pairs: random blocks, each with its pairs
    in order."""
    blocks, shards = _blocks(pairs, config), shard_count(pairs, config)
    # Sorting random numbers shuffles. NumPy's own shuffle may differ between versions.
    shuffled = np.argsort(random_bits(blocks, seed, epoch, 0, purpose=0), kind="stable")
    share = shuffled[number * blocks // shards : (number + 1) * blocks // shards]
    block = min(BLOCK, config.shard_pairs)
    drawn: Indices = (share[:, None] * block + np.arange(block)).ravel()
    # The last block of the corpus may be shorter.
    return drawn[drawn < pairs]


def random_bits(count: int, seed: int, epoch: int, number: int, purpose: int) -> NDArray[np.uint64]:
    """Return `count` values of 64 random bits. Equal arguments give equal values in every NumPy version."""
    bits = np.random.PCG64(np.random.SeedSequence((seed, epoch, number, purpose)))
    return np.asarray(bits.random_raw(count), dtype=np.uint64)


def sums(lengths: Indices) -> Offsets:
    """Return the running sums of `lengths`, beginning with 0. The result has one value more."""
    sums = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=sums[1:])
    return sums


def batch_bounds(source: Offsets, target: Offsets, budget: int) -> Offsets:
    """Cut pairs in order into batches of at most `budget` tokens on each side. Return where each batch
    begins, and at last the number of pairs.

    source, target: running sums of the lengths, beginning with 0. No length exceeds `budget`.

    Each batch takes as many pairs as fit. Only the last two are made about equal, if that is possible, so
    that the last one is not tiny.
    """

    def reach(start: int) -> int:
        ends = (sums.searchsorted(sums[start] + budget, side="right") for sums in (source, target))
        return int(min(ends)) - 1

    bounds, end = [0], len(source) - 1
    while bounds[-1] < end:
        bounds.append(reach(bounds[-1]))
    if len(bounds) > 2:
        both = source + target
        middle = int(both.searchsorted((both[bounds[-3]] + both[end]) // 2))
        if reach(middle) == end:
            bounds[-2] = min(middle, bounds[-2])
    return np.array(bounds, dtype=np.int64)
