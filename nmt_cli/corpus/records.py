"""Corpora with columns: tab-separated text and JSON lines, and the choice of the columns to read.

A row of a table or an object of JSON is a record. `location` is the start of a message, such as "a.tsv line
3".
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from nmt_cli.corpus import raw_files
from nmt_cli.corpus.config import CorpusConfig
from nmt_cli.errors import UserError
from nmt_cli.language import fits

JSONL_SUFFIXES = (".jsonl", ".ndjson", ".json")
USUAL_NAMES = (("source", "src"), ("target", "tgt"))
"""The usual names of the source and the target column, in tables that do not name languages."""

NESTED = "translation"
"""The field that contains both sides by language, in data sets of Hugging Face."""

NO_SCORE = float("nan")
"""The score of a pair that has none. It is NaN, which is not below any limit, so filters keep the pair."""

Scored = tuple[bytes, bytes, float]
"""Source, target and score of a pair."""

Columns = tuple[str, str, str | None]
"""The names of the columns of source, target and score. None if there are no scores."""


def has_no_names(config: CorpusConfig) -> bool:
    """Return whether a table begins with a pair. Otherwise its first line has the names of the columns.

    It begins with a pair if the settings choose columns by number, or choose none.
    """
    return all(map(str.isdecimal, config.columns))


def chosen(names: Sequence[str], languages: tuple[str, str], config: CorpusConfig, location: str) -> Columns:
    """Return the columns of source, target and score.

    A column that the settings name comes first. Otherwise, a side is the column that is called after its
    language or usually, such as "src", and there is no score. Raise `UserError` if a column is missing or
    occurs twice, or one column would be both sides.
    """
    source = config.source_column or _usual(names, languages, 0, location)
    target = config.target_column or _usual(names, languages, 1, location)
    for name in filter(None, (source, target, config.score_column)):
        if name not in names:
            raise UserError(f"{location} has no {name}. It has {_listed(names)}.")
        if names.count(name) > 1:
            raise UserError(f"{location} has {names.count(name)} columns named {name}. Rename all but one.")
    if source == target:
        setting = "target_column" if config.source_column else "source_column"
        raise UserError(f"{location}: {source} would be both source and target. Set corpus.{setting}.")
    return source, target, config.score_column or None


def _usual(names: Sequence[str], languages: tuple[str, str], side: int, location: str) -> str:
    """Return the column of a side, 0 for the source and 1 for the target, that the settings do not name.

    Its name is the first of these that exists: translation.LANG, LANG, a usual name such as "src", and
    another code of the language. Raise `UserError` if there is none.
    """
    lang = languages[side]
    preferred = [f"{NESTED}.{lang}", lang, *USUAL_NAMES[side]]
    matching = [name for name in preferred if name in names]
    matching += [name for name in names if fits(name.removeprefix(f"{NESTED}."), lang)]
    if not matching:
        setting = ("source_column", "target_column")[side]
        raise UserError(
            f"{location} has no {preferred[0]}, {lang} or {preferred[2]}, but {_listed(names)}. Name it "
            f"with --set corpus.{setting}=NAME."
        )
    return matching[0]


def _listed(names: Sequence[str]) -> str:
    # A message stays short, whatever a damaged table has in its first line.
    return ", ".join(name[:50] for name in names[:20]) or "nothing"


def two_columns(path: Path, name: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield (source, target) of each line of tab-separated text without names. `name` is the file in
    messages.

    Raise `UserError` for a line that does not have exactly two columns.
    """
    for number, line in enumerate(raw_files.lines(path), start=1):
        columns = line.split(b"\t")
        if len(columns) != 2:
            raise UserError(
                f"{name} line {number:,} has {len(columns)} columns. A line must be the source, one tab, the "
                "target (for more columns, choose one: --set corpus.source_column=1 or =NAME)."
            )
        yield columns[0], columns[1]


