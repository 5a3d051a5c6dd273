"""Fixtures of the training tests: settings of a model that trains quickly, and runs on `toy`."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
import torch

from nmt_cli import config as settings
from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.data.dataset import TOKENIZERS, Dataset, open_dataset
from nmt_cli.text.tokenizers import load_tokenizers
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.setup import start as start_module
from nmt_cli.training.setup.dry_run import Forecast, forecast
from nmt_cli.training.setup.run import TrainingRun
from nmt_cli.training.setup.start import start
from nmt_cli.training.step.distributed import Process
from nmt_cli.training.tracking.events import Doing, Event, Report
from tests.checks import refusal
from tests.scoring.neural.conftest import write_comet
from tests.scoring.neural.models import OPTIONS, write_encoder
from tests.training.runs import Complaint, Go, NewRun, Planned, Tiny

TINY = (
    *("model.width=16", "model.feed_forward=32", "model.heads=2"),
    *("model.encoder_layers=1", "model.decoder_layers=1"),
    *("model.residual_dropout=0.0",),
    *("batch.tokens=400", "training.max_steps=4", "validation.every_steps=0"),
    "training.precision=fp32",  # "auto" gives bf16 on some CPUs, with larger errors
)

SINGLE = Process()


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use one thread, since a run sets the threads of its process, which all tests share."""
    monkeypatch.setattr(start_module, "default_threads", lambda processes: 1)


@pytest.fixture(scope="session")
def tiny() -> Tiny:
    """Return `tiny("section.key=value", ...)`, which returns settings of a tiny model for four steps."""
    return lambda *assignments: settings.read(TrainConfig, assignments=[*TINY, *assignments])


@pytest.fixture(scope="session")
def dataset(toy_dataset: Path) -> Dataset:
    """Return the dataset in `toy_dataset`."""
    return open_dataset(toy_dataset)


@pytest.fixture(scope="session")
def identity(toy_dataset: Path, tiny: Tiny) -> Identity:
    """Return the identity of the tiny model for `toy_dataset`."""
    return Identity(tiny().model, load_tokenizers(toy_dataset / TOKENIZERS), {})


@pytest.fixture(scope="session")
def comet_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a COMET model with random weights, which needs sources and references."""
    folder = tmp_path_factory.mktemp("comet") / "tiny-comet"
    write_encoder(folder.parent / "encoder")
    write_comet(folder, OPTIONS["comet-20"], folder.parent / "encoder")
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the run folder in which `go` trains."""
    return tmp_path / "run"


@pytest.fixture
def go(run: Path, toy_dataset: Path, tiny: Tiny) -> Go:
    """Return `go("section.key=value", ...)`, which trains or resumes `run`. It returns whether the run is
    complete, and the run's events. The run is asked to stop in step `stop_at`."""

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

        config, cpu = tiny(*assignments), torch.device("cpu")
        run = TrainingRun(out, open_dataset(dataset), config, Process(), cpu, [both])
        return start(run, stop_wanted), events

    return go


@pytest.fixture
def new_run(run: Path, dataset: Dataset, tiny: Tiny) -> NewRun:
    """Return `new_run("section.key=value", ...)`, which returns a run in `run` that has not started."""

    def new_run(
        *assignments: str,
        process: Process = SINGLE,
        device: str = "cpu",
        readers: Sequence[Callable[[Event], None]] = (),
    ) -> TrainingRun:
        return TrainingRun(run, dataset, tiny(*assignments), process, torch.device(device), [*readers])

    return new_run


@pytest.fixture
def planned(new_run: NewRun) -> Planned:
    """Return `planned("section.key=value", ...)`, which forecasts what `go` would do."""

    def planned(*assignments: str, devices: int = 1, report: Report = lambda event: None) -> Forecast:
        return forecast(new_run(*assignments, readers=[report]), devices)

    return planned


@pytest.fixture
def complaint(go: Go) -> Complaint:
    """Return a function that calls `go` and returns the message of its error."""
    return partial(refusal, go)
