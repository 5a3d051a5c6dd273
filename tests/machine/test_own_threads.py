"""PyTorch's number of threads in one thread of Python, and in no other."""

import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from nmt_cli.machine.own_threads import kept_threads, set_own_threads


@pytest.fixture(autouse=True)
def _four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def in_new_thread(work: Callable[[], int]) -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def test_a_thread_that_computes_alone_changes_no_other() -> None:
    def alone() -> int:
        set_own_threads(1)
        assert in_new_thread(torch.get_num_threads) == 4
        return torch.get_num_threads()

    assert in_new_thread(alone) == 1
    assert (torch.get_num_threads(), in_new_thread(torch.get_num_threads)) == (4, 4)


def test_numbers_are_as_they_were_also_after_an_error() -> None:
    with pytest.raises(ValueError, match="no"), kept_threads():
        torch.set_num_threads(2)
        assert in_new_thread(torch.get_num_threads) == 2
        raise ValueError("no")
    assert (torch.get_num_threads(), in_new_thread(torch.get_num_threads)) == (4, 4)
