"""BLEU in the parts of a run that find different tokenisers installed: its scores stay comparable."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from nmt_cli.scoring.config import ScoreConfig
from tests.training.runs import Complaint, Go, lines_of, warnings
from tests.training.setup.test_precision import change_state

VALIDATE = ("validation.every_steps=2", "training.max_steps=4")
REASON = "13a is not installed, so validation counts characters (tok:char). For words, run pip install 13a."


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return a machine that has the tokeniser of the target language if `installed`."""
    machine = SimpleNamespace(installed=False)

    def characters_instead(config: ScoreConfig, lang: str) -> str | None:
        return REASON if config.bleu.tokenizer == "auto" and not machine.installed else None

    monkeypatch.setattr("nmt_cli.training.validation.judge.characters_instead", characters_instead)
    return machine


def tokenizers(run: Path) -> list[str]:
    return [line["signatures"]["bleu"].split("|")[3] for line in lines_of(run) if "valid" in line]


def test_a_tokenizer_that_is_installed_later_does_not_change_the_scores_of_a_run(
    go: Go, run: Path, machine: SimpleNamespace
) -> None:
    _, events = go(*VALIDATE, stop_at=3)
    assert warnings(events) == [REASON]
    machine.installed = True
    _, events = go(*VALIDATE)
    assert tokenizers(run) == ["tok:char", "tok:char"]
    assert warnings(events) == []


@pytest.mark.parametrize("version", ["this", "older"])
def test_the_tokenizer_is_kept_without_the_log_or_in_runs_of_older_versions_by_the_log(
    go: Go, run: Path, machine: SimpleNamespace, version: str
) -> None:
    go(*VALIDATE, stop_at=3)
    machine.installed = True
    if version == "this":
        (run / "log.jsonl").unlink()
    else:
        change_state(run, without=("bleu_tokenizer",))
    go(*VALIDATE)
    assert tokenizers(run)[-1] == "tok:char"


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_a_run_that_watches_bleu_does_not_resume_without_its_tokenizer(
    go: Go, run: Path, complaint: Complaint, machine: SimpleNamespace, metric: str
) -> None:
    machine.installed, settings = True, (*VALIDATE, f"validation.metric={metric}")
    go(*settings, stop_at=3)
    machine.installed, before = False, lines_of(run)
    if metric == "bleu":
        problem = f"{run} was validated by words, and cannot resume by characters"
        assert complaint(*settings) == f"{problem}. {REASON}"
        assert lines_of(run) == before
    else:
        assert go(*settings)[0]
        assert tokenizers(run) == ["tok:13a", "tok:char"]
