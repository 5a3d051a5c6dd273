"""What the data room needs to be told."""

from dataclasses import dataclass, field

from nmt_cli.config import check, setting
from nmt_cli.corpus.config import CorpusConfig
from nmt_cli.text.config import TextConfig, TokenizerConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class FilterConfig:
    """Which training pairs are left out; 0, false and "" switch a filter off. Empty sides always go."""

    max_words: int = setting(250, least=0, everyday=True)
    """Most words on either side; 0 for no limit."""

    max_subwords: int = setting(500, least=0)
    """Most subwords on either side, end mark included; 0 for no limit."""

    max_ratio: float = setting(0.0, least=1, or_zero=True, everyday=True)
    """Most words of one side for each word of the other (words have blanks between); 0 for no limit."""

    identical: bool = setting(False, everyday=True)
    """Leave out pairs whose sides are the same text."""

    duplicates: bool = setting(False, everyday=True)
    """Leave out pairs that occurred before, word for word on both sides."""

    source_script: str = ""
    """Unicode script ("Latin", "Cyrillic", "Han") that at least half of the source's letters must be in."""

    target_script: str = ""
    """The same for the target side."""

    min_letters: float = setting(0.0, least=0, most=1)
    """Least share of letters among the characters of either side, blanks not counted."""

    decontaminate: bool = setting(True, everyday=True)
    """Leave out pairs that occur in a valid or test set, or in `held_out`; case, blanks and punctuation do
    not count."""

    held_out: tuple[str, ...] = ()
    """Further corpora, named as for --test, whose pairs are not to be trained on."""

    min_score: float = 0.0
    """Least number in `corpus.score_column`; pairs without one stay. 0 for no limit."""

    language: bool = setting(False, everyday=True)
    """Leave out pairs with a side that is surely in another language than it should be (needs py3langid)."""

    numbers: bool = False
    """Leave out pairs whose sides do not have the same numbers above 12, in whatever order and format."""

    markup: bool = False
    """Leave out pairs with HTML or XML tags or entities on either side."""

    max_repeats: int = setting(0, least=2, or_zero=True)
    """Most times that one to four words (without blanks, characters) follow each other; 0 for no limit."""

    sentences: bool = False
    """Leave out pairs whose sides are not of the same number of sentences."""

    one_per_target: bool = False
    """Of several sources of the same target keep the best: of the highest score, or else the one whose length
    is nearest to its target's."""

    one_per_source: bool = False
    """Of several targets of the same source keep the best, likewise."""

    def __post_init__(self) -> None:
        check(self)


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

    tokens: int = setting(25_000, least=1, kind="whole run")
    """Most source tokens, and most target tokens, in the global batch of a step."""

    longest: int = setting(256, least=1, kind="whole run", everyday=True)
    """Pairs with more tokens on either side, or with more than a batch holds, are left out and counted."""

    shard_pairs: int = setting(2_000_000, least=1, kind="whole run")
    """Pairs planned at a time, drawn from all over the corpus: more take more memory, and longer to start."""

    def __post_init__(self) -> None:
        check(self)
