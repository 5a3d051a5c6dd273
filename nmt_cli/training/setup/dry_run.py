"""The forecast of a run: what it would do and take, found without training or writing anything."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from nmt_cli.data.batching.loader import Cut, prepare
from nmt_cli.data.batching.mixed_plan import MixedPlan, mixed_plan
from nmt_cli.data.batching.plan import Shard, plan_shard, shard_count
from nmt_cli.data.batching.schedule import GlobalBatch
from nmt_cli.data.config import BatchConfig
from nmt_cli.data.dataset import TRAIN, Split, open_dataset
from nmt_cli.model.cost import parameters, training_flops
from nmt_cli.runtime.atomic import resolved
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.setup.build import build_trainer, cut_for, identity_of, warn_if_crowded
from nmt_cli.training.setup.deterministic import repeatable
from nmt_cli.training.setup.preflight import Tried, checkpoints_at_most, estimate, try_longest
from nmt_cli.training.setup.resume import refuse_going_on
from nmt_cli.training.setup.run import refuse_unfit
from nmt_cli.training.step.distributed import Group, Process
from nmt_cli.training.step.flat import trained
from nmt_cli.training.tracking.events import Note, Report

SAMPLED = 100
"""Batches that are cut to see how much filler they have."""

FLOAT = 4


@dataclass(frozen=True, slots=True)
class Epoch:
    """The first epoch's batches."""

    batches: int
    pairs: int
    dropped: int
    source_tokens: int
    target_tokens: int
    of: str
    """The corpus whose epoch it is, where corpora are mixed."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run would do and take."""

    parameters: int
    trained: int
    """Those that are not frozen."""

    epoch: Epoch
    steps: int
    """Of the whole run, as far as its settings tell."""

    micro_batches: float
    """Of a step on a device."""

    filler: float
    """Share of the tokens that are worked on."""

    weights_memory: int
    """Bytes of a device for weights, gradients and the optimiser."""

    longest: Tried
    checkpoint: int
    """Bytes of one."""

    checkpoints: int
    """How many there are at a time, at most."""

    free: int
    """Bytes on the disk of the run folder."""

    flops: float
    """Operations of the model's matrix products in the whole run."""

    seconds: float
    """Of the whole run, by the time that the longest batch took."""


def forecast(
    dataset_folder: Path, run: Path, config: TrainConfig, devices: int, device: torch.device, report: Report
) -> Forecast:
    """Forecast what `train` would do on so many devices; `UserError` where it would refuse."""
    dataset = open_dataset(dataset_folder)
    refuse_unfit(dataset, config)
    split, identity = dataset.splits[TRAIN], identity_of(dataset, config)
    if step := refuse_going_on(run, config, identity):
        report(Note(f"{run} stands at step {step:,} of this plan"))
    warn_if_crowded(device, report, devices)
    alone = Group(Process(), device, timeout=0.0)
    with repeatable(config, device):
        trainer = build_trainer(identity, config, alone, device, report, fresh=True)
        cut = cut_for(config, trainer, Process(world=devices))
        tried = try_longest(trainer, split, cut, report)
    mixed = mixed_plan(dataset, config.batch, config.mixing, config.training.seed)
    epoch = _epoch(split, config, mixed)
    filler, micro_batches = _filler(split, config, cut, mixed)
    count, learnt = parameters(trainer.model), sum(p.numel() for p in trained(trainer.model))
    steps, seconds = estimate(split, config, tried, devices, epoch.batches)
    # Adam keeps two moments of each weight that is trained, and the moving average a copy of all of them.
    size = FLOAT * (count + 2 * learnt) + FLOAT * count * bool(config.optimizer.ema)
    tokens = epoch.source_tokens / epoch.batches, epoch.target_tokens / epoch.batches
    vocabulary = len(identity.tokenizers.target.vocabulary)
    return Forecast(
        parameters=count,
        trained=learnt,
        epoch=epoch,
        steps=steps,
        micro_batches=micro_batches,
        filler=filler,
        weights_memory=size + FLOAT * learnt,
        longest=tried,
        checkpoint=size,
        checkpoints=checkpoints_at_most(config.checkpoints),
        free=shutil.disk_usage(_existing(run)).free,
        flops=steps * training_flops(config.model, vocabulary, *map(round, tokens)),
        seconds=seconds,
    )


def _shards(split: Split, config: BatchConfig, seed: int, mixed: MixedPlan | None) -> Iterator[Shard]:
    if mixed:
        return (mixed.round(split, 0, number) for number in range(mixed.rounds(0)))
    offsets = split.source.offsets, split.target.offsets
    return (
        plan_shard(*offsets, config, seed, 0, number) for number in range(shard_count(len(split), config))
    )


def _epoch(split: Split, config: TrainConfig, mixed: MixedPlan | None) -> Epoch:
    batches = pairs = dropped = 0
    tokens = [0, 0]
    for shard in _shards(split, config.batch, config.training.seed, mixed):
        batches, dropped = batches + len(shard), dropped + shard.dropped
        pairs += len(shard.pairs)
        for side, sentences in enumerate((split.source, split.target)):
            lengths = sentences.offsets[shard.pairs + 1] - sentences.offsets[shard.pairs]
            tokens[side] += int(lengths.sum())
    of = mixed.mixture.names[mixed.mixture.counted] if mixed else ""
    return Epoch(batches, pairs, dropped, tokens[0], tokens[1], of)


def _filler(split: Split, config: TrainConfig, cut: Cut, mixed: MixedPlan | None) -> tuple[float, float]:
    """The share of filler, and how many micro-batches a step has, over some batches of the first shard."""
    shard = next(_shards(split, config.batch, config.training.seed, mixed))
    numbers = np.unique(np.linspace(0, len(shard) - 1, min(SAMPLED, len(shard))).astype(int)).tolist()
    steps = [prepare(split, GlobalBatch(0, number, shard.batch(number), 0), cut) for number in numbers]
    parts = [part for step in steps for part in step.micro_batches]
    filler = sum(part.filler for part in parts)
    real = sum(part.real_source_tokens + part.real_target_tokens for part in parts)
    return filler / (filler + real), len(parts) / len(steps)


def _existing(path: Path) -> Path:
    """The nearest folder above that is there."""
    place = resolved(path)
    return next(folder for folder in (place, *place.parents) if folder.is_dir())
