"""COMET in validation: logged, watched and selected by like the other metrics."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from threading import Barrier
from typing import Any, cast

import pytest
import torch

from nmt_cli.checkpoints.finding import checkpoints
from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.data.dataset import Dataset, raw_lines
from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from nmt_cli.scoring.neural.comet import Comet
from nmt_cli.training.config import ValidationConfig
from nmt_cli.training.step.distributed import Group, Process
from nmt_cli.training.step.trainer import MixedPrecision
from nmt_cli.training.tracking.curves_svg import write_curves
from nmt_cli.training.tracking.events import Validated
from nmt_cli.training.validation.judge import Judge, load_comet
from nmt_cli.training.validation.selection import try_all, winner
from tests.checks import refusal
from tests.scoring.neural.conftest import write_comet
from tests.scoring.neural.models import OPTIONS
from tests.training.runs import Complaint, Go, Planned, content_of, lines_of, timeless
from tests.training.validation.test_judge import Thread

CPU = torch.device("cpu")
LEARN = ("schedule.warmup=2", "schedule.factor=4.0", "training.max_steps=6", "validation.every_steps=2")


def by_comet(folder: Path) -> tuple[str, ...]:
    return (*LEARN, "validation.metric=comet", f"validation.metric_model={folder}")


def test_scores_are_those_of_the_translations_and_decide_which_checkpoint_is_best(
    go: Go, run: Path, dataset: Dataset, comet_folder: Path
) -> None:
    _, events = go(*by_comet(comet_folder))
    valid = dataset.splits["dev"]
    sources, references = (list(raw_lines(dataset, valid, side)) for side in ("source", "target"))
    comet, expected = Comet(comet_folder, "cpu"), dict[int, float]()
    for event in events:
        if isinstance(event, Validated):
            (judgement,) = event.judgements
            expected[event.step] = fmean(comet.score(sources, list(judgement.translations), references))
    lines = [line for line in lines_of(run) if "valid" in line]
    assert {line["step"]: line["comet"] for line in lines} == pytest.approx(expected, abs=1e-5)
    assert len(set(expected.values())) == 3
    assert {line["signatures"]["comet"] for line in lines} == {comet.signature(1)}
    assert (run / "best").resolve().name == f"step-{max(expected, key=expected.__getitem__):08}"
    (shown,) = content_of(run / "report.html")["validations"]
    assert shown["scores"]["comet"] == pytest.approx([*expected.values()], abs=1e-4)
    write_curves(run, run / "curves.svg")
    assert "Validation COMET" in (run / "curves.svg").read_text()


def test_a_resumed_run_equals_one_without_interruption(
    go: Go, run: Path, tmp_path: Path, comet_folder: Path
) -> None:
    go(*by_comet(comet_folder), out=tmp_path / "whole")
    go(*by_comet(comet_folder), stop_at=3)
    go(*by_comet(shutil.copytree(comet_folder, tmp_path / "renamed")))
    whole, resumed = (timeless(folder) for folder in (tmp_path / "whole", run))
    names = [line.pop("signatures")["comet"].split("|")[0] for line in resumed if "valid" in line]
    assert names == ["comet:tiny-comet", "comet:renamed", "comet:renamed"]
    for line in whole:
        line.pop("signatures", None)
    assert resumed == whole


def test_patience_watches_it(go: Go, run: Path, comet_folder: Path) -> None:
    still = ("schedule.kind=constant", "schedule.peak=1e-30", "schedule.warmup=0", "schedule.factor=1.0")
    complete, _ = go(*by_comet(comet_folder), *still, "validation.patience=1")
    assert complete
    assert max(checkpoints(run)) == 4


def test_any_metric_logs_it_if_there_is_a_model(go: Go, run: Path, comet_folder: Path) -> None:
    go(*LEARN, f"validation.metric_model={comet_folder}")
    assert ["comet" in line for line in lines_of(run) if "valid" in line] == [True] * 3


def test_a_wrong_folder_is_reported_before_anything_is_written(
    complaint: Complaint, run: Path, tmp_path: Path, planned: Planned
) -> None:
    expected = f"validation.metric_model: {tmp_path / 'no'} has no hparams.yaml. Give a folder with "
    assert expected in complaint(*by_comet(tmp_path / "no"))
    assert not run.exists()
    assert expected in refusal(planned, *by_comet(tmp_path / "no"))
    message = complaint(*LEARN, "validation.metric=comet")
    assert "validation.metric=comet needs the folder of a COMET model. Set validation.metric_model" in message


def test_a_run_does_not_resume_with_another_model(
    go: Go, run: Path, complaint: Complaint, tmp_path: Path, comet_folder: Path
) -> None:
    go(*by_comet(comet_folder), stop_at=3)
    write_comet(tmp_path / "other", OPTIONS["comet-22"], comet_folder.parent / "encoder")
    before = lines_of(run)
    message = complaint(*by_comet(tmp_path / "other"))
    assert f"{run} was validated with another COMET model (comet:tiny-comet|refs:1|sha256:" in message
    assert "Set validation.metric_model to that model, or choose another --out." in message
    assert lines_of(run) == before


class Ranks(Thread):
    def from_first(self, value: Any) -> Any:
        return self.gather(value)[0]


def test_the_first_rank_computes_it_for_all(dataset: Dataset, identity: Identity, comet_folder: Path) -> None:
    config = ValidationConfig(metric_model=str(comet_folder))
    torch.manual_seed(4)
    model, translate = identity.build().eval(), TranslateConfig(search=SearchConfig(beam=1))
    precision, alone = MixedPrecision("fp32", CPU), Group(Process(), CPU, 1.0)
    judge = Judge(dataset, identity.tokenizers, config, translate, alone, precision, load_comet(config))
    valid, values, barrier = dataset.splits["dev"], [None] * 2, Barrier(2)
    judges = [
        replace(judge, group=cast(Group, Ranks(Process(rank, 2), values, barrier)), comet=comet)
        for rank, comet in enumerate((judge.comet, None))
    ]
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda each: each.judge(model, valid), judges)
    whole = judge.judge(model, valid)
    assert first.scores == second.scores == whole.scores
    assert first.lengths == second.lengths == whole.lengths
    for scores in (first.scores, *(one.scores for one in first.lengths)):
        assert [score.metric for score in scores] == ["bleu", "chrf", "comet"]


def test_the_model_is_on_the_device_only_while_it_scores(comet_folder: Path) -> None:
    comet = Comet(comet_folder, "cpu")
    expected = comet.score(["a"], ["b"], ["c"])
    with comet.on(torch.device("meta")), pytest.raises(RuntimeError, match="meta tensors"):
        comet.score(["a"], ["b"], ["c"])
    assert comet.score(["a"], ["b"], ["c"]) == expected


@pytest.mark.parametrize("given", [True, False], ids=["by option", "by the run"])
def test_averages_are_selected_by_it(go: Go, run: Path, comet_folder: Path, given: bool) -> None:
    go(*(LEARN if given else by_comet(comet_folder)), "checkpoints.every_steps=1")
    trials = try_all(run, CPU, lambda trial: None, *(("comet", comet_folder) if given else ()))
    scores = [{score.metric: score.value for score in trial.judgements[0].scores} for trial in trials]
    assert [trial.score for trial in trials] == [each["comet"] for each in scores]
    assert len({trial.score for trial in trials}) > 2
    won = winner(trials)
    assert (won.metric, won.score) == ("comet", max(each["comet"] for each in scores))
