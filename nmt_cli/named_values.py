"""Read values by name, each as one type, from JSON, TOML, YAML and forms.

An error says the name, what was expected and the value that is there, whatever wrote the values.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from nmt_cli.setting_values import Bounds, is_unicode, problems_with, shown, toml_literal, type_in_words

Item = TypeVar("Item")

REQUIRED: Any = object()
"""The default of a value that must be there."""

COUNT = Bounds(least=0, below=2**53)
"""Whole numbers that every program reads exactly from JSON."""


class Values:
    """Values by name. Reading a value of another type raises an error with the name of the value."""

    absent: tuple[object, ...] = ()
    """Values that mean the same as a missing one, such as null in the files of other toolkits."""

    def __init__(self, values: object, error: Callable[[str], Exception], label: str = "") -> None:
        """`error` makes an error of a problem such as 'step must be a whole number (got "x")'.

        `label` comes before each name, such as "files." for the values of a table in a file. If `values` is
        not a mapping, raise the error.
        """
        if not isinstance(values, Mapping):
            name = label.removesuffix(".") or "the content"
            raise error(f"{name} must be a table of values (got {shown(values)})")
        self.values: Mapping[str, Any] = values
        self.error, self.label = error, label

    def __contains__(self, name: str) -> bool:
        return self.found(name) is not REQUIRED

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self.values)

    def found(self, name: str) -> Any:
        """Return the value as it is, or `REQUIRED` if it is missing."""
        value = self.values.get(name, REQUIRED)
        # Equal types first: False equals 0, and an array has no single truth value.
        if any(type(value) is type(one) and value == one for one in self.absent):
            return REQUIRED
        return value

    def missing(self, name: str) -> Exception:
        """Return the error about a missing value without a default."""
        return self.error(f"{self.label}{name} is missing")

    def checked(self, name: str, value: object, kind: Any, bounds: Bounds | None = None) -> Any:
        """Return `value` as type `kind`. Raise an error about `name` for another type, or out of bounds."""
        fitting, problems = problems_with(f"{self.label}{name}", value, kind, bounds)
        if problems:
            raise self.error(problems[0])
        return fitting

    def read(self, name: str, kind: Any, default: Any = REQUIRED, bounds: Bounds | None = None) -> Any:
        """Return a value as type `kind`, or `default` if it is missing."""
        value = self.found(name)
        if value is not REQUIRED:
            return self.checked(name, value, kind, bounds)
        if default is REQUIRED:
            raise self.missing(name)
        return default

    def integer(self, name: str, default: int = REQUIRED, bounds: Bounds | None = None) -> int:
        """Return a whole number. True and false are not numbers."""
        return cast(int, self.read(name, int, default, bounds))

    def number(self, name: str, default: float = REQUIRED) -> float:
        """Return a finite number as a float."""
        return cast(float, self.read(name, float, default))

    def measurement(self, name: str) -> float:
        """Return a number that may also be nan or infinite, as the loss of a run that diverged."""
        value = self.found(name)
        # JSON has no nan, but Python writes and reads it.
        return value if type(value) is float else self.number(name)

    def flag(self, name: str, default: bool = REQUIRED) -> bool:
        """Return true or false."""
        return cast(bool, self.read(name, bool, default))

    def text(self, name: str, default: str = REQUIRED) -> str:
        """Return a text. JSON can contain surrogates, which are not Unicode and so an error."""
        value = self.read(name, str, default)
        if not is_unicode(value):  # a setting may be a path with any bytes, but no name is one
            raise self.error(f"{self.label}{name} must be {type_in_words(str)} (got {value!a})")
        return cast(str, value)

    def one_of(self, name: str, choices: Sequence[str], default: str = REQUIRED) -> str:
        """Return a text that is one of `choices`."""
        value = self.text(name, default)
        if value not in choices:
            expected = " or ".join(map(toml_literal, choices))
            raise self.error(f"{self.label}{name} must be {expected} (got {shown(value)})")
        return value

    def list_of(self, name: str, kind: type[Item], default: Sequence[Item] = REQUIRED) -> list[Item]:
        """Return a list of items of type `kind`."""
        return list(self.read(name, tuple[kind, ...], default))  # type: ignore[valid-type]

    def table(self, name: str) -> "Values":
        """Return the values of the table `name`. Errors about them begin with the table's name.

        Raise the error of `missing` if there is no such value, and an error about its type if it is not a
        table.
        """
        value = self.found(name)
        if value is REQUIRED:
            raise self.missing(name)
        return Values(value, self.error, f"{self.label}{name}.")
