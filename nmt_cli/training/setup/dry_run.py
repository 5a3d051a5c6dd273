"""Describes a run before it starts: the steps, memory, disk space and time that it will need."""

import shutil
from dataclasses import dataclass

import numpy as np

from nmt_cli.data.batching.batch import MicroBatch
from nmt_cli.data.batching.loader import Cut, prepare
from nmt_cli.data.batching.planner import BatchPlan
from nmt_cli.data.batching.schedule import GlobalBatch
from nmt_cli.data.dataset import Split
from nmt_cli.model.cost import parameters, training_flops
from nmt_cli.runtime.atomic import resolved
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.progress import Position, interval_in_words
from nmt_cli.training.setup.build import build_trainer, chosen_kernels, warn_if_slow
from nmt_cli.training.setup.checks import ALONE, TOGETHER, check
from nmt_cli.training.setup.deterministic import repeatable
from nmt_cli.training.setup.preflight import checkpoints_at_most, estimate
from nmt_cli.training.setup.resume import checkpoint_to_take, step_to_resume, take
from nmt_cli.training.setup.run import TrainingRun
from nmt_cli.training.setup.trial import LongestBatch, first_cut, try_longest
from nmt_cli.training.step.distributed import Process
from nmt_cli.training.step.flat import trained
from nmt_cli.training.step.schedule import SHORT_WARMUP, long_warmup, warmup_steps
from nmt_cli.training.tracking.events import Note, Warned

SAMPLED = 100
"""Maximum number of batches that are cut into micro-batches to measure their filler."""

FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Epoch:
    """The batches of the first epoch. With mixed corpora, this is an epoch of the corpus `of`."""

    batches: int
    pairs: int
    dropped: int
    source_tokens: int
    target_tokens: int
    of: str
    """The corpus whose epoch it is. "" if corpora are not mixed."""

    micro_batches: float
    """Mean number of micro-batches of a step on one device."""

    filler: float
    """Fraction of the tokens in micro-batches that are filler."""


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk space that the checkpoints of a run need, in bytes."""

    checkpoint: int
    """Size of one checkpoint."""

    count: int
    """Maximum number of checkpoints at a time."""

    free: int
    """Free space on the disk of the run folder."""

    interval: str
    """When checkpoints are saved, such as "every 10 minutes"."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast of a run: its steps, memory, disk space, operations and time."""

    parameters: int
    trained: int
    """Parameters that are not frozen."""

    epoch: Epoch
    steps: int
    """Steps of the whole run, as far as its settings determine them."""

    warmup: int
    """Steps of warm-up, estimated if hours end it."""

    weights_memory: int
    """Bytes on a device for weights, gradients and the optimiser."""

    trial: LongestBatch
    disk: Disk
    flops: float
    """Operations of the model's matrix products in the whole run."""

    seconds: float
    """Duration of the whole run, estimated from the longest batch."""

    validation: str
    """When the run validates, such as "every 2 steps". Empty without validation."""


def forecast(run: TrainingRun, devices: int) -> Forecast:
    """Describe what a start of `run` on `devices` devices would do. Nothing is trained or written.

    This process is the only one. It makes the checks of a start, and tries the longest batch on its own
    device. Notes are reported, and so is a warning of a warm-up that is too long. Raise `UserError` if the
    run would not start, or if a pair does not fit the memory.
    """
    check(run, ALONE)
    check(run, TOGETHER)
    config = run.config
    if step := step_to_resume(run):
        run.report(Note(f"{run.folder} has {step:,} steps of this plan already"))
    to_take = None if step else checkpoint_to_take(run)
    warn_if_slow(run, devices)
    with repeatable(run), chosen_kernels(run):
        trainer = build_trainer(run, fresh=not step)
        position = take(run, to_take, trainer) if to_take else Position()
        cut = first_cut(config, run.device, Process(world=devices))
        trial = try_longest(trainer, run.train_set, cut, run.report)
    epoch = _epoch(run.train_set, run.plan, trial.cut)
    steps, seconds = estimate(run, trial, position, epoch.batches)
    if problem := long_warmup(config, position.step + steps):
        run.report(Warned(problem))
    count, trained_count = parameters(trainer.model), sum(p.numel() for p in trained(trainer.model))
    state_count = sum(tensor.numel() for tensor in trainer.optimizer.tensors().values())
    # The moving average is a copy of all weights.
    size = FLOAT_BYTES * (count + state_count + count * bool(config.optimizer.ema))
    # A dry run makes no folder, so the run folder and its parents may be missing.
    existing = next(
        folder for folder in (resolved(run.folder), *resolved(run.folder).parents) if folder.is_dir()
    )
    count_at_most, free = checkpoints_at_most(run), shutil.disk_usage(existing).free
    tokens = epoch.source_tokens / epoch.batches, epoch.target_tokens / epoch.batches
    vocabulary = len(run.tokenizers.target.vocabulary)
    return Forecast(
        parameters=count,
        trained=trained_count,
        epoch=epoch,
        steps=steps,
        warmup=_warmup(config, steps, seconds),
        weights_memory=size + FLOAT_BYTES * trained_count,
        trial=trial,
        disk=Disk(size, count_at_most, free, interval_in_words(config.checkpoints)),
        flops=steps * config.loss.draws * training_flops(config.model, vocabulary, *map(round, tokens)),
        seconds=seconds,
        validation=interval_in_words(config.validation) if run.dataset.valid_sets else "",
    )


def _warmup(config: TrainConfig, steps: int, seconds: float) -> int:
    """Return the estimated steps of warm-up in a run of `steps` steps and `seconds` seconds."""
    warmup = warmup_steps(config.schedule, config.training.max_steps)
    if not config.is_timed or not seconds:
        return warmup
    return min(warmup, int(SHORT_WARMUP * 3600 * config.training.max_hours * steps / seconds))


def _epoch(split: Split, plan: BatchPlan, cut: Cut) -> Epoch:
    """Plan the whole first epoch, and return its numbers.

    To measure filler, up to `SAMPLED` batches of the first shard, evenly spread, are cut into micro-batches
    by `cut`.
    """
    batches = pairs = dropped = 0
    tokens = [0, 0]
    parts: list[MicroBatch] = []
    for number in range(plan.shards(0)):
        shard = plan.shard(split, 0, number)
        batches, pairs, dropped = batches + len(shard), pairs + len(shard.pairs), dropped + shard.dropped
        for side, lengths in enumerate(split.lengths(shard.pairs)):
            tokens[side] += int(lengths.sum())
        if number == 0:  # shards are alike, and one is enough to measure filler
            sampled = np.unique(np.linspace(0, len(shard) - 1, min(SAMPLED, len(shard))).astype(int)).tolist()
            for i in sampled:
                parts += prepare(split, GlobalBatch(0, i, shard.batch(i), 0), cut).micro_batches
    filler = sum(part.filler for part in parts)
    real = sum(part.real_source_tokens + part.real_target_tokens for part in parts)
    return Epoch(
        batches=batches,
        pairs=pairs,
        dropped=dropped,
        source_tokens=tokens[0],
        target_tokens=tokens[1],
        of=plan.counted,
        micro_batches=len(parts) / len(sampled),
        filler=filler / (filler + real),
    )
