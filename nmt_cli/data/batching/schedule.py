"""Provides the global batches of a run, planned by one process per machine and read by all."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from threading import Event

from nmt_cli.data.batching.mixed_plan import Mixed, MixedPlan
from nmt_cli.data.batching.plan import Indices, Shard, plan_shard, shard_count
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

    mixed: Mixed | None = None
    """Report of the mixture, if corpora are mixed."""


class Batches:
    """The global batches of a split, equal in every process. The processes of a machine share `folder`, which
    no other run uses. The process with `planner` writes each shard there in advance. Others wait while
    `planner_at_work` says that the planner runs. `mixed` plans a mixture. `resegmented` segments the split
    again every epoch, and `close` closes it."""

    def __init__(
        self,
        split: Split,
        config: BatchConfig,
        seed: int,
        folder: Path,
        *,
        planner: bool,
        mixed: MixedPlan | None = None,
        resegmented: Resegmented | None = None,
        planner_at_work: Callable[[], bool] = lambda: True,
    ) -> None:
        self._split, self._resegmented, self._mixed = split, resegmented, mixed
        self._config, self._seed, self._folder = config, seed, folder
        self._planner_at_work = planner_at_work
        self._executor = ThreadPoolExecutor(1, "plan") if planner else None
        self._planned: dict[Path, Future[None]] = {}
        self._closed = Event()

    def starting(self, epoch: int = 0, number: int = 0) -> Iterator[GlobalBatch]:
        """Yield batches without end, from batch `number` of `epoch`. Raise `UserError` if all pairs of an
        epoch are too long, or if a shard does not arrive. Remove the file of a shard `KEPT_BATCHES` later."""
        finished: deque[tuple[int, int, int]] = deque()
        taken = 0
        while True:
            first = dropped = 0
            for index in range(self._shards(epoch)):
                shard = self._shard(epoch, index)
                dropped += shard.dropped
                start = min(max(number - first, 0), len(shard))
                reports = self._mixed.reports(epoch, index, shard, start) if self._mixed else repeat(None)
                for batch, mixed in zip(range(start, len(shard)), reports, strict=False):
                    yield GlobalBatch(epoch, first + batch, shard.batch(batch), dropped, mixed)
                    taken += 1
                first += len(shard)
                # Ranks may be at different steps, so the files of finished shards stay for a while.
                finished.append((taken, epoch, index))
                while taken - finished[0][0] > KEPT_BATCHES:
                    self._forget(*finished.popleft()[1:])
            if not first:
                raise all_too_long(dropped, self._config)
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

    def _shards(self, epoch: int) -> int:
        return self._mixed.rounds(epoch) if self._mixed else shard_count(len(self._split), self._config)

    def _shard(self, epoch: int, index: int) -> Shard:
        """Return a shard. The planner plans it, and starts on the next. Others wait for the shard's file."""
        path = self._path(epoch, index)
        if self._executor:
            self._plan(self._executor, epoch, index).result()
            if self._resegmented:
                # Segmenting an epoch takes long, so it starts an epoch ahead.
                self._resegmented.begin(epoch + 1)
            following = (epoch, index + 1) if index + 1 < self._shards(epoch) else (epoch + 1, 0)
            self._plan(self._executor, *following)
        else:
            self._await(path)
        return Shard.load(path)

    def _plan(self, executor: ThreadPoolExecutor, epoch: int, index: int) -> Future[None]:
        """Start to plan a shard in the background, if not started before. Return the future of the plan."""

        def work() -> None:
            self._folder.mkdir(parents=True, exist_ok=True)
            split = self.split(epoch)
            if self._mixed:
                self._mixed.round(split, epoch, index).save(path)
            else:
                plan_shard(split, self._config, self._seed, epoch, index).save(path)

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
        """Remove the file of a shard if this process planned it. After the last shard of an epoch, also
        release the segmentation of the epoch."""
        path = self._path(epoch, index)
        if self._planned.pop(path, None):
            path.unlink(missing_ok=True)
        if self._resegmented and index + 1 == self._shards(epoch):
            self._resegmented.forget(epoch)

    def _path(self, epoch: int, index: int) -> Path:
        return self._folder / f"{epoch:06}-{index:06}.npy"


def all_too_long(pairs: int, config: BatchConfig) -> UserError:
    """Return the error for a training set whose pairs are all too long. `pairs` is their number."""
    return UserError(
        f"All {pairs:,} training pairs have more than {config.max_length:,} tokens on a side. "
        "Raise batch.longest and batch.tokens, or use a larger vocabulary."
    )
