"""What the data room needs to be told."""

from dataclasses import dataclass, field

from nmt_cli.corpus.config import CorpusConfig
from nmt_cli.errors import UserError
from nmt_cli.text.config import TextConfig, TokenizerConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class FilterConfig:
    """Which training pairs are left out; 0, false and "" switch a filter off. Empty sides always go."""

    max_words: int = 250
    """Most words on either side; 0 for no limit."""

    max_subwords: int = 500
    """Most subwords on either side, end mark included; 0 for no limit."""

    max_ratio: float = 0.0
    """Most words of one side for each word of the other (words have blanks between); 0 for no limit."""

    identical: bool = False
    """Leave out pairs whose sides are the same text."""

    duplicates: bool = False
    """Leave out pairs that occurred before, word for word on both sides."""

    source_script: str = ""
    """Unicode script ("Latin", "Cyrillic", "Han") that at least half of the source's letters must be in."""

    target_script: str = ""
    """The same for the target side."""

    min_letters: float = 0.0
    """Least share of letters among the characters of either side, blanks not counted."""

    def __post_init__(self) -> None:
        for name in ("max_words", "max_subwords", "max_ratio"):
            if not getattr(self, name) >= 0:
                raise UserError(
                    f"{name} is {getattr(self, name)}; take a positive number, or 0 for no limit."
                )
        if 0 < self.max_ratio < 1:
            raise UserError(f"max_ratio is {self.max_ratio}; no pair has a ratio below 1.")
        if not 0 <= self.min_letters <= 1:
            raise UserError(f"min_letters is {self.min_letters}; it is a share, from 0.0 to 1.0.")


@dataclass(frozen=True, kw_only=True, slots=True)
class PreprocessConfig:
    """Everything that decides what `nmt preprocess` makes of its inputs."""

    corpus: CorpusConfig = field(default_factory=CorpusConfig)
    text: TextConfig = field(default_factory=TextConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    filter: FilterConfig = field(default_factory=FilterConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchConfig:
    """What is in a global batch, which one step of the optimiser sees; lengths count the end mark."""

    tokens: int = 25_000
    """Most source tokens, and most target tokens, in the global batch of a step."""

    longest: int = 256
    """Pairs with more tokens on either side, or with more than a batch holds, are left out and counted."""

    shard_pairs: int = 2_000_000
    """Pairs planned at a time, drawn from all over the corpus: more take more memory, and longer to start."""

    def __post_init__(self) -> None:
        for name in ("tokens", "longest", "shard_pairs"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; take at least 1.")
