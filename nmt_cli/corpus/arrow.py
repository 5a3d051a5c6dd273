"""Parquet files, read by pyarrow in small batches.

A file from outside may be damaged or hostile, so sizes are checked before pyarrow loads anything.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from nmt_cli.corpus.config import CorpusConfig
from nmt_cli.corpus.records import Columns, Scored, as_score, chosen, text_of
from nmt_cli.errors import UserError, does_not_exist
from nmt_cli.runtime.zips import DENSEST, SMALL

PARQUET = ".parquet"

BATCH_ROWS = 100
"""The number of rows that are read at a time. A Parquet file of 6 kB can contain gigabytes of text, so more
rows might fill the memory."""

MAX_COLUMN_BYTES = 1 << 29
"""The maximum size of a column in a row group, a section of the file that pyarrow may hold in memory as a
whole."""


def count(file: Path) -> int:
    """Return the number of rows. Raise `UserError` if the file is unreadable, or pyarrow is not installed."""
    with _explained(file):
        return int(_library().parquet.ParquetFile(file).metadata.num_rows)


def pairs(file: Path, languages: tuple[str, str], config: CorpusConfig) -> Iterator[Scored]:
    """Yield (source, target, score) of each row. Without a score, it is `NO_SCORE`.

    Raise `UserError` for a damaged file, a missing column, or a value of another type. If the number of rows
    is not that in the file's metadata, raise it after the last row.
    """
    with _explained(file):
        number = 0
        rows = chain.from_iterable(
            zip(*columns, strict=True) for columns in _columns(file, languages, config)
        )
        for number, (source, target, score) in enumerate(rows, start=1):
            location = f"{file} row {number:,}"
            yield (
                text_of(source, "source", location),
                text_of(target, "target", location),
                as_score(score, location),
            )
        # A damaged file may end without an error of pyarrow, and a shorter corpus would be read in silence.
        if number != count(file):
            raise UserError(f"{file} has {number:,} rows, another number than its metadata. Copy it again.")


def _columns(
    file: Path, languages: tuple[str, str], config: CorpusConfig
) -> Iterator[tuple[list[Any], list[Any], list[Any]]]:
    """Yield lists of sources, targets and scores, for up to `BATCH_ROWS` rows at a time. A missing score is
    None."""
    parquet = _library().parquet.ParquetFile(file)
    columns = _chosen(file, parquet.schema_arrow, languages, config)
    names = [name for name in columns if name]
    # A file of 6 kB made pyarrow take 5.1 GB.
    _refuse_large(file, parquet.metadata, names)
    for batch in parquet.iter_batches(BATCH_ROWS, columns=names):
        batch.validate(full=True)  # wrong lengths in the file would read past the end of the memory
        source, target, score = (
            [None] * batch.num_rows if name is None else _column(batch, name).to_pylist() for name in columns
        )
        yield source, target, score


def _refuse_large(file: Path, metadata: Any, names: Sequence[str]) -> None:
    """Raise `UserError` if a column in `names` is too large for texts in one of the row groups.

    It is if it decompresses to more than `MAX_COLUMN_BYTES`. It is also if it decompresses to more than
    `SMALL` bytes and to more than `DENSEST` times its compressed size.
    """
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
    """Return the names of the columns to read. A field of a struct is called "outer.inner"."""
    arrow = _library()
    names = []
    for field in schema:
        inner = list(field.type) if arrow.types.is_struct(field.type) else []
        names += [f"{field.name}.{part.name}" for part in inner] or [field.name]
    return chosen(names, languages, config, str(file))


def _column(batch: Any, name: str) -> Any:
    """Return the column `name` of a batch. "outer.inner" is a column of that name or, if there is none, the
    field "inner" of the struct "outer"."""
    if name in batch.schema.names:
        return batch.column(name)
    outer, _, inner = name.partition(".")
    return _library().compute.struct_field(batch.column(outer), inner)


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    """Turn errors of pyarrow and of the system in the block, and a lack of memory, into `UserError`."""
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
        raise UserError("parquet files need pyarrow. Run: pip install '.[arrow]'") from error
    return pyarrow
