"""A pickled file from outside: tensors and values come out, and nothing in it is ever run."""

import argparse
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli.errors import UserError
from nmt_cli.interop.pickled import read_pickled


class Evil:
    """Would make a folder when it is loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_tensors_and_settings_come_out(tmp_path: Path, zipped: bool) -> None:
    saved = {"model": {"w": torch.arange(4.0)}, "args": argparse.Namespace(dropout=0.1), "steps": [1, 2]}
    torch.save(saved, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    found = read_pickled(tmp_path / "a.pt")
    assert torch.equal(found["model"]["w"], torch.arange(4.0))
    assert found["args"].dropout == 0.1 and found["steps"] == [1, 2]


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_code_is_refused_by_name_and_not_run(tmp_path: Path, zipped: bool) -> None:
    saved = {"model": Evil(tmp_path / "made")}
    torch.save(saved, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(UserError, match=r"asks for \w+\.mkdir to be run"):
        read_pickled(tmp_path / "a.pt")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip", b"\x80\x02]q\x00.", b"text\n"])
def test_what_is_no_file_of_pytorchs_is_told_in_a_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pt").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.pt is damaged, or no file of PyTorch's") as caught:
        read_pickled(tmp_path / "a.pt")
    assert "\n" not in str(caught.value)
