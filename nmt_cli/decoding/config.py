"""What the decoding room needs to be told."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from nmt_cli.errors import UserError

TooLong = Literal["split", "cut", "skip"]
Rule = Literal["gnmt", "power"]


@dataclass(frozen=True, kw_only=True, slots=True)
class InputConfig:
    """What is done with lines that a model was not made for."""

    too_long: TooLong = "split"
    """A line that is too long is translated in parts that end where sentences do, as far as it has such
    places ("split"), only its first part is ("cut"), or nothing of it ("skip")."""

    longest: int = 0
    """Most source pieces of a line, or of a part of one, the end mark not counted; 0 is what the model was
    trained with."""

    prefix: bool = False
    """Behind a tab, each line says how its translation begins."""

    window: int = 8192
    """Most lines between input and output; of those that wait, the longest are translated first."""

    most_unknown: float = 0.1
    """Warn where more than this share of the pieces of the first 1,000 lines is unknown; 1.0 is never."""

    def __post_init__(self) -> None:
        if self.longest < 0:
            raise UserError(f"longest is {self.longest}; take a positive number, or 0 for the model's own.")
        if self.window < 1:
            raise UserError(f"window is {self.window}; take at least 1.")
        if not 0 <= self.most_unknown <= 1:
            raise UserError(f"most_unknown is {self.most_unknown}; it is a share, from 0.0 to 1.0.")


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchConfig:
    """How translations are searched for."""

    beam: int = 4
    """Hypotheses that are followed at a time; 1 is greedy search."""

    n_best: int = 1
    """Translations of each sentence, best first."""

    length_rule: Rule = "gnmt"
    """What the sum of log-probabilities is divided by: ((5 + n) / 6)^a (gnmt), n^a (power); n is the number
    of target pieces and the end mark, a the length penalty."""

    length_penalty: float = 0.6
    """The exponent a; 0 for none. The two rules need different ones: gnmt's 0.6 is not power's."""

    min_length: int = 0
    """Least number of target pieces."""

    max_length: int = 0
    """Most target pieces, whatever the source; 0 for no such limit."""

    cap_ratio: float = 1.0
    """A translation has at most cap_ratio x source pieces + cap_extra pieces."""

    cap_extra: int = 50
    """See cap_ratio."""

    stop_early: bool = False
    """End when as many hypotheses have ended as the beam is wide, as fairseq and CTranslate2 do: faster, but
    a live one that would have become better is missed. By itself, a search goes on as long as one may."""

    unknown: bool = False
    """Let the unknown mark be produced."""

    sample: bool = False
    """Draw translations by lot in place of searching for the best ones."""

    temperature: float = 1.0
    """Sampling: probabilities are raised to 1 / temperature; less than 1 prefers the likely ones."""

    top_k: int = 0
    """Sampling: draw from that many of the likeliest tokens only; 0 for all."""

    top_p: float = 1.0
    """Sampling: draw from the fewest likeliest tokens that have this share of the probability."""

    seed: int = 1
    """Sampling: decides what is drawn for each line."""

    combine: Literal["probability", "log-probability"] = "probability"
    """Several models: whether their probabilities are averaged, or the logarithms of these."""

    weights: tuple[float, ...] = ()
    """Several models: how much each counts; as much as the others if not given."""

    rows: int = 0
    """Most hypotheses that are worked on at a time; 0 for what suits the device."""

    tokens: int = 16_384
    """Most source tokens, filled up to the longest sentence, that are worked on at a time."""

    def __post_init__(self) -> None:
        least = {"beam": 1, "n_best": 1, "min_length": 0, "max_length": 0, "cap_extra": 0, "top_k": 0}
        least |= {"length_penalty": 0, "cap_ratio": 0, "rows": 0, "tokens": 1, "seed": 0}
        for name, value in least.items():
            if getattr(self, name) < value:
                raise UserError(f"{name} is {getattr(self, name)}; take at least {value}.")
        if any(weight <= 0 for weight in self.weights):
            raise UserError("weights are positive numbers; leave a model out that shall not count.")
        if self.max_length and self.min_length > self.max_length:
            raise UserError(f"min_length is {self.min_length}, but max_length only {self.max_length}.")
        if self.n_best > self.beam and not self.sample:
            raise UserError(
                f"n_best is {self.n_best}, but a beam of {self.beam} finds no more than {self.beam}; "
                "raise beam, or set sample to true."
            )
        self._check_sampling()

    def _check_sampling(self) -> None:
        if not 0 < self.top_p <= 1 or self.temperature <= 0:
            raise UserError("temperature is more than 0, and top_p more than 0 and at most 1.")
        for name, default in (("temperature", 1.0), ("top_k", 0), ("top_p", 1.0), ("seed", 1)):
            if getattr(self, name) != default and not self.sample:
                raise UserError(f"{name} has no effect without sampling; set sample to true.")
        for name, otherwise in (("beam", 4), ("stop_early", False)):
            if getattr(self, name) != otherwise and self.sample:
                raise UserError(f"{name} has no effect on sampling; leave it out, or set sample to false.")

    @property
    def places(self) -> int:
        """Hypotheses of a sentence that are followed at a time."""
        return self.n_best if self.sample else self.beam

    def caps(self, pieces: Sequence[int], longest: int) -> list[int]:
        """The most pieces of the translations of sources of so many; a model may have a `longest` of its own,
        end mark counted."""
        caps = [int(self.cap_ratio * count) + self.cap_extra for count in pieces]
        limits = [limit for limit in (self.max_length, longest - 1 if longest else 0) if limit]
        return [min([cap, *limits]) for cap in caps]


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputConfig:
    """What is told of a translation besides its text, with --format json."""

    alignments: bool = False
    """For each piece of the best translation the number of a source piece, the one with most attention in the
    mean of all layers and heads. Takes another pass of the model over each pair."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateConfig:
    """Everything that decides what `nmt translate` makes of its input."""

    search: SearchConfig = field(default_factory=SearchConfig)
    input: InputConfig = field(default_factory=InputConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
