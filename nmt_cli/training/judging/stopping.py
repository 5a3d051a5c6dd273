"""Whether validation still gets better: what ends a run early, and what lowers the plateau schedule's rate.

Both follow from the validations so far, which a checkpoint keeps; there is nothing else to restore.
"""

import math
from collections.abc import Mapping, Sequence

from nmt_cli.data.dataset import Dataset
from nmt_cli.errors import UserError
from nmt_cli.training.config import TrainConfig, ValidationConfig
from nmt_cli.training.judging.validation import Judgement

SMALLER_IS_BETTER = ("nll", "perplexity", "word-perplexity")

History = Mapping[str, Mapping[str, float]]
"""What the first validation set said, by step and by metric."""


def measures(judgement: Judgement) -> dict[str, float]:
    """Every metric of a judgement, by the name that `validation.watched` knows."""
    losses = {
        "nll": judgement.nll,
        "perplexity": judgement.perplexity,
        "word-perplexity": judgement.word_perplexity,
    }
    return losses | {score.metric: score.value for score in judgement.scores}


def watched_metric(config: ValidationConfig) -> str:
    """The metric that has to improve."""
    return config.metric if config.watched == "metric" else config.watched


def improvements(values: Sequence[float], least: float) -> list[bool]:
    """Whether each value is larger, by at least `least`, than the last one that was; the first always is."""
    best, told = -math.inf, []
    for value in values:
        told.append(value > best and value - best >= least)
        best = value if told[-1] else best
    return told


def patience_ended(config: TrainConfig, history: History) -> bool:
    """Whether so many validations brought no improvement that the run is over."""
    patience = config.validation.patience
    if not patience:
        return False
    latest = _improvements(config, history, behind=0)[-patience:]
    return len(latest) == patience and not any(latest)


def plateaus(config: TrainConfig, history: History) -> int:
    """How many times in a row of validations behind the warm-up the plateau schedule lost its patience."""
    found = waited = 0
    for better in _improvements(config, history, behind=config.schedule.warmup):
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


def _improvements(config: TrainConfig, history: History, behind: int) -> list[bool]:
    metric = watched_metric(config.validation)
    sign = -1 if metric in SMALLER_IS_BETTER else 1
    values = [sign * measured[metric] for step, measured in history.items() if int(step) > behind]
    return improvements(values, config.validation.least_improvement)
