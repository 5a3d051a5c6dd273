"""What another toolkit's description says, value by value; of each it is known that it was looked at."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt_cli.errors import UserError
from nmt_cli.machine.reading import parsed_json, read_ordinary

MOST = 1e300
"""A description with a larger number is damaged."""


class Told:
    """A mapping from outside: no value is of the type that it should be until it was asked for."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, Mapping):
            raise UserError(f"{where} is damaged (it holds no settings); copy it again.")
        self._values, self.where = values, where

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number."""
        value = self._value(name, default)
        if type(value) is not int:
            raise self._no(name, value, "a whole number")
        return value

    def names(self) -> list[str]:
        """All that it says something of."""
        return list(self._values)

    def parts(self, name: str) -> "list[Told]":
        """A list of settings; an empty one where it does not say."""
        value = self._values.get(name) or []
        if not isinstance(value, list):
            raise self._no(name, value, "a list")
        return [Told(each, f"{self.where}: {name}") for each in value]

    def texts(self, name: str) -> list[str]:
        """A list of texts; an empty one where it does not say."""
        value = self._values.get(name) or []
        if not isinstance(value, list) or not all(type(each) is str for each in value):
            raise self._no(name, value, "a list of texts")
        return value

    def integers(self, name: str) -> list[int]:
        """A list of whole numbers; an empty one where it does not say."""
        value = self._values.get(name) or []
        if not isinstance(value, list) or not all(type(each) is int for each in value):
            raise self._no(name, value, "a list of whole numbers")
        return value

    def number(self, name: str, default: float) -> float:
        """Any number."""
        value = self._value(name, default)
        if type(value) not in (int, float) or not abs(value) < MOST:
            raise self._no(name, value, "a number")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._value(name, default)
        if type(value) is not bool:
            raise self._no(name, value, "true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A text."""
        value = self._value(name, default)
        if type(value) is not str:
            raise self._no(name, value, "a text")
        return value

    def is_true(self, name: str) -> bool:
        """Whether a value is true, and nothing else that counts as it."""
        return self._values.get(name) is True

    def says(self, name: str, wanted: str) -> bool:
        """Whether a value, of whatever type, is this text."""
        found: bool = self._values.get(name) == wanted
        return found

    def demand(self, name: str, *wanted: object) -> None:
        """`UserError` where a setting is none of what is `wanted`, the first of which is meant by none."""
        value = self._values.get(name, wanted[0])
        if value not in wanted and value is not None:
            choices = " or ".join(map(repr, wanted))
            raise UserError(
                f"{self.where}: {name} is {value!r}, but nmt's Transformer can do only {choices}."
            )

    def _value(self, name: str, default: Any) -> Any:
        value = self._values.get(name)
        if value is None and default is None:
            raise UserError(f"{self.where} does not say {name}, so it is no model that nmt knows.")
        return default if value is None else value

    def _no(self, name: str, value: object, wanted: str) -> UserError:
        return UserError(f"{self.where}: {name} is {str(value)[:40]!r}, not {wanted}; copy it again.")


def read_json(path: Path) -> Any:
    """What a JSON file holds; `UserError` where it is none."""
    try:
        return parsed_json(read_ordinary(path))
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing; copy the whole folder again.") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged (it is no JSON); copy it again.") from error


def told_in(path: Path) -> Told:
    """What a JSON file says."""
    return Told(read_json(path), str(path))
