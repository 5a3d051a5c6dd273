"""Parquet files and Hugging Face's `datasets` folders, read by pyarrow a batch at a time."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmt_cli.corpus.config import CorpusConfig
from nmt_cli.corpus.records import NO_SCORE, Scored, as_score, chosen, text_of
from nmt_cli.errors import UserError
from nmt_cli.runtime.foreign_text import is_inside, parsed_json, read_ordinary
from nmt_cli.runtime.zips import DENSEST, SMALL

PARQUET = ".parquet"
STATE, SPLITS = "state.json", "dataset_dict.json"
"""What `save_to_disk` writes beside the files of a data set, and above those of several splits."""

AT_ONCE = 100
"""Rows. Parquet repeats a long text in a few bytes, so a small file may need much memory."""

LARGEST_COLUMN = 1 << 29
"""Bytes of a column in a row group, which pyarrow may hold as a whole."""


def is_folder_of_rows(path: Path) -> bool:
    """Whether `save_to_disk` wrote the folder."""
    return (path / STATE).is_file() or (path / SPLITS).is_file()


def files_of(folder: Path) -> tuple[Path, ...]:
    """The files of rows in a folder of one split, in order."""
    if not (folder / STATE).is_file():
        raise UserError(f"{folder} has {_splits(folder)}; name one of them, such as {folder}/train.")
    try:
        state = parsed_json(read_ordinary(folder / STATE))
        names = [item["filename"] for item in state["_data_files"]]
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(f"{folder / STATE} is damaged ({error!r}); save the data set again.") from error
    if state.get("_indices_files") or state.get("_indices_data_files"):
        raise UserError(f"{folder} has rows in an order of its own; save it after flatten_indices().")
    if not names or not all(is_inside(name) for name in names):
        raise UserError(f"{folder / STATE} names no files, or such as lie elsewhere; save it again.")
    return tuple(folder / name for name in names)


def _splits(folder: Path) -> str:
    found = sorted(path.parent.name for path in folder.glob(f"*/{STATE}"))
    return f"the splits {', '.join(found)}" if found else "no split"


def count(files: tuple[Path, ...]) -> int:
    """How many rows there are, as the files say."""
    total = 0
    for file in files:
        with _explained(file):
            if file.suffix.lower() == PARQUET:
                total += _library("parquet").ParquetFile(file).metadata.num_rows
            else:
                with _stream(file) as batches:
                    total += sum(batch.num_rows for batch in batches)
    return total


def pairs(files: tuple[Path, ...], languages: tuple[str, str], config: CorpusConfig) -> Iterator[Scored]:
    """The rows of all files, in order."""
    for file in files:
        with _explained(file):
            # Their own numbers, from 1: who looks a row up opens one file.
            first = 1
            for columns in _columns(file, languages, config):
                for number, (source, target, score) in enumerate(zip(*columns, strict=True), start=first):
                    place = f"{file} row {number:,}"
                    yield (
                        text_of(source, ("source",), place),
                        text_of(target, ("target",), place),
                        NO_SCORE if score is None else as_score(score, place),
                    )
                first += len(columns[0])
            if first - 1 != count((file,)):
                raise UserError(f"{file} has {first - 1:,} rows, not as many as it says; copy it again.")


def _refuse_large(file: Path, metadata: Any, names: Sequence[str]) -> None:
    """Raise `UserError` for a column of texts that grows too large when it is read."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            packed, unpacked = column.total_compressed_size, column.total_uncompressed_size
            large = unpacked > LARGEST_COLUMN or unpacked > max(SMALL, DENSEST * packed)
            if large and column.path_in_schema in names:
                raise UserError(
                    f"{file}: {column.path_in_schema} has {unpacked:,} bytes in row group {number + 1:,} "
                    f"({packed:,} compressed), more than texts need; write it with smaller row groups."
                )


def _columns(
    file: Path, languages: tuple[str, str], config: CorpusConfig
) -> Iterator[tuple[list[Any], list[Any], list[Any]]]:
    """Source, target and score of some rows at a time."""
    if file.suffix.lower() == PARQUET:
        parquet = _library("parquet").ParquetFile(file)
        wanted = _wanted(file, parquet.schema_arrow, languages, config)
        _refuse_large(file, parquet.metadata, [name for name in wanted if name])
        for batch in parquet.iter_batches(AT_ONCE, columns=[name for name in wanted if name]):
            yield _values(batch, wanted)
        return
    with _stream(file) as batches:
        wanted = _wanted(file, batches.schema, languages, config)
        for batch in batches:
            for start in range(0, batch.num_rows, AT_ONCE):
                yield _values(batch.slice(start, AT_ONCE), wanted)


def _wanted(
    file: Path, schema: Any, languages: tuple[str, str], config: CorpusConfig
) -> tuple[str, str, str | None]:
    arrow = _library()
    names = []
    for field in schema:
        inner = list(field.type) if arrow.types.is_struct(field.type) else []
        names += [f"{field.name}.{part.name}" for part in inner] or [field.name]
    return chosen(names, languages, config, str(file))


def _values(batch: Any, wanted: tuple[str, str, str | None]) -> tuple[list[Any], list[Any], list[Any]]:
    batch.validate(full=True)  # or lengths that lie would be read beyond the end
    source, target, score = (
        [None] * batch.num_rows if name is None else _column(batch, name).to_pylist() for name in wanted
    )
    return source, target, score


def _column(batch: Any, name: str) -> Any:
    if name in batch.schema.names:
        return batch.column(name)
    outer, _, inner = name.partition(".")
    return _library("compute").struct_field(batch.column(outer), inner)


@contextmanager
def _stream(file: Path) -> Iterator[Any]:
    arrow = _library()
    with arrow.memory_map(os.fspath(file)) as mapped, arrow.ipc.open_stream(mapped) as batches:
        yield batches


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    arrow = _library()
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(f"{file}: there is no such file; check the path.") from error
    except (arrow.ArrowException, OSError, MemoryError) as error:
        why = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise UserError(f"{file} can't be read ({why}); copy it again.") from error


def _library(part: str = "") -> Any:
    """pyarrow, or one of its modules; `UserError` where it is not installed."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise UserError(
            "parquet and Hugging Face's folders are read by pyarrow; pip install '.[arrow]'."
        ) from error
    return getattr(pyarrow, part) if part else pyarrow
