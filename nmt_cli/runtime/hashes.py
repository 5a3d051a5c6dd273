"""Hashes of files."""

import hashlib
from pathlib import Path

CHUNK_BYTES = 1 << 24
"""Bytes hashed at a time. Each chunk waits twice for Python's lock, up to some milliseconds."""


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal digits."""
    digest, chunk = hashlib.sha256(), memoryview(bytearray(CHUNK_BYTES))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(chunk):
            digest.update(chunk[:size])
    return digest.hexdigest()
