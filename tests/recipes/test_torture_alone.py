"""Translations of single lines are compared with translations of a batch."""

import subprocess
import sys
from pathlib import Path

import pytest

from recipes.torture.alone import report

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("text", "score", "different"), [("b", -1.0, 0), ("c", -1.0, 1), ("b", -1.1, 1)])
def test_a_different_translation_or_score_is_counted(text: str, score: float, different: int) -> None:
    assert report("int8", ["a", "b"], [("x", -2.0), ("b", -1.0)], [("x", -2.0), (text, score)]) == different


@pytest.mark.slow
def test_a_line_has_the_same_translation_alone_and_in_a_batch() -> None:
    lines = [f"A dog has {number} bags." for number in range(20)]
    command = [sys.executable, "-m", "recipes.torture.alone", "--precision", "fp32"]
    done = subprocess.run(command, cwd=ROOT, input="\n".join(lines), capture_output=True, text=True)
    assert "fp32, 1 at a time: 0 of 20 lines differ" in done.stdout, done.stderr
    assert done.returncode == 0
