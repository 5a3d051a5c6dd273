"""The checks before a run: a start and a dry run refuse the same, in the same order, and write nothing."""

import sys
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from nmt_cli.data.guard import DatasetGuard
from nmt_cli.errors import UserError
from nmt_cli.training.setup import run as run_module
from nmt_cli.training.setup import start as start_module
from nmt_cli.training.setup.checks import ALONE, TOGETHER, check
from nmt_cli.training.setup.start import start
from nmt_cli.training.step.distributed import LostContact, Process
from nmt_cli.training.validation import judge as judge_module
from tests.checks import refusal
from tests.training.runs import Complaint, Go, NewRun, Planned, warnings

REFUSED = {
    "precision_exists": (("training.precision=fp16",), "training.precision is fp16, but cpu has only "),
    "positions_suffice": (
        ("model.positions=learned", "model.longest=9", "batch.longest=9"),
        "dev has a sentence of ",
    ),
    "alignments_exist": (("training.guided_alignment=0.1",), "has no alignments for training.guided_alig"),
    "mixture_fits": (("mixing.weights={bitext=1}",), "mixing.weights names bitext, which is not a corpus "),
    "segmentation_changes": (("augment.placeholders=0.5",), "augment.placeholders needs a dataset with symb"),
    "trackers_are_installed": (("training.tensorboard=true",), "training.tensorboard needs TensorBoard, "),
    "metric_fits_the_language": (("validation.metric=paper-bleu",), "validation.metric=paper-bleu can't be "),
    "metric_model_loads": (("validation.metric_model=nowhere",), "validation.metric_model: nowhere has no "),
}
"""Settings that a check refuses, and the start of its message, in the order of the checks."""

CONFLICTS = {("alignments_exist", "segmentation_changes")}
"""Settings that are refused together, before any check."""

PAIRS = [pair for pair in combinations(REFUSED, 2) if pair not in CONFLICTS]


@pytest.fixture(autouse=True)
def _missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let TensorBoard be missing, and no language be one that the Moses tokeniser can split."""
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setattr(judge_module, "LANGUAGES", ())


@pytest.mark.parametrize("name", REFUSED)
def test_a_start_and_a_dry_run_refuse_the_same_before_anything_is_written(
    complaint: Complaint, planned: Planned, run: Path, name: str
) -> None:
    settings, expected = REFUSED[name]
    message = complaint(*settings)
    assert expected in message
    assert refusal(planned, *settings) == message
    assert not run.exists()


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_of_two_problems_the_first_check_reports_its_own(new_run: NewRun, first: str, second: str) -> None:
    run = new_run(*REFUSED[first][0], *REFUSED[second][0])
    assert REFUSED[first][1] in refusal(check, run, [*ALONE, *TOGETHER])


def test_the_checks_have_this_order() -> None:
    assert [one.__name__ for one in (*ALONE, *TOGETHER)] == [
        "precision_exists",
        "positions_suffice",
        "validation_can_be_watched",
        "alignments_exist",
        "mixture_fits",
        "segmentation_changes",
        "trackers_are_installed",
        "metric_fits_the_language",
        "deterministic_size",
        "ranks_agree",
        "metric_model_loads",
    ]


def test_parts_of_a_run_are_computed_once(new_run: NewRun, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counting(name: str) -> None:
        original = getattr(run_module, name)

        def counted(*arguments: Any) -> Any:
            calls.append(name)
            return original(*arguments)

        monkeypatch.setattr(run_module, name, counted)

    parts = ("load_tokenizers", "plan_of", "load_comet", "precision_of", "Group")
    for name in parts:
        counting(name)
    run = new_run("mixing.temperature=2", "training.max_epochs=1")
    assert start(run, lambda: False)
    assert sorted(calls) == sorted(parts)


@pytest.mark.parametrize(("threads", "local_world", "expected"), [(0, 1, 1), (6, 2, 3), (1, 4, 1)])
def test_the_processes_of_a_machine_share_the_threads_which_are_restored(
    new_run: NewRun, monkeypatch: pytest.MonkeyPatch, threads: int, local_world: int, expected: int
) -> None:
    before, during = torch.get_num_threads(), list[int]()

    def look(*_: object) -> None:
        during.append(torch.get_num_threads())
        raise InterruptedError

    monkeypatch.setattr(start_module, "check", lambda run, checks: look() if checks is TOGETHER else None)
    with pytest.raises(InterruptedError):
        start(new_run(process=Process(local_world=local_world)), lambda: False, threads=threads)
    assert during == [expected]
    assert torch.get_num_threads() == before


def test_a_run_without_validation_has_no_warning_about_its_bleu(
    go: Go, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(judge_module, "characters_instead", lambda config, lang: "it is not installed")
    steady = ("schedule.kind=constant", "schedule.warmup=0", "schedule.factor=1.0")
    assert warnings(go(*steady, out=tmp_path / "without")[1]) == []
    with_it = go(*steady, "validation.every_steps=4", out=tmp_path / "with")[1]
    assert warnings(with_it) == ["it is not installed"]


class Faulty:
    """A guard whose dataset has a fault."""

    def __init__(self) -> None:
        self.patience: list[float | None] = []

    def check_contents(self, seconds: float | None) -> None:
        self.patience.append(seconds)
        raise UserError("the dataset has a fault")


@pytest.mark.parametrize(
    ("error", "reported", "patience"),
    [
        (IndexError("an index"), "the dataset has a fault", [None]),
        (UserError("a consequence"), "the dataset has a fault", [start_module.PATIENCE_FOR_REASON]),
        (LostContact("another rank has failed"), "another rank has failed", []),
    ],
    ids=["crash", "error", "lost contact"],
)
def test_a_fault_of_the_dataset_explains_an_error_but_not_a_lost_contact(
    error: Exception, reported: str, patience: list[float | None]
) -> None:
    guard = Faulty()
    with pytest.raises(UserError, match=reported), start_module._blaming_dataset(cast(DatasetGuard, guard)):
        raise error
    assert guard.patience == patience
