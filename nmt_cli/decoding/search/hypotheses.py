"""What goes into a search and what comes out of it."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from nmt_cli.decoding.search.tree_rules import TreeWanted

Bans = Mapping[tuple[int, ...], Sequence[int]]
"""Ids that may not follow a sequence of ids. Those that follow the empty sequence are never written."""


@dataclass(frozen=True, slots=True)
class PlaceholdersWanted:
    """The placeholders that a translation must have, all as ids of symbols."""

    symbols: tuple[int, ...]
    """All symbols that stand for placeholders."""

    wanted: tuple[int, ...] = ()
    """Symbols that the translation has once each. It has no others."""

    join: int | None = None
    """Symbol for the missing space beside a placeholder."""

    joins: int = 0
    """Maximum number of `join` in the translation, which is their number in the source."""


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

    @property
    def least_tokens(self) -> int:
        """Minimum number of tokens that its prefix, placeholders and tree need."""
        required = len(self.placeholders.wanted) if self.placeholders else 0
        return max(len(self.prefix) + required, self.tree.words if self.tree else 0)


@dataclass(slots=True)
class BatchItem:
    """A sentence in the batch, and what the host knows about its search."""

    sentence: Sentence

    cap: int
    """Maximum number of tokens of a translation, end mark not counted."""

    bans: Bans

    age: int = 0
    """Number of tokens of each of its hypotheses."""

    done: bool = False
    """None of its hypotheses continues. It keeps its slots until the batch is compacted."""

    @property
    def room(self) -> int:
        """Number of tokens that may still come before the end mark."""
        return self.cap - self.age

    def forced_token(self, end: int) -> int | None:
        """Return the token that must come next: the end mark at the cap, or the next one of the prefix."""
        if self.done:
            return None
        if self.age >= self.cap:
            return end
        return self.sentence.prefix[self.age] if self.age < len(self.sentence.prefix) else None


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
