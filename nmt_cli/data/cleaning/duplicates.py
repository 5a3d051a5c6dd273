"""Search for repeated pairs, and for the best of several pairs with an equal side, in memory of constant
size.

Each pair has hashes. They are sorted into buckets, which are files. Equal hashes are in the same bucket, and
one bucket at a time fits into memory.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nmt_cli.data.array_files import mapped_array
from nmt_cli.data.config import FilterConfig

Hashed = Literal["pair", "target"]
HASHED: tuple[Hashed, ...] = get_args(Hashed)
"""The kinds of text that are compared, in this order: both sides, or one of them."""

HASH_BYTES = 16
"""The number of bytes of a hash. Among a billion different pairs, an equal hash has a probability below
1e-20."""

BUCKET_PAIRS = 4_000_000
"""The approximate number of hashes that are sorted at once. It decides the memory that is needed."""

HASHES_AT_ONCE = 1 << 20


def hashes_needed(config: FilterConfig) -> frozenset[Hashed]:
    """Return the kinds of text whose repetitions the filters in `config` look for."""
    enabled = (config.duplicates, config.one_per_target)
    return frozenset(name for name, is_on in zip(HASHED, enabled, strict=True) if is_on)


def pair_hash(source: str, target: str) -> bytes:
    """Return a hash of both sides in `HASH_BYTES` bytes. Neither side may contain a line feed."""
    return blake2b(f"{source}\n{target}".encode(), digest_size=HASH_BYTES).digest()


def side_hash(text: str) -> bytes:
    """Return a hash of a text in `HASH_BYTES` bytes."""
    return blake2b(text.encode(), digest_size=HASH_BYTES).digest()


def find_repeated(
    hashes: Sequence[Path],
    work: Path,
    qualities: Sequence[Sequence[Path]] = (),
    left_out: NDArray[np.uint8] | None = None,
) -> Iterator[NDArray[np.int64]]:
    """Yield the numbers of pairs to leave out, because a better pair has an equal hash.

    - `hashes`: files of concatenated hashes. Pairs are counted from 0 over all files.
    - `work`: the folder to which buckets are written.
    - `qualities`: for each quality, the most important first, an array file for each file of hashes.
    - `left_out`: an entry for each pair. If it is not 0, the pair is ignored.

    Of the pairs with an equal hash, the one with the highest qualities is kept, or the first of equally good
    ones.
    """
    pairs = sum(path.stat().st_size for path in hashes) // HASH_BYTES
    # All hashes are dealt to the buckets in one pass. Otherwise each bucket would have to read all of them.
    buckets = 1 << max(0, (pairs // BUCKET_PAIRS).bit_length())
    folder = work / "buckets"
    shutil.rmtree(folder, ignore_errors=True)  # left by an interrupted run
    folder.mkdir()
    with ExitStack() as stack:
        files = [stack.enter_context((folder / str(bucket)).open("wb")) for bucket in range(buckets)]
        for entries in _entries(hashes, qualities):
            for bucket, file in enumerate(files):
                entries[entries["words"][:, 0] % buckets == bucket].tofile(file)
    for bucket in range(buckets):
        entries = np.fromfile(folder / str(bucket), _entry_type(len(qualities)))
        if left_out is not None:
            entries = entries[left_out[entries["number"]] == 0]
        words, numbers = entries["words"], entries["number"]
        # `lexsort` sorts by its last key first. The first entry of each group of equal hashes is the best.
        keys: list[NDArray[Any]] = [numbers, *-entries["qualities"].T[::-1], words[:, 1], words[:, 0]]
        order = np.lexsort(keys)
        ordered = words[order]
        repeats = (ordered[1:] == ordered[:-1]).all(axis=1)
        yield numbers[order[1:][repeats]]


def _entry_type(qualities: int) -> np.dtype[Any]:
    """Return the type of a bucket's entries: the hash as two words, the number of the pair, and its
    qualities."""
    return np.dtype(
        [("words", np.uint64, (2,)), ("number", np.int64), ("qualities", np.float32, (qualities,))]
    )


def _entries(hashes: Sequence[Path], qualities: Sequence[Sequence[Path]]) -> Iterator[NDArray[Any]]:
    """Yield the hashes of all files, up to `HASHES_AT_ONCE` at a time, with the numbers and qualities of
    their pairs."""
    number = 0  # of the first hash in the file
    for path, *quality_paths in zip(hashes, *qualities, strict=True):
        columns = [mapped_array(quality_path) for quality_path in quality_paths]
        first = 0
        with path.open("rb") as file:
            while len(words := np.fromfile(file, np.uint64, 2 * HASHES_AT_ONCE).reshape(-1, 2)):
                end = first + len(words)
                entries = np.empty(len(words), _entry_type(len(columns)))
                entries["words"], entries["number"] = words, number + np.arange(first, end)
                values = np.array([column[first:end] for column in columns], np.float32)
                entries["qualities"] = values.reshape(len(columns), len(words)).T
                yield entries
                first = end
        number += first
