"""Settings of search, input and output of a translation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from nmt_cli.config import Section, changed, check, setting
from nmt_cli.errors import UserError
from nmt_cli.setting_values import Bounds

Rule = Literal["gnmt", "power"]
Mbr = Literal["off", "chrf", "comet", "comet-aggregated"]


@dataclass(frozen=True, kw_only=True, slots=True)
class InputConfig(Section):
    """How input lines become sentences for the model."""

    section = "input"

    sentences: Literal["keep", "split"] = setting("keep", everyday=True)
    """Lines with several sentences: keep or split them.

    "keep" translates a line as one. "split" translates each sentence separately, and keeps the whitespace
    between them. This suits models that were trained on single sentences.
    """

    prefix: bool = setting(False, everyday=True)
    """Lines may have a tab and the translation's beginning."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BeamConfig(Section):
    """Beam search, as validation during training needs it."""

    section = "search"

    beam: int = setting(4, Bounds(least=1, most=1024))
    """Beam size. 1 is greedy search."""

    length_rule: Rule = setting("gnmt", everyday=True)
    """Length normalisation: ((5 + n) / 6)^a (gnmt) or n^a (power).

    The sum of log-probabilities is divided by it. n is the number of target tokens with the end token, and a
    is the length penalty.
    """

    length_penalty: float = setting(0.6, Bounds(least=0))
    """Exponent of the length rule. 0 is no normalisation.

    The two rules need different values: 0.6 suits gnmt, not power.
    """

    min_length: int = setting(0, Bounds(least=0, most=10_000))
    """Minimum number of target tokens. The maximum of cap_ratio and cap_extra has precedence.

    A language code at the start does not count. From 1 on, no translation ends with a token that is only a
    space, so that it has text.
    """

    max_length: int = setting(0, Bounds(least=0))
    """Maximum number of target tokens. 0 is no limit."""

    cap_ratio: float = setting(1.0, Bounds(least=0, most=100))
    """At most cap_ratio x source + cap_extra target tokens."""

    cap_extra: int = setting(50, Bounds(least=0, most=10_000))
    """Target tokens in addition to cap_ratio x source tokens."""

    reach: float = setting(1.5, Bounds(least=1))
    """Pruning: larger values prune fewer hypotheses.

    A hypothesis is dropped if it could not be among the best even after growing, at no cost, to this many
    times its own length or the source's. The default loses nothing at usual length penalties, but can change
    results at large ones. 1000 never loses anything and takes longer.
    """

    stop_early: bool = False
    """End a sentence once `beam` hypotheses have ended.

    fairseq and CTranslate2 do so. A live hypothesis might still become better.
    """

    def __post_init__(self) -> None:
        check(self)
        if self.max_length and self.min_length > self.max_length:
            raise UserError(f"min_length is {self.min_length}, but max_length only {self.max_length}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchConfig(BeamConfig):
    """Search or sampling of translations."""

    n_best: int = setting(1, Bounds(least=1, most=1024))
    """Number of translations of each sentence, best first."""

    unknown: bool = False
    """Allow the unknown token in translations."""

    shortlist: bool = True
    """Use the shortlist of the model, if it has one.

    Each sentence then uses only the target tokens that its own tokens list, which is faster on a CPU. GPUs,
    and searches with rules or sampling, use the whole vocabulary.
    """

    ban: tuple[str, ...] = ()
    """Words or phrases that no translation may contain.

    They are given as they appear between spaces. Words that begin with the same subwords are banned too.
    """

    glossary: Literal["auto", "hard", "soft"] = "auto"
    """Terms are required (hard), or suggested to the model (soft). "soft" needs a model that learnt
    augment.terms. "auto" is soft for such a model, otherwise hard."""

    no_repeat_ngram: int = setting(0, Bounds(least=0))
    """Forbid repeated n-grams of this size. 0 allows them.

    3 or 4 stops loops.
    """

    second_attempt: bool = setting(False, everyday=True)
    """Search again for a translation that loops or copies.

    The second search repeats no four tokens, or no two of the source. Its result is used if it has only some
    of the flags of the first. If a search returns several hypotheses, as with n_best, one without these flags
    is preferred. Other sentences do not change.
    """

    mbr: Mbr = setting("off", everyday=True)
    """Minimum Bayes risk: rank by agreement in a metric.

    Of `beam` translations, found or sampled, it takes those that agree most with all of them: in chrF, which
    prefers longer ones, or in COMET, which needs `nmt translate --metric-model`.
    "comet-aggregated" compares them with the mean of their vectors instead, in linear time.
    """

    sample: bool = setting(False, everyday=True)
    """Sample translations instead of searching for the best."""

    top_k: int = setting(0, Bounds(least=0), everyday=True, needs="search.sample=true")
    """Sampling: number of likeliest tokens to draw from. 0 is all."""

    seed: int = setting(1, Bounds(least=0, most=2**63 - 1), needs="search.sample=true")
    """Sampling: seed of the random draws."""

    rows: int = setting(0, Bounds(least=0, most=16_384))
    """Maximum hypotheses in a batch. 0 depends on the device."""

    def __post_init__(self) -> None:
        BeamConfig.__post_init__(self)  # super() would refer to the class before slots were added
        if self.n_best > self.beam and self.has_beam:
            instead = "" if self.sample else ", or set sample to true"
            raise UserError(
                f"n_best is {self.n_best}, but a beam of {self.beam} finds no more than {self.beam}. "
                f"Raise beam{instead}."
            )
        self._check_sampling()
        if self.mbr != "off" and self.beam == 1:
            raise UserError(
                "mbr chooses among the translations of a beam, so beam must be at least 2 (got 1)."
            )
        if not all(text.strip() for text in self.ban):
            raise UserError("ban holds an empty text. Take it out.")

    def _check_sampling(self) -> None:
        """Raise `UserError` for a changed setting that has no effect.

        With `sample`, refuse `stop_early`, and also `beam` if MBR is off.
        Without `sample`, refuse `top_k` and `seed`.
        """
        if self.sample:
            beam = () if self.has_beam else ("beam",)
            for name in changed(self, *beam, "stop_early"):
                raise UserError(f"{name} has no effect on sampling. Leave it out, or set sample to false.")
        else:
            for name in changed(self, "top_k", "seed"):
                raise UserError(f"{name} has no effect without sampling. Set sample to true.")

    @property
    def has_beam(self) -> bool:
        """Whether the beam size has an effect. False for `sample` without MBR, else True."""
        return not self.sample or self.mbr != "off"

    @property
    def slots(self) -> int:
        """Number of slots for live hypotheses of a sentence: `beam`, or `n_best` in sampling without MBR."""
        return self.beam if self.has_beam else self.n_best

    @property
    def results(self) -> int:
        """Maximum number of finished hypotheses of a sentence in a search: `n_best`, or `beam` with MBR."""
        return self.n_best if self.mbr == "off" else self.beam

    def caps(self, pieces: Sequence[int], longest: int) -> list[int]:
        """Return for each source of `pieces` tokens the maximum target tokens, without the end token.

        A maximum is `cap_ratio` x source tokens, rounded down, plus `cap_extra`. No maximum exceeds
        `max_length` or `longest` - 1, each if not 0. `longest` is the model's limit with the end token.
        """
        caps = [int(self.cap_ratio * count) + self.cap_extra for count in pieces]
        limits = [limit for limit in (self.max_length, longest - 1 if longest else 0) if limit]
        return [min([cap, *limits]) for cap in caps]


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputConfig(Section):
    """Output besides the text of a translation, and its form."""

    section = "output"

    alignments: bool = setting(False, everyday=True)
    """Align the tokens of the best translation with the source.

    The source token is the one with the highest attention, by the head that training.guided_alignment
    taught, or else by the most certain heads. Text output gets a last column " ||| 0-0 1-2" of word pairs,
    source first (Pharaoh's format). Spaces in the line and in the translation separate words. It takes
    another pass of the model over each pair.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateConfig:
    """All settings of `nmt translate`."""

    search: SearchConfig = field(default_factory=SearchConfig)
    input: InputConfig = field(default_factory=InputConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
