"""Progress: a bar on a terminal, otherwise a line every few seconds, and nothing with --quiet."""

import sys
from types import SimpleNamespace

import pytest

from nmt_cli.cli.reports import progress_bars
from nmt_cli.cli.reports.progress_bars import SECONDS_BETWEEN_LINES, shown_progress
from tests.cli.conftest import Terminal


class Clock:
    """A clock that moves when the test calls it."""

    def __init__(self) -> None:
        self.now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress_bars, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_a_line_shows_stage_share_rate_and_remaining_time(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with shown_progress("pairs", quiet=False) as report:
        report("cleaning", 0, 4000)
        clock.now += 20
        report("cleaning", 1000, 4000)
    assert capsys.readouterr() == ("", "cleaning: 1,000 of 4,000 pairs, 50 pairs/s, 1 min to go\n")


def test_lines_are_ten_seconds_apart_and_each_stage_has_its_own_rate(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with shown_progress("pairs", quiet=False) as report:
        for stage, seconds in (("cleaning", 0.25), ("encoding", 0.5)):
            for done in range(301):
                report(stage, done, 600)
                clock.now += seconds
    lines = capsys.readouterr().err.splitlines()
    assert SECONDS_BETWEEN_LINES == 10
    assert [line.split(":")[0] for line in lines] == ["cleaning"] * 7 + ["encoding"] * 15
    assert lines[0] == "cleaning: 40 of 600 pairs, 4 pairs/s, 2.3 min to go"
    assert lines[7] == "encoding: 20 of 600 pairs, 2 pairs/s, 4.8 min to go"


def test_a_stage_of_unknown_length_prints_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with shown_progress("pairs", quiet=False) as report:
        for _ in range(3):
            report("learning subwords", 0, 0)
            clock.now += 20
    assert capsys.readouterr() == ("", "")


def test_quiet_shows_nothing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with shown_progress("pairs", quiet=True) as report:
        report("cleaning", 0, 10)
        clock.now += 100
        report("cleaning", 10, 10)
    assert terminal.getvalue() == ""


def test_a_terminal_shows_a_bar_for_each_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with shown_progress("pairs", quiet=False) as report:
        report("reading", 0, 0)
        report("cleaning", 0, 300)
        report("cleaning", 200, 300)
        report("encoding", 300, 300)
    shown = terminal.getvalue()
    assert [words for words in ("reading", "cleaning", "encoding", "300/300") if words not in shown] == []
