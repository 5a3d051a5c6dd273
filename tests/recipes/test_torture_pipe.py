"""Lines through one process: they all come back, and growth of memory is a slope."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recipes.torture.pipe import held, slope

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks for memory as Linux tells it")

ROOT = Path(__file__).parents[2]


def test_the_slope_is_that_of_the_second_half() -> None:
    flat = [(lines, 100.0) for lines in range(50_000, 100_001, 1000)]
    warming = [(lines, lines / 500) for lines in range(0, 50_000, 1000)]
    assert slope([*warming, *flat]) == pytest.approx(0.0)
    assert slope([(lines, 100 + lines / 1000) for lines in range(0, 100_001, 1000)]) == pytest.approx(100.0)


def test_what_a_process_holds_is_in_megabytes() -> None:
    before = held(os.getpid())
    kept = bytearray(50 << 20)
    kept[:: 1 << 12] = b"x" * len(kept[:: 1 << 12])
    assert 30 < held(os.getpid()) - before < 80


@pytest.mark.slow
def test_a_few_lines_come_back_at_a_trickle_and_at_full_speed() -> None:
    command = [sys.executable, "-m", "recipes.torture.pipe", "--lines", "60", "--trickle", "5"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.startswith("60 of 60 lines came back: 5 one at a time"), done.stderr
