"""Scores and alignments of existing translations."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import Tensor

from nmt_cli.attention.groups import grouped
from nmt_cli.decoding.attention_maps import AttentionMaps, alignment, attention_maps
from nmt_cli.decoding.forced import token_scores
from nmt_cli.decoding.search.hypotheses import Scored
from nmt_cli.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout, flat
from nmt_cli.scoring.measures import perplexity
from nmt_cli.scoring.texts import read_hypotheses, refuse_second_stdin, refuse_unequal
from nmt_cli.text.placeholders import Values
from nmt_cli.text.tokenizer import Tokenizer
from nmt_cli.text.tokenizers import Tokenizers
from nmt_cli.translation.arguments import Pair
from nmt_cli.translation.checks.output_checks import check_finite
from nmt_cli.translation.lines import Candidate, Line
from nmt_cli.translation.loading import Loaded
from nmt_cli.translation.text.unit_shares import token_ends


@dataclass(frozen=True, slots=True)
class Alignment:
    """The tokens of a pair, and for each target token the source token with the highest attention weight."""

    source: Sequence[str]
    """Source tokens, without end token."""

    target: Sequence[str]
    """Target tokens, without end token."""

    links: Sequence[int]
    """For each target token, the index of its source token. Empty if the source has no tokens."""


@dataclass(frozen=True, slots=True)
class PairScores:
    """The scores of existing translations, in order."""

    lines: Sequence[Scored]
    perplexity: float
    """The perplexity per target token, with end tokens."""

    word_perplexity: float
    """The perplexity per target word, with the ends of lines as words."""

    warning: str
    """A message about sources that are longer than `nmt translate` takes at once. Empty if there are none."""


class Batch(NamedTuple):
    """Pairs as the arguments of `Transformer.forward`, in its order. Each sentence ends with an end token."""

    source_tokens: Tensor
    """[source tokens], int64: the ids of all sources, one after the other."""

    target_tokens: Tensor
    """[target tokens], int64: the ids of all translations. The model shifts them itself."""

    source: Layout
    """The places of the sentences in `source_tokens`."""

    target: Layout
    """The places of the sentences in `target_tokens`."""


def batch_of_pairs(model: Transformer, tokenizers: Tokenizers, pairs: Sequence[Pair]) -> Batch:
    """Return raw pairs as a batch on the device of `model`. Raise `UserError` for a pair that has more tokens
    than the model has positions."""
    ids = [ids_of(tokenizers, pair) for pair in pairs]
    _check_positions(model.config.limit, [max(pair, key=len) for pair in ids])
    vocabularies = model.source_vocabulary, model.target_vocabulary
    (source_tokens, source), (target_tokens, target) = (
        flat([vocabulary.ended(pair[side]) for pair in ids], model.device)
        for side, vocabulary in enumerate(vocabularies)
    )
    return Batch(source_tokens, target_tokens, grouped(source), grouped(target, source))


def read_pairs(source: Path, hypotheses: Path) -> list[Pair]:
    """Return the lines of two files as pairs. Raise `UserError` for unequal line counts, or stdin twice."""
    refuse_second_stdin([source, hypotheses])
    sources, targets = read_hypotheses(source), read_hypotheses(hypotheses)
    refuse_unequal(targets, sources)
    return list(zip(sources.lines, targets.lines, strict=True))


def with_perplexity(
    scores: Sequence[Scored], tokenizer: Tokenizer, longest: int, pairs: Sequence[Pair]
) -> PairScores:
    """Return `scores` of one or more pairs with perplexities, and a warning if sources exceed `longest`
    tokens."""
    nll = -sum(line.log_probability for line in scores)
    tokens = sum(len(line.token_scores) for line in scores)
    words = sum(len(target.split()) + 1 for _, target in pairs)
    counts = [len(tokenizer.encode(tokenizer.prepare(source))) for source, _ in pairs]
    long = [number for number, count in enumerate(counts, start=1) if count > longest]
    warning = (
        f"{len(long):,} of {len(counts):,} sources have more than the {longest:,} tokens that nmt translate "
        f"takes at once (the first is line {long[0]:,}). They are scored as one sentence, although nmt "
        "translate would split them."
        if long
        else ""
    )
    return PairScores(scores, perplexity(nll, tokens), perplexity(nll, words), warning)


def score_pairs(loaded: Loaded, pairs: Sequence[Pair]) -> list[Scored]:
    """Return the target tokens of each pair with their log-probabilities. The end token is the last.

    A pair is never split. The language code before a target counts as certain, as in a search. Raise
    `UserError` for a pair with more tokens than the model has positions, and for log-probabilities that
    overflow in fp16.
    """
    tokenizers = loaded.translator.tokenizers
    ids = [ids_of(tokenizers, pair) for pair in pairs]
    _check_positions(loaded.ensemble.longest, [max(pair, key=len) for pair in ids])
    vocabulary = tokenizers.target.vocabulary
    rows = token_scores(loaded.ensemble, ids)
    for number, row in enumerate(rows, start=1):
        check_finite(number, all(map(isfinite, row)), loaded.translator.joiner.in_fp16)
    if tokenizers.target.begin:
        rows = [[0.0, *row[1:]] for row in rows]
    return [
        Scored([vocabulary.entries[i] for i in vocabulary.ended(target)], scores)
        for (_, target), scores in zip(ids, rows, strict=True)
    ]


def align_pairs(loaded: Loaded, pairs: Sequence[Pair]) -> list[Alignment]:
    """Return the alignment of each pair from the attention of the first model. Raise `UserError` for a pair
    that has more tokens than the model has positions."""
    tokenizers = loaded.translator.tokenizers
    ids = [ids_of(tokenizers, pair) for pair in pairs]
    _check_positions(loaded.models[0].config.limit, [max(pair, key=len) for pair in ids])
    sources, targets = tokenizers.source.vocabulary.entries, tokenizers.target.vocabulary.entries
    return [
        Alignment(
            source=[sources[i] for i in source],
            target=[targets[i] for i in target],
            links=alignment(loaded.models[0], [source], [target]),
        )
        for source, target in ids
    ]


def maps_of_pairs(loaded: Loaded, pairs: Sequence[Pair]) -> list[AttentionMaps]:
    """Return the attention weights of the first model for each pair. Raise `UserError` for a source that has
    more tokens than the model has positions."""
    ids = [ids_of(loaded.translator.tokenizers, pair) for pair in pairs]
    _check_positions(loaded.models[0].config.limit, [source for source, _ in ids])
    return attention_maps(loaded.models[0], ids)


def _check_positions(longest: int, lines: Sequence[Sequence[int]]) -> None:
    """Raise `UserError` if one of `lines` has more than `longest` tokens with its end token. A `longest` of 0
    is no limit. `lines` are token ids without end tokens."""
    for number, ids in enumerate(lines, start=1):
        if longest and (count := len(ids) + 1) > longest:
            limit = f"but the model has only {longest:,} positions (model.longest)"
            raise UserError(f"line {number:,} has a side of {count:,} tokens, {limit}. Leave it out.")


def ids_of(tokenizers: Tokenizers, pair: Pair) -> tuple[list[int], list[int]]:
    """Return the source and target token ids of a raw pair, with placeholder symbols, without end tokens."""
    source, target = tokenizers.source, tokenizers.target
    masked = tokenizers.recipe.masked(*pair)
    # A search begins an empty translation with the language code, too.
    return source.encode(source.prepare(masked[0])), target.encode(target.prepare(masked[1]) or target.begin)


def word_links(tokenizers: Tokenizers, line: Line, candidate: Candidate, aligned: Sequence[int]) -> str:
    """Return the linked words of a line and its translation in the Pharaoh format, such as "0-0 1-2".

    candidate: the translation.
    aligned: for each target token, the index of its source token in the line.

    A link has the number of the source word, then that of the target word, from 0. Links are sorted, without
    repetitions. Words are separated by spaces. Language codes have no links.
    """
    sentences = line.sentences[: len(candidate.parts)]
    values = [one.values for one in sentences]
    translated = " ".join(one.raw for one in sentences)  # less than the line if that was cut
    sources = [one.tokens for one in sentences]
    targets = [one.tokens for one in candidate.parts]
    source = _words(tokenizers.source, line.raw, translated, sources, values)
    target = _words(tokenizers.target, candidate.text, candidate.text, targets, values)
    pairs = {(source[token], word) for word, token in zip(target, aligned, strict=True)}
    return " ".join(f"{one}-{other}" for one, other in sorted(pairs) if one >= 0 and other >= 0)


def _words(
    tokenizer: Tokenizer,
    text: str,
    translated: str,
    parts: Sequence[Sequence[int]],
    values: Sequence[Values],
) -> list[int]:
    """Return for each token of `parts` the index of the word of `text` that has its middle. It is -1 for a
    language code, which is not in the text.

    translated: the part of `text` that the tokens cover, from its beginning.
    parts: the tokens of each sentence.
    values: for each sentence, the texts of its placeholder symbols.
    """
    codes = tokenizer.codes
    lengths = [*map(len, text.split())]
    length = min(sum(lengths), sum(map(len, translated.split())))
    ends = token_ends(length, tokenizer, parts, values)
    # A space between words has no width, and belongs to the word before it.
    middles = (ends + np.concatenate([[0.0], ends[:-1]])) / 2 if len(ends) else ends
    words = np.searchsorted(np.cumsum(lengths), middles).clip(max=len(lengths) - 1).tolist()
    ids = [i for part in parts for i in part]
    return [-1 if i in codes else word for i, word in zip(ids, words, strict=True)]
