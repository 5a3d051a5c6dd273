"""The values of settings: conversion, bounds, descriptions in words, and TOML.

A value may be a table: a mapping from names to values of one type (`Mapping[str, float]`), or a dataclass
with its own settings.
"""

import ast
import difflib
import inspect
import json
import math
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from itertools import pairwise
from reprlib import repr as shorten
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from nmt_cli.errors import UserError, shortened

BARE = re.compile("[A-Za-z0-9_-]+")
"""A key that needs no quotation marks in TOML."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The numbers that a setting accepts. None is no limit."""

    least: float | None = None
    above: float | None = None
    below: float | None = None
    most: float | None = None
    or_zero: bool = False
    """Whether 0 is accepted even if it is beyond the limits."""

    def __contains__(self, number: float) -> bool:
        """Return whether `number` is within all limits, or is an accepted 0."""
        if self.or_zero and number == 0:
            return True
        return not (
            (self.least is not None and number < self.least)
            or (self.above is not None and number <= self.above)
            or (self.below is not None and number >= self.below)
            or (self.most is not None and number > self.most)
        )

    def __str__(self) -> str:
        """Return the bounds in words, such as "at least 1", "0 to 1", or "0, or more than 5"."""
        limits = {
            "at least": self.least,
            "more than": self.above,
            "less than": self.below,
            "at most": self.most,
        }
        given = {words: limit for words, limit in limits.items() if limit is not None}
        words = " and ".join(f"{words} {limit:.9g}" for words, limit in given.items())
        if [*given] == ["at least", "at most"]:
            words = f"{self.least:.9g} to {self.most:.9g}"
        return f"0, or {words}" if self.or_zero else words


@dataclass(frozen=True, slots=True)
class Entry:
    """A value that the user gave to a setting."""

    name: str
    value: object
    origin: str
    """A file, "--set", an option such as "--max-steps", or "the model's own settings"."""

    @property
    def label(self) -> str:
        """The name that the user typed: an option, or the full name of the setting."""
        return self.origin if self.origin.startswith("--") and self.origin != "--set" else self.name

    @property
    def in_file(self) -> str:
        """The end of an error message, ", in FILE". Empty for the command line."""
        return "" if self.origin.startswith("--") else f", in {self.origin}"


def with_full_names(message: str, entries: Mapping[str, Entry]) -> str:
    """Return `message` of a section, with full names as the user typed them, and the files that contain them.
    `entries` has the entries by bare name, often an English word. A word counts as a name if it contains "_",
    begins the message, or follows a word such as "set"."""
    mentioned: list[Entry] = []

    def replacement(match: re.Match[str]) -> str:
        before, name = match["before"], match["name"]
        if not before and match.start() and "_" not in name:
            return match[0]
        mentioned.append(entries[name])
        return f"{before}{entries[name].label}"

    before = r"\b(?:[Ss]et|[Rr]aise|above|[Ww]ith|without) |(?<![\w.'\"-])"
    names = rf"(?P<before>{before})(?P<name>{'|'.join(entries)})(?![\w'\"-]|\.\w)"
    problem, stop, remedy = re.sub(names, replacement, message).partition(". ")
    files = [*filter(None, dict.fromkeys(entry.in_file.removeprefix(", in ") for entry in mentioned))]
    in_files = f", in {' and '.join(files)}" if files else ""
    return f"{problem.removesuffix('.')}{in_files}{stop}{remedy}"


def toml_literal(value: object) -> str:
    """Return `value` as text for a TOML file. A dataclass becomes a table, without its values of None."""
    # TOML writes true, Python True.
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # JSON leaves the character 7F alone, which TOML forbids.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(toml_literal, value)) + "]"
    if is_dataclass(value):
        values = {key.name: getattr(value, key.name) for key in fields(value)}
        value = {name: item for name, item in values.items() if item is not None}
    if isinstance(value, Mapping):
        keys = [name if BARE.fullmatch(name) else toml_literal(name) for name in value]
        items = map(toml_literal, value.values())
        return "{" + ", ".join(f"{key} = {item}" for key, item in zip(keys, items, strict=True)) + "}"
    return str(value)


