"""The parts of a run: precision, compilation and warnings about slow settings."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nmt_cli.data.dataset import Dataset
from nmt_cli.errors import UserError
from nmt_cli.runtime.kernels import torch_private
from nmt_cli.training.setup import build
from nmt_cli.training.setup.build import warn_if_slow
from nmt_cli.training.setup.precision import precision_for, precision_in_words
from nmt_cli.training.setup.trial import compiled
from nmt_cli.training.step.trainer import MixedPrecision
from nmt_cli.training.tracking.events import Event
from tests.training.runs import NewRun, Tiny, warnings


def test_a_model_records_the_names_of_its_texts_but_not_their_folders(
    dataset: Dataset, new_run: NewRun
) -> None:
    paths = [file["path"] for part in dataset.manifest["inputs"] for file in part["files"]]
    assert all(Path(path).is_absolute() for path in paths)
    record = new_run().identity.trained_on
    kept = [file["path"] for part in record["inputs"] for file in part["files"]]
    assert kept == [Path(path).name for path in paths]
    assert "/" not in json.dumps(record)


@pytest.mark.parametrize(
    ("setting", "faster", "precision", "words"),
    [
        ("auto", True, "bf16", "bf16 (auto: faster than fp32 on this CPU)"),
        ("auto", False, "fp32", "fp32 (auto: bf16 is not faster on this CPU)"),
        ("fp32", True, "fp32", "fp32"),
        ("bf16", False, "bf16", "bf16"),
    ],
)
def test_precision_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch, setting: str, faster: bool, precision: str, words: str
) -> None:
    monkeypatch.setattr(torch_private, "trains_faster_in_bf16", lambda: faster)
    assert precision_for(setting, torch.device("cpu")) == precision
    assert precision_in_words(setting, MixedPrecision(precision, torch.device("cpu"))) == words


def test_a_cpu_has_no_tf32() -> None:
    with pytest.raises(UserError, match="cpu has only fp32, bf16"):
        precision_for("tf32", torch.device("cpu"))


@pytest.mark.parametrize(("name", "products"), [("tf32", "high"), ("fp32", "highest")])
def test_a_gpu_rounds_the_factors_of_fp32_products_only_with_tf32(
    monkeypatch: pytest.MonkeyPatch, name: str, products: str
) -> None:
    chosen: list[str] = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", chosen.append)
    precision = MixedPrecision(name, torch.device("cuda"))
    precision.autocast()
    assert (chosen, precision.dtype) == ([products], torch.float32)


@pytest.mark.parametrize(
    ("setting", "device", "expected"),
    [("auto", "cpu", False), ("auto", "cuda", True), ("on", "cpu", True), ("off", "cuda", False)],
)
def test_models_are_compiled_if_it_pays_or_if_set(
    tiny: Tiny, setting: str, device: str, expected: bool
) -> None:
    assert compiled(tiny(f'training.compile="{setting}"'), torch.device(device)) is expected


@pytest.fixture
def warned(new_run: NewRun) -> Callable[..., list[str]]:
    """Return a function that returns the warnings about settings that are slow on a device."""

    def warned(*assignments: str, device: str = "cpu", ranks: int = 1) -> list[str]:
        events: list[Event] = []
        warn_if_slow(new_run(*assignments, device=device, readers=[events.append]), ranks)
        return warnings(events)

    return warned


@pytest.mark.parametrize(
    ("precision", "able", "count"), [("bf16", False, 1), ("bf16", True, 0), ("fp32", False, 0)]
)
def test_a_cpu_that_emulates_bf16_is_warned_about(
    warned: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
    precision: str,
    able: bool,
    count: int,
) -> None:
    monkeypatch.setattr(torch_private, "multiplies_bf16", lambda: able)
    texts = warned(f'training.precision="{precision}"')
    assert ["fp32, which is much faster" in text for text in texts] == [True] * count


@pytest.mark.parametrize(("ranks", "device", "count"), [(4, "cpu", 1), (2, "cpu", 0), (4, "cuda", 0)])
def test_more_ranks_than_cores_are_warned_about(
    warned: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
    ranks: int,
    device: str,
    count: int,
) -> None:
    monkeypatch.setattr(build, "available_cores", lambda: 2)
    message = "4 processes share 2 CPU cores, which is slower than --devices 2."
    assert warned(device=device, ranks=ranks) == [message] * count
