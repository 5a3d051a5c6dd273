"""All that a run will do, tried once before its first step, so that one that can't succeed fails at once.

It leaves no trace: no weight changes, no file stays, and every step seeds its own random numbers.
"""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nmt_cli.checkpoints.run_folder import try_saving
from nmt_cli.data.batches.batch import assemble
from nmt_cli.data.batches.loader import Cut
from nmt_cli.data.batches.plan import Indices
from nmt_cli.data.config import BatchConfig
from nmt_cli.data.dataset import Split
from nmt_cli.errors import UserError
from nmt_cli.machine.devices import synchronize
from nmt_cli.machine.memory import LACKS, most_memory, out_of_memory
from nmt_cli.training.config import CheckpointConfig, TrainConfig
from nmt_cli.training.judging.validator import Validator
from nmt_cli.training.record.events import Note, Report, Warned
from nmt_cli.training.record.saver import Snapshot
from nmt_cli.training.step.trainer import Trainer

AT_ONCE = 1 << 20
SENTENCES = 8
"""As many are translated, the longest of each set."""

GB = 1e9


@dataclass(frozen=True, slots=True)
class Tried:
    """The longest micro-batch, worked on."""

    tokens: int
    """Source plus target tokens, filler not counted."""

    seconds: float
    memory: int
    """Bytes that the device, or this process on a CPU, has held at most."""

    @property
    def told(self) -> str:
        """All of it in words."""
        what = f"the longest batch, {self.tokens:,} tokens"
        return f"{what}, took {self.seconds:.2f} s and {self.memory / GB:.2f} GB at most"

    def seconds_a_step(self, config: BatchConfig, world: int) -> float:
        """About how long a step takes whose batch is full on both sides."""
        return self.seconds / self.tokens * 2 * config.tokens / world


def preflight(
    run: Path, snapshot: Snapshot, validator: Validator, split: Split, cut: Cut, report: Report
) -> None:
    """Take the longest batch, a validation and a checkpoint through all that training does with them.

    `split` is that of training. Tells what it takes; `UserError` where the run would fail.
    """
    began = time.perf_counter()
    trainer = snapshot.trainer
    config = trainer.config
    tried = try_longest(trainer, split, cut, report)
    if validator.wanted:
        validator.try_out(SENTENCES)
    checkpoint = snapshot.checkpoint()
    if trainer.group.process.first:
        start = time.perf_counter()
        size = try_saving(run, snapshot.identity, checkpoint)
        saving = f"a checkpoint takes {size / GB:.3f} GB and {time.perf_counter() - start:.1f} s"
        disk = _disk(run, config.checkpoints, size)
        told = f"{tried.told}; {saving}, {disk}; {_time(config, tried, cut.world)}"
        report(Note(f"preflight ({time.perf_counter() - began:.1f} s): {told}"))


def _time(config: TrainConfig, tried: Tried, world: int) -> str:
    steps = config.training.max_steps
    return f"{steps:,} steps take about {tried.seconds_a_step(config.batch, world) * steps / 3600:.2g} h"


def try_longest(trainer: Trainer, split: Split, cut: Cut, report: Report) -> Tried:
    """Go forward and backward with the longest pairs that there are, as many as a micro-batch holds.

    Where they do not fit the memory, halves of them are tried, as a step would.
    """
    device = trainer.precision.device
    batch = trainer.config.batch
    pairs = longest_pairs(split, batch, min(cut.max_tokens, 2 * batch.tokens // cut.world))
    while True:
        part = assemble(split, pairs, cut.rounding).to(device)
        tokens = part.real_source_tokens + part.real_target_tokens
        try:
            if cut.rounding:
                trainer.try_out(part)  # compiles, which is not to be counted
            start = time.perf_counter()
            trainer.try_out(part)
            synchronize(device)
            return Tried(tokens, time.perf_counter() - start, most_memory(device))
        except LACKS as error:
            if not out_of_memory(error):
                raise
            if len(pairs) == 1 or trainer.config.training.deterministic:
                raise UserError(
                    f"the longest batch, {tokens:,} tokens in {len(pairs)} pairs, does not fit the memory of "
                    f"{device}; lower batch.longest or --max-tokens-per-device, or take a smaller model."
                ) from error
        pairs = pairs[::2]  # as `Loader.halved` does it in a step
        report(Warned(f"{tokens:,} tokens do not fit the memory of {device}; lower --max-tokens-per-device"))


def longest_pairs(split: Split, config: BatchConfig, max_tokens: int) -> Indices:
    """The longest pairs that training takes, as many as have `max_tokens` together, but one at least."""
    limit = min(config.longest, config.tokens)
    longest = np.zeros(0, dtype=np.int64)
    for start in range(0, len(split), AT_ONCE):
        pairs = np.concatenate((longest, np.arange(start, min(start + AT_ONCE, len(split)))))
        source, target = (
            side.offsets[pairs + 1] - side.offsets[pairs] for side in (split.source, split.target)
        )
        fits = (np.maximum(source, target) <= limit) & (np.minimum(source, target) > 0)
        pairs, tokens = pairs[fits], (source + target)[fits]
        order = np.argsort(-tokens, kind="stable")
        count = max(1, int((np.cumsum(tokens[order]) <= max_tokens).sum()))
        longest = pairs[order[:count]]
    if not len(longest):
        raise UserError(
            f"none of the {len(split):,} training pairs has at most {limit:,} tokens on both sides; "
            "raise longest and tokens, or segment the text into fewer subwords."
        )
    return longest


def checkpoints_at_most(config: CheckpointConfig) -> int:
    """How many checkpoints there are at a time, the one being written among them."""
    return config.keep_last + config.keep_best + 1


def _disk(run: Path, config: CheckpointConfig, size: int) -> str:
    """What the checkpoints will take; `UserError` where there is no room for them."""
    count = checkpoints_at_most(config)
    needed = count * size
    free = shutil.disk_usage(run).free
    if needed > free:
        raise UserError(
            f"{run} will hold {count} checkpoints of {size / GB:.2f} GB, {needed / GB:.2f} GB, but only "
            f"{free / GB:.2f} GB are free; make room, or lower checkpoints.keep_last."
        )
    return f"{count} of them {needed / GB:.2f} of {free / GB:.0f} GB"
