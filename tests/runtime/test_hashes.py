"""The hash of a file is the hash of its bytes."""

import hashlib
from pathlib import Path

import pytest

from nmt_cli.runtime import hashes
from nmt_cli.runtime.hashes import sha256_of


@pytest.mark.parametrize("size", [0, 1, 7, 30])
def test_a_file_of_any_number_of_chunks_has_the_hash_of_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(hashes, "CHUNK_BYTES", 7)
    (tmp_path / "file").write_bytes(bytes(range(size)))
    assert sha256_of(tmp_path / "file") == hashlib.sha256(bytes(range(size))).hexdigest()
