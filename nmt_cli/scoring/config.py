"""Settings of `nmt score`."""

from dataclasses import dataclass, field
from typing import Literal

from nmt_cli.config import Section, setting

Metric = Literal["bleu", "chrf", "chrf++", "ter", "paper-bleu"]
SMALLER_IS_BETTER = ("ter", "nll")
"""Metrics, of `Metric` and of validation, that are better if smaller."""

Test = Literal["bootstrap", "randomization"]

BleuTokenizer = Literal[
    "auto", "13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "flores101", "flores200", "none"
]


@dataclass(frozen=True, kw_only=True, slots=True)
class BleuConfig(Section):
    """Settings of sacrebleu's BLEU. The other metrics have no settings."""

    section = "bleu"

    tokenizer: BleuTokenizer = setting("auto", everyday=True)
    """Tokeniser of sacrebleu, for both sides. "auto" is zh, ja-mecab or ko-mecab for these languages, and 13a
    for all others. The flores tokenisers are downloaded once. "none" is for text already tokenised."""

    lowercase: bool = setting(False, everyday=True)
    """Lower-case both sides."""

    smoothing: Literal["exp", "floor", "add-k", "none"] = "exp"
    """Smoothing of n-gram precisions that are zero."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreConfig:
    """All settings of `nmt score`. The language is not among them."""

    bleu: BleuConfig = field(default_factory=BleuConfig)
