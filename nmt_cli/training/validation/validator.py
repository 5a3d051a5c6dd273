"""Validates the model of a run at intervals, and stores the scores in its position.

From these scores follow the end of the run by patience and the rate of the plateau schedule. A checkpoint
stores the scores, so there is no other state to restore.
"""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import accumulate

from nmt_cli.model.transformer import Transformer
from nmt_cli.scoring.config import SMALLER_IS_BETTER
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.progress import Position, interval_ended
from nmt_cli.training.step.ema import Ema
from nmt_cli.training.validation.judge import (
    Judge,
    Judgement,
    longest_lines,
    translated_lines,
    validation_score,
)

Judged = Mapping[str, Mapping[str, float]]
"""The metrics of the first validation set, by step and by name of the metric."""

PLATEAU_VALIDATIONS = 3
"""Validations in a row without improvement that are a plateau of the schedule."""


@dataclass(frozen=True, slots=True)
class Validator:
    """Validates the model of a run at intervals, and stores its scores in the position."""

    config: TrainConfig
    judge: Judge
    model: Transformer
    ema: Ema | None
    """The moving average of the weights, which is validated instead of the weights if it exists."""

    position: Position

    @property
    def enabled(self) -> bool:
        """True if an interval of validation is not 0, and the dataset has a validation set."""
        config = self.config.validation
        return bool(config.every_steps and self.judge.dataset.valid_sets)

    @property
    def done(self) -> bool:
        """True if the position has a score of the last step."""
        return str(self.position.step) in self.position.scores

    @property
    def decoded(self) -> str:
        """The weights to validate: "ema" for the moving average, if the run has one, else "weights"."""
        return "ema" if self.ema else "weights"

    @property
    def plateaus(self) -> int:
        """The number of times that the plateau schedule lowered the learning rate, 0 for other schedules."""
        return plateaus(self.config, self.position.judged) if self.config.schedule.kind == "plateau" else 0

    @property
    def due(self) -> bool:
        """True if validation is on, an interval ended, and the last step was not validated before."""
        ended = interval_ended(self.config.validation, self.position.step)
        return self.enabled and ended and not self.done

    def validate(self) -> list[Judgement]:
        """Validate the model, or its moving average if any, on all sets, and return a judgement per set.
        Store the results of the first set in the position. All ranks call this."""
        with self._decoded():
            judgements = [self.judge.judge(self.model, split) for split in self.judge.dataset.valid_sets]
        score = validation_score(judgements[0], self.config.validation.metric)
        first_set, tokenizer = self.judge.first_set, self.judge.bleu_tokenizer
        self.position.validated(score, judgements[0].metrics, first_set, tokenizer)
        return judgements

    def try_out(self, sentences: int) -> None:
        """Validate on the `sentences` longest of the lines to translate in each set. Store no scores."""
        with self._decoded():
            # The longest lines need the most memory and time, so shorter ones will do as well.
            for split in self.judge.dataset.valid_sets:
                among = translated_lines(self.config.validation, split)
                self.judge.judge(self.model, split, longest_lines(split, sentences, among))

    def _decoded(self) -> AbstractContextManager[None]:
        """Return a context in which the model has its moving average as weights, if there is one."""
        return self.ema.in_place() if self.ema else nullcontext()


def patience_ended(config: TrainConfig, judged: Judged) -> bool:
    """Return whether the last validation.patience validations brought no improvement of validation.metric. It
    is False before there are that many, and without patience."""
    patience = config.validation.patience
    if not patience:
        return False
    latest = improvements(config, judged, after=0)[-patience:]
    return len(latest) == patience and not any(latest)


def plateaus(config: TrainConfig, judged: Judged) -> int:
    """Return how many plateaus the run has had: `PLATEAU_VALIDATIONS` validations in a row without
    improvement of validation.metric.

    Validations during warm-up do not count. After a plateau, counting starts again.
    """
    count = waited = 0
    for better in improvements(config, judged, after=config.schedule.warmup):
        waited = 0 if better else waited + 1
        if waited == PLATEAU_VALIDATIONS:
            count, waited = count + 1, 0
    return count


def improvements(config: TrainConfig, judged: Judged, after: int) -> list[bool]:
    """Return for each validation after step `after` whether its validation.metric is the best of them so far.
    The first one is, unless it is nan. An equal value or nan is not an improvement."""
    metric = config.validation.metric
    sign = -1 if metric in SMALLER_IS_BETTER else 1
    # nan is not larger than any value, so a validation without a score is never the best.
    values = [sign * measured[metric] for step, measured in judged.items() if int(step) > after]
    # The best before each validation: it begins with that before the first one.
    bests = accumulate(values, max, initial=-math.inf)
    return [value > best for value, best in zip(values, bests, strict=False)]