def shown(value: object) -> str:
    """Return a value as text for an error message: scalars and lists as in TOML, others as in Python. Leave
    out the middle of a long text."""
    as_toml = isinstance(value, bool | int | float | str | list | tuple)
    return shortened(toml_literal(value) if as_toml else repr(value))


def check_section(name: str, value: object, kind: Any) -> None:
    """Raise `TypeError` unless the argument `name` is None or a `kind`, and so are the sections in it."""
    if value is None:
        return
    if not isinstance(value, kind):
        remedy = f"{kind.__name__}(**{name})" if isinstance(value, Mapping) else f"{kind.__name__}(...)"
        raise TypeError(f"{name} must be a {kind.__name__} (got {shown(value)}). Use {remedy}.")
    for key, own in get_type_hints(kind).items():
        if is_dataclass(own):
            check_section(f"{name}.{key}", getattr(value, key), own)


def problems_with(
    label: str, value: object, kind: Any, bounds: Bounds | None = None
) -> tuple[object | None, list[str]]:
    """Return `value` as type `kind`, and messages about a wrong type or bounds. Messages name `label`. The
    bounds of a list are those of each item."""
    fitting = converted(value, kind)
    if fitting is None and not (value is None and NoneType in get_args(kind)):
        return None, [f"{label} must be {type_in_words(kind)} (got {shown(value)})"]
    items, subject = (fitting, f"each item of {label}") if isinstance(fitting, tuple) else ((fitting,), label)
    outside = [item for item in items if bounds and item not in bounds]
    # A whole number may be too large for the format of floats.
    texts = [f"{item:.9g}" if isinstance(item, float) else shorten(item) for item in outside]
    return fitting, [f"{subject} must be {bounds} (got {text})" for text in texts]


def converted(value: object, kind: Any) -> object | None:
    """Return `value` as type `kind`, or None if `value` does not fit the type. Convert the items of lists and
    tables, too. If `kind` is a dataclass, raise `UserError` for an invalid table."""
    if is_dataclass(kind):
        return _table(value, kind)
    origin, inside = get_origin(kind), get_args(kind)
    if origin is UnionType:  # of a type and None, which TOML cannot express
        return converted(value, _but_none(kind))
    if origin is tuple:
        items = [converted(item, inside[0]) for item in value] if isinstance(value, list | tuple) else [None]
        return None if None in items else tuple(items)
    if origin is Mapping:
        table = (
            {name: converted(item, inside[1]) for name, item in value.items()}
            if isinstance(value, Mapping)
            else {"": None}
        )
        return None if None in table.values() else table
    return _single(value, kind)


def _single(value: object, kind: Any) -> object | None:
    """Return a scalar as type `kind`. Return None if it is invalid: NaN, infinity, or a bool as a number. An
    int is valid as a float. A text must be Unicode, unless the text is an absolute path."""
    if get_origin(kind) is Literal:
        return value if value in get_args(kind) else None
    # Not `isinstance`, for which a bool is an int.
    if kind is float and type(value) is int:
        return float(value) if abs(value) < 1 << 1000 else None  # a float overflows
    if type(value) is float and not math.isfinite(value):
        return None
    if isinstance(value, str) and value[:1] != "/" and not is_unicode(value):
        return None  # only an absolute path need not be UTF-8
    return value if kind is object or type(value) is kind else None


def is_unicode(text: str) -> bool:
    """Return whether `text` has no surrogates. JSON texts and file names may contain surrogates."""
    return text.isascii() or text == text.encode(errors="ignore").decode()


