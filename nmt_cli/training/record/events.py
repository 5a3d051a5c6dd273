"""What happens in a run, for its readers: the terminal, the HTML report, TensorBoard.

A reader is a function of one event. It has from the events what it shows, and is never asked for anything.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

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
class Logged:
    """Steps or validations were written to the log."""

    lines: Sequence[Mapping[str, Any]]
    """As `log.jsonl` has them; what was not finite is None."""


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


State = Literal["training", "stopped", "done"]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the run stands, told after each validation and at the end, for reports of the whole run."""

    state: State
    spent: Spent
    seconds_left: float
    """Until the last step, if the run goes on as it did."""


Event = Note | Warned | Doing | Logged | Progress | Validated | Saved | Standing | Spent

Report = Callable[[Event], None]


def to_each(readers: Sequence[Report]) -> Report:
    """A report that tells every reader, in this order."""

    def report(event: Event) -> None:
        for reader in readers:
            reader(event)

    return report
