"""Launches that a GPU repeats; what can be shown without one is in `tests/training/step/test_graphs.py`."""

import pytest
import torch

from nmt_cli.machine.replay import Recorder


@pytest.mark.gpu
def test_a_gpu_repeats_what_was_recorded_on_what_is_there_now() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    given, found = torch.ones(3, device="cuda"), torch.zeros(3, device="cuda")
    record = Recorder()

    def work() -> None:
        found.copy_(2 * given + torch.rand(3, device="cuda").round() * 0)

    work()
    again = record(work)
    given.fill_(4.0)
    found.zero_()
    assert found.tolist() == [0, 0, 0]  # what is recorded is not done
    again()
    assert found.tolist() == [8, 8, 8]
    with pytest.raises(RuntimeError):
        record(lambda: print(found.sum().item()))
