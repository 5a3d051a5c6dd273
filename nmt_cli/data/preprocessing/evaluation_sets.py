"""Validation and test sets: drawing them from the training corpora, and writing all of them.

Every line of a set is kept, as text before preparation and as ids. The report only counts the pairs that the
filters would drop from the training set. A key of a text does not depend on case, spaces and punctuation, so
equal keys show that a pair occurs in another set.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.parallel import Corpus, PairBlock
from nmt_cli.corpus.raw_files import decoded, sha256
from nmt_cli.data.cleaning.clean import REPLACED
from nmt_cli.data.cleaning.counts import Tally
from nmt_cli.data.cleaning.filter_report import CorpusReport, FilterReport
from nmt_cli.data.cleaning.filters import SUBWORDS, Filters
from nmt_cli.data.cleaning.held_out import keys, without_symbols
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.data.dataset import TRAIN, side_path
from nmt_cli.data.encode import EncodedSide, TokensWriter, encode_lines
from nmt_cli.data.preprocessing.job import Input, PreprocessJob
from nmt_cli.errors import UserError
from nmt_cli.text.linked_words import Pair
from nmt_cli.text.tokenizer import SIDES, Side
from nmt_cli.text.tokenizers import Tokenizers
from nmt_cli.text.variation import varied

BLOCK_PAIRS = 1000
UNKNOWNS = "unknown subwords"

SEED = 1
KeyedPair = tuple[tuple[bytes, bytes], Sequence[bytes]]
"""A pair of raw texts, and the keys of both."""


def drawn_sets(
    job: PreprocessJob, inputs: Sequence[Input], symbols: Collection[str], spool_folder: Callable[[], Path]
) -> list[Input]:
    """Draw validation and test sets from the training corpora, and return an input for each.

    - `job`: its settings have the sizes, `corpus.valid_size` and `corpus.test_size`.
    - `inputs`: the training corpora, and the sets that the user gave.
    - `symbols`: words that are ignored at the start of sources.
    - `spool_folder`: a function that makes the folder to which the lines are written.

    All pairs pass the filters. No side of a pair occurs in another drawn pair, or in a set of the user. Equal
    corpora give equal sets. Raise `UserError` if there are too few pairs, or filter.decontaminate is off.
    """
    sizes, training = job.config.corpus.drawn, [item for item in inputs if item.role == TRAIN]
    if not sizes:
        return []
    if not all(item.filter(job.config).decontaminate for item in training):
        raise UserError("corpus.valid_size and corpus.test_size need filter.decontaminate=true. Set it.")
    needed = sum(sizes.values())
    chosen = _chosen(job, inputs, frozenset(map(str.encode, symbols)), needed)
    if len(chosen) < needed:
        raise UserError(
            f"corpus.valid_size and corpus.test_size add up to {needed:,}, but only {len(chosen):,} "
            "training pairs can be held out. Lower them."
        )
    sets, folder = [], spool_folder()
    for role, size in sizes.items():
        files = folder / f"{role}.source", folder / f"{role}.target"
        for file, lines in zip(files, zip(*chosen[:size], strict=True), strict=True):
            file.write_bytes(b"\n".join((*lines, b"")))
        # The next set gets other pairs.
        del chosen[:size]
        corpus = Corpus(role, files[0], files[1], "lines", names=(f"{role} set drawn from train",) * 2)
        sets.append(Input(role, corpus, size, [*map(sha256, files)]))
    return sets


def _chosen(
    job: PreprocessJob, inputs: Sequence[Input], symbols: Collection[bytes], needed: int
) -> list[tuple[bytes, bytes]]:
    """Return at least `needed` training pairs in random order, or all that can be held out.

    No side of a pair occurs in another one, or in a set of `inputs`. `symbols` are ignored at the start of
    sources.
    """
    training = [item for item in inputs if item.role == TRAIN]
    total = sum(item.pairs for item in training)
    generator, size = np.random.default_rng(SEED), 2 * needed + 1000
    chosen, sources, targets = list[tuple[bytes, bytes]](), set[bytes](), set[bytes]()
    for block in (
        block for item in inputs if item.role != TRAIN for block in item.corpus.blocks(BLOCK_PAIRS)
    ):
        sources.update(keys(without_symbols(block.sources, symbols)))
        targets.update(keys(block.targets))
    examined = np.empty(0, np.int64)
    # A small sample is enough for most corpora, but not if filters drop nearly all pairs.
    while len(chosen) < needed and len(examined) < total:
        numbers = generator.choice(total, min(total, size), replace=False)
        numbers = numbers[~np.isin(numbers, examined)]
        usable = dict(_usable(job, training, symbols, np.sort(numbers)))
        for pair, (source, target) in (usable[number] for number in numbers.tolist() if number in usable):
            if source not in sources and target not in targets:
                chosen.append(pair)
                sources.add(source)
                targets.add(target)
        examined, size = np.append(examined, numbers), 4 * size
    return chosen


def _usable(
    job: PreprocessJob, training: Sequence[Input], symbols: Collection[bytes], numbers: NDArray[np.int64]
) -> Iterator[tuple[int, KeyedPair]]:
    """Yield the number, the texts and the keys of each pair in `numbers` that passes the filters. The numbers
    ascend."""
    first = 0
    for item in training:
        filters = Filters(item.filter(job.config), job.source_lang, job.target_lang)
        tag = item.named.tag if item.named else ""
        for block in item.corpus.blocks(BLOCK_PAIRS):
            start = first + block.first - 1
            low, high = np.searchsorted(numbers, (start, start + len(block.sources)))
            rows = numbers[low:high].tolist()
            pairs = [(number, _pair(block, number - start, filters, tag, symbols)) for number in rows]
            yield from ((number, pair) for number, pair in pairs if pair)
        first += item.pairs


def _pair(
    block: PairBlock, row: int, filters: Filters, tag: str, symbols: Collection[bytes]
) -> KeyedPair | None:
    """Return a raw pair, with `tag` before its source, and the keys of its sides. `row` is its row in
    `block`.

    Return None if a filter drops the pair, a key is empty, or the pair is not UTF-8.
    """
    pair = block.sources[row], block.targets[row]
    try:
        source, target = (" ".join(side.decode().split()) for side in pair)
    except UnicodeDecodeError:
        return None
    side_keys = keys([*without_symbols(pair[:1], symbols), pair[1]])
    has_low_score = bool(block.scores) and filters.too_low(block.scores[row])
    if has_low_score or not all(side_keys) or filters.too_long(source, target):
        return None
    if filters.reason(source, target) or filters.raw_reason(source, target):
        return None
    return (f"{tag} ".encode() + pair[0] if tag else pair[0], pair[1]), side_keys


def write_evaluation_set(
    item: Input, config: PreprocessConfig, tokenizers: Tokenizers, folder: Path, report: FilterReport
) -> dict[str, Any]:
    """Write the lines and the ids of a set to `folder`, and return its entry for the manifest.

    A report of the set is added to `report`. It notes the pairs that the filters would drop from a training
    set. Invalid UTF-8 is replaced. If `invalid_utf8` is "error", raise `UserError` instead.
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
            for i, reason in _odd(pairs, prepared, encoded, filters, config.filter.max_subwords, tokenizers):
                corpus.noted.add(reason, block.first + i, *pairs[i])
    counts = {f"{side}_{key}": value for side in SIDES for key, value in writers[side].counts().items()}
    return {"role": item.role, "pairs": item.pairs, **counts}


