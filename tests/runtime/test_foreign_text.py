"""Reading small files from outside always ends soon."""

import os
from pathlib import Path

import pytest

from nmt_cli.errors import UserError
from nmt_cli.runtime.foreign_text import MAX_BYTES, is_inside, parsed_json, read_ordinary


def test_an_ordinary_file_is_read_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_ordinary(tmp_path / "link") == b"content"


def test_a_pipe_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe is not an ordinary file"):
        read_ordinary(tmp_path / "pipe")


@pytest.mark.parametrize("target", ["/dev/zero", "."])
def test_a_device_and_a_folder_are_errors(tmp_path: Path, target: str) -> None:
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(UserError, match="link is not an ordinary file"):
        read_ordinary(tmp_path / "link")


def test_a_file_that_is_too_large_is_an_error(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(UserError, match="has 268,435,457 bytes"):
        read_ordinary(tmp_path / "sparse")


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_ordinary(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"], ids=["NUL", "surrogate"])
def test_a_name_that_no_file_can_have_is_an_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not the name of a file"):
        read_ordinary(tmp_path / name)


@pytest.mark.parametrize("brackets", [b"[", b'{"a":'])
def test_deeply_nested_json_is_an_error(brackets: bytes) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parsed_json(brackets * 100_000)


@pytest.mark.parametrize(
    ("name", "inside"),
    [("file", True), ("folder/file", True), ("/etc/passwd", False), ("a/../../b", False), (3, False)],
)
def test_a_name_that_points_outside_is_recognised(name: object, inside: bool) -> None:
    assert is_inside(name) is inside
