"""What the scoring room needs to be told."""

from dataclasses import dataclass, field
from typing import Literal

from nmt_cli.config import check, setting

Metric = Literal["bleu", "chrf", "chrf++", "ter", "paper-bleu"]
"""What compares text with text."""

AnyMetric = Literal[Metric, "brackets"]
"""And what compares trees with trees."""

Test = Literal["bootstrap", "randomization"]


BleuTokenizer = Literal[
    "auto", "13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "flores101", "flores200", "none"
]


@dataclass(frozen=True, kw_only=True, slots=True)
class BleuConfig:
    """sacrebleu's BLEU; the paper's protocol has none of these choices."""

    tokenizer: BleuTokenizer = setting("auto", everyday=True)
    """How sacrebleu splits both sides into words. "auto" is zh, ja-mecab or ko-mecab where that is the
    language, else 13a; the flores ones are fetched from the network once; "none" is for text that is
    tokenised already."""

    lowercase: bool = setting(False, everyday=True)
    """Lower-case both sides."""

    smoothing: Literal["exp", "floor", "add-k", "none"] = "exp"
    """What stands in for a precision of zero."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChrfConfig:
    """chrF and chrF++."""

    lowercase: bool = False
    """Lower-case both sides."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TerConfig:
    """TER."""

    case_sensitive: bool = False
    """Count a change of case as an edit."""

    normalize: bool = False
    """Split punctuation off first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PaperConfig:
    """BLEU as 'Attention Is All You Need' computed it."""

    reference_quotes: Literal["straight", "keep"] = setting("straight", everyday=True)
    """Whether low and curly quotes in the references become " and ' ("straight", as in the reference behind
    the published numbers) or stay ("keep", as for references that were made so already)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SignificanceConfig:
    """Tests of whether a system differs from the first one."""

    samples: int = setting(0, least=0, everyday=True)
    """Resamples or trials; 0 for sacrebleu's own 1,000 resamples (bootstrap) or 10,000 trials
    (randomization)."""

    seed: int = setting(12345, least=1)
    """Which ones are drawn; the default is sacrebleu's, to which 0 would mean no seed at all."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreConfig:
    """Everything that decides what a score is, the language apart."""

    bleu: BleuConfig = field(default_factory=BleuConfig)
    chrf: ChrfConfig = field(default_factory=ChrfConfig)
    ter: TerConfig = field(default_factory=TerConfig)
    paper: PaperConfig = field(default_factory=PaperConfig)
    significance: SignificanceConfig = field(default_factory=SignificanceConfig)
