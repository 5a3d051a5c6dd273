"""Settings for the corpora, their filters, and the batches made of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from nmt_cli.config import Section, check, setting
from nmt_cli.corpus.config import CorpusConfig
from nmt_cli.errors import UserError
from nmt_cli.removed_settings import removed_from
from nmt_cli.setting_values import Bounds, converted
from nmt_cli.text.config import TextConfig, TokenizerConfig, refuse_invalid_symbol


@dataclass(frozen=True, kw_only=True, slots=True)
class FilterConfig(Section):
    """Which training pairs are dropped. 0, false and "" turn a filter off. Pairs with an empty side are
    always dropped."""

    section = "filter"

    max_words: int = setting(250, Bounds(least=0), everyday=True)
    """Maximum words on either side, separated by spaces. 0 means no limit."""

    max_subwords: int = setting(500, Bounds(least=0))
    """Maximum subwords on either side, end token included. 0 means no limit."""

    max_ratio: float = setting(0.0, Bounds(least=1, or_zero=True), everyday=True)
    """Maximum ratio of the words of both sides. 0 means no limit. It divides the words of the longer side by
    those of the shorter. Spaces separate words. Leave it at 0 for languages without spaces between words,
    such as Chinese, Japanese and Thai, because it would drop nearly all pairs."""

    identical: bool = False
    """Drop pairs whose two sides are the same text."""

    duplicates: bool = setting(False, everyday=True)
    """Drop pairs that are equal to an earlier pair, word for word."""

    source_script: str = ""
    """Script of at least half of the source's letters. A Unicode script name: "Latin", "Cyrillic", "Han"."""

    target_script: str = ""
    """Script of at least half of the target's letters."""

    decontaminate: bool = setting(True, everyday=True)
    """Drop pairs that occur in a validation or test set. This includes `held_out`. Case, spaces and
    punctuation do not count."""

    decontaminate_by: Literal["pair", "source", "target", "either"] = "pair"
    """Sides that must be equal for `decontaminate`. "pair" means both sides."""

    held_out: tuple[str, ...] = ()
    """More corpora whose pairs `decontaminate` drops. They are named as for --test."""

    min_score: float = 0.0
    """Minimum score. 0 means no limit. Scores are in `corpus.score_column`, or come from `scorer`. Pairs
    without a score stay."""

    scorer: str = ""
    """Command for the shell that scores pairs. As for `nmt score --scorer`, it reads a JSON object per line,
    with the raw `src` and `mt`, and prints a number for each. It scores all pairs, before any filter."""

    language: bool = setting(False, everyday=True)
    """Drop pairs that are clearly in a wrong language. This needs py3langid."""

    numbers: bool = False
    """Drop pairs whose numbers above 12 differ. Order and format do not count."""

    markup: bool = False
    """Drop pairs with HTML or XML tags or entities."""

    sentences: bool = False
    """Drop pairs whose sides differ in their sentence count."""

    one_per_target: bool = False
    """Keep only the best source of each target. The best has the highest score, or else the length nearest to
    the target's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedCorpus:
    """A training corpus in a `[[corpus]]` section: its location and its own settings."""

    removed: ClassVar = {"weight": "was removed. Set mixing.weights of nmt train instead"}
    """What the errors about settings say that it once had."""

    name: str
    """Name in reports, logs and the mixing of `nmt train`."""

    path: str
    """Location, in the form that `--train` accepts."""

    tag: str = ""
    """Symbol before each source line, such as "<2de>"."""

    source_lang: str = ""
    """Source language of this corpus, if the dataset has several. Empty means --source-lang."""

    target_lang: str = ""
    """Target language of this corpus, if the dataset has several. Empty means --target-lang."""

    filters: Mapping[str, object] = setting({})
    """Settings of [filter] that differ for this corpus."""

    def __post_init__(self) -> None:
        check(self)
        for what, text in (("name", self.name), ("path", self.path)):
            if not text.strip() or "\n" in text:
                raise UserError(f"{what} is {text!r}. Give one line of text.")
        if self.tag:
            refuse_invalid_symbol("tag is", self.tag)
        if "held_out" in self.filters:
            raise UserError(f"filters of {self.name}: held_out applies to all corpora. Set filter.held_out.")
        for name, removed in removed_from(FilterConfig.section, self.filters).items():
            refusal = removed.refusal(f"filter.{name}", self.filters[name])
            raise UserError(f"filters of {self.name}: {refusal}")
        try:
            self.filter(FilterConfig())
        except UserError as error:
            raise UserError(f"filters of {self.name}: {error.message}") from error

    def filter(self, general: FilterConfig) -> FilterConfig:
        """Return `general`, the filters of all corpora, changed by this corpus's own `filters`."""
        own = converted(dict(self.filters), FilterConfig)
        return replace(general, **{name: getattr(own, name) for name in self.filters})


