"""What the decoding room needs to be told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from nmt_cli.config import Gone, changed, check, setting
from nmt_cli.errors import UserError

TooLong = Literal["split", "cut", "skip"]
Rule = Literal["gnmt", "power"]

ONE = "validation searches for the one best translation, and nmt translate has the setting"


@dataclass(frozen=True, kw_only=True, slots=True)
class InputConfig:
    """What is done with lines that a model was not made for."""

    too_long: TooLong = setting("split", everyday=True)
    """A line that is too long is translated in parts that end where sentences do, as far as it has such
    places ("split"), only its first part is ("cut"), or nothing of it ("skip")."""

    sentences: Literal["keep", "split"] = setting("keep", everyday=True)
    """A line of several sentences is translated as it is ("keep"), or each of its sentences by itself, with
    the same blanks between them, which suits models that were trained on single sentences ("split")."""

    longest: int = setting(0, least=0)
    """Most source pieces of a line, or of a part of one, the end mark not counted; 0 is what the model was
    trained with."""

    prefix: bool = setting(False, everyday=True)
    """Behind a tab, each line says how its translation begins."""

    window: int = setting(8192, least=1, most=1_000_000)
    """Most lines between input and output; of those that wait, the longest are translated first."""

    gone: ClassVar[Mapping[str, Gone]] = {
        "most_unknown": Gone("a warning comes where more than a tenth of the pieces is unknown")
    }

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class BeamConfig:
    """How the best translations are searched for; all that validation during training wants."""

    beam: int = setting(4, least=1, most=1024)
    """Hypotheses that are followed at a time; 1 is greedy search."""

    length_rule: Rule = setting("gnmt", everyday=True)
    """What the sum of log-probabilities is divided by: ((5 + n) / 6)^a (gnmt), n^a (power); n is the number
    of target pieces and the end mark, a the length penalty."""

    length_penalty: float = setting(0.6, least=0)
    """The exponent a; 0 for none. The two rules need different ones: gnmt's 0.6 is not power's."""

    min_length: int = setting(0, least=0, most=10_000)
    """Least number of target pieces."""

    max_length: int = setting(0, least=0)
    """Most target pieces, whatever the source; 0 for no such limit."""

    cap_ratio: float = setting(1.0, least=0, most=100)
    """A translation has at most cap_ratio x source pieces + cap_extra pieces."""

    cap_extra: int = setting(50, least=0, most=10_000)
    """See cap_ratio."""

    reach: float = setting(1.5, least=1)
    """Prunes the search. A hypothesis is dropped if it could not be among the best even after growing, at no
    cost, to this many times its own length or the source's. The default loses nothing at usual length
    penalties, but changed 49 of 500 lines at a penalty of 2.0. 1000 never loses anything and takes longer."""

    stop_early: bool = setting(False)
    """End when as many hypotheses have ended as the beam is wide, as fairseq and CTranslate2 do, though a
    live one may become better."""

    gone: ClassVar[Mapping[str, Gone]] = {
        # Validation once had all settings of a search, and old runs keep them in their files.
        "n_best": Gone(ONE, 1),
        "unknown": Gone(ONE, False),
        "sample": Gone(ONE, False),
        "temperature": Gone(ONE, 1.0),
        "top_k": Gone(ONE, 0),
        "top_p": Gone(ONE, 1.0),
        "seed": Gone(ONE, 1),
        "combine": Gone(ONE, "probability"),
        "weights": Gone(ONE, []),
        "rows": Gone("as much is worked on at a time as suits the device"),
        "tokens": Gone("as much is worked on at a time as suits the device"),
    }

    def __post_init__(self) -> None:
        check(self)
        if self.max_length and self.min_length > self.max_length:
            raise UserError(f"min_length is {self.min_length}, but max_length only {self.max_length}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchConfig(BeamConfig):
    """How translations are searched for, or drawn."""

    n_best: int = setting(1, least=1, most=1024)
    """Translations of each sentence, best first."""

    unknown: bool = setting(False)
    """Let the unknown mark be produced."""

    ban: tuple[str, ...] = ()
    """Words or phrases that no translation holds, as they are written between blanks; what begins with the
    same pieces is banned with them."""

    no_repeat_ngram: int = setting(0, least=0)
    """No so many pieces in a row come twice in a translation; 0 for no such rule. Three or four end loops."""

    repetition_penalty: float = setting(1.0, least=1)
    """The log-probability of a piece that a translation has already is multiplied by this; 1 for none."""

    coverage_penalty: float = setting(0.0, least=0)
    """A score gets this times the sum over the source pieces of log(min(c, 1)), where c is the attention that
    a piece got in all, the mean of all layers and heads: GNMT's beta, 0.2 there; 0 for none."""

    diversity: float = setting(0.0, least=0)
    """How different those of an n-best list are: a hypothesis's second way on is taken as if it were less
    likely by this (in log-probability), its third by twice this, and so on; scores stay as they are."""

    mbr: Literal["off", "bleu", "chrf"] = setting("off", everyday=True)
    """Of as many translations as the beam is wide, or as many drawn, take those that agree most with all of
    them (minimum Bayes risk): in BLEU of pieces, or in chrF, which likes longer ones."""

    sample: bool = setting(False, everyday=True)
    """Draw translations by lot in place of searching for the best ones."""

    temperature: float = setting(1.0, above=0, everyday=True, needs="search.sample=true")
    """Sampling: probabilities are raised to 1 / temperature; less than 1 prefers the likely ones."""

    top_k: int = setting(0, least=0, everyday=True, needs="search.sample=true")
    """Sampling: draw from that many of the likeliest tokens only; 0 for all."""

    top_p: float = setting(1.0, above=0, most=1, needs="search.sample=true")
    """Sampling: draw from the fewest likeliest tokens that have this share of the probability."""

    seed: int = setting(1, least=0, needs="search.sample=true")
    """Sampling: decides what is drawn for each line."""

    combine: Literal["probability", "log-probability"] = setting("probability")
    """Several models: whether their probabilities are averaged, or the logarithms of these."""

    weights: tuple[float, ...] = setting((), above=0, everyday=True)
    """Several models: how much each counts; as much as the others if not given."""

    rows: int = setting(0, least=0, most=16_384)
    """Most hypotheses that are worked on at a time; 0 for what suits the device."""

    gone: ClassVar[Mapping[str, Gone]] = {
        "tokens": Gone("16,384 source tokens are worked on at a time; search.rows makes it less"),
        "graphs": Gone("every step asks the GPU for its launches one by one"),
    }

    def __post_init__(self) -> None:
        BeamConfig.__post_init__(self)  # super() would be the class from before it got slots
        if self.n_best > self.beam and self.has_beam:
            instead = "" if self.sample else ", or set sample to true"
            raise UserError(
                f"n_best is {self.n_best}, but a beam of {self.beam} finds no more than {self.beam}; "
                f"raise beam{instead}."
            )
        self._check_sampling()
        if self.mbr != "off" and self.beam == 1:
            raise UserError("mbr chooses among as many translations as the beam is wide; raise beam.")
        if self.diversity and self.beam == 1:
            raise UserError("diversity has no effect on a beam of 1; raise beam, or leave it out.")
        if not all(text.strip() for text in self.ban):
            raise UserError("ban holds an empty text; take it out.")

    def _check_sampling(self) -> None:
        if self.sample:
            beam = () if self.has_beam else ("beam",)
            for name in changed(self, *beam, "stop_early", "coverage_penalty", "diversity"):
                raise UserError(f"{name} has no effect on sampling; leave it out, or set sample to false.")
        else:
            for name in changed(self, "temperature", "top_k", "top_p", "seed"):
                raise UserError(f"{name} has no effect without sampling; set sample to true.")

    @property
    def has_beam(self) -> bool:
        """Whether the beam's width is of any effect."""
        return not self.sample or self.mbr != "off"

    @property
    def places(self) -> int:
        """Hypotheses of a sentence that are followed at a time."""
        return self.beam if self.has_beam else self.n_best

    @property
    def found(self) -> int:
        """Hypotheses of a sentence that the search brings home."""
        return self.n_best if self.mbr == "off" else self.beam

    def caps(self, pieces: Sequence[int], longest: int) -> list[int]:
        """The most pieces of the translations of sources of so many; a model may have a `longest` of its own,
        end mark counted."""
        caps = [int(self.cap_ratio * count) + self.cap_extra for count in pieces]
        limits = [limit for limit in (self.max_length, longest - 1 if longest else 0) if limit]
        return [min([cap, *limits]) for cap in caps]


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputConfig:
    """What is told of a translation besides its text, and in which form."""

    alignments: bool = setting(False, everyday=True)
    """For each piece of the best translation the number of a source piece, the one with most attention in the
    mean of all layers and heads; in text a last column, " ||| 0-0 1-2", of pairs of words, source first
    (Pharaoh's format). Takes another pass of the model over each pair."""

    trees: Literal["bracketed", "linearised"] = "bracketed"
    """How parses come out, where bracketed trees were learnt: with the words, or as the model writes them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslateConfig:
    """Everything that decides what `nmt translate` makes of its input."""

    search: SearchConfig = field(default_factory=SearchConfig)
    input: InputConfig = field(default_factory=InputConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
