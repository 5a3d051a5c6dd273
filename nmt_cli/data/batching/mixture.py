"""Computes how many pairs of each corpus a run has taken at any time, without reading pairs.

A run has stages. Each stage has a share of the pairs for every corpus. Time is counted in pairs. In a stage,
a corpus with share p has floor(p * t) of the first t pairs. A share is an exact integer, in units of 1 /
`ONE`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil

from nmt_cli.data.config import MixingConfig, StageConfig
from nmt_cli.data.dataset import TrainCorpus
from nmt_cli.errors import UserError
from nmt_cli.setting_values import nearest

ONE = 2**32
"""The share of a single corpus. Powers may differ in their last digit between machines, and rounding to this
unit makes them equal."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The shares of all corpora, in units of 1 / `ONE`, from time `begin` to the next stage."""

    shares: tuple[int, ...]
    begin: int
    before: tuple[int, ...]
    """The pairs taken of each corpus before the stage."""

    def taken(self, time: int) -> tuple[int, ...]:
        """Count each corpus's pairs in the run's first `time`, rounded down. `time` is in this stage."""
        return tuple(
            count + (time - self.begin) * share // ONE
            for count, share in zip(self.before, self.shares, strict=True)
        )

    def time_of(self, corpus: int, count: int) -> int:
        """Return the first time at which the run has taken `count` pairs of corpus number `corpus`. The
        corpus needs a share above 0. The result is right only if this stage lasts until that time."""
        return self.begin + -(-(count - self.before[corpus]) * ONE // self.shares[corpus])


@dataclass(frozen=True, slots=True)
class Mixture:
    """The stages of a run, and the corpus whose epochs are counted."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    """Pairs of each corpus that are short enough for training."""

    stages: tuple[Stage, ...]
    counted: int
    """The number of the corpus whose epochs are counted."""

    def stage_at(self, time: int) -> int:
        """Return the number, from 0, of the stage at `time`. At a border, this is the later stage."""
        return max(number for number, stage in enumerate(self.stages) if stage.begin <= time)

    def taken(self, time: int) -> tuple[int, ...]:
        """Return how many of the run's first `time` pairs each corpus has, rounded down."""
        return self.stages[self.stage_at(time)].taken(time)

    def shares(self, stage: int) -> dict[str, float]:
        """Return the share of each corpus in a stage, from 0 to 1, without corpora of share 0."""
        shares = zip(self.names, self.stages[stage].shares, strict=True)
        return {name: share / ONE for name, share in shares if share}

    def rounds(self, epoch: int, limit: int) -> list[tuple[int, int]]:
        """Return the begin and exclusive end of each round of an epoch, counted in pairs from the run's
        start. A round is planned at once, is within one stage, and has at most `limit` pairs."""
        begin, end = self._begin(epoch), self._begin(epoch + 1)
        borders = [begin, *(stage.begin for stage in self.stages if begin < stage.begin < end), end]
        return [part for pair in pairwise(borders) for part in _parts(*pair, limit)]

    def _begin(self, epoch: int) -> int:
        """Return the first time at which `epoch` epochs of the counted corpus are complete."""
        count = epoch * self.sizes[self.counted]
        for number, stage in enumerate(self.stages):
            last = number + 1 == len(self.stages)
            if last or self.stages[number + 1].before[self.counted] >= count:
                return stage.time_of(self.counted, count) if stage.shares[self.counted] else stage.begin
        raise AssertionError("the last stage has no end")


def mixture(corpora: Sequence[TrainCorpus], sizes: Sequence[int], config: MixingConfig) -> Mixture:
    """Return the mixture of a run. `sizes` has the number of short enough pairs of each corpus. Raise
    `UserError` for unknown names, weights all 0, or a weight with size 0. Also raise it if `until` names a
    corpus without share or is not after its stage's start, or the last stage lacks the counted corpus."""
    names = [corpus.name for corpus in corpora]
    shares = [_shares(stage, corpora, sizes, config) for stage in config.stage or (StageConfig(),)]
    stages = [Stage(shares[0], 0, (0,) * len(names))]
    for number, (stage, following) in enumerate(zip(config.stage, shares[1:], strict=False), start=1):
        end = _end(stages[-1], stage, number, names, sizes)
        stages.append(Stage(following, end, stages[-1].taken(end)))
    last = shares[-1]
    first = next(number for number, share in enumerate(last) if share)
    counted = _named(config.epoch, names, "epoch") if config.epoch else first
    if not last[counted]:
        raise UserError(
            f"The last stage has no pairs of {names[counted]}, whose epochs are counted. "
            "Set mixing.epoch to a corpus of that stage."
        )
    return Mixture(tuple(names), tuple(sizes), tuple(stages), counted)


def is_mixed(corpora: Sequence[TrainCorpus], config: MixingConfig) -> bool:
    """Return whether to mix: if a setting is not the default, or a dataset's corpus has a weight."""
    return config != MixingConfig() or any(corpus.weight for corpus in corpora)


def _weights(stage: StageConfig, corpora: Sequence[TrainCorpus], config: MixingConfig) -> list[float]:
    """Return the weight of each corpus, from `stage`, else `config`, else the dataset, else 1. If the weights
    do not name a corpus, it gets 0. Raise `UserError` for an unknown name, or if all weights are 0."""
    names = [corpus.name for corpus in corpora]
    weights: Mapping[str, float] = stage.weights or config.weights
    for name in weights:
        _named(name, names, "weights")
    if not weights:
        weights = {corpus.name: corpus.weight for corpus in corpora}
        if not any(weights.values()):
            weights = dict.fromkeys(names, 1.0)
    if not any(weights.values()):
        raise UserError("All weights of [mixing] are 0. Give at least one corpus a weight above 0.")
    return [weights.get(name, 0.0) for name in names]


def _shares(
    stage: StageConfig, corpora: Sequence[TrainCorpus], sizes: Sequence[int], config: MixingConfig
) -> tuple[int, ...]:
    """Return the share of each corpus in units of 1 / `ONE`. Shares are proportional to the weights. A
    temperature multiplies each weight by size * (size of the group) ** (1 / temperature - 1). A group is all
    corpora with a tag if `config.over` is "tag", else one corpus. Weight 0 gives share 0 and adds nothing to
    a group. Raise `UserError` as `_weights` does, and for a weight with size 0."""
    weights, temperature = _weights(stage, corpora, config), stage.temperature or config.temperature
    for corpus, size, weight in zip(corpora, sizes, weights, strict=True):
        if weight and not size:
            raise UserError(
                f"Corpus {corpus.name} has a weight, but all its {corpus.pairs:,} pairs are too long. "
                "Raise batch.longest and batch.tokens, or set its weight to 0."
            )
    values = list(weights)
    if temperature:
        groups = [corpus.tag if config.over == "tag" else corpus.name for corpus in corpora]
        group_sizes: Counter[str] = Counter()
        for group, size, weight in zip(groups, sizes, weights, strict=True):
            group_sizes[group] += size if weight else 0
        values = [
            weight * size * group_sizes[group] ** (1 / temperature - 1) if weight else 0.0
            for weight, size, group in zip(weights, sizes, groups, strict=True)
        ]
    return tuple(round(value / sum(values) * ONE) for value in values)


def _end(current: Stage, stage: StageConfig, number: int, names: Sequence[str], sizes: Sequence[int]) -> int:
    """Return the time at which `stage` ends. `current` has its shares. `number` is from 1. Raise `UserError`
    if the corpus in `until` is unknown or has no share, or if the end is not after the start."""
    epochs, name = stage.end
    corpus = _named(name, names, "until")
    stage_end = f"Stage {number} of [mixing] ends after {epochs} epochs of {name}"
    if not current.shares[corpus]:
        raise UserError(f"{stage_end}, but has no pairs of it. Name a corpus of the stage.")
    count = ceil(Fraction(epochs) * sizes[corpus])
    if count <= current.before[corpus]:
        epochs_before = current.before[corpus] / sizes[corpus]
        raise UserError(
            f"{stage_end}, but began after {epochs_before:.3g}. "
            "Epochs are counted from the first step of the run, so raise the number."
        )
    return current.time_of(corpus, count)


def _named(name: str, names: Sequence[str], setting: str) -> int:
    """Return the position of `name`. If it is missing, raise `UserError` about mixing.`setting`."""
    if name not in names:
        raise UserError(
            f"mixing.{setting} names {name}, which is not a corpus of the dataset: {nearest(name, names)}"
        )
    return names.index(name)


def _parts(begin: int, end: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield (begin, exclusive end) of the fewest equal parts of [`begin`, `end`), each up to `limit`."""
    count = -(-(end - begin) // limit)
    for number in range(count):
        yield begin + (end - begin) * number // count, begin + (end - begin) * (number + 1) // count
