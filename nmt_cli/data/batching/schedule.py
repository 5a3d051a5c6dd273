"""The global batches of a run, epoch after epoch: planned by one process of a machine, read by all."""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import astuple, dataclass
from itertools import repeat
from pathlib import Path
from threading import Event

from nmt_cli.data.batching.mixed_plan import Mixed, MixedPlan
from nmt_cli.data.batching.plan import VERSION, Indices, Shard, plan_shard, shard_count
from nmt_cli.data.batching.resegment import Resegmented
from nmt_cli.data.config import BatchConfig
from nmt_cli.data.dataset import Split
from nmt_cli.errors import UserError

POLL_SECONDS = 0.05
PATIENCE_SECONDS = 600.0

KEPT_BATCHES = 1000
"""The file of a finished shard is kept for this many batches more: other ranks may not be further behind."""


@dataclass(frozen=True, slots=True)
class GlobalBatch:
    """The pairs of one step of the optimiser."""

    epoch: int
    number: int
    """Which batch of the epoch it is, from 0."""

    pairs: Indices
    dropped: int
    """Pairs left out as too long, in the shards of the epoch up to this batch's."""

    mixed: Mixed | None = None
    """What is to be told of it, where corpora are mixed."""


class Batches:
    """The global batches of a split, the same in every process that trains on it.

    `folder` is one that all processes on a machine know, and only they; one of them is its `planner`, which
    plans each shard while the one before it is used. What a killed run left in it does no harm. `mixed` is
    for corpora that are mixed, `anew` for a split that each epoch segments anew; it is closed with the
    batches. Who waits for the planner asks `planner_at_work` whether there still is one.
    """

    def __init__(
        self,
        split: Split,
        config: BatchConfig,
        seed: int,
        folder: Path,
        *,
        planner: bool,
        patience: float = PATIENCE_SECONDS,
        mixed: MixedPlan | None = None,
        anew: Resegmented | None = None,
        planner_at_work: Callable[[], bool] = lambda: True,
    ) -> None:
        self._split, self._anew, self._mixed = split, anew, mixed
        self._config, self._seed, self._folder, self._patience = config, seed, folder, patience
        self._planner_at_work = planner_at_work
        self._name = _fingerprint(split, config, seed, anew, mixed)
        self._executor = ThreadPoolExecutor(1, "plan") if planner else None
        self._planned: dict[Path, Future[None]] = {}
        self._closed = Event()

    def starting(self, epoch: int = 0, number: int = 0) -> Iterator[GlobalBatch]:
        """An endless iterator from batch `number` of `epoch` on, through this epoch and all that follow."""
        finished: deque[tuple[int, int, int]] = deque()
        taken = 0
        while True:
            first = dropped = 0
            for index in range(self._shards(epoch)):
                shard = self._shard(epoch, index)
                dropped += shard.dropped
                start = min(max(number - first, 0), len(shard))
                told = self._mixed.told(epoch, index, shard, start) if self._mixed else repeat(None)
                for batch, mixed in zip(range(start, len(shard)), told, strict=False):
                    yield GlobalBatch(epoch, first + batch, shard.batch(batch), dropped, mixed)
                    taken += 1
                first += len(shard)
                # The files of finished shards stay for a while: ranks do not all stand at the same step.
                finished.append((taken, epoch, index))
                while taken - finished[0][0] > KEPT_BATCHES:
                    self._forget_shard(*finished.popleft()[1:])
            if not first:
                limit = min(self._config.longest, self._config.tokens)
                raise UserError(
                    f"none of the {dropped:,} training pairs has at most {limit:,} tokens on both sides; "
                    "raise longest and tokens, or segment the text into fewer subwords."
                )
            epoch, number = epoch + 1, 0

    def split(self, epoch: int) -> Split:
        """The sentences that the pairs of this epoch's batches are numbers of."""
        return self._anew.split(epoch) if self._anew else self._split

    def close(self) -> None:
        """Stop planning and waiting, and remove the files written; may be called from any thread."""
        self._closed.set()
        if self._anew:
            # First, as a plan in the making may be waiting for an epoch to be segmented.
            self._anew.close()
        if self._executor:
            self._executor.shutdown(cancel_futures=True)
        for path in list(self._planned):
            self._forget(path)

    def _shards(self, epoch: int) -> int:
        return self._mixed.rounds(epoch) if self._mixed else shard_count(len(self._split), self._config)

    def _shard(self, epoch: int, index: int) -> Shard:
        path = self._path(epoch, index)
        if self._executor:
            self._plan(self._executor, epoch, index).result()
            if self._anew:
                # A whole epoch takes long to segment, so it is begun an epoch ahead.
                self._anew.begin(epoch + 1)
            following = (epoch, index + 1) if index + 1 < self._shards(epoch) else (epoch + 1, 0)
            self._plan(self._executor, *following)
        else:
            self._await(path)
        return Shard.load(path)

    def _plan(self, executor: ThreadPoolExecutor, epoch: int, index: int) -> Future[None]:
        """Start planning a shard in the background, unless that was started before."""

        def work() -> None:
            self._folder.mkdir(parents=True, exist_ok=True)
            split = self.split(epoch)
            if self._mixed:
                self._mixed.round(split, epoch, index).save(path)
            else:
                offsets = split.source.offsets, split.target.offsets
                plan_shard(*offsets, self._config, self._seed, epoch, index).save(path)

        path = self._path(epoch, index)
        if path not in self._planned:
            self._planned[path] = executor.submit(work)
        return self._planned[path]

    def _await(self, path: Path) -> None:
        deadline = time.monotonic() + self._patience
        while not path.exists():
            if not self._planner_at_work() and not path.exists():
                raise UserError(
                    "the first process on this machine, which plans the batches, has ended; see what it said."
                )
            if time.monotonic() > deadline:
                raise UserError(
                    f"{path} did not appear within {self._patience:g} seconds; see why the first process on "
                    "this machine does not plan, and that all processes on it share this folder."
                )
            if self._closed.wait(POLL_SECONDS):
                raise RuntimeError("the batches were closed while they were being waited for")

    def _forget_shard(self, epoch: int, index: int) -> None:
        self._forget(self._path(epoch, index))
        if self._anew and index + 1 == self._shards(epoch):
            self._anew.forget(epoch)

    def _forget(self, path: Path) -> None:
        if self._planned.pop(path, None) and path.exists():
            path.unlink()

    def _path(self, epoch: int, index: int) -> Path:
        return self._folder / f"{self._name}-{epoch:06}-{index:06}.npy"


def _fingerprint(
    split: Split, config: BatchConfig, seed: int, anew: Resegmented | None, mixed: MixedPlan | None
) -> str:
    """A name for all that decides the plan, so that files which another run left are not taken for ours."""
    tokens = [len(side.tokens) for side in (split.source, split.target)]
    drawn = (*astuple(anew.config), *(astuple(anew.augment) if anew.augment.wanted else ())) if anew else ()
    known = (VERSION, seed, *astuple(config), len(split), *tokens, *drawn)
    if mixed:
        known = (*known, *mixed.decides)
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]
