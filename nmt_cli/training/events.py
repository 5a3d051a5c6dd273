"""What happens in a run, for whoever shows it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt_cli.training.validation import Judgement


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth a line."""

    text: str


@dataclass(frozen=True, slots=True)
class Warned:
    """Something went wrong, and the run goes on."""

    text: str


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

    waiting: float
    """Share of the time spent waiting for data."""

    filler: float
    """Share of the tokens that were filler."""

    skipped: int
    """Steps that were left out because their loss or gradient was not finite."""


@dataclass(frozen=True, slots=True)
class Validated:
    """The model was judged."""

    step: int
    judgements: Sequence[Judgement]
    best: bool
    """Whether it was better than ever before."""

    seconds: float
    """How long it took."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint was written."""

    step: int
    place: Path


Event = Note | Warned | Progress | Validated | Saved

Report = Callable[[Event], None]
