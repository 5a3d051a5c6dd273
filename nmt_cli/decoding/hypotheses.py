"""What goes into a search and what comes out of it."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from nmt_cli.decoding.placeholder_rules import PlaceholdersWanted
from nmt_cli.decoding.tree_rules import TreeWanted


@dataclass(frozen=True, slots=True)
class Sentence:
    """A source sentence as ids."""

    key: int
    """Identifies it in its queue, and seeds what sampling draws for it."""

    tokens: Sequence[int]
    """Without end mark."""

    prefix: Sequence[int] = ()
    """Ids that each of its translations must begin with."""

    banned: Sequence[Sequence[int]] = ()
    """Rows of ids that none of its translations holds, but for the prefix."""

    tree: TreeWanted | None = None
    """Its translations are linearised trees over its words."""

    certain: int = 0
    """So many of the prefix, such as a language's code, count as certain: their log-probability is 0."""

    placeholders: PlaceholdersWanted | None = None
    """Symbols that its translations have exactly once each, and others that they have not."""

    @property
    def identity(self) -> Hashable:
        """What no other sentence in its queue has."""
        return self.key


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A finished translation as ids."""

    tokens: Sequence[int]
    """Without end mark."""

    score: float
    """The sum of the log-probabilities, divided by the length penalty."""

    token_scores: Sequence[float]
    """The log-probability of each token, and of the end mark."""


@dataclass(frozen=True, slots=True)
class Scored:
    """The log-probabilities that models give a translation, be it given or found."""

    tokens: Sequence[str]
    """Its pieces, and the end mark; a line in parts has one after each part."""

    token_scores: Sequence[float]
    """The log-probability of each of `tokens`."""

    @property
    def log_probability(self) -> float:
        """Of the whole translation."""
        return sum(self.token_scores)
