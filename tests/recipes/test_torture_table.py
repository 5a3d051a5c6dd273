"""The table of a fault campaign counts each fault once and lists the wrong outcomes."""

import pytest

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
