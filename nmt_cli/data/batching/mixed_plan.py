"""The epoch plan of a mixture: which pairs are in each global batch, a pure function of dataset, seed, epoch
and settings.

An epoch is one of the corpus whose epochs count. Each corpus is a stream of its pairs, epoch after epoch of
its own, and a round, which is planned at a time, takes the next pairs of each stream, as many as its share.
In a round all streams advance evenly, so any stretch of it has the shares asked for, but for a pair or two.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nmt_cli.data.batching.mixture import Mixture, is_mixed, mixture
from nmt_cli.data.batching.plan import BLOCK, Indices, Shard, batch_bounds, length_key, random_bits, sums
from nmt_cli.data.config import BatchConfig, MixingConfig
from nmt_cli.data.dataset import TRAIN, Dataset, Split, TrainCorpus, train_corpora

VERSION = 1
"""Changes whenever the same input gives another plan."""

ORDER, NOISE, SLOTS = 5, 6, 7
"""Keep these random numbers apart from each other, and from those of `plan` and `resegment`."""

AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class Mixed:
    """What is to be told of a batch of a mixture."""

    counted: str
    """The corpus whose epochs count."""

    stage: int
    shares: Mapping[str, float]
    """What the stage asks for."""

    pairs: Mapping[str, int]
    """Those of this batch, by corpus."""

    epochs: Mapping[str, float]
    """How often each corpus was seen up to the end of this batch."""


class Stream:
    """The pairs of one corpus as a run takes them: each once in an epoch, in another order in each."""

    def __init__(
        self, split: Split, corpus: TrainCorpus, number: int, config: BatchConfig, seed: int
    ) -> None:
        self._split, self._corpus, self._number, self._seed = split, corpus, number, seed
        self._limit = min(config.longest, config.tokens)
        # Neighbours stay together, for reading; but a small corpus is shuffled pair by pair.
        self._block = max(1, min(BLOCK, corpus.pairs // BLOCK))
        self._fitting = self._counted()
        self.size = int(self._fitting.sum())
        """Pairs that are not too long."""

    def taken(self, begin: int, end: int) -> Iterator[Indices]:
        """The pairs from `begin` up to before `end`, apart where an epoch of the corpus ends."""
        borders = [begin, *range((begin // self.size + 1) * self.size, end, self.size), end]
        for first, last in pairwise(borders):
            epoch = first // self.size
            yield self._of_epoch(epoch, first - epoch * self.size, last - epoch * self.size)

    def _of_epoch(self, epoch: int, begin: int, end: int) -> Indices:
        bits = random_bits(len(self._fitting), self._seed, epoch, self._number, ORDER)
        shuffled = np.argsort(bits, kind="stable")
        ends = np.cumsum(self._fitting[shuffled])
        first, last = (int(ends.searchsorted(place, side="right")) for place in (begin, end - 1))
        blocks = shuffled[first : last + 1]
        inside = (blocks[:, None] * self._block + np.arange(self._block)).ravel()
        pairs = self._corpus.first + inside[inside < self._corpus.pairs]
        before = int(ends[first - 1]) if first else 0
        return pairs[fitting(self._split, pairs, self._limit)][begin - before : end - before]

    def _counted(self) -> NDArray[np.int64]:
        """How many pairs of each block are not too long."""
        counts = [np.zeros(0, np.int64)]
        at_once = AT_ONCE // self._block * self._block
        for start in range(0, self._corpus.pairs, at_once):
            pairs = self._corpus.first + np.arange(start, min(start + at_once, self._corpus.pairs))
            fits = fitting(self._split, pairs, self._limit)
            counts.append(np.add.reduceat(fits, np.arange(0, len(pairs), self._block), dtype=np.int64))
        return np.concatenate(counts)


class MixedPlan:
    """The rounds of each epoch of a mixture."""

    def __init__(
        self,
        dataset: Dataset,
        corpora: tuple[TrainCorpus, ...],
        batch: BatchConfig,
        mixing: MixingConfig,
        seed: int,
    ) -> None:
        split = dataset.splits[TRAIN]
        self._config, self._seed, self._corpora = batch, seed, corpora
        self._streams = [Stream(split, corpus, n, batch, seed) for n, corpus in enumerate(corpora)]
        self.mixture: Mixture = mixture(corpora, [stream.size for stream in self._streams], mixing)
        self._left_out = len(split) - sum(self.mixture.sizes)
        self.decides = (VERSION, self.mixture, corpora)
        """What decides the plan besides the batch settings and the seed."""

    def rounds(self, epoch: int) -> int:
        """How many an epoch has."""
        return len(self.mixture.rounds(epoch, self._config.shard_pairs))

    def round(self, split: Split, epoch: int, number: int) -> Shard:
        """Plan a round of an epoch; `split` are the sentences as that epoch segments them."""
        begin, end = self.mixture.rounds(epoch, self._config.shard_pairs)[number]
        before, after = self.mixture.taken(begin), self.mixture.taken(end)
        drawn = [
            [*stream.taken(first, last)] if last > first else []
            for stream, first, last in zip(self._streams, before, after, strict=True)
        ]
        limit = min(self._config.longest, self._config.tokens)
        # What fits as the dataset has it may not as this epoch segments it.
        kept = [[part[fitting(split, part, limit)] for part in parts] for parts in drawn]
        pairs = self._in_order(split, [parts for parts in kept if sum(map(len, parts))], epoch, number)
        source, target = side_lengths(split, pairs)
        dropped = sum(len(part) for parts in drawn for part in parts) - len(pairs)
        return Shard(
            pairs=pairs,
            bounds=batch_bounds(sums(source), sums(target), self._config.tokens),
            # What is too long as the dataset has it is counted once an epoch.
            dropped=dropped + (self._left_out if number == 0 else 0),
        )

    def told(self, epoch: int, number: int, shard: Shard, batch: int) -> Iterator[Mixed]:
        """What is to be told of each batch of a round, from `batch` on."""
        begin, _ = self.mixture.rounds(epoch, self._config.shard_pairs)[number]
        stage, names = self.mixture.stage_at(begin), self.mixture.names
        shares, counted = self.mixture.shares(stage), names[self.mixture.counted]
        seen = self.mixture.taken(begin) + self._counts(shard.pairs[: shard.bounds[batch]])
        for each in range(batch, len(shard)):
            counts = self._counts(shard.batch(each))
            seen = seen + counts
            pairs = {name: int(count) for name, count in zip(names, counts, strict=True) if count}
            sizes = zip(names, seen.tolist(), self.mixture.sizes, strict=True)
            epochs = {name: round(taken / size, 4) for name, taken, size in sizes if taken}
            yield Mixed(counted, stage, shares, pairs, epochs)

    def _counts(self, pairs: Indices) -> NDArray[np.int64]:
        firsts = [corpus.first + corpus.pairs for corpus in self._corpora]
        return np.bincount(np.searchsorted(firsts, pairs, side="right"), minlength=len(firsts))

    def _in_order(self, split: Split, kept: list[list[Indices]], epoch: int, number: int) -> Indices:
        """All pairs in the order in which steps take them; those of each corpus are spread evenly over it.

        A round has slots of time, about one a batch, each for pairs of like length: the same part of the
        lengths of each corpus. Slots come in any order, but no pair before one of an earlier epoch of its
        corpus.
        """
        if not kept:
            return np.zeros(0, np.int64)
        source, target = side_lengths(split, np.concatenate([part for parts in kept for part in parts]))
        slots = 1 + int(max(source.sum(), target.sum())) // self._config.tokens
        rank = np.argsort(random_bits(slots, self._seed, epoch, number, SLOTS), kind="stable")
        keys = length_key(source + target, random_bits(len(source), self._seed, epoch, number, NOISE))
        streams, beats, used = [], [], 0
        for parts in kept:
            places = 2 * np.arange(sum(map(len, parts))) + 1  # in the middle of as many equal steps
            slot_ranks = rank[places * slots // (2 * len(places))]
            first = 0
            for part in parts:
                stop, key = first + len(part), keys[used : used + len(part)]
                ordered = np.empty_like(part)
                ordered[np.argsort(slot_ranks[first:stop], kind="stable")] = part[
                    np.argsort(key, kind="stable")
                ]
                streams.append(ordered)
                first, used = stop, used + len(part)
            beats.append(places / len(places))
        return np.concatenate(streams)[np.argsort(np.concatenate(beats), kind="stable")]


def mixed_plan(dataset: Dataset, batch: BatchConfig, mixing: MixingConfig, seed: int) -> MixedPlan | None:
    """The plan of a run on `dataset`; None where nothing is mixed, and `plan` is to be taken."""
    corpora = train_corpora(dataset)
    return MixedPlan(dataset, corpora, batch, mixing, seed) if is_mixed(corpora, mixing) else None


def fitting(split: Split, pairs: Indices, limit: int) -> NDArray[np.bool_]:
    """Which pairs have at most so many tokens on both sides."""
    source, target = side_lengths(split, pairs)
    fits: NDArray[np.bool_] = (np.maximum(source, target) <= limit) & (np.minimum(source, target) > 0)
    return fits


def side_lengths(split: Split, pairs: Indices) -> tuple[Indices, Indices]:
    """How many tokens the pairs have on either side."""
    source, target = (
        np.asarray(side.offsets[pairs + 1] - side.offsets[pairs]) for side in (split.source, split.target)
    )
    return source, target
