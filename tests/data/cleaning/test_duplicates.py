"""Repeated pairs are found in buckets of any size, and the best of equal texts is kept."""

import random
from pathlib import Path

import numpy as np
import pytest

from nmt_cli.data.cleaning import duplicates
from nmt_cli.data.cleaning.duplicates import find_repeated, pair_hash, side_hash


@pytest.mark.parametrize("bucket", [4_000_000, 100, 8], ids=["one bucket", "some buckets", "many buckets"])
@pytest.mark.parametrize("pairs", [0, 1, 2, 2000])
def test_all_but_the_first_of_equal_pairs_are_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pairs: int, bucket: int
) -> None:
    monkeypatch.setattr(duplicates, "BUCKET_PAIRS", bucket)
    generator = random.Random(pairs)
    corpus = [(f"s{generator.randrange(40)}", f"t{generator.randrange(40)}") for _ in range(pairs)]
    files = [tmp_path / "a", tmp_path / "b"]
    for path, part in zip(files, (corpus[: pairs // 3], corpus[pairs // 3 :]), strict=True):
        path.write_bytes(b"".join(pair_hash(*pair) for pair in part))
    repeated = sorted(number for numbers in find_repeated(files, tmp_path) for number in numbers.tolist())
    assert repeated == [i for i, pair in enumerate(corpus) if pair in corpus[:i]]


@pytest.mark.parametrize("bucket", [4_000_000, 8], ids=["one bucket", "many buckets"])
def test_the_best_of_equal_texts_and_ignored_texts_are_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: int
) -> None:
    monkeypatch.setattr(duplicates, "BUCKET_PAIRS", bucket)
    generator = random.Random(1)
    corpus = [
        (str(generator.randrange(50)), generator.randrange(3), generator.randrange(3)) for _ in range(500)
    ]
    left_out = np.array([generator.random() < 0.2 for _ in corpus], np.uint8)
    files = [tmp_path / "a", tmp_path / "b"]
    qualities: list[list[Path]] = [[], []]
    for path, part in zip(files, (corpus[:200], corpus[200:]), strict=True):
        path.write_bytes(b"".join(side_hash(row[0]) for row in part))
        for column, paths in enumerate(qualities, start=1):
            paths.append(path.with_suffix(f".{column}.npy"))
            np.save(paths[-1], np.array([row[column] for row in part], np.float32))
    best: dict[str, int] = {}
    for i, row in enumerate(corpus):
        if not left_out[i] and (row[0] not in best or row[1:] > corpus[best[row[0]]][1:]):
            best[row[0]] = i
    batches = find_repeated(files, tmp_path, qualities, left_out)
    assert {number for numbers in batches for number in numbers.tolist()} == {
        i for i, row in enumerate(corpus) if not left_out[i] and best[row[0]] != i
    }


@pytest.mark.parametrize("other", [("a", "bc"), ("", "abc"), ("abc", ""), ("bc", "a"), ("ab", "C")])
def test_hashes_of_16_bytes_depend_on_where_the_sides_meet(other: tuple[str, str]) -> None:
    assert pair_hash("ab", "c") != pair_hash(*other)
    assert len(pair_hash("long " * 1000, "")) == 16
