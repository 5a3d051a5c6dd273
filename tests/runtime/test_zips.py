"""Zip files from outside are refused if they are hostile or damaged."""

import re
import stat
import zipfile
from pathlib import Path

import pytest

from nmt_cli.errors import UserError
from nmt_cli.runtime.zips import check_whole, unpacked
from tests.checks import refusal

CENTRAL = b"PK\x01\x02"


def archive(path: Path, name: str, content: str, mode: int = 0) -> Path:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(info, content, zipfile.ZIP_DEFLATED)
    return path


@pytest.mark.parametrize(
    ("name", "content", "mode", "why"),
    [
        ("../a", "x\n", 0, "points outside"),
        ("/a", "x\n", 0, "points outside"),
        ("a", "x\n" * 5_000_000, 0, "would grow from"),
        ("a", "/etc/passwd", stat.S_IFLNK | 0o777, "is a link"),
    ],
)
def test_a_hostile_member_is_refused(tmp_path: Path, name: str, content: str, mode: int, why: str) -> None:
    path = archive(tmp_path / "a.zip", name, content, mode)
    assert f"{path}: {name} {why}" in refusal(check_whole, path).replace("has a name that ", "")


@pytest.mark.parametrize(
    ("marker", "offset", "value", "why"),
    [
        (CENTRAL, 8, b"\x01\x00", "is encrypted"),
        (CENTRAL, 10, b"\x63\x00", "not a complete zip archive"),
        (CENTRAL, 24, b"\x03\x00\x00\x00", "is damaged"),
        (CENTRAL, 16, b"\x00\x00\x00\x00", "is damaged"),
        (b"PK\x05\x06", 0, b"XXXX", "not a complete zip archive"),
    ],
    ids=["encrypted", "method", "size", "checksum", "cut"],
)
def test_a_forged_archive_is_refused(
    tmp_path: Path, marker: bytes, offset: int, value: bytes, why: str
) -> None:
    path = archive(tmp_path / "a.zip", "a", "words\n")
    content = bytearray(path.read_bytes())
    position = content.index(marker) + offset
    content[position : position + len(value)] = value
    path.write_bytes(content)
    assert why in refusal(check_whole, path)


def test_an_archive_that_misses_bytes_in_the_middle_is_named(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.zip", "a", "".join(map(str, range(300))))
    content = path.read_bytes()
    path.write_bytes(content[:60] + content[100:])  # so that offsets are negative
    message = f"{re.escape(str(path))} is not a complete zip archive"
    with pytest.raises(UserError, match=message), unpacked(path, re.compile(".*")):
        pass


def test_an_error_about_a_member_names_the_archive_instead_of_the_temporary_folder(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.zip", "a", "text")
    message = f"^{re.escape(str(path))}/a is wrong; {re.escape(str(path))} too$"
    with pytest.raises(UserError, match=message), unpacked(path, re.compile(".*")) as folder:
        raise UserError(f"{folder / 'a'} is wrong", f"{folder} too")
