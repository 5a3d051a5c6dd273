"""What the data room needs to be told."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from nmt_cli.config import check, setting
from nmt_cli.corpus.config import CorpusConfig
from nmt_cli.errors import UserError
from nmt_cli.setting_values import converted
from nmt_cli.text.config import TextConfig, TokenizerConfig, refuse_no_symbol


@dataclass(frozen=True, kw_only=True, slots=True)
class FilterConfig:
    """Which training pairs are left out; 0, false and "" switch a filter off. Empty sides always go."""

    max_words: int = setting(250, least=0, everyday=True)
    """Most words on either side; 0 for no limit."""

    max_subwords: int = setting(500, least=0)
    """Most subwords on either side, end mark included; 0 for no limit."""

    max_ratio: float = setting(0.0, least=1, or_zero=True, everyday=True)
    """Most words of one side for each word of the other (words have blanks between); 0 for no limit."""

    identical: bool = False
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

    decontaminate_by: Literal["pair", "source", "target", "either"] = "pair"
    """Which sides of a pair must be equal for that: both, this one, or either."""

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
class NamedCorpus:
    """A training corpus of `[[corpus]]`: where it is, and what is done to it alone."""

    name: str
    """What reports, logs and the mixing of `nmt train` call it."""

    path: str
    """Where it is, as `--train` takes it."""

    weight: float = setting(0.0, least=0)
    """Its share of the pairs in training, relative to the others' weights, unless `nmt train` is told
    another; with 0 for all of them, each has the share that its size makes."""

    tag: str = ""
    """A symbol put before each source line, such as "<2de>" or "<BT>"."""

    filters: Mapping[str, object] = setting({})
    """Settings of [filter] that are others for this corpus."""

    def __post_init__(self) -> None:
        check(self)
        for what, text in (("name", self.name), ("path", self.path)):
            if not text.strip() or "\n" in text:
                raise UserError(f"{what} is {text!r}; give one line of text.")
        if self.tag:
            refuse_no_symbol("tag is", self.tag)
        if "held_out" in self.filters:
            raise UserError(f"filters of {self.name}: held_out is of all corpora; set filter.held_out.")
        try:
            self.filter(FilterConfig())
        except UserError as error:
            raise UserError(f"filters of {self.name}: {error}") from error

    def filter(self, general: FilterConfig) -> FilterConfig:
        """The filters of this corpus, where `general` are those of all."""
        own = converted(dict(self.filters), FilterConfig)
        return replace(general, **{name: getattr(own, name) for name in self.filters})


@dataclass(frozen=True, kw_only=True, slots=True)
class CorporaConfig(CorpusConfig):
    """How raw files are read, and the training corpora, where they are not named by `--train`."""

    named: tuple[NamedCorpus, ...] = ()
    """Training corpora in the order of the dataset, each a [[corpus]] with name, path, weight, tag and
    filters."""

    valid_size: int = setting(0, least=0, everyday=True)
    """Pairs to draw from the training text as a validation set. No other pair with an equal side is kept."""

    test_size: int = setting(0, least=0)
    """The same for a test set."""

    tables: ClassVar[str] = "named"

    @property
    def drawn(self) -> dict[Literal["valid", "test"], int]:
        """The sizes of the sets that are drawn from the training text."""
        sizes: dict[Literal["valid", "test"], int] = {"valid": self.valid_size, "test": self.test_size}
        return {name: size for name, size in sizes.items() if size}

    def __post_init__(self) -> None:
        names = [corpus.name for corpus in self.named]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UserError(f"two corpora are named {twice}; give each a name of its own.")
        weighted = [corpus.name for corpus in self.named if corpus.weight]
        if weighted and (without := next((name for name in names if name not in weighted), None)):
            raise UserError(
                f"{weighted[0]} has a weight and {without} has none; give one to each corpus, or to none."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class PreprocessConfig:
    """Everything that decides what `nmt preprocess` makes of its inputs."""

    corpus: CorporaConfig = field(default_factory=CorporaConfig)
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


UNTIL = re.compile(r"(\d+(?:\.\d+)?) epochs? of (.+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class StageConfig:
    """A part of a run with a mixture of its own."""

    weights: Mapping[str, float] = setting({})
    """As `mixing.weights`, which these take the place of."""

    temperature: float = setting(0.0, least=0)
    """As `mixing.temperature`, likewise where it is not 0."""

    until: str = ""
    """When the stage ends, counted from the first step of the run, such as "3 epochs of bitext"."""

    def __post_init__(self) -> None:
        check(self)
        if self.until and not UNTIL.fullmatch(self.until):
            raise UserError(f'until is {self.until!r}; write it as "3 epochs of CORPUS".')

    @property
    def end(self) -> tuple[str, str]:
        """How many epochs of which corpus, of a stage that ends."""
        match = UNTIL.fullmatch(self.until)
        return (match[1], match[2]) if match else ("", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class MixingConfig:
    """How corpora are mixed; without any of it each epoch has every pair of the dataset once."""

    weights: Mapping[str, float] = setting({}, kind="whole run")
    """Shares of the pairs of each batch, by name of corpus, relative to each other; which is not named is
    left out. Empty for the weights of the dataset, or for all corpora alike."""

    temperature: float = setting(0.0, least=0, kind="whole run")
    """Multiply weights by the number of pairs to the power of 1 over this: 1 mixes by size, 5 more evenly; 0
    for weights alone."""

    over: Literal["corpus", "tag"] = setting("corpus", kind="whole run", needs="mixing.temperature=5")
    """What temperature weighs by size: each corpus, or together all that have the same tag, as those of one
    language; in a tag each corpus has its share by weight and size."""

    epoch: str = setting("", kind="whole run")
    """The corpus whose epochs are meant where epochs are counted, as in training.max_epochs; empty for the
    first of the last stage."""

    stage: tuple[StageConfig, ...] = setting((), kind="whole run")
    """Parts of the run one after another, each a [[mixing.stage]] with weights, temperature and until; the
    last has no end."""

    def __post_init__(self) -> None:
        check(self)
        for number, stage in enumerate(self.stage, start=1):
            if bool(stage.until) == (number == len(self.stage)):
                told = (
                    "is the last and goes on to the end; take its until away"
                    if stage.until
                    else "has no until"
                )
                raise UserError(f"stage {number} of {len(self.stage)} {told}.")
        for weights in (self.weights, *(stage.weights for stage in self.stage)):
            if wrong := [f"{name} = {weight}" for name, weight in weights.items() if weight < 0]:
                raise UserError(f"weights holds {wrong[0]}; take at least 0.")
        if self.over == "tag" and not (self.temperature or any(stage.temperature for stage in self.stage)):
            raise UserError("over has no effect without temperature; set it, or leave over out.")
