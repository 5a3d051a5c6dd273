"""What happens in a run, for whoever shows it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nmt_cli.training.judging.validation import Judgement


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth a line."""

    text: str


@dataclass(frozen=True, slots=True)
class Warned:
    """Something went wrong, and the run goes on."""

    text: str


@dataclass(frozen=True, slots=True)
class Doing:
    """What the run is at, told at every step; nothing is measured for it."""

    what: Literal["training", "validating", "saving"]
    step: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Some steps were taken; the values are means over them."""

    step: int
    max_steps: int
    epoch: int
    loss: float
    nll: float
    learning_rate: float
    tokens_per_second: float
    """Target tokens, filler not counted."""

    seconds: float
    """Since the run began, resumed ones added up."""

    seconds_left: float
    """Until the last step, if the run goes on as it did."""

    waiting: float
    """Share of the time spent waiting for data."""

    filler: float
    """Share of the tokens that were filler."""

    skipped: int
    """Steps that were left out because their loss or gradient was not finite."""

    memory: int
    """Bytes that the device, or this process on a CPU, has held at most."""

    bleu: tuple[float, float] | None
    """The newest and the best on the first validation set, resumed parts of the run included."""


@dataclass(frozen=True, slots=True)
class Validated:
    """The model was judged."""

    step: int
    judgements: Sequence[Judgement]
    best: bool
    """Whether it was better than ever before."""

    seconds: float
    """How long it took."""

    decoded: str = "weights"
    """What was judged: the weights themselves, or their moving average (ema)."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint was written."""

    step: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Spent:
    """What the whole run has cost, resumed parts included."""

    model_flops: float
    """Operations of the model's matrix products."""

    hours: float
    device_hours: float
    """Hours x devices; where the number of devices changed on the way, each part counts with its own."""


Event = Note | Warned | Doing | Progress | Validated | Saved | Spent

Report = Callable[[Event], None]
