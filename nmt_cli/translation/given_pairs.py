"""Given pairs of source and translation, scored and aligned by a loaded model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt_cli.decoding.attention_maps import alignment
from nmt_cli.decoding.forced import token_scores
from nmt_cli.decoding.search.hypotheses import Scored
from nmt_cli.scoring.perplexity import perplexity
from nmt_cli.scoring.texts import read_hypotheses, refuse_second_stdin, refuse_unequal
from nmt_cli.text.tokenizer import Tokenizer
from nmt_cli.text.tokenizers import Tokenizers
from nmt_cli.translation.loading import Loaded

Pair = tuple[str, str]
"""A source and its translation, as people write them."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """Which source piece a model looks at most for each piece of a translation."""

    source: Sequence[str]
    """The pieces, without end mark."""

    target: Sequence[str]
    links: Sequence[int]
    """For each target piece the number of a source piece, from 0; empty if the source has no pieces."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The pairs of two files that match line for line."""

    source_name: str
    pairs: Sequence[Pair]


@dataclass(frozen=True, slots=True)
class Forced:
    """The scores of all lines of a text."""

    lines: Sequence[Scored]
    words: int
    """Words between blanks, and one more for the end of each line."""

    warnings: Sequence[str]

    @property
    def perplexity(self) -> float:
        """For each piece, end marks included."""
        return perplexity(self._nll, sum(len(line.token_scores) for line in self.lines))

    @property
    def word_perplexity(self) -> float:
        """For each word, ends of lines included."""
        return perplexity(self._nll, self.words)

    @property
    def _nll(self) -> float:
        return -sum(line.log_probability for line in self.lines)


def read_texts(source: Path, hypotheses: Path) -> Texts:
    """Read a source and its translation."""
    refuse_second_stdin([source, hypotheses])
    sources, targets = read_hypotheses(source), read_hypotheses(hypotheses)
    refuse_unequal(targets, sources)
    return Texts(sources.name, list(zip(sources.lines, targets.lines, strict=True)))


def force(scores: Sequence[Scored], tokenizers: Tokenizers, longest: int, texts: Texts) -> Forced:
    """Return the `scores` of a text with what else is reported. `longest` is in source pieces."""
    words = sum(len(target.split()) + 1 for _, target in texts.pairs)
    return Forced(scores, words, list(_warnings(tokenizers.source, longest, texts)))


def score_pairs(loaded: Loaded, pairs: Sequence[Pair]) -> list[Scored]:
    """The scores of each translation, whatever its length."""
    tokenizers = loaded.translator.tokenizers
    ids = [ids_of(tokenizers, pair) for pair in pairs]
    vocabulary = tokenizers.target.vocabulary
    each = token_scores(loaded.ensemble, ids)
    return [
        Scored([vocabulary.entries[i] for i in vocabulary.ended(target)], scores)
        for (_, target), scores in zip(ids, each, strict=True)
    ]


def align_pairs(loaded: Loaded, pairs: Sequence[Pair]) -> list[Alignment]:
    """The alignment of each pair, by the first model."""
    tokenizers = loaded.translator.tokenizers
    return [_alignment(loaded, *ids_of(tokenizers, pair)) for pair in pairs]


def _alignment(loaded: Loaded, source: list[int], target: list[int]) -> Alignment:
    tokenizers = loaded.translator.tokenizers
    return Alignment(
        source=[tokenizers.source.vocabulary.entries[i] for i in source],
        target=[tokenizers.target.vocabulary.entries[i] for i in target],
        links=alignment(loaded.models[0], [source], [target]),
    )


def ids_of(tokenizers: Tokenizers, pair: Pair) -> tuple[list[int], list[int]]:
    """The pieces of a source and its translation, without end marks."""
    source, target = tokenizers.source, tokenizers.target
    masked = tokenizers.recipe.masked(*pair)
    return source.encode(source.prepare(masked[0])), target.encode(target.prepare(masked[1]))


def _warnings(tokenizer: Tokenizer, longest: int, texts: Texts) -> Iterator[str]:
    count = [len(tokenizer.encode(tokenizer.prepare(source))) for source, _ in texts.pairs]
    long = [number for number, pieces in enumerate(count, start=1) if pieces > longest]
    if long:
        yield (
            f"{texts.source_name}: {len(long):,} of {len(count):,} lines have more than the {longest:,} "
            f"pieces that nmt translate takes at once (the first is line {long[0]:,}); they are scored "
            "whole, not in the parts that it would translate."
        )
