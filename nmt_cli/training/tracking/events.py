"""The events of a run, for readers such as the terminal, the HTML report and TensorBoard.

A reader is a function that is called with each event. It shows only what events contain, and returns nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nmt_cli.training.validation.judge import Judgement


@dataclass(frozen=True, slots=True)
class Note:
    """A message to the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning. The run continues."""

    text: str


@dataclass(frozen=True, slots=True)
class Doing:
    """The current activity of the run, sent at each step, without measurements to wait for."""

    what: Literal["training", "validating", "saving"]
    step: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Logged:
    """Steps or validations were written to the log."""

    lines: Sequence[Mapping[str, Any]]
    """The lines as in `log.jsonl`. Numbers that were not finite are None."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Some steps were taken since the last `Progress` event."""

    step: int
    max_steps: int
    epoch: int
    loss: float
    """Training loss with label smoothing, a mean over the latest steps."""

    nll: float
    """Training loss without label smoothing."""

    learning_rate: float
    tokens_per_second: float
    """Target tokens per second, without filler."""

    seconds: float
    """Duration of the run so far, with its resumed parts."""

    seconds_left: float
    """Estimated seconds until the last step, at the pace of the whole run."""

    waiting: float
    """Fraction of the time spent waiting for data."""

    filler: float
    """Fraction of the tokens that were filler."""

    skipped: int
    """Number of steps since the last event that were left out, as their loss or gradient was not finite."""

    memory: int
    """Peak memory in bytes: of the GPU, or of this process on a CPU."""

    bleu: tuple[float, float] | None
    """Newest and best BLEU on the first validation set. None before the first validation."""

    bleu_on: str = ""
    """The sentences that `bleu` is measured on, if not all of the set: "300 of 1,014 sentences"."""

    epoch_of: str = ""
    """The corpus whose epochs count, if corpora are mixed."""


@dataclass(frozen=True, slots=True)
class Validated:
    """The model was validated."""

    step: int
    judgements: Sequence[Judgement]
    best: bool
    """Whether this is the best validation so far."""

    seconds: float
    """Duration of the validation."""

    decoded: str = "weights"
    """The validated weights: "weights", or their moving average, "ema"."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint was written."""

    step: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of the whole run, with its resumed parts."""

    model_flops: float
    """Operations of the model's matrix products."""

    hours: float
    device_hours: float
    """Hours times devices. Each part of the run counts with its own number of devices."""


State = Literal["training", "stopped", "done"]


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of the run, after each validation and at the end, for reports of the whole run."""

    state: State
    spent: Spent
    seconds_left: float
    """Estimated seconds until the last step, at the pace of the whole run."""


Event = Note | Warned | Doing | Logged | Progress | Validated | Saved | Standing | Spent

Report = Callable[[Event], None]
