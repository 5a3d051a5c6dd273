"""Training text segmented anew for each epoch, for subword sampling, and pairs in other forms.

Worker processes of one rank do it for all ranks of its machine.
"""

import gc
import shutil
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random
from threading import Event, Lock

import numpy as np

from nmt_cli.config import changed
from nmt_cli.data.arrays import TextReader
from nmt_cli.data.dataset import (
    TOKENIZERS,
    TRAIN,
    Dataset,
    Split,
    open_sentences,
    read_manifest,
    side_path,
)
from nmt_cli.data.encode import EncodedSide, TokensWriter, encode_lines, lines_of, loaded, packed
from nmt_cli.errors import UserError
from nmt_cli.runtime.atomic import room_for
from nmt_cli.runtime.processes import crew
from nmt_cli.text.config import AugmentConfig, SamplingConfig
from nmt_cli.text.sampling import Draw, sampler
from nmt_cli.text.tokenizer import SIDES, Side
from nmt_cli.text.tokenizers import Tokenizers
from nmt_cli.text.variation import VARIATIONS, Pair, varied

BLOCK_PAIRS = 2000
"""Pairs that a worker takes at a time, so that all of them stop soon when they have to."""

PURPOSE = {"source": 3, "target": 4, "augment": 8}
"""Keeps these random numbers apart from those of epoch plans, which are made of the same seed."""


@dataclass(frozen=True, slots=True)
class ResegmentTask:
    """Which lines of the prepared text to segment, and for which epoch."""

    tokenizers: Path
    fingerprint: str
    """Of the tokenisers in that folder."""

    config: SamplingConfig
    augment: AugmentConfig
    texts: Mapping[Side, tuple[Path, int, int]]
    """File, first and last byte, of each side that is segmented anew: of both where pairs are changed."""

    seed: int
    epoch: int
    first: int
    """The number of the first of these pairs."""


UNCHANGED = AugmentConfig()


class Resegmented:
    """The training pairs as each epoch segments them: a pure function of seed, epoch and line.

    All ranks of a machine share `folder`, and nobody else uses it. The rank with `workers` writes each epoch
    into it; the others, without, only read. They may ask for an epoch once any shard of it is planned, since
    planning needs the epoch's lengths and so waits for it.
    """

    def __init__(
        self,
        dataset: Dataset,
        tokenizers: Tokenizers,
        config: SamplingConfig,
        seed: int,
        folder: Path,
        *,
        workers: int,
        augment: AugmentConfig = UNCHANGED,
    ) -> None:
        self.config, self.augment, self._tokenizers = config, augment, tokenizers
        self._dataset, self._seed, self._folder = dataset, seed, folder
        self._sides: list[Side] = [side for side in SIDES if augment.wanted or config.wants(side)]
        self._open: dict[int, Split] = {}
        self._begun: dict[int, Future[None]] = {}
        self._lock, self._closed, self._stack = Lock(), Event(), ExitStack()
        self._executor = ThreadPoolExecutor(1, "resegment") if workers else None
        self._share = self._stack.enter_context(crew(resegment, workers))

    def begin(self, epoch: int) -> None:
        """Start segmenting an epoch in the background, unless that was started before."""
        with self._lock:
            if self._executor and epoch not in self._begun and not self._closed.is_set():
                self._begun[epoch] = self._executor.submit(self._write, epoch)

    def split(self, epoch: int) -> Split:
        """The pairs as this epoch segments them; waits until that is done, where this rank does it."""
        self.begin(epoch)
        if epoch in self._begun:
            self._begun[epoch].result()
        with self._lock:
            if epoch not in self._open:
                # A side without sampling stays as the dataset has it.
                plain = self._dataset.splits[TRAIN]
                anew = {side: open_sentences(self._place(epoch), TRAIN, side) for side in self._sides}
                source, target = anew.get("source", plain.source), anew.get("target", plain.target)
                self._open[epoch] = replace(plain, source=source, target=target)
            return self._open[epoch]

    def forget(self, epoch: int) -> None:
        """Remove an epoch that nobody will ask for again."""
        with self._lock:
            self._open.pop(epoch, None)
            if self._begun.pop(epoch, None):
                shutil.rmtree(self._place(epoch), ignore_errors=True)

    def close(self) -> None:
        """Stop segmenting and remove what was written; may be called from any thread."""
        self._closed.set()
        if self._executor:
            self._executor.shutdown(cancel_futures=True)
        self._stack.close()
        for epoch in list(self._begun):
            self.forget(epoch)

    def _write(self, epoch: int) -> None:
        """Segment all pairs for an epoch; its folder appears whole or not at all."""
        place = self._place(epoch)
        unfinished = place.with_suffix(".unfinished")
        # A killed run may have left a folder of the same name.
        for left_over in (unfinished, place):
            shutil.rmtree(left_over, ignore_errors=True)
        self._refuse_changed()
        try:
            with room_for(place), ExitStack() as stack:
                unfinished.mkdir(parents=True)
                writers = {
                    side: stack.enter_context(
                        TokensWriter(unfinished, TRAIN, side, self._tokenizers.side(side))
                    )
                    for side in self._sides
                }
                for block in self._share(self._tasks(epoch, stack)):
                    if self._closed.is_set():
                        raise RuntimeError("the epochs were closed while one was being segmented")
                    for side, encoded in block.items():
                        writers[side].append(encoded)
            # And once more, as the dataset may have changed while its text was read.
            self._refuse_changed()
            unfinished.rename(place)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def _refuse_changed(self) -> None:
        """Raise `UserError` if the dataset was made again since it was opened, so that its text is
        another."""
        folder = self._dataset.folder
        if read_manifest(folder) != self._dataset.manifest:
            raise UserError(f"{folder} was made anew while it was trained on; start another run.")

    def _tasks(self, epoch: int, stack: ExitStack) -> Iterator[ResegmentTask]:
        folder = self._dataset.folder
        texts = {
            side: stack.enter_context(
                TextReader(side_path(folder, TRAIN, side, "txt"), side_path(folder, TRAIN, side, "lines.npy"))
            )
            for side in self._sides
        }
        pairs = len(self._dataset.splits[TRAIN])
        for first in range(0, pairs, BLOCK_PAIRS):
            extents = {
                side: text.extent(first, min(first + BLOCK_PAIRS, pairs)) for side, text in texts.items()
            }
            yield ResegmentTask(
                folder / TOKENIZERS,
                self._tokenizers.fingerprint,
                self.config,
                self.augment,
                extents,
                self._seed,
                epoch,
                first,
            )

    def _place(self, epoch: int) -> Path:
        return self._folder / f"epoch-{epoch:06}"


