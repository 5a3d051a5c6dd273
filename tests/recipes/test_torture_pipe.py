"""The program that sends many lines through one process measures memory."""

import os
import sys

import pytest

from recipes.torture.pipe import slope, used_megabytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of processes from /proc")


def test_the_growth_of_memory_is_that_of_the_second_half() -> None:
    flat = [(lines, 100.0) for lines in range(50_000, 100_001, 1000)]
    warming = [(lines, lines / 500) for lines in range(0, 50_000, 1000)]
    assert slope([*warming, *flat]) == pytest.approx(0.0)
    assert slope([(lines, 100 + lines / 1000) for lines in range(0, 100_001, 1000)]) == pytest.approx(100.0)


def test_the_memory_of_a_process_is_in_megabytes() -> None:
    before = used_megabytes(os.getpid())
    block = bytearray(50 << 20)
    block[:: 1 << 12] = b"x" * len(block[:: 1 << 12])
    assert 30 < used_megabytes(os.getpid()) - before < 80
