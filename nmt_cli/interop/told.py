"""Settings that come with another toolkit's model. Each value is checked for its type when it is read."""

from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as shorten
from typing import Any, cast

from nmt_cli.errors import UserError
from nmt_cli.runtime.foreign_text import parsed_json, read_ordinary
from nmt_cli.setting_values import converted, is_unicode, wanted


class Told:
    """Settings by name from `where`, a file that errors name. A missing setting counts as null."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, Mapping):
            raise UserError(f"{where} is damaged (it holds no settings); copy it again.")
        self._values, self.where = values, where

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def names(self) -> list[str]:
        """Return the names of all settings."""
        return list(self._values)

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a whole number, `default` if it is missing, or raise `UserError` if there is no default."""
        return cast(int, self._read(name, int, default))

    def number(self, name: str, default: float) -> float:
        """Return a finite number, or `default` if it is missing."""
        return cast(float, self._read(name, float, default))

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false, or `default` if it is missing."""
        return cast(bool, self._read(name, bool, default))

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text, `default` if it is missing, or raise `UserError` if there is no default."""
        return cast(str, self._read(name, str, default))

    def integers(self, name: str) -> list[int]:
        """Return a list of whole numbers, empty if it is missing."""
        return list(self._read(name, tuple[int, ...], ()))

    def texts(self, name: str) -> list[str]:
        """Return a list of texts, empty if it is missing."""
        return list(self._read(name, tuple[str, ...], ()))

    def parts(self, name: str) -> "list[Told]":
        """Return a list of settings in settings, empty if it is missing."""
        return [Told(each, f"{self.where}: {name}") for each in self._read(name, tuple[object, ...], ())]

    def says(self, name: str, value: object) -> bool:
        """Return whether a setting has this value and its type."""
        given = self._values.get(name)
        return type(given) is type(value) and bool(given == value)

    def demand(self, name: str, *choices: object) -> None:
        """Raise `UserError` unless a setting is one of `choices`. Missing stands for the first."""
        value = self._values.get(name, choices[0])
        if value is not None and not (isinstance(value, bool | int | float | str) and value in choices):
            known = " or ".join(map(repr, choices))
            raise UserError(f"{self.where}: {name} is {shorten(value)}, but nmt can do only {known}.")

    def _read(self, name: str, kind: Any, default: object) -> Any:
        value = self._values.get(name)
        if value is None or (value == "" and default == ()):  # YAML has an empty list so
            if default is None:
                raise UserError(f"{self.where} does not say {name}, so it is no model that nmt knows.")
            return default
        checked = converted(value, kind)
        if checked is None or (kind is str and not is_unicode(value)):
            raise UserError(f"{self.where}: {name} is {shorten(value)}, not {wanted(kind)}; copy it again.")
        return checked


def read_json(path: Path) -> Any:
    """Return what a JSON file holds. `UserError` if it is missing or not JSON."""
    try:
        return parsed_json(read_ordinary(path))
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing; copy the whole folder again.") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged (it is not JSON); copy it again.") from error


def told_in(path: Path) -> Told:
    """Return the settings in a JSON file."""
    return Told(read_json(path), str(path))
