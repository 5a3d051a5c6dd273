"""The training set, cleaned and encoded part by part in a work folder; `merge` makes one of them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from nmt_cli.corpus.files import sha256
from nmt_cli.data.arrays import ArrayWriter
from nmt_cli.data.cleaning.clean import CleanTask, clean
from nmt_cli.data.cleaning.duplicates import Hashed, hashes_needed
from nmt_cli.data.cleaning.filters import HELD_OUT
from nmt_cli.data.cleaning.held_out import HeldOut
from nmt_cli.data.cleaning.held_out import write as write_held_out
from nmt_cli.data.cleaning.report import CorpusReport, FilterReport
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.data.dataset import TRAIN
from nmt_cli.data.encode import (
    EncodedSide,
    EncodeTask,
    encode_block,
    token_type,
)
from nmt_cli.data.preprocessing.cleaned import CleanWriter, counts_of, numbers_of, texts_of
from nmt_cli.data.preprocessing.job import Input
from nmt_cli.data.preprocessing.parts import BLOCKS_A_PART, Share, clean_part, encoded_part, written_whole
from nmt_cli.errors import UserError
from nmt_cli.runtime.processes import Progress, in_order
from nmt_cli.text.config import TokenizerConfig
from nmt_cli.text.tokenizer import SIDES, Side
from nmt_cli.text.tokenizers import Recipe, Tokenizers

SAMPLE_SEED = 1
"""Seed of the sample of lines that subwords are learnt from."""

BLOCK_PAIRS = 10_000
"""Pairs that a worker takes at a time."""

HELD_OUT_KEYS = "held-out"
KEYS = "keys.txt"


def parts_of(inputs: Sequence[Input]) -> int:
    """How many parts the corpora have."""
    return -(-len(_owners(inputs)) // BLOCKS_A_PART)


def clean_parts(
    inputs: Sequence[Input],
    config: PreprocessConfig,
    recipe: Recipe,
    work: Path,
    share: Share,
    workers: int,
    progress: Progress,
) -> None:
    """Write the prepared text of all pairs that pass the filters, of each part in `share` that is missing.

    Beside the text are the number in its corpus of each pair that passed, its hashes where repetitions are to
    be found, and how many pairs did not pass, by reason. Those of `inputs` that are not trained on are held
    out.
    """
    training = [item for item in inputs if item.role == TRAIN]
    owners = _owners(training)
    ours = [part for part in range(parts_of(training)) if share.has(part)]
    missing = [part for part in ours if not clean_part(work, part).exists()]
    blocks = [number for part in missing for number in _blocks_of(part, len(owners))]
    whole = sum(len(_blocks_of(part, len(owners))) for part in ours)
    total = min(whole * BLOCK_PAIRS, sum(item.pairs for item in training))
    known = _held_out(inputs, config, recipe, work) if missing else None
    tasks = _clean_tasks(training, config, recipe, known, frozenset(blocks))
    cleaned = zip(blocks, in_order(clean, tasks, max(1, min(workers, len(blocks)))), strict=True)
    done = whole - len(blocks)
    for part in missing:
        with written_whole(clean_part(work, part)) as folder, CleanWriter(folder) as writer:
            for number, block in islice(cleaned, len(_blocks_of(part, len(owners)))):
                writer.append(owners[number], block)
                done += 1
                progress("cleaning", min(done * BLOCK_PAIRS, total), total)


def gather_report(inputs: Sequence[Input], work: Path, report: FilterReport) -> None:
    """Add to `report` what became of the pairs of all parts when they were cleaned."""
    corpora = [CorpusReport(item.role, item.corpus.name, item.pairs) for item in inputs]
    for part in range(parts_of(inputs)):
        for owner, state in counts_of(work, part):
            corpora[owner].merge(state)
    report.corpora += corpora
    if not any(corpus.kept for corpus in corpora):
        raise nothing_left(report)


def draw_sample(work: Path, parts: int, config: TokenizerConfig) -> dict[Side, list[str]]:
    """The `config.sample_lines` lines that subwords are learnt from, both sides together.

    One pair is drawn from each of as many equal stretches of the corpus.
    """
    sizes = [len(numbers_of(work, part)) for part in range(parts)]
    pairs = min(sum(sizes), max(1, config.sample_lines // 2))
    places = np.arange(pairs) + np.random.default_rng(SAMPLE_SEED).random(pairs)
    chosen = np.minimum((places * (sum(sizes) / pairs)).astype(np.int64), sum(sizes) - 1)
    sample: dict[Side, list[str]] = {side: [] for side in SIDES}
    first = 0
    for part, size in enumerate(sizes):
        own = chosen[(chosen >= first) & (chosen < first + size)] - first
        first += size
        with texts_of(work, part) as texts:
            for side in SIDES:
                sample[side] += texts[side].lines(own)
    return sample


def encode_parts(
    tokenizers: Tokenizers, place: Path, work: Path, parts: Sequence[int], workers: int, progress: Progress
) -> None:
    """Write the ids of those of `parts` whose ids are missing; duplicates and overlong pairs are among them.

    `tokenizers` are those in the folder `place`, where the workers find them.
    """
    missing = [part for part in parts if not encoded_part(work, part).exists()]
    starts = {part: range(0, len(numbers_of(work, part)), BLOCK_PAIRS) for part in parts}
    blocks, whole = (sum(len(starts[part]) for part in some) for some in (missing, parts))
    total = sum(len(numbers_of(work, part)) for part in parts)
    tasks = _encode_tasks(place, tokenizers.fingerprint, work, {part: starts[part] for part in missing})
    encoded = in_order(encode_block, tasks, max(1, min(workers, blocks)))
    done = whole - blocks
    for part in missing:
        with written_whole(encoded_part(work, part)) as folder, ExitStack() as stack:
            writers = {
                side: _IdsWriter(folder, side, token_type(tokenizers.side(side)), stack) for side in SIDES
            }
            for both in islice(encoded, len(starts[part])):
                for side, ids in zip(SIDES, both, strict=True):
                    writers[side].append(ids)
                done += 1
                progress("encoding", min(done * BLOCK_PAIRS, total), total)
    # A generator that is not asked once more would not let its workers go.
    next(iter(encoded), None)


class _IdsWriter:
    """Writes the ids of one side of a part."""

    def __init__(self, folder: Path, side: Side, dtype: type, stack: ExitStack) -> None:
        self._tokens = stack.enter_context(ArrayWriter(folder / f"{side}.tokens.npy", dtype))
        self._lengths = stack.enter_context(ArrayWriter(folder / f"{side}.lengths.npy", np.int64))

    def append(self, ids: EncodedSide) -> None:
        """Add sentences."""
        self._tokens.append(ids.tokens)
        self._lengths.append(ids.lengths)


def _held_out(
    inputs: Sequence[Input], config: PreprocessConfig, recipe: Recipe, work: Path
) -> HeldOut | None:
    """The pairs of all inputs that are not trained on, in a file in the work folder."""
    held_out = [item.corpus for item in inputs if item.role != TRAIN]
    if not (held_out and any(item.filter(config).decontaminate for item in inputs if item.role == TRAIN)):
        return None
    symbols = frozenset(map(str.encode, recipe.symbols))
    place = work / HELD_OUT_KEYS
    if not place.exists():
        with written_whole(place) as folder:
            write_held_out(held_out, folder / KEYS, symbols)
    return HeldOut(place / KEYS, sha256(place / KEYS), symbols)


def _clean_tasks(
    inputs: Sequence[Input],
    config: PreprocessConfig,
    recipe: Recipe,
    held_out: HeldOut | None,
    wanted: frozenset[int],
) -> Iterator[CleanTask]:
    """The tasks of the blocks with these numbers, counted over all corpora; the others are only read."""
    hashed = frozenset[Hashed]().union(*(hashes_needed(item.filter(config)) for item in inputs))
    number = 0
    for item in inputs:
        count = _blocks(item.pairs)
        if wanted.isdisjoint(range(number, number + count)):
            number += count
            continue
        tag, own = item.named.tag if item.named else "", item.filter(config)
        if config.corpus.drawn:  # of which no side may be trained on
            own = replace(own, decontaminate_by="either")
        known, invalid = held_out if own.decontaminate else None, config.corpus.invalid_utf8
        for block in item.corpus.blocks(BLOCK_PAIRS):
            if number in wanted:
                yield CleanTask(block, item.corpus, recipe, own, invalid, known, tag, hashed)
            number += 1


def _encode_tasks(
    place: Path, fingerprint: str, work: Path, starts: Mapping[int, range]
) -> Iterator[EncodeTask]:
    for part, of_part in starts.items():
        with texts_of(work, part) as texts:
            for start in of_part:
                stop = min(start + BLOCK_PAIRS, len(texts["source"]))
                source, target = (texts[side].extent(start, stop) for side in SIDES)
                yield EncodeTask(place, fingerprint, source, target)


def _owners(inputs: Sequence[Input]) -> list[int]:
    """The number of its corpus, of each block."""
    return [owner for owner, item in enumerate(inputs) for _ in range(_blocks(item.pairs))]


def _blocks_of(part: int, blocks: int) -> range:
    return range(part * BLOCKS_A_PART, min((part + 1) * BLOCKS_A_PART, blocks))


def _blocks(pairs: int) -> int:
    return -(-pairs // BLOCK_PAIRS)


def nothing_left(report: FilterReport) -> UserError:
    """What to tell where the filters keep no training pair."""
    known = any(corpus.dropped.counts[HELD_OUT] for corpus in report.of_role(TRAIN))
    cure = "; filter.decontaminate=false trains on pairs of valid and test sets too" if known else ""
    return UserError(
        f"no training pair is left ({report.reasons()}); look at the corpus, or relax [filter]{cure}."
    )
