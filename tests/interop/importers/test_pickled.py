"""Pickled files: tensors and values are read, and no code in them runs."""

import argparse
import os
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import torch

from nmt_cli.errors import UserError
from nmt_cli.interop.importers.pickled import read_pickled


class Evil:
    """Its pickle would create a folder when it is loaded."""

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
    with pytest.raises(UserError, match=r"asks to run \w+\.mkdir"):
        read_pickled(tmp_path / "a.pt")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip", b"\x80\x02]q\x00.", b"text\n"])
def test_what_is_no_file_of_pytorchs_is_told_in_a_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pt").write_bytes(content)
    with pytest.raises(
        UserError, match=r"a\.pt is damaged(, or not a zip archive| or not a PyTorch file)"
    ) as caught:
        read_pickled(tmp_path / "a.pt")
    assert "\n" not in str(caught.value)


def test_a_flipped_bit_is_found_wherever_it_is(tmp_path: Path) -> None:
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
            found = read_pickled(tmp_path / "a.pt")
        except UserError:
            refused += 1
        else:  # padding, or a field that nobody reads
            assert all(torch.equal(tensor, found[name]) for name, tensor in saved.items())
    assert refused > len(whole) / 7 / 2


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1 << 20)}, tmp_path / "a.pt")
    with ZipFile(tmp_path / "a.pt") as plain, ZipFile(tmp_path / "b.pt", "w", ZIP_DEFLATED) as packed:
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    with pytest.raises(UserError, match=r"would grow from [\d,]+ to 4,194,304 bytes"):
        read_pickled(tmp_path / "b.pt")
