"""All that a run will do, tried once before its first step, so that one that can't succeed fails at once.

It leaves no trace: no weight changes, no file stays, and every step seeds its own random numbers.
"""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nmt_cli.checkpoints.run_folder import try_saving
from nmt_cli.data.batching.batch import MicroBatch, assemble
from nmt_cli.data.batching.loader import Cut
from nmt_cli.data.batching.plan import Indices
from nmt_cli.data.config import BatchConfig
from nmt_cli.data.dataset import Split
from nmt_cli.errors import UserError
from nmt_cli.runtime.devices import synchronize
from nmt_cli.runtime.memory import LACKS, most_memory, out_of_memory
from nmt_cli.training.clock import left
from nmt_cli.training.config import CheckpointConfig, TrainConfig
from nmt_cli.training.step.trainer import Trainer
from nmt_cli.training.tracking.events import Note, Report, Warned
from nmt_cli.training.tracking.saver import Snapshot
from nmt_cli.training.validation.validator import Validator
from nmt_cli.units import duration, size

AT_ONCE = 1 << 20
SENTENCES = 8
"""As many are translated, the longest of each set."""

SECONDS_TO_REPEAT = 120
"""A batch that took longer at first is not measured a second time."""


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
        return f"{what}, took {duration(self.seconds)} and {size(self.memory)} at most"


def preflight(
    run: Path, snapshot: Snapshot, validator: Validator, split: Split, cut: Cut, report: Report
) -> None:
    """Try the longest batch, a validation and a checkpoint, and report what they and the run will take.

    Raises `UserError` if the run would fail.
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
        written = try_saving(run, snapshot.identity, checkpoint)
        saving = f"a checkpoint takes {size(written)} and {duration(time.perf_counter() - start)}"
        disk = _disk(run, config.checkpoints, written)
        steps, seconds = estimate(split, config, tried, cut.world)
        told = f"{tried.told}; {saving}, {disk}; {steps:,} steps take about {duration(seconds)}"
        report(Note(f"preflight ({duration(time.perf_counter() - began)}): {told}"))


def estimate(
    split: Split, config: TrainConfig, tried: Tried, devices: int, epoch_steps: int = 0
) -> tuple[int, float]:
    """Estimate the steps and the seconds of a run on `split`, without validation.

    `epoch_steps` is the number of steps of an epoch, 0 if no epoch was planned yet.
    """
    source, target = (int(side.offsets[-1]) for side in (split.source, split.target))
    longer = max(source, target)
    # A batch is full on the longer side.
    tokens = min(config.batch.tokens, longer) * (source + target) / longer
    pace = tried.seconds / tried.tokens * tokens / devices
    return left(config.training, pace, epoch_steps=epoch_steps or longer / config.batch.tokens)


def try_longest(trainer: Trainer, split: Split, cut: Cut, report: Report) -> Tried:
    """Go forward and backward with the longest pairs of `split`, up to the tokens of a micro-batch.

    Pairs that do not fit the memory are halved, as a step does it. The time is that of the second pass: the
    first one compiles kernels and allocates memory.
    """
    device = trainer.precision.device
    batch = trainer.config.batch
    pairs = longest_pairs(split, batch, min(cut.max_tokens, 2 * batch.tokens // cut.world))
    while True:
        part = assemble(split, pairs, cut.rounding).to(device)
        tokens = part.real_source_tokens + part.real_target_tokens
        try:
            seconds = _timed(trainer, part)
            if cut.rounding or seconds <= SECONDS_TO_REPEAT:
                seconds = _timed(trainer, part)
            return Tried(tokens, seconds, most_memory(device))
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


def _timed(trainer: Trainer, part: MicroBatch) -> float:
    start = time.perf_counter()
    trainer.try_out(part)
    synchronize(trainer.precision.device)
    return time.perf_counter() - start


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


def _disk(run: Path, config: CheckpointConfig, each: int) -> str:
    """Describe the space that the checkpoints will take. Raises `UserError` if there is less."""
    count = checkpoints_at_most(config)
    needed = count * each
    free = shutil.disk_usage(run).free
    if needed > free:
        raise UserError(
            f"{run} will hold {count} checkpoints of {size(each)}, {size(needed)} in total, but only "
            f"{size(free)} are free; make room, or lower checkpoints.keep_last."
        )
    return f"{count} of them {size(needed)} of {size(free)} free"
