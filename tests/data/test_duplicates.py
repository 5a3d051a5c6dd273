"""Finding pairs that occurred before."""

import random
from pathlib import Path

import pytest

from nmt_cli.data import duplicates
from nmt_cli.data.duplicates import pair_hash, repeated


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
    assert repeated(files, tmp_path).tolist() == [pair in corpus[:i] for i, pair in enumerate(corpus)]


def test_a_pair_takes_sixteen_bytes() -> None:
    assert len(pair_hash("long " * 1000, "")) == 16


@pytest.mark.parametrize("other", [("a", "bc"), ("", "abc"), ("abc", ""), ("bc", "a"), ("ab", "C")])
def test_pairs_that_differ_only_in_where_the_sides_meet_have_different_hashes(other: tuple[str, str]) -> None:
    assert pair_hash("ab", "c") != pair_hash(*other)
