"""Parquet files are read, and damaged ones are an error of one line."""

import random
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.errors import UserError
from tests.checks import refusal
from tests.corpus.conftest import block

arrow: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")

ROWS = [
    {"id": i, "translation": {"de": f"zwei\n{i}", "en": f"two ü {i}" if i else None}, "score": i / 4}
    for i in range(2500)
]


def test_a_parquet_file_is_read_row_by_row(tmp_path: Path) -> None:
    parquet.write_table(arrow.Table.from_pylist(ROWS), tmp_path / "a.parquet", row_group_size=700)
    result = block(tmp_path / "a.parquet", score_column="score")
    assert result.sources == [b"", *(f"two ü {i}".encode() for i in range(1, 2500))]
    assert result.targets == [f"zwei {i}".encode() for i in range(2500)]
    assert result.scores == [i / 4 for i in range(2500)]


@pytest.mark.parametrize("column", ["string", "large_string", "dictionary"])
def test_texts_of_any_type_and_columns_named_in_settings(tmp_path: Path, column: str) -> None:
    texts = arrow.array(["a", "b", "a"])
    texts = texts.dictionary_encode() if column == "dictionary" else texts.cast(getattr(arrow, column)())
    parquet.write_table(arrow.table({"x.y": texts, "z": ["1", "2", "3"]}), tmp_path / "a.parquet")
    result = block(tmp_path / "a.parquet", source_column="x.y", target_column="z")
    assert (result.sources, result.targets, result.scores) == ([b"a", b"b", b"a"], [b"1", b"2", b"3"], [])


def test_damaged_files_are_an_error_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.Table.from_pylist(ROWS[:300]), path, compression="none")
    content = path.read_bytes()
    for position in range(0, len(content), len(content) // 60):
        path.write_bytes(
            content[:position] + bytes(4) + content[position + 4 :] if position % 2 else content[:position]
        )
        try:
            block(path)
        except UserError as error:
            assert str(path) in str(error)
            assert "\n" not in str(error)


@pytest.mark.parametrize("name", ["dataset_info.json", "dataset_dict.json"])
def test_a_folder_saved_by_datasets_is_refused_with_the_remedy(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert f"{tmp_path} is a folder of Hugging Face's datasets" in refusal(block, tmp_path)


def test_a_small_file_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(
        arrow.table({"en": ["x", "x" * 30_000_000], "de": ["a", "b"]}), path, compression="zstd"
    )
    assert path.stat().st_size < 10_000_000
    with pytest.raises(
        UserError, match=r"a\.parquet: en has 30,0..,... bytes in row group 1 \(.* compressed"
    ):
        block(path)
    long = arrow.DictionaryArray.from_arrays(arrow.array([0] * 500), ["x" * 1_000_000])
    parquet.write_table(arrow.table({"en": long, "de": ["a"] * 500}), path)
    with pytest.raises(UserError, match=r"a\.parquet row 1 to 269: more than 268,435,456 bytes"):
        block(path)


def test_an_error_about_a_long_text_names_its_row(tmp_path: Path) -> None:
    table = arrow.table({"en": ["x", random.Random(1).randbytes(2_000_001).hex()], "de": ["a", "b"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet row 2: more than 4,000,000 bytes"):
        block(tmp_path / "a.parquet")


def test_an_error_about_a_column_without_text_names_its_row(tmp_path: Path) -> None:
    parquet.write_table(arrow.table({"en": [1], "de": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet row 1: source is 1, not text"):
        block(tmp_path / "a.parquet")


def test_a_chosen_column_that_is_repeated_is_refused(tmp_path: Path) -> None:
    table = arrow.Table.from_arrays([arrow.array(["a"])] * 3, names=["en", "de", "en"])
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet has 2 columns named en\. Rename all but one\."):
        block(tmp_path / "a.parquet")
