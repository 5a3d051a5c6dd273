"""Scores and alignments of existing translations."""

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
"""A source and its translation as raw text."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """For each token of a translation, the source token with the highest attention weight."""

    source: Sequence[str]
    """Source tokens, without end mark."""

    target: Sequence[str]
    """Target tokens, without end mark."""

    links: Sequence[int]
    """For each target token, the index of its source token. Empty if the source has no tokens."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The pairs of lines of two files. `source_name` is the name of the first file."""

    source_name: str
    pairs: Sequence[Pair]


@dataclass(frozen=True, slots=True)
class Forced:
    """The scores of the given translations in two files, in order."""

    lines: Sequence[Scored]
    words: int
    """Number of target words, plus one for the end of each line."""

    warnings: Sequence[str]

    @property
    def perplexity(self) -> float:
        """The perplexity per target token, with end marks."""
        return perplexity(self._nll, sum(len(line.token_scores) for line in self.lines))

    @property
    def word_perplexity(self) -> float:
        """The perplexity per target word, with the ends of lines as words."""
        return perplexity(self._nll, self.words)

    @property
    def _nll(self) -> float:
        return -sum(line.log_probability for line in self.lines)


def read_texts(source: Path, hypotheses: Path) -> Texts:
    """Read two files line by line. Raise `UserError` for different numbers of lines, or if both are stdin."""
    refuse_second_stdin([source, hypotheses])
    sources, targets = read_hypotheses(source), read_hypotheses(hypotheses)
    refuse_unequal(targets, sources)
    return Texts(sources.name, list(zip(sources.lines, targets.lines, strict=True)))


def force(scores: Sequence[Scored], tokenizers: Tokenizers, longest: int, texts: Texts) -> Forced:
    """Return the `scores` of all pairs of `texts`, with the number of words and a warning about long sources.
    A source is long if it has more than `longest` tokens, without the end mark."""
    words = sum(len(target.split()) + 1 for _, target in texts.pairs)
    return Forced(scores, words, list(_warnings(tokenizers.source, longest, texts)))


def score_pairs(loaded: Loaded, pairs: Sequence[Pair]) -> list[Scored]:
    """Return the tokens of each translation with their log-probabilities. The length does not matter."""
    tokenizers = loaded.translator.tokenizers
    ids = [ids_of(tokenizers, pair) for pair in pairs]
    vocabulary = tokenizers.target.vocabulary
    rows = token_scores(loaded.ensemble, ids)
    return [
        Scored([vocabulary.entries[i] for i in vocabulary.ended(target)], scores)
        for (_, target), scores in zip(ids, rows, strict=True)
    ]


def align_pairs(loaded: Loaded, pairs: Sequence[Pair]) -> list[Alignment]:
    """Return the alignment of each pair, from the attention of the first model."""
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
    """Return the token ids of a raw pair, with placeholders masked and without end marks."""
    source, target = tokenizers.source, tokenizers.target
    masked = tokenizers.recipe.masked(*pair)
    return source.encode(source.prepare(masked[0])), target.encode(target.prepare(masked[1]))


def _warnings(tokenizer: Tokenizer, longest: int, texts: Texts) -> Iterator[str]:
    """Yield at most one warning: about sources with more than `longest` tokens."""
    counts = [len(tokenizer.encode(tokenizer.prepare(source))) for source, _ in texts.pairs]
    long = [number for number, pieces in enumerate(counts, start=1) if pieces > longest]
    if long:
        yield (
            f"{texts.source_name}: {len(long):,} of {len(counts):,} lines have more than the {longest:,} "
            f"pieces that nmt translate takes at once (the first is line {long[0]:,}). They are scored "
            "as one sentence, although nmt translate would split them."
        )
