"""Kernels are there where Numba is, and nothing fails where it is not."""

import sys

import pytest

from nmt_cli.machine.kernels import compiled_kernels


@pytest.mark.parametrize("room", ["attention", "loss", "text"])
def test_a_rooms_kernels_are_found_or_missed_without_an_error(
    room: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = compiled_kernels.__wrapped__(room)
    assert found is not None and found.__name__ == f"nmt_cli.{room}.compiled"
    monkeypatch.setitem(sys.modules, f"nmt_cli.{room}.compiled", None)
    assert compiled_kernels.__wrapped__(room) is None
