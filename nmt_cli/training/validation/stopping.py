"""Decides from the validations so far when a run ends early, and when the plateau schedule lowers the rate.

A checkpoint stores the validations, so there is no other state to restore.
"""

import math
from collections.abc import Mapping
from itertools import accumulate

from nmt_cli.data.dataset import Dataset
from nmt_cli.errors import UserError
from nmt_cli.training.config import TrainConfig

SMALLER_IS_BETTER = ("nll",)

Judged = Mapping[str, Mapping[str, float]]
"""The metrics of the first validation set, by step and by name of the metric."""


def patience_ended(config: TrainConfig, judged: Judged) -> bool:
    """Return whether validation.metric did not improve in the last validation.patience validations. If
    patience is 0, or there were fewer validations, return False."""
    patience = config.validation.patience
    if not patience:
        return False
    latest = improvements(config, judged, after=0)[-patience:]
    return len(latest) == patience and not any(latest)


def plateaus(config: TrainConfig, judged: Judged) -> int:
    """Return the number of plateaus: schedule.patience validations in a row without improvement of
    validation.metric. Count only validations after warm-up. After each plateau, start again from 0."""
    count = waited = 0
    for better in improvements(config, judged, after=config.schedule.warmup):
        waited = 0 if better else waited + 1
        if waited == config.schedule.patience:
            count, waited = count + 1, 0
    return count


def refuse_unwatchable(config: TrainConfig, dataset: Dataset) -> None:
    """Raise `UserError` if patience or plateau is on, but the dataset has no validation set."""
    if config.watches and not any(split.role == "valid" for split in dataset.splits.values()):
        raise UserError(
            f"{dataset.folder} has no validation set, so validation.patience and the plateau schedule have "
            "nothing to watch. Make the dataset with --valid."
        )


def improvements(config: TrainConfig, judged: Judged, after: int) -> list[bool]:
    """Return for each validation after step `after` whether its validation.metric is the best so far. Ignore
    validations up to `after`. The first value counts as the best. An equal value or nan does not."""
    metric = config.validation.metric
    sign = -1 if metric in SMALLER_IS_BETTER else 1
    values = [sign * measured[metric] for step, measured in judged.items() if int(step) > after]
    bests = accumulate(values, max, initial=-math.inf)
    return [value > best for value, best in zip(values, bests, strict=False)]
