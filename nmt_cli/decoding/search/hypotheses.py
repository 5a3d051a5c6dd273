"""The input and output of a search."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nmt_cli.decoding.search.terms import Term, largest
from nmt_cli.text.placeholders import Values

Bans = Mapping[tuple[int, ...], Sequence[int]]
"""Forbidden next ids after a sequence of ids. Ids after the empty sequence are always forbidden."""


@dataclass(frozen=True, slots=True)
class PlaceholdersWanted:
    """The placeholders that a translation must have. A symbol is a token id."""

    symbols: tuple[int, ...]
    """All symbols of placeholders. A translation has only those in `wanted`."""

    wanted: tuple[int, ...] = ()
    """Symbols that the translation has exactly once each."""

    join: int | None = None
    """Symbol that marks a missing space beside a placeholder, if any."""

    joins: int = 0
    """Maximum number of `join` symbols in the translation: their number in the source."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A source sentence as ids, the rules for its translations, and what it takes to turn these into text."""

    key: int
    """Unique among the sentences of a request. It also seeds the random draws of the sentence."""

    tokens: Sequence[int]
    """Without end token."""

    prefix: Sequence[int] = ()
    """Ids at the beginning of each translation."""

    banned: Sequence[Sequence[int]] = ()
    """Sequences of ids that no translation contains, except in its prefix."""

    certain: int = 0
    """Number of leading prefix tokens, such as a language code, whose log-probability counts as 0."""

    placeholders: PlaceholdersWanted | None = None
    """If set, the placeholders that a translation has."""

    terms: tuple[Term, ...] = ()
    """The terms that a translation contains."""

    rule: "Rule | None" = None
    """A rule that the program gives. It applies after all others but terms."""

    aligned: bool = False
    """Whether its hypotheses have their `attention_TS`."""

    raw: str = ""
    """The text as in the line. For a part of a sentence, the text as prepared for the model."""

    values: Values = field(default_factory=dict)
    """The placeholder in the text that each symbol in `tokens` represents."""

    spaces: str = ""
    """The whitespace after the sentence in the line."""

    request: int = 0
    """Number of the request in the queue that the sentence belongs to."""

    deaths: int = 0
    """Number of processes that died while they translated the sentence."""

    @property
    def identity(self) -> tuple[int, int]:
        """A value that no other sentence in the queue has."""
        return self.request, self.key

    @property
    def least_tokens(self) -> int:
        """Minimum number of tokens, without the end token: the prefix, wanted placeholders, and terms."""
        required = len(self.placeholders.wanted) if self.placeholders else 0
        if sizes := [*map(largest, self.terms)]:
            # A token may have to end a word. A placeholder may interrupt a form, which then starts again.
            required = sum(sizes) + 1 + required * max(sizes)
        return len(self.prefix) + required


@dataclass(slots=True)
class BatchItem:
    """A sentence in the batch, with the state of its search. All fields are on the host."""

    sentence: Sentence

    cap: int
    """Maximum number of tokens of a translation, without the end token."""

    bans: Bans

    terms: tuple[Term, ...] = ()
    """The terms of the sentence, until all hypotheses have them."""

    age: int = 0
    """Number of tokens of each of its hypotheses."""

    done: bool = False
    """Whether no hypothesis is live. The sentence keeps its slots until the batch is compacted."""

    def end(self) -> None:
        """Note that no hypothesis is live."""
        self.done = True

    def leave_out_terms(self) -> None:
        """Note that all hypotheses have the terms, so that no later one can lack them."""
        self.terms = ()

    @property
    def room(self) -> int:
        """Number of tokens that may still come before the end token. Negative after a step at the cap."""
        return self.cap - self.age

    def forced_token(self, end: int) -> int | None:
        """Return `end` at the cap, else the next prefix token. Return None after the prefix or if done."""
        if self.done:
            return None
        if self.age >= self.cap:
            return end
        return self.sentence.prefix[self.age] if self.age < len(self.sentence.prefix) else None


@dataclass(frozen=True, slots=True)
class History:
    """The tokens of each row, and the rules that depend on them. A row is a hypothesis that takes a token."""

    rules: Sequence["Rule"]
    """In the order in which they apply."""

    tokens_RT: Tensor
    """[R, T]: the first `ages_R` tokens of each row are set."""

    ages_R: Tensor

    items_R: Sequence[BatchItem]
    """The sentence that each row translates."""

    def paths(self) -> list[list[int]]:
        """Return the tokens of each row as lists, up to its age. The host waits for the device."""
        rows = zip(self.tokens_RT.tolist(), self.items_R, strict=True)
        return [tokens[: item.age] for tokens, item in rows]


Rule = Callable[[Tensor, History, int], None]
"""Changes log-probabilities of the next token in place, given the rows and the id of the end token."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A finished translation as ids."""

    tokens: Sequence[int]
    """Without end token."""

    score: float
    """The sum of the log-probabilities, divided by the length penalty."""

    token_scores: Sequence[float]
    """The log-probability of each token, and of the end token."""

    rank_score: float | None = None
    """The score that ranks it among the hypotheses of the sentence, if `score` does not."""

    repaired: bool = False
    """Whether it was preferred to hypotheses that loop or copy their source (`search.second_attempt`)."""

    attention_TS: NDArray[np.float32] | None = field(default=None, compare=False)
    """[tokens, source tokens + 1]: the attention of each token to the source and its end token, in the last
    layer, as mean over the heads. Only for a sentence that is `aligned`."""


@dataclass(frozen=True, slots=True)
class Scored:
    """The log-probabilities of a translation under a model or an ensemble."""

    tokens: Sequence[str]
    """Tokens with the end token. A line in parts has an end token after each part."""

    token_scores: Sequence[float]
    """The log-probability of each of `tokens`."""

    @property
    def log_probability(self) -> float:
        """Sum over all tokens."""
        return sum(self.token_scores)

    @property
    def probability(self) -> float:
        """The geometric mean of the probabilities of all tokens."""
        return exp(self.log_probability / len(self.token_scores)) if self.token_scores else 1.0


Done = tuple[Sentence, list[Hypothesis]]
"""A sentence whose search is done, with its hypotheses, best first."""
