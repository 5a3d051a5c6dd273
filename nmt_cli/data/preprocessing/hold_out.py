"""Valid and test sets that are drawn from the training corpora."""

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
Found = tuple[tuple[bytes, bytes], Sequence[bytes]]
"""A pair, and the keys of its sides."""


def drawn_sets(job: Job, inputs: Sequence[Input], folder: Path) -> list[Input]:
    """Write pairs of the training corpora to `folder` as the sets that the settings ask for.

    The same corpora give the same sets. No two pairs share a side, and the filters would keep each.
    """
    wanted, training = job.config.corpus.drawn, [item for item in inputs if item.role == TRAIN]
    if not wanted:
        return []
    if not all(item.filter(job.config).decontaminate for item in training):
        raise UserError("corpus.valid_size and corpus.test_size need filter.decontaminate=true; set it.")
    total, needed = sum(item.pairs for item in training), sum(wanted.values())
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
            f"corpus.valid_size and corpus.test_size are {needed:,} in all, but only {len(chosen):,} of the "
            "training pairs can be held out; take fewer."
        )
    folder.mkdir(parents=True, exist_ok=True)
    sets = []
    for role, size in wanted.items():
        files = folder / f"{role}.source", folder / f"{role}.target"
        for file, lines in zip(files, zip(*chosen[:size], strict=True), strict=True):
            file.write_bytes(b"\n".join((*lines, b"")))
        del chosen[:size]
        corpus = Corpus(role, files[0], files[1], "lines", names=(f"{role} set drawn from train",) * 2)
        sets.append(Input(role, corpus, size, [*map(sha256, files)]))
    return sets


def _usable(job: Job, training: Sequence[Input], numbers: NDArray[np.int64]) -> Iterator[tuple[int, Found]]:
    """Yield those of the pairs with these numbers, counted over all corpora, that the filters would keep."""
    first = 0
    for item in training:
        filters = Filters(item.filter(job.config), job.source_lang, job.target_lang)
        for block in item.corpus.blocks(LINES_AT_ONCE):
            start = first + block.first - 1
            low, high = np.searchsorted(numbers, (start, start + len(block.sources)))
            for number in numbers[low:high].tolist():
                if found := _found(block, number - start, filters, item.named.tag if item.named else ""):
                    yield number, found
        first += item.pairs


def _found(block: Block, place: int, filters: Filters, tag: str) -> Found | None:
    """Return a pair of a block, or None if the filters would leave it out."""
    pair = block.sources[place], block.targets[place]
    try:
        source, target = (" ".join(side.decode().split()) for side in pair)
    except UnicodeDecodeError:
        return None
    found = keys(pair)
    low = bool(block.scores) and filters.too_low(block.scores[place])
    if low or not all(found) or filters.too_long(source, target):
        return None
    if filters.reason(source, target) or filters.raw_reason(source, target):
        return None
    return (f"{tag} ".encode() + pair[0] if tag else pair[0], pair[1]), found
