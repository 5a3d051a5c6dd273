"""How much of each corpus a run has taken at any time: whole numbers, known without looking at a pair.

Time is counted in pairs. In a stage a corpus with the share p has, of the first t pairs, the whole part of
p x t; shares are kept as whole numbers of `ONE`, so that all of this is exact.
"""

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
"""The share of a corpus that is alone. Powers may differ in their last digit between machines; rounded to
this, they are the same."""


@dataclass(frozen=True, slots=True)
class Stage:
    """From its begin to the next stage's: the share of each corpus."""

    shares: tuple[int, ...]
    begin: int
    before: tuple[int, ...]
    """What was taken of each corpus before the stage."""

    def taken(self, time: int) -> tuple[int, ...]:
        """What was taken of each corpus up to `time`, if the stage reaches so far."""
        return tuple(
            had + (time - self.begin) * share // ONE
            for had, share in zip(self.before, self.shares, strict=True)
        )

    def time_of(self, corpus: int, count: int) -> int:
        """The first time at which so many pairs of a corpus were taken, if the stage reaches so far."""
        return self.begin + -(-(count - self.before[corpus]) * ONE // self.shares[corpus])


@dataclass(frozen=True, slots=True)
class Mixture:
    """The stages of a run, and the corpus whose epochs count."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    """Pairs of each corpus that training takes."""

    stages: tuple[Stage, ...]
    counted: int
    """The corpus whose epochs count."""

    def stage_at(self, time: int) -> int:
        """The number of the stage that the pair behind `time` belongs to."""
        return max(number for number, stage in enumerate(self.stages) if stage.begin <= time)

    def taken(self, time: int) -> tuple[int, ...]:
        """What was taken of each corpus up to `time`."""
        return self.stages[self.stage_at(time)].taken(time)

    def shares(self, stage: int) -> dict[str, float]:
        """The share of each corpus in a stage; those that have none are left out."""
        shares = zip(self.names, self.stages[stage].shares, strict=True)
        return {name: share / ONE for name, share in shares if share}

    def rounds(self, epoch: int, most: int) -> list[tuple[int, int]]:
        """From when to when the parts of an epoch go, which are planned one at a time.

        Each is within a stage, and has at most `most` pairs.
        """
        begin, end = self._when(epoch), self._when(epoch + 1)
        borders = [begin, *(stage.begin for stage in self.stages if begin < stage.begin < end), end]
        return [part for pair in pairwise(borders) for part in _parts(*pair, most)]

    def _when(self, epoch: int) -> int:
        """When an epoch begins: the one before it has taken its last pair."""
        count = epoch * self.sizes[self.counted]
        for number, stage in enumerate(self.stages):
            last = number + 1 == len(self.stages)
            if last or self.stages[number + 1].before[self.counted] >= count:
                return stage.time_of(self.counted, count) if stage.shares[self.counted] else stage.begin
        raise AssertionError("the last stage has no end")


def mixture(corpora: Sequence[TrainCorpus], sizes: Sequence[int], config: MixingConfig) -> Mixture:
    """The mixture of a run on `corpora`, of which training takes so many pairs each.

    `UserError` where names or ends of stages do not fit the dataset.
    """
    names = [corpus.name for corpus in corpora]
    wanted = [_weights(stage, corpora, config) for stage in (config.stage or (StageConfig(),))]
    shares = [
        _shares(weights, corpora, sizes, stage.temperature or config.temperature, config.over)
        for weights, stage in zip(wanted, config.stage or (StageConfig(),), strict=True)
    ]
    stages = [Stage(shares[0], 0, (0,) * len(names))]
    for number, (stage, following) in enumerate(zip(config.stage, shares[1:], strict=False), start=1):
        end = _end(stages[-1], stage, number, names, sizes)
        stages.append(Stage(following, end, stages[-1].taken(end)))
    counted = _named(config.epoch, names, "epoch") if config.epoch else _first(shares[-1])
    if not shares[-1][counted]:
        raise UserError(
            f"[mixing]: the last stage has nothing of {names[counted]}, whose epochs are counted; "
            "set epoch to a corpus that it has."
        )
    return Mixture(tuple(names), tuple(sizes), tuple(stages), counted)


def is_mixed(corpora: Sequence[TrainCorpus], config: MixingConfig) -> bool:
    """Whether a dataset is mixed otherwise than each epoch having every pair once."""
    return config != MixingConfig() or any(corpus.weight for corpus in corpora)


def _weights(stage: StageConfig, corpora: Sequence[TrainCorpus], config: MixingConfig) -> list[float]:
    """The weight of each corpus in a stage: the stage's, or else those of all stages, or the dataset's."""
    names = [corpus.name for corpus in corpora]
    weights: Mapping[str, float] = stage.weights or config.weights
    for name in weights:
        _named(name, names, "weights")
    if not weights:
        weights = {corpus.name: corpus.weight for corpus in corpora}
        if not any(weights.values()):
            weights = dict.fromkeys(names, 1.0)
    if not any(weights.values()):
        raise UserError("[mixing]: weights gives no corpus a share; make one of them more than 0.")
    return [weights.get(name, 0.0) for name in names]


def _shares(
    weights: Sequence[float],
    corpora: Sequence[TrainCorpus],
    sizes: Sequence[int],
    temperature: float,
    over: str,
) -> tuple[int, ...]:
    """Weights, and sizes with temperature, as parts of `ONE`."""
    for corpus, size, weight in zip(corpora, sizes, weights, strict=True):
        if weight and not size:
            raise UserError(
                f"corpus {corpus.name} has a share in the mixture, but of its {corpus.pairs:,} pairs none is "
                "short enough for batch.longest and batch.tokens; give it the weight 0, or raise them."
            )
    values = list(weights)
    if temperature:
        groups = [corpus.tag if over == "tag" else corpus.name for corpus in corpora]
        mass = {
            group: sum(
                size for each, size, w in zip(groups, sizes, weights, strict=True) if each == group and w
            )
            for group in groups
        }
        values = [
            weight * size * mass[group] ** (1 / temperature - 1) if weight else 0.0
            for weight, size, group in zip(weights, sizes, groups, strict=True)
        ]
    shares = [round(value / sum(values) * ONE) for value in values]
    # Rounding may leave the sum beside ONE by a few of its four milliard parts, which nobody would see.
    return tuple(shares)


def _end(before: Stage, stage: StageConfig, number: int, names: Sequence[str], sizes: Sequence[int]) -> int:
    """When a stage ends."""
    epochs, name = stage.end
    corpus = _named(name, names, "until")
    place = f"[mixing]: stage {number} ends after {epochs} epochs of {name}"
    if not before.shares[corpus]:
        raise UserError(f"{place}, but has nothing of it; name a corpus that it mixes in.")
    count = ceil(Fraction(epochs) * sizes[corpus])
    if count <= before.before[corpus]:
        had = before.before[corpus] / sizes[corpus]
        raise UserError(
            f"{place}, but {had:.3g} were over when it began; "
            "epochs are counted from the first step of the run."
        )
    return before.time_of(corpus, count)


def _named(name: str, names: Sequence[str], setting: str) -> int:
    if name not in names:
        raise UserError(
            f"[mixing]: {setting} names {name}, but the dataset has no such corpus; {nearest(name, names)}"
        )
    return names.index(name)


def _first(shares: Sequence[int]) -> int:
    return next(number for number, share in enumerate(shares) if share)


def _parts(begin: int, end: int, most: int) -> Iterator[tuple[int, int]]:
    """[begin, end) in equal parts of at most `most`."""
    count = -(-(end - begin) // most)
    for number in range(count):
        yield begin + (end - begin) * number // count, begin + (end - begin) * (number + 1) // count
