"""Selects the best of a run by its validation sets: the last or the best checkpoint, or an average."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from nmt_cli.checkpoints.average import Part, mean, read_parts
from nmt_cli.checkpoints.choice import best, newest
from nmt_cli.checkpoints.finding import EMA, WEIGHTS, checkpoints
from nmt_cli.checkpoints.model_folder import Identity, load_weights
from nmt_cli.checkpoints.run_folder import STATE, read_state
from nmt_cli.config import read
from nmt_cli.data.dataset import Dataset, open_dataset
from nmt_cli.errors import UserError
from nmt_cli.training.config import TrainConfig, ValidationMetric
from nmt_cli.training.settings import CONFIG
from nmt_cli.training.step.distributed import Group, Process
from nmt_cli.training.step.trainer import MixedPrecision
from nmt_cli.training.validation.judge import (
    Judge,
    Judgement,
    load_comet,
    translating,
    validation_score,
)

COUNTS = (2, 3, 5, 10, 20, 40)
"""Numbers of newest checkpoints to average, up to the number of checkpoints."""


@dataclass(frozen=True, slots=True)
class Average:
    """The mean of one or more checkpoints, as a candidate for the best model of a run."""

    name: str
    folders: Sequence[Path]
    file: str = WEIGHTS
    """File name of the averaged weights: the weights themselves or their moving average."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The validation results of an average of checkpoints."""

    average: Average
    steps: Sequence[int | None]
    judgements: Sequence[Judgement]
    metric: str
    """The metric that decides."""

    score: float
    """Score by that metric on the first validation set. Larger is better."""


def averages(run: Path) -> list[Average]:
    """Return the candidates, simplest first: the last checkpoint, the best one if it is not the last, and
    averages of the newest n for each n of `COUNTS` for which there are enough.

    At the end come the EMA weights of the last and of the best checkpoint, if they were stored. Raise
    `UserError` if the run has no checkpoint.
    """
    singles = [Average("last", newest(run, 1))]
    try:
        top = best(run, 1)
    except UserError:  # the run never validated
        top = []
    if top and top != singles[0].folders:
        singles.append(Average("best", top))
    ema = [
        replace(single, name=f"EMA of {single.name}", file=EMA)
        for single in singles
        if (single.folders[0] / EMA).exists()
    ]
    counts = [count for count in COUNTS if count <= len(checkpoints(run))]
    return [*singles, *(Average(f"average of {count}", newest(run, count)) for count in counts), *ema]


def try_all(
    run: Path,
    device: torch.device,
    report: Callable[[Trial], None],
    metric: ValidationMetric | None = None,
    metric_model: Path | None = None,
) -> list[Trial]:
    """Validate each candidate of `averages` in fp32, on all validation sets of the run's dataset. Return the
    trials in order.

    report: receives each trial as soon as it is done.
    metric, metric_model: replace the run's settings, unless None.

    Raise `UserError` if the dataset is missing, has changed or has no validation set, if a checkpoint is
    damaged, or if the model of the metric can't be read.
    """
    candidates = averages(run)
    parts: dict[tuple[str, Path], Part] = {}
    for file in {average.file for average in candidates}:
        # Each checkpoint is read once, even if several averages contain it.
        folders = {folder for average in candidates if average.file == file for folder in average.folders}
        parts |= {(file, part.folder): part for part in read_parts(sorted(folders), file)}
    identity = parts[WEIGHTS, candidates[0].folders[0]].identity
    dataset = _dataset(run, candidates[0].folders[0], identity)
    config = read(TrainConfig, run / CONFIG)
    metric = metric or config.validation.metric
    model_folder = str(metric_model or config.validation.metric_model)
    validation = replace(config.validation, sentences=0, metric=metric, metric_model=model_folder)
    single, precision = Group(Process(), device, timeout=0.0), MixedPrecision("fp32", device)
    translate, comet = translating(config), load_comet(validation)
    longest = config.batch.max_length
    judge = Judge(dataset, identity.tokenizers, validation, translate, single, precision, comet, longest)
    model = identity.build().to(device)
    trials = []
    for average in candidates:
        averaged = [parts[average.file, folder] for folder in average.folders]
        load_weights(model, mean(averaged), average.folders[0] / average.file)
        judgements = [judge.judge(model, split) for split in dataset.valid_sets]
        score = validation_score(judgements[0], metric)
        trials.append(Trial(average, [part.step for part in averaged], judgements, metric, score))
        report(trials[-1])
    return trials


def winner(trials: Sequence[Trial]) -> Trial:
    """Return the trial with the best score. Of equal scores, return the first trial, the simplest."""
    return max(trials, key=lambda trial: trial.score)


def _dataset(run: Path, checkpoint: Path, identity: Identity) -> Dataset:
    """Return the dataset at the path in `checkpoint`. Raise `UserError` if it is missing or has no validation
    set. Raise `UserError` too if it differs from the training data in `identity`."""
    stored_path = read_state(checkpoint).get("dataset")
    if stored_path is None:
        raise UserError(f"{checkpoint / STATE} does not name its dataset. Choose with --last or --best.")
    folder = Path(stored_path)
    if not folder.exists():
        raise UserError(
            f"{run} was trained on {folder}, which does not exist any more. "
            "Put the dataset back, or a link to its new path."
        )
    dataset = open_dataset(folder)
    files, trained_on = dataset.manifest["files"], identity.trained_on.get("files", {})
    hashes = {name: files[name]["sha256"] for name in trained_on if name in files}
    fingerprint = dataset.manifest["tokenizer"]["fingerprint"]
    if fingerprint != identity.tokenizers.fingerprint or hashes != trained_on:
        raise UserError(
            f"{folder} has changed since {run} was trained on it, so it cannot validate the run. "
            "Choose with --last or --best."
        )
    if not dataset.valid_sets:
        raise UserError(f"{folder} has no validation set to select by. Choose with --last.")
    return dataset
