"""Finding pairs that occurred before."""

import random
from pathlib import Path

import numpy as np
import pytest

from nmt_cli.data.cleaning import duplicates
from nmt_cli.data.cleaning.duplicates import pair_hash, repeated, side_hash


@pytest.mark.parametrize("bucket", [4_000_000, 100, 8], ids=["one bucket", "some buckets", "many buckets"])
@pytest.mark.parametrize("pairs", [0, 1, 2, 2000])
def test_the_second_and_later_ones_of_equal_pairs_are_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pairs: int, bucket: int
) -> None:
    monkeypatch.setattr(duplicates, "BUCKET_PAIRS", bucket)
    chosen = random.Random(pairs)
    corpus = [(f"s{chosen.randrange(40)}", f"t{chosen.randrange(40)}") for _ in range(pairs)]
    files = [tmp_path / "a", tmp_path / "b"]
    for path, some in zip(files, (corpus[: pairs // 3], corpus[pairs // 3 :]), strict=True):
        path.write_bytes(b"".join(pair_hash(*pair) for pair in some))
    found = sorted(number for bucket in repeated(files, tmp_path) for number in bucket.tolist())
    assert found == [i for i, pair in enumerate(corpus) if pair in corpus[:i]]


@pytest.mark.parametrize("bucket", [4_000_000, 8], ids=["one bucket", "many buckets"])
def test_the_best_of_equal_ones_is_no_repetition_nor_what_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: int
) -> None:
    monkeypatch.setattr(duplicates, "BUCKET_PAIRS", bucket)
    chosen = random.Random(1)
    corpus = [(str(chosen.randrange(50)), chosen.randrange(3), chosen.randrange(3)) for _ in range(500)]
    left_out = np.array([chosen.random() < 0.2 for _ in corpus], np.uint8)
    files = [tmp_path / "a", tmp_path / "b"]
    qualities: list[list[Path]] = [[], []]
    for path, part in zip(files, (corpus[:200], corpus[200:]), strict=True):
        path.write_bytes(b"".join(side_hash(text) for text, _, _ in part))
        for place, paths in enumerate(qualities, start=1):
            paths.append(path.with_suffix(f".{place}.npy"))
            np.save(paths[-1], np.array([row[place] for row in part], np.float32))
    best: dict[str, int] = {}
    for i, row in enumerate(corpus):
        if not left_out[i] and (row[0] not in best or row[1:] > corpus[best[row[0]]][1:]):
            best[row[0]] = i
    found = {n for some in repeated(files, tmp_path, qualities, left_out) for n in some.tolist()}
    assert found == {i for i, row in enumerate(corpus) if not left_out[i] and best[row[0]] != i}


def test_a_pair_takes_sixteen_bytes() -> None:
    assert len(pair_hash("long " * 1000, "")) == 16


@pytest.mark.parametrize("other", [("a", "bc"), ("", "abc"), ("abc", ""), ("bc", "a"), ("ab", "C")])
def test_pairs_that_differ_only_in_where_the_sides_meet_have_different_hashes(other: tuple[str, str]) -> None:
    assert pair_hash("ab", "c") != pair_hash(*other)
