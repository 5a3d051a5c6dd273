"""Pickled files: tensors and values are read, and no code in them runs."""

import argparse
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli.errors import UserError
from nmt_cli.runtime.pickled import read_pickled


class Hostile:
    """Its pickle calls a function when it is loaded."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def hostile_calls(mark: Path) -> list[Hostile]:
    """Return objects that create the file `mark` when they are loaded."""
    touch, create = f"touch {mark}", f"open({str(mark)!r}, 'w')"
    return [
        *(Hostile(run, touch) for run in (os.system, os.popen, subprocess.call, subprocess.Popen)),
        *(Hostile(run, create) for run in (eval, exec)),
        Hostile(open, str(mark), "w"),
        Hostile(os.mkdir, str(mark)),
        Hostile(shutil.copy, "/etc/hostname", str(mark)),
        Hostile(__import__, "antigravity"),
    ]


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_tensors_and_settings_come_out(tmp_path: Path, zipped: bool) -> None:
    saved = {"model": {"w": torch.arange(4.0)}, "args": argparse.Namespace(dropout=0.1), "steps": [1, 2]}
    torch.save(saved, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    loaded = read_pickled(tmp_path / "a.pt")
    assert torch.equal(loaded["model"]["w"], torch.arange(4.0))
    assert loaded["args"].dropout == 0.1 and loaded["steps"] == [1, 2]


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("position", ["bare", "settings", "tensors", "key", "legacy"])
def test_code_is_refused_by_name_and_not_run(tmp_path: Path, number: int, position: str) -> None:
    mark = tmp_path / "ran"
    hostile = hostile_calls(mark)[number]
    content = {
        "bare": hostile,
        "settings": {"args": argparse.Namespace(evil=hostile), "model": {}},
        "tensors": {"args": None, "model": {"encoder.embed_tokens.weight": hostile}},
        "key": {(1, hostile): 3, "model": {}},
        "legacy": {"args": hostile, "model": {}},
    }[position]
    torch.save(content, tmp_path / "a.pt", _use_new_zipfile_serialization=position != "legacy")
    with pytest.raises(UserError, match=rf"asks to run [\w.]*{hostile.call[0].__name__}") as caught:
        read_pickled(tmp_path / "a.pt")
    assert "\n" not in str(caught.value)
    assert not mark.exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip", b"\x80\x02]q\x00.", b"text\n"])
def test_a_file_of_another_kind_is_refused_in_a_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pt").write_bytes(content)
    with pytest.raises(
        UserError, match=r"a\.pt is (not a complete zip archive|damaged|not a PyTorch file)"
    ) as caught:
        read_pickled(tmp_path / "a.pt")
    assert "\n" not in str(caught.value)


def test_a_flipped_bit_anywhere_in_a_zip_is_refused(tmp_path: Path) -> None:
    """PyTorch writes a CRC-32 of each tensor, but does not compare it."""
    saved = {f"w{i}": torch.randn(12, 12, generator=torch.Generator().manual_seed(i)) for i in range(4)}
    torch.save(saved, tmp_path / "a.pt")
    whole = (tmp_path / "a.pt").read_bytes()
    refused = 0
    for at in range(0, len(whole), 7):
        bad = bytearray(whole)
        bad[at] ^= 1 << at % 8
        (tmp_path / "a.pt").write_bytes(bad)
        try:
            loaded = read_pickled(tmp_path / "a.pt")
        except UserError:
            refused += 1
        else:  # padding, or an unused field
            assert all(torch.equal(tensor, loaded[name]) for name, tensor in saved.items())
    assert refused > len(whole) / 7 / 2
