"""A short campaign of faults in training. Its faults differ in every run of the tests."""

import time
from pathlib import Path

from recipes.torture.runs import refused_plainly
from recipes.torture.training import campaign, killed_at_a_file_event, run_damaged


def test_a_fault_in_training_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    seed = time.time_ns()
    tally = campaign(tmp_path, seed, 0, (killed_at_a_file_event, run_damaged))
    assert tally.wrong == []
    assert 1 <= sum(count.total() for count in tally.counts.values()) <= 2


def test_a_refusal_is_one_line_of_error_that_is_not_a_bug() -> None:
    assert refused_plainly(1, "Warning: that\nError: this; do that.\n")
    assert not refused_plainly(0, "Error: this; do that.\n")
    assert not refused_plainly(1, "Error: this\nError: that\n")
    assert not refused_plainly(1, "Error: a bug in nmt (KeyError: 'x'); report it.\n")
    assert not refused_plainly(1, "Traceback (most recent call last):\nError: this\n")
    assert not refused_plainly(-7, "")
