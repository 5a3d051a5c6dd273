"""Tables and records: tab-separated text with named columns, and JSONL; which column holds what."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from nmt_cli.corpus import files
from nmt_cli.corpus.config import CorpusConfig
from nmt_cli.errors import UserError
from nmt_cli.language import fits

JSONL_SUFFIXES = (".jsonl", ".ndjson", ".json")
USUAL = (("source", "src"), ("target", "tgt"))
"""What either side is called in tables that do not name languages."""

NESTED = "translation"
"""The field that Hugging Face's data sets have for both sides, by language."""

NO_SCORE = float("nan")
"""Of a pair that has none, though others of its corpus do; it is not below anything."""

Scored = tuple[bytes, bytes, float]
Path_ = tuple[str, ...]


def wants_columns(config: CorpusConfig) -> bool:
    """Whether somebody said which columns of a table to take."""
    return bool(config.source_column or config.target_column or config.score_column)


def chosen(
    names: Sequence[str], languages: tuple[str, str], config: CorpusConfig, place: str
) -> tuple[str, str, str | None]:
    """Which of a table's columns hold source, target and score; `place` is for messages."""
    given = (config.source_column, config.target_column)
    sides = [
        _given(names, given[i], place) if given[i] else _usual(names, languages[i], USUAL[i], place, i)
        for i in (0, 1)
    ]
    if sides[0] == sides[1]:
        raise UserError(f"{place}: {sides[0]} would be both source and target; set corpus.source_column.")
    return sides[0], sides[1], _given(names, config.score_column, place) if config.score_column else None


def _given(names: Sequence[str], name: str, place: str) -> str:
    if name not in names:
        raise UserError(f"{place} has no {name}; it has {_told(names)}.")
    return name


def _usual(names: Sequence[str], lang: str, usual: Sequence[str], place: str, side: int) -> str:
    exact = [f"{NESTED}.{lang}", lang, *usual]
    found = [name for name in exact if name in names]
    found += [name for name in names if fits(name.removeprefix(f"{NESTED}."), lang)]
    if not found:
        setting = "source_column" if side == 0 else "target_column"
        raise UserError(
            f"{place} has no {exact[0]}, {lang} or {exact[2]}, but {_told(names)}; say which it is with "
            f"--set corpus.{setting}=NAME."
        )
    return found[0]


def _told(names: Sequence[str]) -> str:
    return ", ".join(name[:50] for name in names[:20]) or "nothing"


def table(path: Path, name: str, languages: tuple[str, str], config: CorpusConfig) -> Iterator[Scored]:
    """The rows of tab-separated text; its first line has the columns' names, unless numbers were given.

    Nothing is quoted: a tab always ends a column, and a line feed a row.
    """
    rows = enumerate(files.lines(path), start=1)
    numbered = has_no_names(config)
    first = [] if numbered else _columns(next(rows, (1, b""))[1])
    width = len(first)
    places = None if numbered else _places(first, chosen(first, languages, config, f"{name} line 1"))
    for number, row in rows:
        columns = row.split(b"\t")
        if places is None:  # the first row says how many columns there are
            width = len(columns)
            told = [str(place) for place in range(1, width + 1)]
            config_of = _numbers(config)
            places = _places(told, chosen(told, ("1", "2"), config_of, f"{name} line {number:,}"))
        if len(columns) != width:
            raise UserError(
                f"{name} line {number:,} has {len(columns)} columns, but line 1 has {width}; every row must "
                "have as many, with one tab between."
            )
        score = NO_SCORE if places[2] is None else as_score(columns[places[2]], f"{name} line {number:,}")
        yield columns[places[0]], columns[places[1]], score


def has_no_names(config: CorpusConfig) -> bool:
    """Whether columns are told by numbers, so that the first line of a table is a pair already."""
    given = [config.source_column, config.target_column, config.score_column]
    return all(name.isdecimal() for name in given if name)


def _numbers(config: CorpusConfig) -> CorpusConfig:
    return CorpusConfig(
        source_column=config.source_column or "1",
        target_column=config.target_column or "2",
        score_column=config.score_column,
    )


def _columns(line: bytes) -> list[str]:
    return line.decode(errors="replace").split("\t")


def _places(names: Sequence[str], wanted: tuple[str, str, str | None]) -> tuple[int, int, int | None]:
    source, target, score = wanted
    return names.index(source), names.index(target), None if score is None else names.index(score)


def jsonl(path: Path, name: str, languages: tuple[str, str], config: CorpusConfig) -> Iterator[Scored]:
    """The records of JSONL, an object a line."""
    wanted: tuple[Path_, Path_, Path_ | None] | None = None
    for number, line in enumerate(files.lines(path), start=1):
        place = f"{name} line {number:,}"
        record = _record(line, place)
        if wanted is None:
            source, target, score = chosen(field_names(record), languages, config, place)
            wanted = _path(source), _path(target), None if score is None else _path(score)
        score_at = wanted[2]
        yield (
            text_of(_at(record, wanted[0], place), wanted[0], place),
            text_of(_at(record, wanted[1], place), wanted[1], place),
            NO_SCORE if score_at is None else as_score(_at(record, score_at, place), place),
        )


def _record(line: bytes, place: str) -> dict[str, Any]:
    try:
        # Bytes that are not UTF-8 pass unchanged: the user's rule for them is applied to all text later.
        record = json.loads(line.decode(errors="surrogateescape"))
    except RecursionError as error:
        raise UserError(f"{place} is nested too deeply to be read.") from error
    except ValueError as error:
        raise UserError(f"{place} is no JSON ({error}); a line must be one object.") from error
    if not isinstance(record, dict):
        what = "a list (jq -c '.[]' puts its items on lines)" if isinstance(record, list) else "no object"
        raise UserError(f"{place} is {what}; a line must be one object.")
    return record


def field_names(record: dict[str, Any]) -> list[str]:
    """The fields of a record, and those of records inside it as "outer.inner"."""
    names = []
    for key, value in islice(record.items(), 1000):
        inner = [f"{key}.{name}" for name in islice(value, 1000)] if isinstance(value, dict) else []
        names += inner or [key]
    return names


def _path(name: str) -> Path_:
    return tuple(name.split(".", 1))


def _at(record: dict[str, Any], path: Path_, place: str) -> Any:
    whole = ".".join(path)
    if whole in record:  # a name may have a full stop in it
        return record[whole]
    value: Any = record
    for key in path:
        if not isinstance(value, dict) or key not in value:
            raise UserError(f"{place} has no {whole}; it has {_told(field_names(record))}.")
        value = value[key]
    return value


def text_of(value: object, path: Path_, place: str) -> bytes:
    """A field's text on one line; null is an empty side, which is counted as one."""
    if value is None:
        return b""
    if not isinstance(value, str):
        raise UserError(f"{place}: {'.'.join(path)} is {str(value)[:50]}, and no text.")
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        encoded = _as_it_was(value)
    files.refuse_large(len(encoded), place)
    # A pair may not go over several lines.
    return b" ".join(encoded.splitlines()) if b"\n" in encoded or b"\r" in encoded else encoded


def _as_it_was(value: str) -> bytes:
    try:
        return value.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # half a surrogate pair, spelt as \ud800
        return value.encode(errors="surrogatepass")


def as_score(value: object, place: str) -> float:
    """The number in a field; what is empty or null has none."""
    if value is None or value in ("", b""):
        return NO_SCORE
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        told = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        raise UserError(f"{place}: the score is {told[:50]!r}, and no number.") from error
