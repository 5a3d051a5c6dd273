"""Draws validation and test sets from the training corpora."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.files import sha256
from nmt_cli.corpus.parallel import Block, Corpus
from nmt_cli.data.cleaning.filters import Filters
from nmt_cli.data.cleaning.held_out import keys
from nmt_cli.data.dataset import TRAIN
from nmt_cli.data.preprocessing.job import LINES_AT_ONCE, Input, Job
from nmt_cli.errors import UserError

SEED = 1
KeyedPair = tuple[tuple[bytes, bytes], Sequence[bytes]]
"""A pair, and the keys of its sides."""


def drawn_sets(job: Job, inputs: Sequence[Input], folder: Path) -> list[Input]:
    """Draw `corpus.valid_size` and `corpus.test_size` pairs from the training corpora, and write their lines
    to `folder`. Return an input per set. Equal corpora give equal sets. No two pairs share a side, and all
    pass the filters. Raise `UserError` for too few pairs, or if filter.decontaminate is off."""
    sizes, training = job.config.corpus.drawn, [item for item in inputs if item.role == TRAIN]
    if not sizes:
        return []
    if not all(item.filter(job.config).decontaminate for item in training):
        raise UserError("corpus.valid_size and corpus.test_size need filter.decontaminate=true. Set it.")
    total, needed = sum(item.pairs for item in training), sum(sizes.values())
    numbers = np.random.default_rng(SEED).choice(total, min(total, 2 * needed + 1000), replace=False)
    usable = dict(_usable(job, training, np.sort(numbers)))
    chosen, sources, targets = [], set[bytes](), set[bytes]()
    for pair, (source, target) in (usable[number] for number in numbers.tolist() if number in usable):
        if source not in sources and target not in targets:
            chosen.append(pair)
            sources.add(source)
            targets.add(target)
    if len(chosen) < needed:
        raise UserError(
            f"corpus.valid_size and corpus.test_size add up to {needed:,}, but only {len(chosen):,} "
            "training pairs can be held out. Lower them."
        )
    folder.mkdir(parents=True, exist_ok=True)
    sets = []
    for role, size in sizes.items():
        files = folder / f"{role}.source", folder / f"{role}.target"
        for file, lines in zip(files, zip(*chosen[:size], strict=True), strict=True):
            file.write_bytes(b"\n".join((*lines, b"")))
        del chosen[:size]
        corpus = Corpus(role, files[0], files[1], "lines", names=(f"{role} set drawn from train",) * 2)
        sets.append(Input(role, corpus, size, [*map(sha256, files)]))
    return sets


def _usable(
    job: Job, training: Sequence[Input], numbers: NDArray[np.int64]
) -> Iterator[tuple[int, KeyedPair]]:
    """Yield (number, (pair, keys)) of each pair in the ascending `numbers` that passes the filters."""
    first = 0
    for item in training:
        filters = Filters(item.filter(job.config), job.source_lang, job.target_lang)
        tag = item.named.tag if item.named else ""
        for block in item.corpus.blocks(LINES_AT_ONCE):
            start = first + block.first - 1
            low, high = np.searchsorted(numbers, (start, start + len(block.sources)))
            pairs = [(number, _pair(block, number - start, filters, tag)) for number in numbers[low:high]]
            yield from ((int(number), pair) for number, pair in pairs if pair)
        first += item.pairs


def _pair(block: Block, row: int, filters: Filters, tag: str) -> KeyedPair | None:
    """Return a raw pair, with `tag` before its source, and its keys. Return None if a filter drops the pair,
    a key is empty, or the pair is not UTF-8."""
    pair = block.sources[row], block.targets[row]
    try:
        source, target = (" ".join(side.decode().split()) for side in pair)
    except UnicodeDecodeError:
        return None
    side_keys = keys(pair)
    has_low_score = bool(block.scores) and filters.too_low(block.scores[row])
    if has_low_score or not all(side_keys) or filters.too_long(source, target):
        return None
    if filters.reason(source, target) or filters.raw_reason(source, target):
        return None
    return (f"{tag} ".encode() + pair[0] if tag else pair[0], pair[1]), side_keys
