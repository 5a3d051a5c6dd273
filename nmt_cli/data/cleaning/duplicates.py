"""Finding pairs that occurred before, and the best of several with an equal side, in memory that does not
grow with the corpus."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from math import log
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nmt_cli.data.config import FilterConfig

Hashed = Literal["pair", "target", "source"]
HASHED: tuple[Hashed, ...] = get_args(Hashed)
"""What repetitions are looked for of, in this order."""

HASH_BYTES = 16
"""Bytes of a hash; the chance that any two of a billion different pairs have the same is below 1e-20."""

BUCKET_PAIRS = 4_000_000
"""About how many hashes are sorted at a time, which is what memory is needed for."""

HASHES_AT_ONCE = 1 << 20


def sought(config: FilterConfig) -> frozenset[Hashed]:
    """What these filters look for repetitions of."""
    wanted = (config.duplicates, config.one_per_target, config.one_per_source)
    return frozenset(name for name, asked in zip(HASHED, wanted, strict=True) if asked)


def pair_hash(source: str, target: str) -> bytes:
    """A hash that only equal pairs share; neither side may hold a line feed, which stands between them."""
    return blake2b(f"{source}\n{target}".encode(), digest_size=HASH_BYTES).digest()


def side_hash(text: str) -> bytes:
    """A hash that only equal texts share."""
    return blake2b(text.encode(), digest_size=HASH_BYTES).digest()


def closeness(source: str, target: str) -> float:
    """How near the lengths of two sides are; 0 is equal, and less is worse."""
    return -abs(log((len(source) + 1) / (len(target) + 1)))


def repeated(
    hashes: Sequence[Path],
    work: Path,
    qualities: Sequence[Sequence[Path]] = (),
    left_out: NDArray[np.uint8] | None = None,
) -> Iterator[NDArray[np.int64]]:
    """The numbers, counted over all these files, of the hashes that also stand somewhere before.

    With `qualities`, arrays in a file for each file of hashes and the first what counts most, of those of
    which an equal one is better, or else before. Those that are `left_out` are no repetition, nor is anything
    one of them. The hashes are dealt to files in a folder in `work`, equal ones to the same, and each file is
    sorted by itself.
    """
    pairs = sum(path.stat().st_size for path in hashes) // HASH_BYTES
    buckets = 1 << max(0, (pairs // BUCKET_PAIRS).bit_length())
    folder = work / "buckets"
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was stopped
    folder.mkdir()
    _deal(hashes, qualities, folder, buckets)
    for bucket in range(buckets):
        entries = np.fromfile(folder / str(bucket), _entry(len(qualities)))
        if left_out is not None:
            entries = entries[left_out[entries["number"]] == 0]
        # Sorted by the last of these keys first; of equal hashes the best, or the first, is no repetition.
        words, numbers = entries["words"], entries["number"]
        keys: list[NDArray[Any]] = [numbers, *-entries["qualities"].T[::-1], words[:, 1], words[:, 0]]
        order = np.lexsort(keys)
        ordered = words[order]
        again = (ordered[1:] == ordered[:-1]).all(axis=1)
        yield numbers[order[1:][again]]


def _entry(qualities: int) -> np.dtype[Any]:
    """What is kept of a pair in a bucket."""
    return np.dtype(
        [("words", np.uint64, (2,)), ("number", np.int64), ("qualities", np.float32, (qualities,))]
    )


def _deal(hashes: Sequence[Path], qualities: Sequence[Sequence[Path]], folder: Path, buckets: int) -> None:
    """Write the hashes, as two words each, their numbers over all files and qualities to a file a bucket."""
    first = 0
    with ExitStack() as stack:
        out = [stack.enter_context((folder / str(bucket)).open("wb")) for bucket in range(buckets)]
        for path, *valued in zip(hashes, *qualities, strict=True):
            values, start = [np.load(each, mmap_mode="r") for each in valued], first
            with path.open("rb") as file:
                while len(words := np.fromfile(file, np.uint64, 2 * HASHES_AT_ONCE).reshape(-1, 2)):
                    entries = np.empty(len(words), _entry(len(values)))
                    entries["words"], entries["number"] = words, np.arange(first, first + len(words))
                    for column, each in enumerate(values):
                        entries["qualities"][:, column] = each[first - start : first - start + len(words)]
                    for bucket, to in enumerate(out):
                        entries[words[:, 0] % buckets == bucket].tofile(to)
                    first += len(words)
