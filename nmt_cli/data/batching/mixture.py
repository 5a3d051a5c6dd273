"""Computes how many pairs of each corpus a run has taken at any time, without reading pairs.

Time is counted in pairs. A corpus with share p has floor(p * t) of the first t pairs. A share is an exact
integer, in units of 1 / `ONE`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nmt_cli.data.config import MixingConfig
from nmt_cli.data.dataset import TrainCorpus
from nmt_cli.errors import UserError
from nmt_cli.setting_values import nearest

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
        """Return the begin and exclusive end of each round of an epoch, counted in pairs from the run's
        start. A round is planned at once. An epoch has the fewest equal rounds of at most `limit` pairs."""
        begin, end = self._begin(epoch), self._begin(epoch + 1)
        count = -(-(end - begin) // limit)
        return [*pairwise(begin + (end - begin) * number // count for number in range(count + 1))]

    def _begin(self, epoch: int) -> int:
        """Return the first time at which `epoch` epochs of the counted corpus are complete."""
        return -(-epoch * self.sizes[self.counted] * ONE // self.shares[self.counted])

    def fractions(self) -> dict[str, float]:
        """Return the share of each corpus, from 0 to 1, without corpora of share 0."""
        return {name: share / ONE for name, share in zip(self.names, self.shares, strict=True) if share}


def mixture(corpora: Sequence[TrainCorpus], sizes: Sequence[int], config: MixingConfig) -> Mixture:
    """Return the mixture of a run. `sizes` has the number of short enough pairs of each corpus. Raise
    `UserError` for unknown names, weights all 0, a weight with size 0, or no pairs of `mixing.epoch`."""
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


def _weights(corpora: Sequence[TrainCorpus], config: MixingConfig) -> list[float]:
    """Return the weight of each corpus, from `config`, else the dataset, else 1. If `config` has weights, but
    not of a corpus, it gets 0. Raise `UserError` for an unknown name, or if all weights are 0."""
    names = [corpus.name for corpus in corpora]
    weights: Mapping[str, float] = config.weights
    for name in weights:
        _named(name, names, "weights")
    if not weights:
        weights = {corpus.name: corpus.weight for corpus in corpora}
        if not any(weights.values()):
            weights = dict.fromkeys(names, 1.0)
    if not any(weights.values()):
        raise UserError("All weights of [mixing] are 0. Give at least one corpus a weight above 0.")
    return [weights.get(name, 0.0) for name in names]


def _shares(corpora: Sequence[TrainCorpus], sizes: Sequence[int], config: MixingConfig) -> tuple[int, ...]:
    """Return the share of each corpus in units of 1 / `ONE`. Shares are proportional to the weights. A
    temperature multiplies each weight by size * (size of the group) ** (1 / temperature - 1). A group is all
    corpora with a tag if `config.over` is "tag", else one corpus. Weight 0 gives share 0 and adds nothing to
    a group. Raise `UserError` as `_weights` does, and for a weight with size 0."""
    weights = _weights(corpora, config)
    for corpus, size, weight in zip(corpora, sizes, weights, strict=True):
        if weight and not size:
            raise UserError(
                f"Corpus {corpus.name} has a weight, but all its {corpus.pairs:,} pairs are too long. "
                "Raise batch.longest and batch.tokens, or set its weight to 0."
            )
    values = list(weights)
    if config.temperature:
        groups = [corpus.tag if config.over == "tag" else corpus.name for corpus in corpora]
        group_sizes: Counter[str] = Counter()
        for group, size, weight in zip(groups, sizes, weights, strict=True):
            group_sizes[group] += size if weight else 0
        values = [
            weight * size * group_sizes[group] ** (1 / config.temperature - 1) if weight else 0.0
            for weight, size, group in zip(weights, sizes, groups, strict=True)
        ]
    return tuple(round(value / sum(values) * ONE) for value in values)


def _named(name: str, names: Sequence[str], setting: str) -> int:
    """Return the position of `name`. If it is missing, raise `UserError` about mixing.`setting`."""
    if name not in names:
        raise UserError(
            f"mixing.{setting} names {name}, which is not a corpus of the dataset: {nearest(name, names)}"
        )
    return names.index(name)
