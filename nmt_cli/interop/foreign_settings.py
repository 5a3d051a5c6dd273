"""Read the settings of another toolkit's model. Reading a setting checks its type."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from reprlib import repr as shorten
from typing import Any, TypeVar

from nmt_cli.errors import UserError
from nmt_cli.named_values import Values
from nmt_cli.runtime.foreign_text import parsed_json, read_ordinary
from nmt_cli.text.subword_models.pieces import Pieces

Choice = TypeVar("Choice")


class ForeignSettings(Values):
    """Settings of another toolkit by name. Null counts as missing. A value of the wrong type raises
    `UserError`, which names `where`."""

    absent = (None,)

    def __init__(self, values: object, where: str) -> None:
        """Keep the parsed settings. Raise `UserError` if `values` is not a mapping."""
        super().__init__(values, lambda problem: UserError(f"{where}: {problem}. Copy it again."))
        self.where = where

    def __or__(self, other: "ForeignSettings") -> "ForeignSettings":
        """Return the settings of both. Those of `other` replace ours."""
        return ForeignSettings({**self.values, **other.values}, self.where)

    def missing(self, name: str) -> UserError:
        """Return the error about a missing setting without a default."""
        return UserError(f"{self.where} has no {name}, so nmt does not support this model.")

    def part(self, name: str) -> "ForeignSettings":
        """Return the settings in the table `name`. A missing table has no settings."""
        return ForeignSettings(self.values.get(name) or {}, f"{self.where}: {name}")

    def differences(self, other: "ForeignSettings", names: Sequence[str]) -> list[str]:
        """Return those of `names` with another value in `other`."""
        return [name for name in names if self.values.get(name) != other.values.get(name)]

    def integer_if_other(self, name: str, other: int) -> int:
        """Return a whole number, or 0 if it is missing or equal to `other`."""
        value = self.integer(name, other)
        return 0 if value == other else value

    def list_of(self, name: str, kind: type[Choice], default: Sequence[Choice] = ()) -> list[Choice]:
        """Return a list of items of `kind`, or `default` if it is missing."""
        # An empty list in YAML is an empty text.
        return list(default) if self.found(name) == "" else super().list_of(name, kind, default)

    def equals(self, name: str, value: object) -> bool:
        """Return whether a setting has the value and the exact type of `value`."""
        actual = self.values.get(name)
        # In Python, 1 and 1.0 are equal to True.
        return type(actual) is type(value) and bool(actual == value)

    def choice(self, name: str, choices: Mapping[str, Choice], default: str) -> Choice:
        """Return the value of `choices` whose key is the setting. A missing setting counts as the key
        `default`. Raise `UserError` for another key."""
        key = self.text(name, default)
        if key not in choices:
            raise UserError(f"{self.where}: {name} is {key}. nmt supports {', '.join(choices)}.")
        return choices[key]

    def demand(self, name: str, *choices: object) -> None:
        """Raise `UserError` if a setting has a value that nmt does not support. `choices` are the supported
        values. A missing setting and null are supported."""
        value = self.values.get(name, choices[0])
        if value is not None and not (isinstance(value, bool | int | float | str) and value in choices):
            supported = " or ".join(map(repr, choices))
            raise UserError(f"{self.where}: {name} is {shorten(value)}, but nmt supports only {supported}.")


def read_file(path: Path) -> bytes:
    """Return a file's content. Raise `UserError` if it is missing, too large, or not an ordinary file."""
    try:
        return read_ordinary(path)
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing. Copy the whole folder again.") from error


def read_spm(path: Path) -> bytes:
    """Return the content of a SentencePiece model. Raise `UserError` as `read_file`, or if it is not one."""
    content = read_file(path)
    try:
        Pieces(content)
    except UserError as error:
        raise UserError(f"{path}: {error.message}") from error
    return content


def read_json(path: Path) -> Any:
    """Return the parsed content of a JSON file. Raise `UserError` as `read_file`, or if it is not JSON."""
    try:
        return parsed_json(read_file(path))
    except ValueError as error:
        raise UserError(f"{path} is damaged (it is not JSON). Copy it again.") from error


def read_settings(path: Path) -> ForeignSettings:
    """Return the settings in a JSON file. Raise `UserError` if the file is missing or not one JSON object."""
    return ForeignSettings(read_json(path), str(path))


def read_settings_if_any(path: Path) -> ForeignSettings:
    """Return the settings in a JSON file. If the file is missing, there are none, and errors about them name
    the folder."""
    return read_settings(path) if path.is_file() else ForeignSettings({}, str(path.parent))


def read_ids(path: Path, rows: int) -> dict[str, int]:
    """Return the id of each piece in a JSON file, for a model with `rows` entries.

    Raise `UserError` if the file is missing or damaged, if an id is negative or not below `rows`, and if two
    pieces have the same id.
    """
    values = read_json(path)
    if not isinstance(values, dict) or not all(type(i) is int for i in values.values()):
        raise UserError(f"{path} is not a vocabulary. Copy it again.")
    if wrong := [i for i in values.values() if not 0 <= i < rows]:
        raise UserError(f"{path} has the id {wrong[0]}, but the model has only {rows:,} entries.")
    if len({*values.values()}) < len(values):
        raise UserError(f"{path} gives one id to two pieces. Copy it again.")
    return values


def read_text(path: Path) -> str:
    """Return the text of a file. Raise `UserError` if `read_file` does, or if it is not UTF-8."""
    try:
        return read_file(path).decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text. Copy it again.") from error
