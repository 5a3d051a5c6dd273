"""Writes validation and test sets. Every line is kept, as text before preparation and as ids.

The report only counts the pairs that the filters would drop from the training set.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from nmt_cli.corpus.parallel import Block
from nmt_cli.corpus.utf8 import decoded
from nmt_cli.data.cleaning.clean import REPLACED
from nmt_cli.data.cleaning.filters import SUBWORDS, Filters
from nmt_cli.data.cleaning.report import CorpusReport, FilterReport
from nmt_cli.data.cleaning.tally import Tally
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.data.dataset import side_path
from nmt_cli.data.encode import EncodedSide, TokensWriter, encode_lines
from nmt_cli.data.preprocessing.job import Input
from nmt_cli.text.tokenizer import SIDES, Side
from nmt_cli.text.tokenizers import Tokenizers
from nmt_cli.text.variation import Pair, varied

BLOCK_PAIRS = 1000
UNKNOWNS = "unknown subwords"


def write_evaluation_set(
    item: Input, config: PreprocessConfig, tokenizers: Tokenizers, folder: Path, report: FilterReport
) -> dict[str, Any]:
    """Write lines, with invalid UTF-8 replaced, and ids of all pairs of a set to `folder`. Append a report to
    `report` that notes pairs that filters would drop. Return the split's manifest entry. If `invalid_utf8` is
    "error", raise `UserError` for invalid UTF-8."""
    corpus = CorpusReport(item.role, item.corpus.name, item.pairs, kept=item.pairs)
    report.corpora.append(corpus)
    filters = Filters(config.filter, tokenizers.recipe.source_lang, tokenizers.recipe.target_lang)
    with ExitStack() as stack:
        writers = {
            side: stack.enter_context(TokensWriter(folder, item.corpus.name, side, tokenizers.side(side)))
            for side in SIDES
        }
        files = {
            side: stack.enter_context(side_path(folder, item.corpus.name, side, "raw.txt").open("wb"))
            for side in SIDES
        }
        for block in item.corpus.blocks(BLOCK_PAIRS):
            pairs = _varied(item, block.first, _decoded(item, block, config, corpus.noted), tokenizers)
            masked = zip(*(tokenizers.recipe.masked(*pair) for pair in pairs), strict=True)
            prepared = {
                side: [tokenizers.side(side).prepare(line) for line in lines]
                for side, lines in zip(SIDES, masked, strict=True)
            }
            encoded = {side: encode_lines(tokenizers.side(side), prepared[side]) for side in SIDES}
            for side, lines in zip(SIDES, zip(*pairs, strict=True), strict=True):
                files[side].write("".join(f"{line}\n" for line in lines).encode())
                writers[side].append(encoded[side])
            flags = _flags(encoded, tokenizers, config.filter.max_subwords)
            for i, reason in _reasons(filters, pairs, prepared, flags):
                corpus.noted.add(reason, block.first + i, *pairs[i])
    counts = {f"{side}_{key}": value for side in SIDES for key, value in writers[side].counts().items()}
    return {"role": item.role, "pairs": item.pairs, **counts}


def _reasons(
    filters: Filters, pairs: list[Pair], prepared: dict[Side, list[str]], flags: list[str | None]
) -> Iterator[tuple[int, str]]:
    """Yield (index from 0, reason) of each pair that the filters would drop or that has a flag. Give the
    first reason: from the filters for `prepared` text, the filters for raw `pairs`, or `flags`."""
    prepared_pairs = zip(prepared["source"], prepared["target"], strict=True)
    for i, (pair, prepared_pair) in enumerate(zip(pairs, prepared_pairs, strict=True)):
        if reason := filters.reason(*prepared_pair) or filters.raw_reason(*pair) or flags[i]:
            yield i, reason


def _decoded(item: Input, block: Block, config: PreprocessConfig, noted: Tally) -> list[Pair]:
    """Return the pairs as text. If `invalid_utf8` is "error", raise `UserError` for invalid bytes. Otherwise,
    replace invalid bytes, and count the changed pairs in `noted`."""
    rule = "error" if config.corpus.invalid_utf8 == "error" else "replace"
    pairs = []
    for number, raw in enumerate(zip(block.sources, block.targets, strict=True), start=block.first):
        source, target = (
            decoded(line, rule, item.corpus.location(side, number)) or ""
            for side, line in zip(SIDES, raw, strict=True)
        )
        pairs.append((source, target))
        # An invalid line does not encode to its original bytes.
        if (source.encode(), target.encode()) != raw:
            noted.add(REPLACED, number, source, target)
    return pairs


def _varied(item: Input, first: int, pairs: list[Pair], tokenizers: Tokenizers) -> list[Pair]:
    """Return `pairs` changed by the set's variation, or `pairs` without a variation. The line number, from
    `first`, decides random draws. Tokenizer symbols do not change."""
    if not item.variation:
        return pairs
    return [
        varied(item.variation, pair, Random(f"{item.variation} {number}"), tokenizers.recipe.symbols)
        for number, pair in enumerate(pairs, start=first)
    ]


def _flags(encoded: dict[Side, EncodedSide], tokenizers: Tokenizers, max_subwords: int) -> list[str | None]:
    """Return a reason or None for each pair. `SUBWORDS` means a side of over `max_subwords` tokens, where 0
    is no limit. Otherwise, `UNKNOWNS` means an unknown token."""
    longest = np.maximum(*(encoded[side].lengths for side in SIDES))
    has_unknown = np.zeros(len(longest), np.bool_)
    for name, side in encoded.items():
        is_unknown = side.tokens == tokenizers.side(name).vocabulary.unknown
        # Plain indexing would keep only the last token of each sentence, so this needs `at`.
        np.logical_or.at(has_unknown, np.repeat(np.arange(len(longest)), side.lengths), is_unknown)
    return [
        SUBWORDS if max_subwords and length > max_subwords else UNKNOWNS if unknown else None
        for length, unknown in zip(longest, has_unknown, strict=True)
    ]
