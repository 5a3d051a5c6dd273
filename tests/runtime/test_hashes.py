"""The hash of a file is the hash of its bytes."""

import hashlib
from pathlib import Path

import pytest

from nmt_cli.runtime import hashes
from nmt_cli.runtime.hashes import sha256_of


@pytest.mark.parametrize(
    ("content", "expected"),  # the examples of FIPS 180-2
    [
        (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (b"a" * 1_000_000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
    ],
)
def test_the_hash_is_the_one_in_the_standard(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "file").write_bytes(content)
    assert sha256_of(tmp_path / "file") == expected


def test_a_file_of_several_chunks_has_one_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "CHUNK_BYTES", 7)
    (tmp_path / "file").write_bytes(bytes(range(30)))
    assert sha256_of(tmp_path / "file") == hashlib.sha256(bytes(range(30))).hexdigest()
