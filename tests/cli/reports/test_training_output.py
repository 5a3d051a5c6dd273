"""The output of `nmt train`: lines, or on a terminal a panel and lines above it that stay. Also the plan."""

import io
import os
import pty
import re
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live

from nmt_cli.cli.reports.training_output import LiveReporter, RunReporter, shown_run
from nmt_cli.scoring.lengths import Length
from nmt_cli.scoring.measures import score
from nmt_cli.training.tracking.events import Doing, Event, Note, Progress, Saved, Spent, Validated, Warned
from nmt_cli.training.validation.judge import Judgement, LengthScores
from tests.cli.conftest import SET_TINY, Terminal

RUN = Path("runs/base[b]")

PROGRESS = Progress(
    step=1200,
    max_steps=100_000,
    epoch=3,
    loss=4.56789,
    nll=3.1,
    learning_rate=0.00021,
    tokens_per_second=12_345.6,
    seconds=600,
    seconds_left=49_400,
    waiting=0.034,
    filler=0.012,
    skipped=0,
    memory=7_250_000_000,
    bleu=(21.3, 22.1),
)


class Gone(Terminal):
    """A terminal whose window was closed."""

    def write(self, text: str) -> int:
        raise OSError("nobody there")


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")


def shown(reporter: LiveReporter, width: int = 80) -> str:
    """Return the panel as text."""
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(reporter.panel())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def reporter() -> LiveReporter:
    console = Console(file=io.StringIO(), width=80)
    return LiveReporter(RUN, console, Live(console=console, auto_refresh=False))


JUDGEMENT = Judgement("dev", 1.0, 2.71828, 9.9, score(["a b c d"], [["a b c d"]]), ["a b c d"])

LOW = [replace(one, value=value) for one, value in zip(JUDGEMENT.scores, (0.0, 12.5), strict=True)]
SHORT_BAD = replace(
    JUDGEMENT,
    lengths=[LengthScores(Length(0, 5, 20), LOW), LengthScores(Length(6, 10, 70), JUDGEMENT.scores)],
)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Note("changed: a.b: 1 -> 2"), "changed: a.b: 1 -> 2"),
        (
            PROGRESS,
            "step 1,200 of 100,000, epoch 4: loss 4.568, perplexity 22.20, learning rate 2.10e-04, "
            "12,346 tokens/s, waiting 3.4%, filler 1.2%, 14 h to go",
        ),
        (
            replace(PROGRESS, epoch_of="news\x1b[2J"),
            "step 1,200 of 100,000, epoch 4 of news\\x1b[2J: loss 4.568, perplexity 22.20, "
            "learning rate 2.10e-04, "
            "12,346 tokens/s, waiting 3.4%, filler 1.2%, 14 h to go",
        ),
        (
            replace(PROGRESS, step=99_000, seconds_left=100, skipped=3),
            "step 99,000 of 100,000, epoch 4: loss 4.568, perplexity 22.20, learning rate 2.10e-04, "
            "12,346 tokens/s, waiting 3.4%, filler 1.2%, 1.7 min to go, 3 steps skipped (not finite)",
        ),
        (
            Validated(5000, [JUDGEMENT, JUDGEMENT], True, 12.3),
            "step 5,000: dev: BLEU 100.00, chrF2 100.00, perplexity 2.718; "
            "dev: BLEU 100.00, chrF2 100.00, perplexity 2.718, the best so far (12 s)",
        ),
        (
            Validated(5000, [JUDGEMENT], False, 12.3),
            "step 5,000: dev: BLEU 100.00, chrF2 100.00, perplexity 2.718 (12 s)",
        ),
        (
            Validated(5000, [replace(JUDGEMENT, subset="300 of 1,014 sentences")], False, 12.3),
            "step 5,000: dev: BLEU 100.00, chrF2 100.00 on 300 of 1,014 sentences, perplexity 2.718 (12 s)",
        ),
        (
            Validated(5000, [JUDGEMENT], False, 12.3, "ema"),
            "step 5,000 (ema): dev: BLEU 100.00, chrF2 100.00, perplexity 2.718 (12 s)",
        ),
        (
            Validated(5000, [replace(SHORT_BAD, subset="90 of 100 sentences")], False, 12.3),
            "step 5,000: dev: BLEU 100.00, chrF2 100.00 (up to 5 words: 0.00, 12.50) on 90 of 100 sentences, "
            "perplexity 2.718 (12 s)",
        ),
        (
            Spent(model_flops=1.5e15, hours=2.0, device_hours=16.0),
            "cost: 1.5e+15 model FLOPs in 2 h, 16 h summed over devices",
        ),
    ],
    ids=["note", "progress", "of a corpus", "skipped", "best", "not best", "subset", "ema", "short", "spent"],
)
def test_each_event_is_a_plain_line(
    capsys: pytest.CaptureFixture[str], event: Note | Progress | Validated | Spent, line: str
) -> None:
    RunReporter(quiet=False)(event)
    RunReporter(quiet=False)(Doing("training", 1, 0))
    RunReporter(quiet=False)(Saved(12_000, Path("run/x")))
    RunReporter(quiet=True)(event)
    assert capsys.readouterr() == ("", f"{line}\n")


