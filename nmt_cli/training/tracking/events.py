"""What happens in a run, for its readers: the terminal, the HTML report, TensorBoard.

A reader is a function that is called with each event. It shows what events hold and asks nobody else, and
nobody asks a reader for anything.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nmt_cli.training.validation.metrics import Judgement


@dataclass(frozen=True, slots=True)
class Note:
    """A line for people to read."""

    text: str


@dataclass(frozen=True, slots=True)
class Warned:
    """Something went wrong, and the run goes on."""

    text: str


@dataclass(frozen=True, slots=True)
class Doing:
    """What the run is busy with, told at every step, and so without anything that has to be measured."""

    what: Literal["training", "validating", "saving"]
    step: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Logged:
    """Steps or validations were written to the log."""

    lines: Sequence[Mapping[str, Any]]
    """The lines as in `log.jsonl`; numbers that were not finite are None."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Some steps were taken since the last such event."""

    step: int
    max_steps: int
    epoch: int
    loss: float
    """Training loss with label smoothing, as in `History.losses`."""

    nll: float
    """The same without label smoothing."""

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
    """The most bytes held so far: of the GPU's memory, or by this process on a CPU."""

    bleu: tuple[float, float] | None
    """The newest and the best on the first validation set, since the run first began; None before there are
    any."""

    bleu_on: str = ""
    """The sentences that `bleu` is of, if not all of the set: "300 of 1,014 sentences"."""

    epoch_of: str = ""
    """The corpus whose epochs count, where corpora are mixed."""


@dataclass(frozen=True, slots=True)
class Validated:
    """The model was measured on the validation sets."""

    step: int
    judgements: Sequence[Judgement]
    best: bool
    """Whether it was the best of the run so far."""

    seconds: float
    """How long it took."""

    decoded: str = "weights"
    """What was measured: the weights themselves ("weights"), or their moving average ("ema")."""


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
    """One function that passes each event to all `readers`, in this order."""

    def report(event: Event) -> None:
        for reader in readers:
            reader(event)

    return report