def resegment(task: ResegmentTask) -> dict[Side, EncodedSide]:
    """Segment the lines of one task; runs in a worker process."""
    tokenizers, draws = _samplers(task.tokenizers, task.fingerprint, task.config)
    lines = {side: lines_of(*extent) for side, extent in task.texts.items()}
    if task.augment.wanted:
        pairs = _varied(task, zip(lines["source"], lines["target"], strict=True), tokenizers)
        lines = {"source": [source for source, _ in pairs], "target": [target for _, target in pairs]}
    return {side: _drawn(task, side, some, draws.get(side), tokenizers) for side, some in lines.items()}


def samplers(tokenizers: Tokenizers, config: SamplingConfig) -> dict[Side, Draw]:
    """How the sides that `config` wants are segmented; `UserError` where that would have no effect."""
    return {side: sampler(tokenizers.side(side), side, config) for side in SIDES if config.wants(side)}


def refuse_no_effect(tokenizers: Tokenizers, augment: AugmentConfig) -> None:
    """Raise `UserError` for a share of pairs that would stay as they are."""
    if augment.placeholders and not tokenizers.recipe.placeholders:
        raise UserError(
            "augment.placeholders needs a dataset with symbols for them: nmt preprocess --set "
            "tokenizer.placeholders=8."
        )
    if tokenizers.recipe.text.lowercase:
        for kind in changed(augment, "upper", "lower", "title"):
            raise UserError(f"augment.{kind} has no effect on a lower-cased dataset; leave it out.")


@cache
def _samplers(folder: Path, fingerprint: str, config: SamplingConfig) -> tuple[Tokenizers, dict[Side, Draw]]:
    """Made once in each worker process."""
    gc.disable()  # it would take most of the time to go through the caches of words, which have no cycles
    tokenizers = loaded(folder, fingerprint)
    return tokenizers, samplers(tokenizers, config)


def _drawn(
    task: ResegmentTask, side: Side, lines: Sequence[str], draw: Draw | None, tokenizers: Tokenizers
) -> EncodedSide:
    if not draw:
        return encode_lines(tokenizers.side(side), lines)
    return packed(map(draw, lines, _seeds(task, side, len(lines))), tokenizers.side(side))


def _seeds(task: ResegmentTask, purpose: str, count: int) -> list[int]:
    """The number of its line decides each seed, so blocks may be of any size."""
    bits = np.random.PCG64(np.random.SeedSequence((task.seed, task.epoch, 0, PURPOSE[purpose])))
    seeds: list[int] = bits.advance(task.first).random_raw(count).tolist()
    return seeds


def _varied(task: ResegmentTask, pairs: Iterable[Pair], tokenizers: Tokenizers) -> list[Pair]:
    """The pairs of a task, of which shares are changed."""
    ends = list(accumulate(task.augment.shares))
    symbols, masks = tokenizers.recipe.symbols, tokenizers.recipe.placeholders
    known = frozenset(symbols)
    found: list[Pair] = []
    lines = list(pairs)
    for pair, seed in zip(lines, _seeds(task, "augment", len(lines)), strict=True):
        kind = bisect_right(ends, (seed >> 11) / 2**53)
        changes = kind < len(VARIATIONS)
        found.append(varied(VARIATIONS[kind], pair, Random(seed), known, masks) if changes else pair)
    return found