def test_the_panel_fits_into_80_columns(reporter: LiveReporter) -> None:
    reporter(PROGRESS)
    reporter(Doing("training", 1203, 3))
    panel = shown(reporter)
    messages = (
        *("base[b] training,", "epoch 4", "step 1,203 of 100,000", "1.2%, 14 h to go"),
        *("loss 4.568", "perplexity 22.20", "BLEU 21.30, best 22.10", "rate 2.10e-04"),
        *("real tokens/s 12,346", "filler 1.2%", "waiting 3.4%", "memory 7.2 GB"),
    )
    assert [message for message in messages if message not in panel] == []


def test_the_panel_shows_the_current_activity_and_the_end(reporter: LiveReporter) -> None:
    assert shown(reporter) == "getting ready …\n"
    for doing in ("training", "validating", "saving"):
        reporter(Doing(doing, 7, 0))
        assert f"{RUN.name} {doing}, epoch 1" in shown(reporter)
        assert "step 7" in shown(reporter)
    for complete, state in ((True, "complete"), (False, "stopped")):
        reporter.end(RUN, complete)
        assert f"{RUN.name} {state}, epoch 1" in shown(reporter)


def test_a_score_on_a_subset_is_labelled(reporter: LiveReporter) -> None:
    reporter(replace(PROGRESS, bleu_on="300 of 1,014 sentences"))
    reporter(Doing("training", 1203, 3))
    assert "BLEU on 300 of 1,014 sentences" in shown(reporter)


def test_messages_stay_above_the_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    events: list[Event] = [
        Note("resuming from step 5"),
        Warned("nearly full"),
        Validated(5000, [JUDGEMENT], True, 12.3),
        Saved(12_000, Path("run/x")),
        Spent(1.5e15, 2.0, 16.0),
    ]
    with shown_run(RUN, quiet=False, silent=False) as report:
        for event in [PROGRESS, Doing("training", 1203, 3), *events]:
            report(event)
        report.end(RUN, complete=True)
    text = terminal.getvalue()
    lines = ("resuming from step 5", "Warning: nearly full", "step 5,000: dev: BLEU 100.00")
    for line in (*lines, "1.5e+15 model FLOPs", f"{RUN}: complete"):
        assert re.search(rf"{re.escape(line)}.*\n", text)
    assert "step 1,203 of 100,000" in text


@pytest.mark.parametrize("kind", ["dumb terminal", "pipe", "quiet", "another rank"])
def test_without_a_terminal_there_is_no_panel(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    if kind == "dumb terminal":
        monkeypatch.setenv("TERM", "dumb")
    if kind == "pipe":
        monkeypatch.setattr(terminal, "isatty", lambda: False)
        monkeypatch.setenv("FORCE_COLOR", "1")
    with shown_run(RUN, quiet=kind == "quiet", silent=kind == "another rank") as report:
        assert isinstance(report, RunReporter)
        report(Doing("training", 1203, 3))
        report(PROGRESS)
    lines = terminal.getvalue().splitlines()
    assert [line[:24] for line in lines] == (
        ["step 1,200 of 100,000, e"] if kind in ("dumb terminal", "pipe") else []
    )


def test_a_closed_terminal_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Gone())
    with shown_run(RUN, quiet=False, silent=False) as report:
        assert isinstance(report, LiveReporter)
        for event in (Doing("training", 1, 0), PROGRESS, Note("x")):
            report(event)
        report.end(RUN, complete=False)


@pytest.mark.slow
def test_nmt_train_shows_the_panel(toy_dataset: Path, tmp_path: Path, nmt_script: Path) -> None:
    more = ("--max-steps", "3", "--set", "training.log_every=1", "--device", "cpu")
    command = [nmt_script, "train", toy_dataset, "--out", tmp_path / "run", *SET_TINY, *more]
    text = on_a_terminal(list(map(str, command)))
    assert "step 3 of 3" in text
    assert "real tokens/s" in text
    assert text.count("run: complete") == 1
    assert "step 1 of 3, epoch 1: loss" not in text


def on_a_terminal(command: list[str]) -> str:
    """Return the output of a command on a terminal."""
    child, terminal = pty.fork()
    if not child:
        os.environ["TERM"], os.environ["COLUMNS"] = "xterm", "100"
        os.execv(command[0], command)
    written = b""
    with suppress(OSError):  # raised when the process has closed the terminal
        while part := os.read(terminal, 65536):
            written += part
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return written.decode()
