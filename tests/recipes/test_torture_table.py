"""The table of a fault campaign counts each fault once and lists the wrong outcomes. No campaign is empty."""

import click
import pytest
from click.testing import CliRunner

from recipes.torture import alone, caches, connections, files, foreign, fuzz, pages, pipe
from recipes.torture.table import Tally, print_table


def test_faults_are_counted_by_kind_and_wrong_outcomes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    tally.add("kill", "clean")
    tally.add("kill", "clean")
    tally.add("kill", "identical")
    tally.add("bit", "wrong", "seed 7: other weights")
    print_table(tally)
    assert capsys.readouterr().out.splitlines() == [
        "| fault | injected | clean | identical | wrong |",
        "|---|---|---|---|---|",
        "| kill | 3 | 2 | 1 | 0 |",
        "| bit | 1 | 0 | 0 | 1 |",
        "| all | 4 | 2 | 1 | 1 |",
        "",
        "wrong: bit: seed 7: other weights",
    ]


def test_a_campaign_fails_if_an_outcome_is_wrong_or_nothing_was_tried(
    capsys: pytest.CaptureFixture[str],
) -> None:
    empty, clean, wrong = Tally(), Tally(), Tally()
    clean.add("kill", "clean")
    wrong.add("kill", "clean")
    wrong.add("bit", "wrong", "seed 7: other weights")
    assert [tally.failed for tally in (empty, clean, wrong)] == [True, False, True]
    print_table(empty)
    assert capsys.readouterr().out.splitlines()[-1] == "wrong: nothing was tried"


@pytest.mark.parametrize(
    ("program", "arguments", "message"),
    [
        *((program, ["--mutations", "0"], "0 is not in the range") for program in (files.main, foreign.main)),
        (caches.main, ["--mutations", "0"], "0 is not in the range"),
        (pipe.main, ["--lines", "0"], "0 is not in the range"),
        *(
            (program, ["--rounds", "0"], "0 is not in the range")
            for program in (pages.main, connections.main)
        ),
        (pages.main, [], "No page was opened"),
        (fuzz.main, [], "Nothing was fuzzed"),
        (alone.main, [], "Nothing was translated"),
    ],
    ids=str,
)
def test_a_program_without_anything_to_try_fails(
    program: click.Command, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(fuzz, "find_spec", lambda name: None)
    result = CliRunner().invoke(program, arguments, input="")
    assert result.exit_code and message in result.output
