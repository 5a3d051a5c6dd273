"""Prepares the next steps of a rank in a background thread, so that no step waits for its data."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from nmt_cli.data.batching.batch import MicroBatch, Rounding, assemble, halved
from nmt_cli.data.batching.cut import micro_batches, share
from nmt_cli.data.batching.mixture import CorpusCounts
from nmt_cli.data.batching.schedule import Batches, GlobalBatch
from nmt_cli.data.dataset import Split
from nmt_cli.runtime.memory import has_own_memory

AHEAD = 4
"""Local batches that are prepared in advance."""

JOIN_SECONDS = 0.05
"""Interval at which `close` empties the queue until the thread ends."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How a rank gets its local batch: its share of the global batch, cut into micro-batches."""

    rank: int
    world: int
    max_tokens: int
    """Maximum source plus target tokens of a micro-batch in all draws of dropout, without filler."""

    rounding: Rounding | None = None
    draws: int = 1
    """Draws of dropout for each pair: 2 with R-Drop."""

    @property
    def max_pair_tokens(self) -> int:
        """Maximum tokens of the pairs of a micro-batch, if each pair counts once."""
        return max(self.max_tokens // self.draws, 1)


@dataclass(frozen=True, slots=True)
class LocalBatch:
    """A rank's share of a global batch. All counts cover the global batch, so all ranks have equal counts."""

    epoch: int
    number: int
    """The number of the batch in its epoch, from 0. A resumed run begins with the next number."""

    micro_batches: list[MicroBatch]
    """The micro-batches of this rank. Empty if the global batch has fewer pairs than ranks."""

    pairs: int
    source_tokens: int
    target_tokens: int
    dropped: int
    """Pairs dropped as too long in the shards of the epoch so far, including this batch's shard."""

    corpora: CorpusCounts | None = None
    """The pairs of each corpus, if corpora are mixed."""


class Loader:
    """An endless iterator over a rank's batches on `device`. A thread prepares up to `AHEAD` in advance."""

    def __init__(
        self,
        batches: Batches,
        cut: Cut,
        device: torch.device,
        *,
        epoch: int = 0,
        number: int = 0,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the thread at batch `number` of `epoch`.

        cut: how this rank cuts its share of each batch.
        look: called by the thread before each batch, to find a changed dataset. If it or the thread raises
            an error, `next` and every later `next` raise that error.
        """
        self._batches, self._cut, self._device, self._look = batches, cut, device, look
        self.waited = 0.0
        """Total seconds that `next` has waited for batches."""

        self._ready: queue.Queue[LocalBatch | BaseException] = queue.Queue(AHEAD)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(epoch, number), name="loader", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[LocalBatch]:
        return self

    def __next__(self) -> LocalBatch:
        start = time.perf_counter()
        step = self._ready.get()
        self.waited += time.perf_counter() - start
        if isinstance(step, BaseException):
            self._ready.put(step)  # later calls raise it again
            raise step
        return replace(step, micro_batches=[part.to(self._device) for part in step.micro_batches])

    def halved(self, step: LocalBatch) -> LocalBatch:
        """Return `step` with each micro-batch cut in two. Call this if memory ran out.

        A micro-batch of a single pair stays whole. Later batches get at most half of the tokens of the
        largest micro-batch in `step`. Batches that are already prepared do not change.
        """
        # Half of the limit may still exceed this batch, so halve its largest micro-batch.
        largest = max(part.real_source_tokens + part.real_target_tokens for part in step.micro_batches)
        max_tokens = min(self._cut.max_tokens, max(largest // 2, 1))
        rounding = Rounding.of(max_tokens // self._cut.draws // 2) if self._cut.rounding else None
        self._cut = replace(self._cut, max_tokens=max_tokens, rounding=rounding)
        split = self._batches.split(step.epoch)
        cut, parts = self._cut, step.micro_batches
        halves = [half for part in parts for half in halved(split, part, cut.rounding, cut.draws)]
        return replace(step, micro_batches=[half.to(self._device) for half in halves])

    def close(self) -> None:
        """End the thread: close `batches`, and drop the prepared batches. `next` must not be called
        afterwards."""
        self._closed.set()
        self._batches.close()
        while self._thread.is_alive():
            # The thread may be waiting for space in the queue, and checks `_closed` only after that.
            while not self._ready.empty():
                self._ready.get()
            self._thread.join(JOIN_SECONDS)

    def _work(self, epoch: int, number: int) -> None:
        """Queue prepared batches, pinned for a GPU, until the loader closes. Queue an error and end."""
        try:
            for batch in self._batches.starting(epoch, number):
                self._look()
                step = prepare(self._batches.split(batch.epoch), batch, self._cut)
                if has_own_memory(self._device):
                    # A GPU copies pinned memory in the background.
                    pinned = [part.pin_memory() for part in step.micro_batches]
                    step = replace(step, micro_batches=pinned)
                self._ready.put(step)
                if self._closed.is_set():
                    return
        except BaseException as error:
            # The reader of the queue would wait forever without it.
            self._ready.put(error)


def prepare(split: Split, batch: GlobalBatch, cut: Cut) -> LocalBatch:
    """Return `cut.rank`'s share of `batch` as micro-batches in host memory. The share may be empty."""
    source, target = split.lengths(batch.pairs)
    mine = share(source, target, cut.world)[cut.rank]
    parts = [mine[part] for part in micro_batches(source[mine], target[mine], cut.max_pair_tokens)]
    return LocalBatch(
        epoch=batch.epoch,
        number=batch.number,
        micro_batches=[assemble(split, batch.pairs[part], cut.rounding, cut.draws) for part in parts],
        pairs=len(batch.pairs),
        source_tokens=int(source.sum()),
        target_tokens=int(target.sum()),
        dropped=batch.dropped,
        corpora=batch.corpora,
    )
