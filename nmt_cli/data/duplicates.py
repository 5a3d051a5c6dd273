"""Finding pairs that occurred before, and the best of several with an equal side, in memory that does not
grow with the corpus."""

from collections.abc import Sequence
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
    hashes: Path, qualities: Sequence[NDArray[np.float32]] = (), left_out: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """For each hash in the file, whether it also stands somewhere before it.

    With `qualities`, the first of which counts most, whether an equal one is better, or else before it. Those
    that are `left_out` are no repetition, nor is anything one of them. Reads the file once for each bucket,
    and sorts the hashes that fall into it; equal ones share a bucket.
    """
    pairs = hashes.stat().st_size // HASH_BYTES
    buckets = 1 << max(0, (pairs // BUCKET_PAIRS).bit_length())
    result = np.zeros(pairs, np.bool_)
    for bucket in range(buckets):
        numbers, words = _bucket(hashes, bucket, buckets)
        if left_out is not None:
            stays = ~left_out[numbers]
            numbers, words = numbers[stays], words[stays]
        # Sorted by the last of these keys first; of equal hashes the best, or the first, is no repetition.
        worse = [-quality[numbers] for quality in reversed(qualities)]
        keys: list[NDArray[Any]] = [numbers, *worse, words[:, 1], words[:, 0]]
        order = np.lexsort(keys)
        ordered = words[order]
        again = (ordered[1:] == ordered[:-1]).all(axis=1)
        result[numbers[order[1:][again]]] = True
    return result


def _bucket(hashes: Path, bucket: int, buckets: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The numbers, in the file, of the hashes of one bucket, and the hashes as two words each."""
    numbers, words = [], []
    first = 0
    with hashes.open("rb") as file:
        while len(some := np.fromfile(file, np.uint64, 2 << 20).reshape(-1, 2)):
            inside = np.flatnonzero(some[:, 0] % buckets == bucket)
            numbers.append(inside + first)
            words.append(some[inside])
            first += len(some)
    if not numbers:
        return np.zeros(0, np.int64), np.zeros((0, 2), np.uint64)
    return np.concatenate(numbers), np.concatenate(words)
