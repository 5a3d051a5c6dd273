"""Cores are counted as this process may use them, and threads are put back."""

import os
import subprocess
import sys

import pytest
import torch

from nmt_cli.machine.threads import available_cores, torch_threads


def test_the_cores_that_may_be_used_are_counted() -> None:
    assert 1 <= available_cores() <= (os.cpu_count() or 1)


@pytest.mark.skipif(sys.platform != "linux", reason="cores are taken away as Linux does it")
def test_cores_that_were_taken_away_are_not_counted() -> None:
    script = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from nmt_cli.machine.threads import available_cores; print(available_cores())"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout == "1\n"


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_the_threads_of_the_process_are_put_back_however_it_ends(error: type[BaseException] | None) -> None:
    before = torch.get_num_threads()
    try:
        with torch_threads(before + 2):
            assert torch.get_num_threads() == before + 2
            if error:
                raise error
    except (ValueError, KeyboardInterrupt):
        pass
    assert torch.get_num_threads() == before
