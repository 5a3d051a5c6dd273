"""Provides the global batches of a run, planned by one process per machine and read by all.

The planner is this process. It plans shards in the background and writes them to files, since the other ranks
of the machine need the same batches.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from nmt_cli.data.batching.mixture import CorpusCounts
from nmt_cli.data.batching.plan import Indices, Shard
from nmt_cli.data.batching.planner import BatchPlan
from nmt_cli.data.batching.resegment import Resegmented
from nmt_cli.data.config import BatchConfig
from nmt_cli.data.dataset import Split
from nmt_cli.errors import UserError

POLL_SECONDS = 0.05

KEPT_BATCHES = 1000
"""Batches after which the file of a finished shard is removed. Slower ranks may still need it until then."""


@dataclass(frozen=True, slots=True)
class GlobalBatch:
    """The pairs of one optimizer step."""

    epoch: int
    number: int
    """The number of the batch in its epoch, from 0."""

    pairs: Indices
    dropped: int
    """Pairs dropped as too long in the shards of the epoch so far, the shard of this batch included."""

    corpora: CorpusCounts | None = None
    """The pairs of each corpus, if corpora are mixed."""


class Batches:
    """The global batches of a split, equal in every process of a run. One process of each machine plans the
    shards in advance, and writes them to files that the other processes of the machine read."""

    def __init__(
        self,
        split: Split,
        plan: BatchPlan,
        folder: Path,
        *,
        planner: bool,
        resegmented: Resegmented | None = None,
        planner_at_work: Callable[[], bool] = lambda: True,
    ) -> None:
        """Start with no shard planned. `close` has to be called.

        folder: for the files of shards. The processes of a machine share it, and no other run uses it.
        planner: whether this process plans the shards.
        resegmented: segments the split again in every epoch. `close` closes it.
        planner_at_work: whether the process that plans still runs. The others wait for it.
        """
        self._split, self._plan, self._folder = split, plan, folder
        self._resegmented, self._planner_at_work = resegmented, planner_at_work
        self._executor = ThreadPoolExecutor(1, "plan") if planner else None
        self._planned: dict[Path, Future[None]] = {}
        self._closed = Event()

    def starting(self, epoch: int = 0, number: int = 0) -> Iterator[GlobalBatch]:
        """Yield global batches without end, from batch `number` of `epoch` on.

        The file of a shard is removed after `KEPT_BATCHES` more batches. Raise `UserError` if all pairs of an
        epoch are too long, or if the planner has ended.
        """
        finished: deque[tuple[int, int, int]] = deque()
        taken = 0
        while True:
            first = dropped = 0
            for index in range(self._plan.shards(epoch)):
                shard = self._shard(epoch, index)
                dropped += shard.dropped
                start = min(max(number - first, 0), len(shard))
                counts = self._plan.counts(epoch, index, shard, start)
                for batch, corpora in zip(range(start, len(shard)), counts, strict=True):
                    yield GlobalBatch(epoch, first + batch, shard.batch(batch), dropped, corpora)
                    taken += 1
                first += len(shard)
                # Ranks may be at different steps, so the files of finished shards stay for a while.
                finished.append((taken, epoch, index))
                while taken - finished[0][0] > KEPT_BATCHES:
                    self._forget(*finished.popleft()[1:])
            if not first:
                raise all_too_long(dropped, self._plan.batch)
            epoch, number = epoch + 1, 0

    def split(self, epoch: int) -> Split:
        """Return the split with the pairs of this epoch's batches. Wait if the epoch is not segmented yet."""
        return self._resegmented.split(epoch) if self._resegmented else self._split

    def close(self) -> None:
        """Stop planning and waiting, and close `resegmented`. Any thread may call this."""
        self._closed.set()
        if self._resegmented:
            # This comes first because a plan may be waiting for an epoch to be segmented.
            self._resegmented.close()
        if self._executor:
            self._executor.shutdown(cancel_futures=True)

    def _shard(self, epoch: int, index: int) -> Shard:
        """Return a shard. The planner plans it, and begins to plan the next one. The others wait for its
        file."""
        path = self._path(epoch, index)
        if self._executor:
            self._begin(self._executor, epoch, index).result()
            if self._resegmented:
                # Segmenting an epoch takes long, so it starts an epoch ahead.
                self._resegmented.begin(epoch + 1)
            is_last = index + 1 == self._plan.shards(epoch)
            self._begin(self._executor, *((epoch + 1, 0) if is_last else (epoch, index + 1)))
        else:
            self._await(path)
        return Shard.load(path)

    def _begin(self, executor: ThreadPoolExecutor, epoch: int, index: int) -> Future[None]:
        """Start to plan a shard in the background, if not started before. Return the future of the plan."""

        def work() -> None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._plan.shard(self.split(epoch), epoch, index).save(path)

        path = self._path(epoch, index)
        if path not in self._planned:
            self._planned[path] = executor.submit(work)
        return self._planned[path]

    def _await(self, path: Path) -> None:
        """Wait until the file of a shard exists. Raise `UserError` if the planner has ended. Raise
        `RuntimeError` after `close`."""
        # There is no time limit, because a planner that segments a large corpus takes hours.
        while not path.exists():
            if not self._planner_at_work() and not path.exists():
                raise UserError(
                    f"The first process on this machine, which plans the batches in {self._folder}, has "
                    "ended or has another file system. See its messages."
                )
            if self._closed.wait(POLL_SECONDS):
                raise RuntimeError("the batches were closed while a process waited for them")

    def _forget(self, epoch: int, index: int) -> None:
        """Remove the file of a shard, if this process planned it. After the last shard of an epoch, the
        segmentation of the epoch is released too."""
        path = self._path(epoch, index)
        if self._planned.pop(path, None):
            path.unlink(missing_ok=True)
        if self._resegmented and index + 1 == self._plan.shards(epoch):
            self._resegmented.forget(epoch)

    def _path(self, epoch: int, index: int) -> Path:
        return self._folder / f"{epoch:06}-{index:06}.npy"


def all_too_long(pairs: int, config: BatchConfig) -> UserError:
    """Return the error for a training set whose pairs are all too long. `pairs` is their number."""
    return UserError(
        f"All {pairs:,} training pairs have more than {config.max_length:,} tokens on a side. "
        "Raise batch.longest and batch.tokens, or use a larger vocabulary."
    )