def table(path: Path, name: str, languages: tuple[str, str], config: CorpusConfig) -> Iterator[Scored]:
    """Yield (source, target, score) of each row of tab-separated text, in which quotes have no meaning.

    The first line has the names of the columns, unless the settings choose columns only by number. The
    numbers of source and target are 1 and 2 by default. Without a score, it is `NO_SCORE`. `name` is the file
    in messages. Raise `UserError` for rows of different lengths, a missing column, or an invalid score.
    """
    rows: Iterator[tuple[int, bytes]] = enumerate(raw_files.lines(path), start=1)
    number, first = next(rows, (1, b""))
    names = first.decode(errors="replace").split("\t")
    if has_no_names(config):
        # The first line is a pair. It must be read as one.
        rows = chain([(number, first)], rows)
        names = [str(column) for column in range(1, len(names) + 1)]
        config = replace(
            config, source_column=config.source_column or "1", target_column=config.target_column or "2"
        )
    source_name, target_name, score_name = chosen(names, languages, config, f"{name} line {number:,}")
    source, target = names.index(source_name), names.index(target_name)
    for number, row in rows:
        columns = row.split(b"\t")
        if len(columns) != len(names):
            raise UserError(
                f"{name} line {number:,} has {len(columns)} columns, but line 1 has {len(names)}. Every row "
                "must have the same number, with one tab between two columns."
            )
        score = (
            as_score(columns[names.index(score_name)], f"{name} line {number:,}") if score_name else NO_SCORE
        )
        yield columns[source], columns[target], score


def jsonl(path: Path, name: str, languages: tuple[str, str], config: CorpusConfig) -> Iterator[Scored]:
    """Yield (source, target, score) of each JSON object in a file with one object per line.

    The fields of the first object decide which ones are read. Without a score, it is `NO_SCORE`. `name` is
    the file in messages. Raise `UserError` for a line that is not an object, a missing field, or a value of a
    wrong type.
    """
    columns: Columns | None = None
    for number, line in enumerate(raw_files.lines(path), start=1):
        location = f"{name} line {number:,}"
        record = _record(line, location)
        columns = columns or chosen(field_names(record), languages, config, location)
        source, target, score = (
            None if column is None else _value(record, column, location) for column in columns
        )
        yield (
            text_of(source, columns[0], location),
            text_of(target, columns[1], location),
            as_score(score, location),
        )


def _record(line: bytes, location: str) -> dict[str, Any]:
    """Return the JSON object in a line. Raise `UserError` for anything else, or for objects that are nested
    too deeply."""
    try:
        # Bytes that are not UTF-8 pass unchanged. The reader of the corpus handles them in all formats.
        record = json.loads(line.decode(errors="surrogateescape"))
    except RecursionError as error:
        raise UserError(f"{location} is nested too deeply to be read.") from error
    except ValueError as error:
        raise UserError(f"{location} is not JSON ({error}). A line must be one object.") from error
    if not isinstance(record, dict):
        kind = (
            "a list (jq -c '.[]' writes its items as lines)" if isinstance(record, list) else "not an object"
        )
        raise UserError(f"{location} is {kind}. A line must be one object.")
    return record


def field_names(record: dict[str, Any]) -> list[str]:
    """Return the names of all fields of a record. A field of an object inside the record, one level deep, is
    called "outer.inner"."""
    names = []
    for key, value in record.items():
        inner = [f"{key}.{name}" for name in value] if isinstance(value, dict) else []
        names += inner or [key]
    return names


def _value(record: dict[str, Any], name: str, location: str) -> Any:
    """Return the field `name` of a record. "outer.inner" is a field of that name or, if there is none, the
    field "inner" of the object "outer". Raise `UserError` if it is missing."""
    if name in record:  # the name of a field may contain a full stop
        return record[name]
    value: Any = record
    for key in name.split(".", 1):
        if not isinstance(value, dict) or key not in value:
            raise UserError(f"{location} has no {name}. It has {_listed(field_names(record))}.")
        value = value[key]
    return value


def text_of(value: object, name: str, location: str) -> bytes:
    """Return a text as bytes, with line breaks replaced by spaces. None becomes b"".

    `name` is the field in messages. Raise `UserError` for another type, or more than `LONGEST_BYTES` bytes.
    """
    if value is None:
        return b""
    if not isinstance(value, str):
        raise UserError(f"{location}: {name} is {str(value)[:50]}, not text.")
    try:
        encoded = value.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # half of a surrogate pair, written as \ud800
        encoded = value.encode(errors="surrogatepass")
    raw_files.refuse_large(len(encoded), location)
    # A pair must not contain line breaks.
    return b" ".join(encoded.splitlines()) if b"\n" in encoded or b"\r" in encoded else encoded


def as_score(value: object, location: str) -> float:
    """Return a score as a number. None and empty text become `NO_SCORE`. Raise `UserError` for anything that
    is not a number."""
    if value is None or value in ("", b""):
        return NO_SCORE
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        raise UserError(f"{location}: the score is {text[:50]!r}, not a number.") from error
