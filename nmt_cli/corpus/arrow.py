"""Parquet files and the folders of Hugging Face's `datasets`, read by pyarrow in small batches."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from nmt_cli.corpus.config import CorpusConfig
from nmt_cli.corpus.records import Columns, Scored, as_score, chosen, text_of
from nmt_cli.errors import UserError, does_not_exist
from nmt_cli.runtime.foreign_text import is_inside, parsed_json, read_ordinary
from nmt_cli.runtime.zips import DENSEST, SMALL

PARQUET = ".parquet"
STATE, SPLITS = "state.json", "dataset_dict.json"
"""Files that `save_to_disk` writes into the folder of a data set, and into one of several splits."""

BATCH_ROWS = 100
"""Rows read at a time. Parquet can compress a long text to a few bytes, so more rows may fill the memory."""

MAX_COLUMN_BYTES = 1 << 29
"""Maximum size of a column in a row group, which pyarrow may hold in memory as a whole."""


def is_folder_of_rows(path: Path) -> bool:
    """Return whether `save_to_disk` of Hugging Face's `datasets` wrote the folder `path`."""
    return (path / STATE).is_file() or (path / SPLITS).is_file()


def files_of(folder: Path) -> tuple[Path, ...]:
    """Return the files of a folder with one split, in the order of the rows. Raise `UserError` for several
    splits or none, damaged metadata, reordered rows, and files outside the folder."""
    if not (folder / STATE).is_file():
        names = sorted(path.parent.name for path in folder.glob(f"*/{STATE}"))
        splits = f"the splits {', '.join(names)}" if names else "no split"
        raise UserError(f"{folder} has {splits}. Name one of them, such as {folder}/train.")
    try:
        state = parsed_json(read_ordinary(folder / STATE))
        names = [item["filename"] for item in state["_data_files"]]
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(f"{folder / STATE} is damaged ({error!r}). Save the data set again.") from error
    if state.get("_indices_files") or state.get("_indices_data_files"):
        raise UserError(f"{folder} stores its rows in another order. Save it after flatten_indices().")
    if not names or not all(is_inside(name) for name in names):
        raise UserError(f"{folder / STATE} names no files, or files outside the folder. Save it again.")
    return tuple(folder / name for name in names)


def count(files: Sequence[Path]) -> int:
    """Return the number of rows of all files. Raise `UserError` for an unreadable file or without pyarrow."""
    return sum(map(_count, files))


def _count(file: Path) -> int:
    with _explained(file):
        if file.suffix.lower() == PARQUET:
            return int(_library().parquet.ParquetFile(file).metadata.num_rows)
        with _stream(file) as batches:
            return sum(batch.num_rows for batch in batches)


def pairs(files: Sequence[Path], languages: tuple[str, str], config: CorpusConfig) -> Iterator[Scored]:
    """Yield (source, target, score) of each row. Raise `UserError` for a damaged file, a missing column, or a
    value of another type. Messages count the rows of each file from 1."""
    for file in files:
        with _explained(file):
            yield from _rows(file, languages, config)


def _rows(file: Path, languages: tuple[str, str], config: CorpusConfig) -> Iterator[Scored]:
    """Yield (source, target, score) for each row of one file. After the last row, raise `UserError` if the
    number of rows differs from the metadata."""
    number = 0
    rows = chain.from_iterable(zip(*columns, strict=True) for columns in _columns(file, languages, config))
    for number, (source, target, score) in enumerate(rows, start=1):
        location = f"{file} row {number:,}"
        yield (
            text_of(source, "source", location),
            text_of(target, "target", location),
            as_score(score, location),
        )
    if number != _count(file):
        raise UserError(f"{file} has {number:,} rows, another number than its metadata. Copy it again.")


def _columns(
    file: Path, languages: tuple[str, str], config: CorpusConfig
) -> Iterator[tuple[list[Any], list[Any], list[Any]]]:
    """Yield (sources, targets, scores) of up to `BATCH_ROWS` rows at a time. Missing scores are None. Raise
    `UserError` if a column is missing or too large."""
    if file.suffix.lower() == PARQUET:
        parquet = _library().parquet.ParquetFile(file)
        columns = _chosen(file, parquet.schema_arrow, languages, config)
        names = [name for name in columns if name]
        _refuse_large(file, parquet.metadata, names)
        for batch in parquet.iter_batches(BATCH_ROWS, columns=names):
            yield _values(batch, columns)
        return
    with _stream(file) as batches:
        columns = _chosen(file, batches.schema, languages, config)
        for batch in batches:
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield _values(batch.slice(start, BATCH_ROWS), columns)


def _refuse_large(file: Path, metadata: Any, names: Sequence[str]) -> None:
    """Raise `UserError` if a column in `names` has a row group that decompresses to over `MAX_COLUMN_BYTES`.
    Also raise it if this size is above both `SMALL` and `DENSEST` times the compressed size."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            compressed, size = column.total_compressed_size, column.total_uncompressed_size
            large = size > MAX_COLUMN_BYTES or size > max(SMALL, DENSEST * compressed)
            if large and column.path_in_schema in names:
                raise UserError(
                    f"{file}: {column.path_in_schema} has {size:,} bytes in row group {number + 1:,} "
                    f"({compressed:,} compressed), more than texts need. Write it with smaller row groups."
                )


def _chosen(file: Path, schema: Any, languages: tuple[str, str], config: CorpusConfig) -> Columns:
    """Return the names of the columns that `chosen` takes. A field of a struct is called "outer.inner"."""
    arrow = _library()
    names = []
    for field in schema:
        inner = list(field.type) if arrow.types.is_struct(field.type) else []
        names += [f"{field.name}.{part.name}" for part in inner] or [field.name]
    return chosen(names, languages, config, str(file))


def _values(batch: Any, columns: Columns) -> tuple[list[Any], list[Any], list[Any]]:
    """Return (sources, targets, scores) of a batch. If there is no score column, all scores are None."""
    batch.validate(full=True)  # otherwise wrong lengths in the file would read past the end of the memory
    source, target, score = (
        [None] * batch.num_rows if name is None else _column(batch, name).to_pylist() for name in columns
    )
    return source, target, score


def _column(batch: Any, name: str) -> Any:
    """Return column `name` of a batch. If there is none, "outer.inner" is field "inner" of column "outer"."""
    if name in batch.schema.names:
        return batch.column(name)
    outer, _, inner = name.partition(".")
    return _library().compute.struct_field(batch.column(outer), inner)


@contextmanager
def _stream(file: Path) -> Iterator[Any]:
    """Open a file of `save_to_disk` for a `with` block. Yield an iterator over the file's batches."""
    arrow = _library()
    with arrow.memory_map(os.fspath(file)) as mapped, arrow.ipc.open_stream(mapped) as batches:
        yield batches


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    """Turn errors of pyarrow and the system, and lack of memory, in the `with` block into `UserError`."""
    arrow = _library()
    try:
        yield
    except FileNotFoundError as error:
        raise does_not_exist(file) from error
    except (arrow.ArrowException, OSError, MemoryError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise UserError(f"{file} can't be read ({reason}). Copy it again.") from error


def _library() -> Any:
    """Return pyarrow with its submodules. Raise `UserError` if it is not installed."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise UserError(
            "parquet files and folders of Hugging Face datasets need pyarrow. Run: pip install '.[arrow]'"
        ) from error
    return pyarrow
