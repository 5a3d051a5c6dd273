"""Selecting what to ship of a run: the last or the best checkpoint, or an average, by the validation sets."""

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
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.settings import CONFIG
from nmt_cli.training.step.distributed import Group, Process
from nmt_cli.training.step.trainer import MixedPrecision
from nmt_cli.training.validation.metrics import Judge, Judgement, translating, validation_score

COUNTS = (2, 3, 5, 10, 20, 40)
"""How many of the newest checkpoints are averaged, as far as there are so many."""


@dataclass(frozen=True, slots=True)
class Average:
    """The mean of some checkpoints; a single one is itself."""

    name: str
    folders: Sequence[Path]
    file: str = WEIGHTS
    """Which weights of them: their own, or their moving average."""


@dataclass(frozen=True, slots=True)
class Trial:
    """An average that was judged."""

    average: Average
    steps: Sequence[int | None]
    judgements: Sequence[Judgement]
    metric: str
    """The run's own."""

    score: float
    """By that metric on the first validation set; larger is better."""


def averages(run: Path) -> list[Average]:
    """What a run offers, the simpler before the less simple: last, best, averages of more and more, EMA."""
    there = len(checkpoints(run))
    found = [Average("last", newest(run, 1))]
    try:
        top = best(run, 1)
    except UserError:  # the run never validated
        top = []
    if top and top != found[0].folders:
        found.append(Average("best", top))
    ema = [
        replace(each, name=f"EMA of {each.name}", file=EMA)
        for each in found
        if (each.folders[0] / EMA).exists()
    ]
    counts = [count for count in COUNTS if count <= there]
    return [*found, *(Average(f"average of {count}", newest(run, count)) for count in counts), *ema]


def try_all(run: Path, device: torch.device, report: Callable[[Trial], None]) -> list[Trial]:
    """Judge every average on the validation sets of the run's dataset, in full and in float32.

    Test sets are never looked at. Each trial is reported when it is done; all of them are returned, in order.
    """
    wanted = averages(run)
    parts: dict[tuple[str, Path], Part] = {}
    for file in {average.file for average in wanted}:
        # Each checkpoint is read once, though several averages hold it.
        every = {folder for average in wanted if average.file == file for folder in average.folders}
        parts |= {(file, part.place): part for part in read_parts(sorted(every), file)}
    identity = parts[WEIGHTS, wanted[0].folders[0]].identity
    dataset = _dataset(run, wanted[0].folders[0], identity)
    whole_config = read(TrainConfig, run / CONFIG)
    config = whole_config.validation
    alone = Group(Process(), device, timeout=0.0)
    whole = replace(config, sentences=0)  # the choice is made once, so it is worth all sentences
    translated, precision = translating(whole_config), MixedPrecision("fp32", device)
    judge = Judge(dataset, identity.tokenizers, whole, translated, alone, precision)
    model = identity.build().to(device)
    trials = []
    for average in wanted:
        mine = [parts[average.file, folder] for folder in average.folders]
        load_weights(model, mean(mine), average.folders[0] / average.file)
        judgements = [judge.judge(model, split) for split in judge.sets]
        score = validation_score(judgements[0], config.metric)
        trials.append(Trial(average, [part.step for part in mine], judgements, config.metric, score))
        report(trials[-1])
    return trials


def winner(trials: Sequence[Trial]) -> Trial:
    """The one with the best score; of equals, the first, which is the simplest."""
    return max(trials, key=lambda trial: trial.score)


def _dataset(run: Path, checkpoint: Path, identity: Identity) -> Dataset:
    """The dataset that the run was trained on, with at least one validation set."""
    written = read_state(checkpoint).get("dataset")
    if written is None:
        raise UserError(f"{checkpoint / STATE} does not name its dataset; choose with --last or --best.")
    folder = Path(written)
    if not folder.exists():
        raise UserError(
            f"{run} was trained on {folder}, which is not there any more; "
            "put the dataset back, or a link to where it is now."
        )
    dataset = open_dataset(folder)
    files, trained_on = dataset.manifest["files"], identity.trained_on.get("files", {})
    hashes = {name: files[name]["sha256"] for name in trained_on if name in files}
    fingerprint = dataset.manifest["tokenizer"]["fingerprint"]
    if fingerprint != identity.tokenizers.fingerprint or hashes != trained_on:
        raise UserError(
            f"{folder} was made anew since {run} was trained on it, so it can't judge the run; "
            "choose with --last or --best."
        )
    if not any(split.role == "valid" for split in dataset.splits.values()):
        raise UserError(f"{folder} has no validation set to select by; choose with --last.")
    return dataset
