"""Cleaning and encoding of the training set, part by part, in the work folder. `merge` joins the parts.

A part is a number of blocks, and a block is the task of a worker. Numbers of corpora count the training
corpora from 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.parallel import PairBlock
from nmt_cli.corpus.raw_files import sha256
from nmt_cli.data.cleaning.clean import CleanTask, clean
from nmt_cli.data.cleaning.duplicates import Hashed, hashes_needed
from nmt_cli.data.cleaning.filter_report import CorpusReport, FilterReport
from nmt_cli.data.cleaning.filters import HELD_OUT
from nmt_cli.data.cleaning.held_out import HeldOut
from nmt_cli.data.cleaning.held_out import write as write_held_out
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.data.dataset import TRAIN
from nmt_cli.data.encode import EncodeTask, TokensWriter, encode_block
from nmt_cli.data.preprocessing.job import Input, PreprocessJob
from nmt_cli.data.preprocessing.parts import (
    BLOCKS_A_PART,
    CleanWriter,
    clean_part,
    counts_of,
    encoded_part,
    numbers_of,
    scores_of,
    texts_of,
    written_whole,
)
from nmt_cli.data.preprocessing.reuse import TokenizerPlan
from nmt_cli.errors import UserError
from nmt_cli.runtime.processes import Progress, in_order
from nmt_cli.text.config import TokenizerConfig
from nmt_cli.text.tokenizer import SIDES, Side
from nmt_cli.text.tokenizers import Tokenizers

SAMPLE_SEED = 1
"""The seed of the sample of lines from which subwords are learned."""

BLOCK_PAIRS = 10_000
"""The number of pairs in the task of a worker."""

HELD_OUT_KEYS = "held-out"
KEYS = "keys.txt"
DRAWN_KEYS = "drawn-keys.txt"


@dataclass(frozen=True, slots=True)
class Run:
    """A `preprocess` run: its inputs, the plan of its tokenizers, and its work folder."""

    job: PreprocessJob
    inputs: Sequence[Input]
    plan: TokenizerPlan
    work: Path
    workers: int
    progress: Progress

    @property
    def config(self) -> PreprocessConfig:
        """All settings of the run."""
        return self.job.config

    @property
    def training(self) -> list[Input]:
        """The training corpora among `inputs`, in order."""
        return [item for item in self.inputs if item.role == TRAIN]

    @property
    def parts(self) -> list[list[int]]:
        """For each part, the number of the corpus of each of its blocks.

        A part has `BLOCKS_A_PART` blocks of `BLOCK_PAIRS` pairs. The last block of a corpus may have fewer
        pairs.
        """
        blocks = [owner for owner, item in enumerate(self.training) for _ in range(_blocks(item.pairs))]
        return [blocks[start : start + BLOCKS_A_PART] for start in range(0, len(blocks), BLOCKS_A_PART)]


def clean_parts(run: Run) -> None:
    """Clean the parts that the work folder lacks, in parallel. Each becomes a folder with the text, the
    numbers and the hashes of kept pairs, and with counts."""
    parts = run.parts
    missing = [part for part in range(len(parts)) if not clean_part(run.work, part).exists()]
    blocks, total = sum(len(parts[part]) for part in missing), sum(item.pairs for item in run.training)
    # Tasks are made while workers run, so that only a few blocks are in memory.
    tasks = _clean_tasks(run, _held_out(run) if missing else (), frozenset(missing))
    cleaned = in_order(clean, tasks, max(1, min(run.workers, blocks)))
    done = sum(map(len, parts)) - blocks
    for part in missing:
        with written_whole(clean_part(run.work, part)) as folder, CleanWriter(folder) as writer:
            # `cleaned` goes on with the blocks of the next parts.
            for owner, block in zip(parts[part], cleaned, strict=False):
                writer.append(owner, block)
                done += 1
                run.progress("cleaning", min(done * BLOCK_PAIRS, total), total)


def gather_report(run: Run) -> FilterReport:
    """Return the report of the training corpora over all parts. Raise `UserError` if no pair is kept."""
    corpora = [CorpusReport(item.role, item.corpus.name, item.pairs) for item in run.training]
    for part in range(len(run.parts)):
        for owner, state in counts_of(run.work, part):
            corpora[owner].merge(state)
    report = FilterReport(corpora)
    if not any(corpus.kept for corpus in corpora):
        raise nothing_left(report)
    return report


def draw_sample(work: Path, parts: int, config: TokenizerConfig) -> dict[Side, list[str]]:
    """Return the lines to learn subwords from, by side: up to half of `config.sample_lines` from each.

    The corpus is divided into equal stretches, and a random pair is taken from each. Equal text gives an
    equal sample.
    """
    sizes = [len(numbers_of(work, part)) for part in range(parts)]
    pairs = min(sum(sizes), max(1, config.sample_lines // 2))
    positions = np.arange(pairs) + np.random.default_rng(SAMPLE_SEED).random(pairs)
    # Rounding may give the position after the last pair.
    chosen = np.minimum((positions * (sum(sizes) / pairs)).astype(np.int64), sum(sizes) - 1)
    sample: dict[Side, list[str]] = {side: [] for side in SIDES}
    first = 0
    for part, size in enumerate(sizes):
        own = chosen[(chosen >= first) & (chosen < first + size)] - first
        first += size
        with texts_of(work, part) as texts:
            for side in SIDES:
                sample[side] += texts[side].lines(own)
    return sample


def encode_parts(run: Run, tokenizers: Tokenizers, folder: Path) -> None:
    """Encode the missing parts in parallel, repeated and overlong pairs included. Workers load the tokenizers
    from `folder`, which are equal to `tokenizers`."""
    work = run.work
    sizes = [len(numbers_of(work, part)) for part in range(len(run.parts))]
    missing = [part for part in range(len(sizes)) if not encoded_part(work, part).exists()]
    starts = {part: range(0, sizes[part], BLOCK_PAIRS) for part in missing}
    blocks, total = sum(map(len, starts.values())), sum(sizes)
    tasks = _encode_tasks(folder, tokenizers.fingerprint, work, starts)
    encoded = in_order(encode_block, tasks, max(1, min(run.workers, blocks)))
    done = sum(map(_blocks, sizes)) - blocks
    for part in missing:
        with (
            written_whole(encoded_part(work, part)) as part_folder,
            TokensWriter(part_folder, TRAIN, "source", tokenizers.source) as source,
            TokensWriter(part_folder, TRAIN, "target", tokenizers.target) as target,
        ):
            for source_ids, target_ids in islice(encoded, len(starts[part])):
                source.append(source_ids)
                target.append(target_ids)
                done += 1
                run.progress("encoding", min(done * BLOCK_PAIRS, total), total)


def _held_out(run: Run) -> tuple[HeldOut, ...]:
    """Return the pairs that the training set must not have: given sets, and drawn ones. Their keys are
    written to the work folder.

    Return () if there are no such sets, or no corpus has `decontaminate`.
    """
    sets = [item for item in run.inputs if item.role != TRAIN]
    if not (sets and any(item.filter(run.config).decontaminate for item in run.training)):
        return ()
    is_drawn = [item.role != "held out" and item.corpus.name in run.config.corpus.drawn for item in sets]
    symbols = frozenset(map(str.encode, run.plan.recipe.symbols))
    folder = run.work / HELD_OUT_KEYS
    if not folder.exists():
        with written_whole(folder) as staging:
            for name, is_of_name in ((KEYS, False), (DRAWN_KEYS, True)):
                corpora = (item.corpus for item, own in zip(sets, is_drawn, strict=True) if own == is_of_name)
                write_held_out(corpora, staging / name, symbols)
    return (
        HeldOut(folder / KEYS, sha256(folder / KEYS), symbols),
        # No side of a drawn pair may be trained on.
        HeldOut(folder / DRAWN_KEYS, sha256(folder / DRAWN_KEYS), symbols, by="either"),
    )


def _clean_tasks(run: Run, held_out: Sequence[HeldOut], parts: frozenset[int]) -> Iterator[CleanTask]:
    """Yield the tasks that clean the blocks of `parts`, in order. Corpora with `decontaminate` drop the pairs
    in `held_out`."""
    config, recipe = run.config, run.plan.recipe
    hashed = frozenset[Hashed]().union(*(hashes_needed(item.filter(config)) for item in run.training))
    number = 0
    for owner, item in enumerate(run.training):
        numbers = range(number, number + _blocks(item.pairs))
        number = numbers.stop
        # A corpus whose parts are all finished is not even opened.
        if parts.isdisjoint(block // BLOCKS_A_PART for block in numbers):
            continue
        tag, own = item.named.tag if item.named else "", item.filter(config)
        excluded, invalid = held_out if own.decontaminate else (), config.corpus.invalid_utf8
        scores = scores_of(run.work, owner)
        for block_number, block in zip(numbers, item.corpus.blocks(BLOCK_PAIRS), strict=True):
            if block_number // BLOCKS_A_PART in parts:
                yield CleanTask(
                    _with_scores(block, scores), item.corpus, recipe, own, invalid, excluded, tag, hashed
                )


def _with_scores(block: PairBlock, scores: NDArray[np.float64]) -> PairBlock:
    """Return `block` with its scores. `scores` are those of its corpus, or empty if it has none."""
    if not len(scores):
        return block
    return replace(block, scores=scores[block.first - 1 :][: len(block.sources)].tolist())


def _encode_tasks(
    folder: Path, fingerprint: str, work: Path, starts: Mapping[int, range]
) -> Iterator[EncodeTask]:
    """Yield the tasks that encode all parts, in order. `starts` has the first line of each block by part."""
    for part, part_starts in starts.items():
        with texts_of(work, part) as texts:
            for start in part_starts:
                stop = min(start + BLOCK_PAIRS, len(texts["source"]))
                source, target = (texts[side].extent(start, stop) for side in SIDES)
                yield EncodeTask(folder, fingerprint, source, target)


def _blocks(pairs: int) -> int:
    """Return the number of blocks for a number of pairs."""
    return -(-pairs // BLOCK_PAIRS)


def nothing_left(report: FilterReport) -> UserError:
    """Return the error for a training set without pairs. It has the reasons, and the setting that keeps
    held-out pairs if some were dropped."""
    has_held_out = any(corpus.dropped.counts[HELD_OUT] for corpus in report.of_role(TRAIN))
    remedy = " filter.decontaminate=false keeps pairs of validation and test sets." if has_held_out else ""
    return UserError(
        f"No training pair is left ({report.reasons()}). Check the corpus, or relax the filters.{remedy}"
    )
