"""Finding pairs that occurred before, in memory that does not grow with the corpus."""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HASH_BYTES = 16
"""Bytes of a hash; the chance that any two of a billion different pairs have the same is below 1e-20."""

BUCKET_PAIRS = 4_000_000
"""About how many hashes are sorted at a time, which is what memory is needed for."""

HASHES_AT_ONCE = 1 << 20


def pair_hash(source: str, target: str) -> bytes:
    """A hash that only equal pairs share; neither side may hold a line feed, which stands between them."""
    return blake2b(f"{source}\n{target}".encode(), digest_size=HASH_BYTES).digest()


def repeated(hashes: Sequence[Path], work: Path) -> NDArray[np.bool_]:
    """For each hash in the files, one after another, whether it also stands somewhere before it.

    The hashes are dealt to files in a folder in `work`, equal ones to the same, and each file is sorted by
    itself. The result is mapped from a file there too.
    """
    pairs = sum(path.stat().st_size for path in hashes) // HASH_BYTES
    buckets = 1 << max(0, (pairs // BUCKET_PAIRS).bit_length())
    if not pairs:
        return np.zeros(0, np.bool_)
    folder = work / "buckets"
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was stopped
    folder.mkdir()
    _deal(hashes, folder, buckets)
    result: NDArray[np.bool_] = np.lib.format.open_memmap(
        folder / "repeated.npy", mode="w+", dtype=np.bool_, shape=(pairs,)
    )
    for bucket in range(buckets):
        numbers = np.fromfile(folder / f"{bucket}.numbers", np.int64)
        words = np.fromfile(folder / f"{bucket}.words", np.uint64).reshape(-1, 2)
        # Sorted by the last of these keys first; equal hashes by number, so that the first one is no
        # repetition.
        order = np.lexsort((numbers, words[:, 1], words[:, 0]))
        ordered = words[order]
        again = (ordered[1:] == ordered[:-1]).all(axis=1)
        result[numbers[order[1:][again]]] = True
    return result


def _deal(hashes: Sequence[Path], folder: Path, buckets: int) -> None:
    """Write the hashes, as two words each, and their numbers over all files, to a pair of files a bucket."""
    first = 0
    with ExitStack() as stack:
        out = [
            [stack.enter_context((folder / f"{bucket}.{what}").open("wb")) for what in ("numbers", "words")]
            for bucket in range(buckets)
        ]
        for path in hashes:
            with path.open("rb") as file:
                while len(some := np.fromfile(file, np.uint64, 2 * HASHES_AT_ONCE).reshape(-1, 2)):
                    for bucket, (numbers, words) in enumerate(out):
                        inside = np.flatnonzero(some[:, 0] % buckets == bucket)
                        (inside + first).tofile(numbers)
                        some[inside].tofile(words)
                    first += len(some)
