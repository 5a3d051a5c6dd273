"""Writes validation and test sets. Every line is kept, raw and encoded.

The report only counts the pairs that the filters would drop from the training set.
"""

from collections.abc import Iterator, Sequence
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
from nmt_cli.text.variation import varied

BLOCK_PAIRS = 1000
UNKNOWNS = "unknown subwords"


def write_evaluation_set(
    item: Input, config: PreprocessConfig, tokenizers: Tokenizers, folder: Path, report: FilterReport
) -> dict[str, Any]:
    """Write the raw lines and ids of a set to `folder`, and add its counts to `report`. Return the
    description of the split for the manifest.
    """
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
            raw = _varied(item, block, _raw_lines(item, block, config, corpus.noted), tokenizers)
            masked = dict(zip(SIDES, _masked(raw, tokenizers), strict=True))
            prepared = {
                side: [tokenizers.side(side).prepare(line) for line in masked[side]] for side in SIDES
            }
            encoded = {side: encode_lines(tokenizers.side(side), prepared[side]) for side in SIDES}
            for side in SIDES:
                files[side].write("".join(f"{line}\n" for line in raw[side]).encode())
                writers[side].append(encoded[side])
            flags = _flags(encoded, tokenizers, config.filter.max_subwords)
            for i, reason in _reasons(raw, prepared, filters, flags):
                corpus.noted.add(reason, block.first + i, raw["source"][i], raw["target"][i])
    counts = {f"{side}_{key}": value for side in SIDES for key, value in writers[side].counts().items()}
    return {"role": item.role, "pairs": item.pairs, **counts}


def _reasons(
    raw: dict[Side, list[str]], prepared: dict[Side, list[str]], filters: Filters, flags: Sequence[str | None]
) -> Iterator[tuple[int, str]]:
    """Yield index and reason of each pair that the filters would drop or that has an entry in `flags`."""
    for i, pair in enumerate(zip(prepared["source"], prepared["target"], strict=True)):
        raw_pair = raw["source"][i], raw["target"][i]
        if reason := filters.reason(*pair) or filters.raw_reason(*raw_pair) or flags[i]:
            yield i, reason


def _masked(raw: dict[Side, list[str]], tokenizers: Tokenizers) -> tuple[list[str], list[str]]:
    """Return both sides with symbols in place of the placeholders that they share."""
    pairs = [tokenizers.recipe.masked(*pair) for pair in zip(raw["source"], raw["target"], strict=True)]
    return [source for source, _ in pairs], [target for _, target in pairs]


def _raw_lines(item: Input, block: Block, config: PreprocessConfig, noted: Tally) -> dict[Side, list[str]]:
    """Return the lines of both sides as text. Add pairs with replaced bytes to `noted`. Invalid UTF-8 is
    replaced even if the setting is "skip", since every line is kept.
    """
    rule = "error" if config.corpus.invalid_utf8 == "error" else "replace"
    raw: dict[Side, list[bytes]] = {"source": block.sources, "target": block.targets}
    texts = {
        side: [
            decoded(line, rule, item.corpus.location(side, number)) or ""
            for number, line in enumerate(raw[side], start=block.first)
        ]
        for side in SIDES
    }
    for i, pair in enumerate(zip(texts["source"], texts["target"], strict=True)):
        # An invalid line does not encode to its original bytes.
        if (pair[0].encode(), pair[1].encode()) != (raw["source"][i], raw["target"][i]):
            noted.add(REPLACED, block.first + i, *pair)
    return texts


def _varied(
    item: Input, block: Block, raw: dict[Side, list[str]], tokenizers: Tokenizers
) -> dict[Side, list[str]]:
    """Return the lines with the variation of the set applied to each pair, or unchanged without a variation.

    The line number seeds the random draws, so they repeat. Symbols of the tokeniser never change.
    """
    if not item.variation:
        return raw
    pairs = zip(raw["source"], raw["target"], strict=True)
    changed = [
        varied(item.variation, pair, Random(f"{item.variation} {number}"), tokenizers.recipe.symbols)
        for number, pair in enumerate(pairs, start=block.first)
    ]
    return {"source": [source for source, _ in changed], "target": [target for _, target in changed]}


def _flags(encoded: dict[Side, EncodedSide], tokenizers: Tokenizers, max_subwords: int) -> list[str | None]:
    """Return, for each pair, why to note it (too long, or unknown subwords), or None."""
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
