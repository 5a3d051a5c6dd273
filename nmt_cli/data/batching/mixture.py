"""Mixes corpora: plans the pairs of each global batch by the shares of the corpora.

The plan is a pure function of dataset, seed, epoch and settings. Each corpus is a stream of its own epochs.
An epoch of the run is an epoch of one corpus, the counted one.

Epochs are planned in rounds. A round takes the next pairs of each stream according to the corpus's share,
spread evenly. So any stretch of a round has the right shares, up to one or two pairs.

Time is counted in pairs. A corpus with share p has floor(p * t) of the first t pairs of the run. A share is
an exact integer, in units of 1 / `ONE`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nmt_cli.data.batching.plan import (
    BLOCK,
    Indices,
    Shard,
    batch_bounds,
    fitting,
    length_key,
    random_bits,
    sums,
)
from nmt_cli.data.config import BatchConfig, MixingConfig
from nmt_cli.data.dataset import Split, TrainCorpus
from nmt_cli.errors import UserError
from nmt_cli.setting_values import nearest

ORDER, NOISE, SLOTS = 5, 6, 7
"""Purposes of random bits, to make them differ from each other and from those of `plan` and `resegment`."""

AT_ONCE = 1 << 20

ONE = 2**32
"""The share of a single corpus. Powers may differ in their last digit between machines, and rounding to this
unit makes them equal."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """The corpora of a run with their shares of the pairs, and the corpus whose epochs are counted."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    """Pairs of each corpus that are short enough for training."""

    shares: tuple[int, ...]
    """The share of each corpus, in units of 1 / `ONE`."""

    counted: int
    """The number of the corpus whose epochs are counted. Its share is above 0."""

    def taken(self, time: int) -> tuple[int, ...]:
        """Return how many of the run's first `time` pairs each corpus has, rounded down."""
        return tuple(time * share // ONE for share in self.shares)

    def rounds(self, epoch: int, limit: int) -> list[tuple[int, int]]:
        """Return the begin and the exclusive end of each round of an epoch, as times.

        An epoch has the fewest rounds of about equal size with at most `limit` pairs each. A round is planned
        at once, so `limit` bounds the memory.
        """
        begin, end = self._begin(epoch), self._begin(epoch + 1)
        count = -(-(end - begin) // limit)
        return [*pairwise(begin + (end - begin) * number // count for number in range(count + 1))]

    def _begin(self, epoch: int) -> int:
        """Return the time at which `epoch` epochs of the counted corpus are complete."""
        return -(-epoch * self.sizes[self.counted] * ONE // self.shares[self.counted])

    @property
    def pairs_of_epoch(self) -> int:
        """Number of pairs of all corpora in the first epoch of the counted corpus."""
        return self._begin(1)

    def fractions(self) -> dict[str, float]:
        """Return the share of each corpus, from 0 to 1, without corpora of share 0."""
        return {name: share / ONE for name, share in zip(self.names, self.shares, strict=True) if share}


def mixture(corpora: Sequence[TrainCorpus], sizes: Sequence[int], config: MixingConfig) -> Mixture:
    """Return the mixture of a run.

    sizes: the number of pairs of each corpus that are short enough for training.

    Raise `UserError` if a setting names an unknown corpus, if all weights are 0, if a corpus with a weight
    has no pairs left, or if the corpus in mixing.epoch has no weight.
    """
    names = [corpus.name for corpus in corpora]
    shares = _shares(corpora, sizes, config)
    first = next(number for number, share in enumerate(shares) if share)
    counted = _named(config.epoch, names, "epoch") if config.epoch else first
    if not shares[counted]:
        raise UserError(
            f"The mixture has no pairs of {names[counted]}, whose epochs are counted. "
            "Set mixing.epoch to a corpus with a weight."
        )
    return Mixture(tuple(names), tuple(sizes), shares, counted)


def _shares(corpora: Sequence[TrainCorpus], sizes: Sequence[int], config: MixingConfig) -> tuple[int, ...]:
    """Return the share of each corpus, in units of 1 / `ONE`. Shares are proportional to weights.

    - The weights are those in `config`, where a corpus that is not named has 0. If there are none, they are
      those of the dataset, and if these are all 0, all are 1.
    - A temperature multiplies the weight by the size of the corpus, and by the size of its group to the power
      of 1 / temperature - 1. A group is all corpora with the same tag if `config.over` is "tag", and one
      corpus otherwise.
    - A corpus of weight 0 has share 0, and does not count in the size of its group.

    Raise `UserError` for an unknown name, for weights that are all 0, and for a weight of a corpus without
    pairs.
    """
    names = [corpus.name for corpus in corpora]
    for name in config.weights:
        _named(name, names, "weights")
    if config.weights and not any(config.weights.values()):
        raise UserError("All weights of [mixing] are 0. Give at least one corpus a weight above 0.")
    by_name = config.weights or {corpus.name: corpus.weight for corpus in corpora}
    weights = [by_name.get(name, 0.0) for name in names] if any(by_name.values()) else [1.0] * len(names)
    for corpus, size, weight in zip(corpora, sizes, weights, strict=True):
        if weight and not corpus.pairs:
            raise UserError(
                f"Corpus {corpus.name} has a weight, but the filters of nmt preprocess left none of its "
                "pairs. Relax them, or set its weight to 0."
            )
        if weight and not size:
            raise UserError(
                f"Corpus {corpus.name} has a weight, but all its {corpus.pairs:,} pairs are too long. "
                "Raise batch.longest and batch.tokens, or set its weight to 0."
            )
    values = weights
    if config.temperature:
        groups = [corpus.tag for corpus in corpora] if config.over == "tag" else names
        group_sizes: Counter[str] = Counter()
        for group, size, weight in zip(groups, sizes, weights, strict=True):
            group_sizes[group] += size if weight else 0
        values = [
            weight * size * group_sizes[group] ** (1 / config.temperature - 1) if weight else 0.0
            for weight, size, group in zip(weights, sizes, groups, strict=True)
        ]
    return tuple(round(value / sum(values) * ONE) for value in values)


def _named(name: str, names: Sequence[str], setting: str) -> int:
    """Return the position of `name` in `names`. If it is missing, raise `UserError` about the setting
    mixing.`setting`."""
    if name not in names:
        raise UserError(
            f"mixing.{setting} names {name}, which is not a corpus of the dataset: {nearest(name, names)}"
        )
    return names.index(name)


@dataclass(frozen=True, slots=True)
class CorpusCounts:
    """The pairs of each corpus of a mixture: in one batch, and since the first step."""

    counted: str
    """The corpus whose epochs are counted."""

    pairs: Mapping[str, int]
    """The number of pairs in this batch, by corpus."""

    epochs: Mapping[str, float]
    """How many epochs of each corpus were taken by the end of this batch."""


class Stream:
    """The pairs of one corpus in training order, epoch after epoch, without pairs that are too long.

    Each epoch has every pair once, in another order. It follows from the seed, the epoch and `number`, the
    position of the corpus in the dataset.
    """

    def __init__(
        self, split: Split, corpus: TrainCorpus, number: int, config: BatchConfig, seed: int
    ) -> None:
        self._split, self._corpus, self._number, self._seed = split, corpus, number, seed
        self._max_length = config.max_length
        # Neighbours stay together for sequential reads, but a small corpus is shuffled pair by pair.
        self._block = max(1, min(BLOCK, corpus.pairs // BLOCK))
        self._fitting = self._counts()
        self.size = int(self._fitting.sum())
        """Number of pairs that are not too long."""

    def taken(self, begin: int, end: int) -> Iterator[Indices]:
        """Yield the pairs at the positions from `begin` to before `end`, counted over all epochs: an array
        for each epoch. There must be at least one."""
        borders = [begin, *range((begin // self.size + 1) * self.size, end, self.size), end]
        for first, last in pairwise(borders):
            epoch = first // self.size
            yield self._of_epoch(epoch, first - epoch * self.size, last - epoch * self.size)

    def _of_epoch(self, epoch: int, begin: int, end: int) -> Indices:
        """Return the pairs at positions [`begin`, `end`) of one epoch, which begins at position 0."""
        bits = random_bits(len(self._fitting), self._seed, epoch, self._number, ORDER)
        shuffled = np.argsort(bits, kind="stable")
        # Only the blocks that have a part of the stretch are read from the disk.
        ends = np.cumsum(self._fitting[shuffled])
        first, last = (int(ends.searchsorted(pair, side="right")) for pair in (begin, end - 1))
        blocks = shuffled[first : last + 1]
        inside = (blocks[:, None] * self._block + np.arange(self._block)).ravel()
        pairs = self._corpus.first + inside[inside < self._corpus.pairs]
        before = int(ends[first - 1]) if first else 0
        return pairs[fitting(*self._split.lengths(pairs), self._max_length)][begin - before : end - before]

    def _counts(self) -> NDArray[np.int64]:
        """Return the number of pairs that are not too long in each block of `_block` neighbouring pairs."""
        # The lengths of a large corpus do not fit in memory at once.
        counts = [np.zeros(0, np.int64)]
        at_once = AT_ONCE // self._block * self._block
        for start in range(0, self._corpus.pairs, at_once):
            pairs = self._corpus.first + np.arange(start, min(start + at_once, self._corpus.pairs))
            fits = fitting(*self._split.lengths(pairs), self._max_length)
            counts.append(np.add.reduceat(fits, np.arange(0, len(pairs), self._block), dtype=np.int64))
        return np.concatenate(counts)


class MixedPlan:
    """A plan in which each batch has the shares of a mixture. An epoch is one of the corpus `counted`. Its
    shards are the rounds of the mixture."""

    def __init__(
        self,
        split: Split,
        corpora: Sequence[TrainCorpus],
        batch: BatchConfig,
        mixing: MixingConfig,
        seed: int,
    ) -> None:
        """Count the pairs of each corpus that are short enough. Raise the errors of `mixture`."""
        self.batch, self._seed, self._corpora = batch, seed, corpora
        self._streams = [Stream(split, corpus, n, batch, seed) for n, corpus in enumerate(corpora)]
        self._mixture = mixture(corpora, [stream.size for stream in self._streams], mixing)
        sizes = zip(corpora, self._mixture.sizes, self._mixture.shares, strict=True)
        self._left_out = sum(corpus.pairs - size for corpus, size, share in sizes if share)

    @property
    def counted(self) -> str:
        """The corpus whose epochs are counted."""
        return self._mixture.names[self._mixture.counted]

    @property
    def shares(self) -> Mapping[str, float]:
        """The share of each corpus in the pairs, from 0 to 1, without corpora of share 0."""
        return self._mixture.fractions()

    @property
    def pairs_of_epoch(self) -> int:
        """Number of pairs of all corpora in the first epoch of `counted`."""
        return self._mixture.pairs_of_epoch

    def shards(self, epoch: int) -> int:
        """Return the number of rounds in `epoch`."""
        return len(self._mixture.rounds(epoch, self.batch.shard_pairs))

    def shard(self, split: Split, epoch: int, number: int) -> Shard:
        """Return the batches of round `number` of `epoch`.

        split: the training set as this epoch segments it. Pairs that are too long there are dropped and
            counted in `dropped`. Pairs that are too long in the dataset are counted in the first round only.
        """
        begin, end = self._mixture.rounds(epoch, self.batch.shard_pairs)[number]
        before, after = self._mixture.taken(begin), self._mixture.taken(end)
        drawn = [
            [*stream.taken(first, last)] if last > first else []
            for stream, first, last in zip(self._streams, before, after, strict=True)
        ]
        limit = self.batch.max_length
        streams = [[part[fitting(*split.lengths(part), limit)] for part in parts] for parts in drawn]
        pairs = self._ordered(split, [parts for parts in streams if sum(map(len, parts))], epoch, number)
        source, target = split.lengths(pairs)
        dropped = sum(len(part) for parts in drawn for part in parts) - len(pairs)
        return Shard(
            pairs=pairs,
            bounds=batch_bounds(sums(source), sums(target), self.batch.tokens),
            # Pairs that are too long in the dataset count once per epoch.
            dropped=dropped + (self._left_out if number == 0 else 0),
        )

    def counts(self, epoch: int, number: int, shard: Shard, first: int) -> Iterator[CorpusCounts]:
        """Yield the counts of batch `first` and each later batch of `shard`, round `number` of `epoch`."""
        begin, _ = self._mixture.rounds(epoch, self.batch.shard_pairs)[number]
        names = self._mixture.names
        seen = self._mixture.taken(begin) + self._counts(shard.pairs[: shard.bounds[first]])
        for batch in range(first, len(shard)):
            counts = self._counts(shard.batch(batch))
            seen = seen + counts
            pairs = {name: int(count) for name, count in zip(names, counts, strict=True) if count}
            sizes = zip(names, seen.tolist(), self._mixture.sizes, strict=True)
            epochs = {name: round(taken / size, 4) for name, taken, size in sizes if taken}
            yield CorpusCounts(self.counted, pairs, epochs)

    def _counts(self, pairs: Indices) -> NDArray[np.int64]:
        """Return how many of the pair numbers `pairs` belong to each corpus, in the dataset's order."""
        firsts = [corpus.first + corpus.pairs for corpus in self._corpora]
        return np.bincount(np.searchsorted(firsts, pairs, side="right"), minlength=len(firsts))

    def _ordered(self, split: Split, streams: list[list[Indices]], epoch: int, number: int) -> Indices:
        """Return all pairs of a round in training order, with the pairs of each corpus spread evenly.

        streams: for each corpus, its pairs as one array per epoch of the corpus.

        The round has about as many time slots as batches, in random order. From each corpus, a slot takes an
        equal part of its pairs, neighbours in length, so that batches have pairs of similar length. No pair
        of a corpus's next epoch comes before the last pair of the epoch before.
        """
        if not streams:
            return np.zeros(0, np.int64)
        source, target = split.lengths(np.concatenate([part for parts in streams for part in parts]))
        slots = 1 + int(max(source.sum(), target.sum())) // self.batch.tokens
        rank = np.argsort(random_bits(slots, self._seed, epoch, number, SLOTS), kind="stable")
        keys = length_key(source + target, random_bits(len(source), self._seed, epoch, number, NOISE))
        ordered_parts, times, used = [], [], 0
        for parts in streams:
            midpoints = 2 * np.arange(sum(map(len, parts))) + 1  # of equal time steps
            slot_ranks = rank[midpoints * slots // (2 * len(midpoints))]
            first = 0
            for part in parts:
                stop, key = first + len(part), keys[used : used + len(part)]
                ordered = np.empty_like(part)
                ordered[np.argsort(slot_ranks[first:stop], kind="stable")] = part[
                    np.argsort(key, kind="stable")
                ]
                ordered_parts.append(ordered)
                first, used = stop, used + len(part)
            times.append(midpoints / len(midpoints))
        return np.concatenate(ordered_parts)[np.argsort(np.concatenate(times), kind="stable")]
