"""Plans the epochs of a run: one planner for a single corpus and for mixtures.

A plan decides which pairs are in each global batch. It is a pure function of dataset, seed, epoch and
settings, so that a run resumes with the batches that it would have taken. An epoch is planned shard by shard.
"""

from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Protocol

from nmt_cli.data.batching.mixture import CorpusCounts, MixedPlan
from nmt_cli.data.batching.plan import Shard, plan_shard, shard_count
from nmt_cli.data.config import BatchConfig, MixingConfig
from nmt_cli.data.dataset import TRAIN, Dataset, Split, train_corpora


class BatchPlan(Protocol):
    """The pairs of each global batch, for all epochs of a run."""

    @property
    def batch(self) -> BatchConfig:
        """The settings of batches."""

    @property
    def counted(self) -> str:
        """The corpus whose epochs are counted, or "" if an epoch has every pair once."""

    @property
    def shares(self) -> Mapping[str, float]:
        """The share of each corpus in the pairs, from 0 to 1. Empty if an epoch has every pair once."""

    @property
    def pairs_of_epoch(self) -> int:
        """Number of pairs in the first epoch."""

    def shards(self, epoch: int) -> int:
        """Return the number of shards in `epoch`."""

    def shard(self, split: Split, epoch: int, number: int) -> Shard:
        """Return the batches of shard `number`. `split` has the sentences as this epoch segments them."""

    def counts(self, epoch: int, number: int, shard: Shard, first: int) -> Iterator[CorpusCounts | None]:
        """Yield the counts of batch `first` and each later batch of `shard`, which is shard `number`. Yield
        None for each batch if an epoch has every pair once."""


class EveryPairOnce:
    """The plan without a mixture: each epoch has every pair of the training set once."""

    counted = ""
    shares: Mapping[str, float] = {}

    def __init__(self, pairs: int, batch: BatchConfig, seed: int) -> None:
        """Plan the epochs of a training set of `pairs` pairs."""
        self.batch, self.pairs_of_epoch, self._seed = batch, pairs, seed

    def shards(self, epoch: int) -> int:
        """Return the number of shards, which is the same in each epoch."""
        return shard_count(self.pairs_of_epoch, self.batch)

    def shard(self, split: Split, epoch: int, number: int) -> Shard:
        """Return the batches of shard `number`. Pairs too long in `split` are dropped and counted."""
        return plan_shard(split, self.batch, self._seed, epoch, number)

    def counts(self, epoch: int, number: int, shard: Shard, first: int) -> Iterator[None]:
        """Yield None for each batch, as no corpora are mixed."""
        return repeat(None, len(shard) - first)


def plan_of(dataset: Dataset, batch: BatchConfig, mixing: MixingConfig, seed: int) -> BatchPlan:
    """Return the plan of a run on `dataset`.

    Corpora are mixed if the user has set something in [mixing], or if a corpus of the dataset has a weight.
    Otherwise an epoch has every pair once. Raise `UserError` for settings that do not fit the corpora.
    """
    corpora, split = train_corpora(dataset), dataset.splits[TRAIN]
    if mixing == MixingConfig() and not any(corpus.weight for corpus in corpora):
        # The order of a mixture of one would be another, and runs of earlier versions resume with this one.
        return EveryPairOnce(len(split), batch, seed)
    return MixedPlan(split, corpora, batch, mixing, seed)
