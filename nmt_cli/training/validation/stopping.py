"""Whether validation still gets better: what ends a run early, and what lowers the plateau schedule's rate.

Both follow from the validations so far, which a checkpoint keeps; there is nothing else to restore.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

from nmt_cli.data.dataset import Dataset
from nmt_cli.errors import UserError
from nmt_cli.training.config import TrainConfig, ValidationConfig

SMALLER_IS_BETTER = ("nll", "perplexity", "word-perplexity")

Judged = Mapping[str, Mapping[str, float]]
"""What the first validation set said, by step and by metric."""


def watched_metric(config: ValidationConfig) -> str:
    """The metric that has to improve."""
    return config.metric if config.watched == "metric" else config.watched


def improvements(values: Sequence[float]) -> list[bool]:
    """Return whether each value is larger than all values before it.

    The first value is an improvement, an equal value or nan is not.
    """
    bests = accumulate(values, max, initial=-math.inf)
    return [value > best for value, best in zip(values, bests, strict=False)]


def patience_ended(config: TrainConfig, judged: Judged) -> bool:
    """Whether the last validation.patience validations brought no improvement, which ends the run."""
    patience = config.validation.patience
    if not patience:
        return False
    latest = _improvements(config, judged, behind=0)[-patience:]
    return len(latest) == patience and not any(latest)


def plateaus(config: TrainConfig, judged: Judged) -> int:
    """How often schedule.patience validations in a row, those of the warm-up not counted, got no better."""
    found = waited = 0
    for better in _improvements(config, judged, behind=config.schedule.warmup):
        waited = 0 if better else waited + 1
        if waited == config.schedule.patience:
            found, waited = found + 1, 0
    return found


def refuse_unwatchable(config: TrainConfig, dataset: Dataset) -> None:
    """Say before the first step that there is no validation set to watch."""
    if config.watches and not any(split.role == "valid" for split in dataset.splits.values()):
        raise UserError(
            f"{dataset.folder} has no validation set, so validation.patience and the plateau schedule have "
            "nothing to watch; make the dataset with --valid."
        )


def _improvements(config: TrainConfig, judged: Judged, behind: int) -> list[bool]:
    metric = watched_metric(config.validation)
    sign = -1 if metric in SMALLER_IS_BETTER else 1
    values = [sign * measured[metric] for step, measured in judged.items() if int(step) > behind]
    return improvements(values)
