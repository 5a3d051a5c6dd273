"""The hash of a file is that of its bytes."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt_cli.runtime import hashes
from nmt_cli.runtime.hashes import hash_ahead, sha256_of


@pytest.mark.parametrize(
    ("content", "expected"),  # the examples of FIPS 180-2
    [
        (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (b"a" * 1_000_000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
    ],
)
def test_the_hash_is_that_of_the_standard(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "file").write_bytes(content)
    assert sha256_of(tmp_path / "file") == expected


def test_a_file_of_several_parts_has_one_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "AT_A_TIME", 7)
    (tmp_path / "file").write_bytes(bytes(range(30)))
    assert sha256_of(tmp_path / "file") == hashlib.sha256(bytes(range(30))).hexdigest()


def test_a_hash_that_was_begun_is_not_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    hash_ahead(path)
    with monkeypatch.context() as patch:
        patch.setattr(hashes, "_sha256_of", None)
        assert sha256_of(path) == hashlib.sha256(b"abc").hexdigest()
    path.write_bytes(b"abd")
    assert sha256_of(path) == hashlib.sha256(b"abd").hexdigest()  # it served once


def _rewritten(path: Path) -> None:
    path.write_bytes(b"abd")
    os.utime(path, ns=(0, 0))


def _replaced_by_a_copy_of_its_time(path: Path) -> None:
    found = path.stat()
    other = path.with_name("other")
    other.write_bytes(b"abd")
    os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns))
    other.replace(path)


def _grown(path: Path) -> None:
    found = path.stat()
    path.write_bytes(b"abcd")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


@pytest.mark.parametrize("change", [_rewritten, _replaced_by_a_copy_of_its_time, _grown])
def test_a_file_that_became_another_is_hashed_as_it_is(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    hash_ahead(path)
    change(path)
    assert sha256_of(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_is_no_file_is_waited_for_by_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    hash_ahead(tmp_path / "pipe")
    hash_ahead(tmp_path / "missing")
    with pytest.raises(FileNotFoundError):
        sha256_of(tmp_path / "missing")


def test_a_file_that_went_away_is_missed_by_who_asks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    hash_ahead(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        sha256_of(path)