@dataclass(frozen=True, kw_only=True, slots=True)
class CorporaConfig(CorpusConfig):
    """How raw files are read, and the training corpora unless `--train` names them."""

    named: tuple[NamedCorpus, ...] = ()
    """Training corpora, each a [[corpus]] section. Its settings are name, path, tag, source_lang,
    target_lang and filters. The dataset
    keeps their order."""

    valid_size: int = setting(0, Bounds(least=0), everyday=True)
    """Training pairs to draw as a validation set. Other training pairs with an equal side are dropped."""

    test_size: int = setting(0, Bounds(least=0))
    """Training pairs to draw as a test set. See valid_size."""

    align: bool = setting(False, everyday=True)
    """Align the words of the training pairs. training.guided_alignment needs alignments. Corpora with
    `alignments` or an `alignment_column` are not aligned."""

    alignments: tuple[str, ...] = ()
    """A file of word alignments for each training corpus. The order is that of the corpora, and "" is no
    file. Lines have Pharaoh's format, source first: "0-0 1-2". Spaces separate the words of the prepared
    text. The corpus's tag does not count."""

    tables: ClassVar[str] = "named"

    @property
    def aligns(self) -> bool:
        """True if the dataset gets alignments."""
        return self.align or self.given_alignments

    @property
    def given_alignments(self) -> bool:
        """True if files or columns of the user have alignments."""
        return any(self.alignments) or bool(self.alignment_column)

    @property
    def drawn(self) -> dict[Literal["valid", "test"], int]:
        """The number of pairs of each set to draw from the training text. A set of size 0 is left out."""
        sizes: dict[Literal["valid", "test"], int] = {"valid": self.valid_size, "test": self.test_size}
        return {name: size for name, size in sizes.items() if size}

    def __post_init__(self) -> None:
        names = [corpus.name for corpus in self.named]
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise UserError(f"Two corpora are named {repeated}. Give each its own name.")


@dataclass(frozen=True, kw_only=True, slots=True)
class PreprocessConfig:
    """All settings that decide the dataset that `nmt preprocess` makes of its inputs."""

    corpus: CorporaConfig = field(default_factory=CorporaConfig)
    text: TextConfig = field(default_factory=TextConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    filter: FilterConfig = field(default_factory=FilterConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchConfig(Section):
    """The pairs in a global batch, which one optimizer step sees. Lengths include the end token."""

    section = "batch"

    tokens: int = setting(25_000, Bounds(least=1), kind="whole run")
    """Maximum tokens per side in the global batch of a step."""

    longest: int = setting(256, Bounds(least=1), kind="whole run", everyday=True)
    """Drop pairs with more tokens than this on either side. Pairs longer than a batch are dropped too."""

    shard_pairs: int = setting(2_000_000, Bounds(least=1), kind="whole run")
    """Pairs planned at once, drawn from the whole corpus. Larger values need more memory and start later."""

    @property
    def max_length(self) -> int:
        """Maximum tokens on either side of a training pair: the lower of `longest` and `tokens`."""
        return min(self.longest, self.tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class MixingConfig(Section):
    """How corpora are mixed. With the defaults, each epoch has every pair of the dataset once."""

    section = "mixing"

    weights: Mapping[str, float] = setting({}, kind="whole run")
    """Relative share of each corpus in each batch, by name. Unnamed corpora are left out. If empty, they
    are equal, or those that an older dataset has."""

    temperature: float = setting(0.0, Bounds(least=0), kind="whole run")
    """Mix by size to the power of 1 / temperature. 1 mixes by size, 5 more evenly. 0 ignores size. Weights
    multiply the result."""

    over: Literal["corpus", "tag"] = setting("corpus", kind="whole run", needs="mixing.temperature=5")
    """Groups whose size the temperature uses. "tag" groups all corpora with the same tag, such as those of
    one language. In a group, weight and size decide."""

    epoch: str = setting("", kind="whole run")
    """Corpus whose epochs are counted. Used by training.max_epochs and others. If empty, the first corpus
    with a share."""

    def __post_init__(self) -> None:
        check(self)
        if wrong := [f"{name} = {weight}" for name, weight in self.weights.items() if weight < 0]:
            raise UserError(f"weights has {wrong[0]}, but the minimum is 0.")
        if self.over == "tag" and not self.temperature:
            raise UserError("over has no effect without temperature. Set temperature, or remove over.")
