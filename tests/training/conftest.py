"""What the training tests share: settings of a model that trains in no time, and runs of it on `toy`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli import config as settings
from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.data.dataset import TOKENIZERS, Dataset, open_dataset
from nmt_cli.errors import UserError
from nmt_cli.text.tokenizers import load_tokenizers
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.setup import run as run_module
from nmt_cli.training.setup.run import train
from nmt_cli.training.step.distributed import Process
from nmt_cli.training.tracking.events import Doing, Event

Go = Callable[..., tuple[bool, list[Event]]]

TINY = (
    *("model.width=16", "model.feed_forward=32", "model.heads=2"),
    *("model.encoder_layers=1", "model.decoder_layers=1"),
    *("model.residual_dropout=0.0", "model.embedding_dropout=0.0"),
    *("batch.tokens=400", "training.max_steps=4", "validation.every_steps=0"),
)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run sets the threads of its process, which here is that of all tests."""
    monkeypatch.setattr(run_module, "default_threads", lambda processes: 1)


@pytest.fixture(scope="session")
def tiny() -> Callable[..., TrainConfig]:
    """`tiny("section.key=value", ...)`: settings of a tiny model without dropout, for four steps."""
    return lambda *assignments: settings.read(TrainConfig, assignments=[*TINY, *assignments])


@pytest.fixture(scope="session")
def dataset(toy_dataset: Path) -> Dataset:
    """`toy_dataset`, open."""
    return open_dataset(toy_dataset)


@pytest.fixture(scope="session")
def identity(toy_dataset: Path, tiny: Callable[..., TrainConfig]) -> Identity:
    """The tiny model for `toy_dataset`."""
    return Identity(tiny().model, load_tokenizers(toy_dataset / TOKENIZERS), {})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Where `go` trains."""
    return tmp_path / "run"


@pytest.fixture
def go(run: Path, toy_dataset: Path, tiny: Callable[..., TrainConfig]) -> Go:
    """`go("section.key=value", ...)` trains in `run`, or goes on there; tells what happened.

    Somebody wants it to stop in the step `stop_at`.
    """

    def go(
        *assignments: str,
        dataset: Path = toy_dataset,
        out: Path = run,
        stop_at: int | None = None,
        report: Callable[[Event], None] = lambda event: None,
    ) -> tuple[bool, list[Event]]:
        events: list[Event] = []

        def both(event: Event) -> None:
            events.append(event)
            report(event)

        def stop_wanted() -> bool:
            return any(isinstance(event, Doing) and event.step == stop_at for event in events)

        cpu = torch.device("cpu")
        return train(dataset, out, tiny(*assignments), Process(), cpu, both, stop_wanted), events

    return go


@pytest.fixture
def complaint(go: Go) -> Callable[..., str]:
    """What `go`, called in the same way, says of what is wrong: one line."""

    def complaint(*assignments: str, **arguments: Any) -> str:
        with pytest.raises(UserError) as caught:
            go(*assignments, **arguments)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return complaint
