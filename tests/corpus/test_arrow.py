"""Parquet files and folders of Hugging Face datasets are read, and damaged ones are an error of one line."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.corpus.parallel import find
from nmt_cli.errors import UserError
from tests.checks import refusal
from tests.corpus.conftest import block

arrow: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")

ROWS = [
    {"id": i, "translation": {"de": f"zwei\n{i}", "en": f"two ü {i}" if i else None}, "score": i / 4}
    for i in range(2500)
]


def folder_of_rows(folder: Path, tables: list[Any], **state: object) -> Path:
    """Write a folder like `datasets.Dataset.save_to_disk`."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05}-of-{len(tables):05}.arrow" for i in range(len(tables))]
    for name, table in zip(names, tables, strict=True):
        with arrow.OSFile(str(folder / name), "wb") as file, arrow.ipc.new_stream(file, table.schema) as out:
            out.write_table(table)
    files = [{"filename": name} for name in names]
    (folder / "state.json").write_text(json.dumps({"_data_files": files, **state}))
    return folder


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


def test_a_folder_of_several_files_is_one_corpus(tmp_path: Path) -> None:
    tables = [arrow.Table.from_pylist(ROWS[:1200]), arrow.Table.from_pylist(ROWS[1200:])]
    folder = folder_of_rows(tmp_path / "set" / "train", tables)
    corpus = find(str(folder), "en", "de")
    assert (corpus.name, len(corpus.files)) == ("train", 2)
    assert block(folder).targets == [f"zwei {i}".encode() for i in range(2500)]


@pytest.mark.filterwarnings("ignore")
def test_a_folder_saved_by_datasets_is_read(tmp_path: Path) -> None:
    datasets: Any = pytest.importorskip("datasets")
    rows = datasets.Dataset(arrow.Table.from_pylist(ROWS[1:]))
    datasets.DatasetDict({"train": rows, "test": rows}).save_to_disk(
        tmp_path / "set", num_shards={"train": 2, "test": 1}
    )
    loaded = datasets.load_from_disk(tmp_path / "set")["train"]
    result = block(tmp_path / "set" / "train")
    assert [text.decode() for text in result.sources] == [row["translation"]["en"] for row in loaded]
    with pytest.raises(UserError, match=r"has the splits test, train. Name one"):
        find(str(tmp_path / "set"), "en", "de")


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"_data_files": []}', "names no files"),
        ('{"_data_files": [{"filename": "../../x.arrow"}]}', "files outside the folder"),
        ('{"_data_files": [{"filename": "x.arrow"}], "_indices_files": [1]}', "flatten_indices"),
        ('{"_data_files": [{"filename": "x.arrow"}]}', "x.arrow does not exist"),
    ],
)
def test_a_folder_with_a_wrong_description_is_an_error(tmp_path: Path, state: str, why: str) -> None:
    (tmp_path / "state.json").write_text(state)
    assert why in refusal(block, tmp_path)


@pytest.mark.parametrize("name", ["a.parquet", "x.arrow"])
def test_damaged_files_are_an_error_of_one_line(tmp_path: Path, name: str) -> None:
    table = arrow.Table.from_pylist(ROWS[:300])
    parquet.write_table(table, tmp_path / "a.parquet", compression="none")
    folder = folder_of_rows(tmp_path / "set", [table])
    path = tmp_path / "a.parquet" if name == "a.parquet" else folder / "data-00000-of-00001.arrow"
    content = path.read_bytes()
    spec = path if name == "a.parquet" else folder
    for position in range(0, len(content), len(content) // 60):
        path.write_bytes(
            content[:position] + bytes(4) + content[position + 4 :] if position % 2 else content[:position]
        )
        try:
            block(spec)
        except UserError as error:
            assert str(path) in str(error)
            assert "\n" not in str(error)


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
    folder = folder_of_rows(tmp_path / "set", [table])
    for path, name in ((tmp_path / "a.parquet", "a.parquet"), (folder, "data-00000-of-00001.arrow")):
        with pytest.raises(UserError, match=rf"{name} row 2: more than 4,000,000 bytes"):
            block(path)


def test_an_error_about_a_column_without_text_names_its_row(tmp_path: Path) -> None:
    parquet.write_table(arrow.table({"en": [1], "de": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet row 1: source is 1, not text"):
        block(tmp_path / "a.parquet")