def _decoded(item: Input, block: PairBlock, config: PreprocessConfig, noted: Tally) -> list[Pair]:
    """Return the pairs of a block as text. Invalid UTF-8 is replaced, and counted in `noted`. If
    `invalid_utf8` is "error", raise `UserError` instead."""
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
    """Return `pairs`, changed by the variation of the set if it has one. Symbols of the tokenizers do not
    change.

    `first` is the number of the first pair. The number of a pair decides all random draws.
    """
    if not item.variation:
        return pairs
    return [
        # The number of the pair is the seed, so that a set is the same in every run.
        varied(item.variation, pair, Random(f"{item.variation} {number}"), tokenizers.recipe.symbols)
        for number, pair in enumerate(pairs, start=first)
    ]


def _odd(
    pairs: list[Pair],
    prepared: dict[Side, list[str]],
    encoded: dict[Side, EncodedSide],
    filters: Filters,
    max_subwords: int,
    tokenizers: Tokenizers,
) -> Iterator[tuple[int, str]]:
    """Yield (index from 0, reason) of each pair that the filters would drop, or that has an unknown token.

    - `prepared`, `encoded`: the lines and the ids of each side.
    - `max_subwords`: the maximum number of subwords of a side. 0 means no limit.
    """
    longest = np.maximum(*(side.lengths for side in encoded.values()))
    has_unknown = np.zeros(len(pairs), np.bool_)
    for name, side in encoded.items():
        is_unknown = side.tokens == tokenizers.side(name).vocabulary.unknown
        has_unknown |= np.logical_or.reduceat(is_unknown, np.cumsum(side.lengths) - side.lengths)
    for i, (pair, *sides) in enumerate(zip(pairs, *prepared.values(), strict=True)):
        reason = filters.reason(*sides) or filters.raw_reason(*pair)
        if not reason and 0 < max_subwords < longest[i]:
            reason = SUBWORDS
        if reason or has_unknown[i]:
            yield i, reason or UNKNOWNS