def _table(value: object, kind: Any) -> object | None:
    """Return a TOML table as the dataclass `kind`. Return None for a value that is neither a table nor a
    `kind`. Raise `UserError` for an unknown name, a value of a wrong type, or a missing required name.
    The class variable `removed` has the errors about names that `kind` once had."""
    if not isinstance(value, Mapping):
        return value if type(value) is kind else None
    types = {key.name: get_type_hints(kind)[key.name] for key in fields(kind)}
    values = {name: converted(item, types[name]) for name, item in value.items() if name in types}
    removed = getattr(kind, "removed", {})
    problems = [
        f"{name} {removed[name]}" if name in removed else f"it has no setting {name}: {nearest(name, types)}"
        for name in value
        if name not in types
    ]
    problems += [
        f"{name} must be {type_in_words(types[name])} (got {shown(value[name])})"
        for name in values
        if values[name] is None
    ]
    if problems:
        raise UserError("; ".join(problems))
    required = [key.name for key in fields(kind) if key.default is key.default_factory is MISSING]
    if lacking := [name for name in required if name not in values]:
        raise UserError(f"{' and '.join(lacking)} is required")
    table: object = kind(**values)
    return table


def nearest(name: str, choices: Iterable[str], otherwise: str = "") -> str:
    """Return "did you mean X?" with the choice most similar to `name`. If none is similar, return
    `otherwise`, or list all choices."""
    names = list(choices)
    match = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    return f"did you mean {match[0]}?" if match else otherwise or f"there are {', '.join(names)}."


def spelt_like(text: str, choices: Iterable[str]) -> str | None:
    """Return the item of `choices` that `text` spells, or None. Case, "-" and "_" do not count."""
    names = list(choices)
    if text in names:
        return text
    alike = [name for name in names if _spelling(name) == _spelling(text)]
    return alike[0] if len(alike) == 1 else None


def respelt(value: object, kind: Any) -> object:
    """Return the choice that `value` spells if `kind` is a choice of texts, else `value`."""
    if not isinstance(value, str):
        return value
    if kind is bool and value in ("True", "False"):  # as Python and YAML write them
        return value == "True"
    kind = _but_none(kind) if get_origin(kind) is UnionType else kind
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    return spelt_like(value, choices) or value


def _spelling(text: str) -> str:
    return text.lower().replace("-", "_")


def type_in_words(kind: Any) -> str:
    """Return a type in words for an error message: "a whole number". Leave out the None of a union."""
    if is_dataclass(kind):
        return f"a table of {', '.join(key.name for key in fields(kind))}"
    if get_origin(kind) is UnionType:
        return type_in_words(_but_none(kind))
    if get_origin(kind) is Mapping:
        return f"a table, each value {type_in_words(get_args(kind)[1])}"
    if get_origin(kind) is Literal:
        return " or ".join(map(toml_literal, get_args(kind)))
    if get_origin(kind) is tuple:
        return "a list, each item " + type_in_words(get_args(kind)[0])
    words: dict[object, str] = {object: "a setting"}
    words |= {bool: "true or false", int: "a whole number", float: "a number", str: "a text in UTF-8"}
    return words[kind]


def _but_none(kind: Any) -> Any:
    return next(option for option in get_args(kind) if option is not NoneType)


@cache
def meanings_of(section: Any) -> Mapping[str, str]:
    """Return the docstring under each field of a dataclass and of its bases, as one line, by name. Return an
    empty mapping in an installation without source files."""
    inherited = [meanings_of(base) for base in section.__bases__ if base not in (object, tuple)]
    # From the source code, as Python itself discards a text below a field.
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(section)))
    except OSError:  # installed without sources
        tree = ast.parse("")
    body = [item for definition in tree.body for item in getattr(definition, "body", [])]
    own = {
        key.target.id: " ".join(text.value.value.split())
        for key, text in pairwise(body)
        if isinstance(key, ast.AnnAssign)
        and isinstance(key.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
    return {name: text for meanings in (*inherited, own) for name, text in meanings.items()}
