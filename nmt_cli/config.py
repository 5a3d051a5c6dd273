"""Strict reading of settings: a TOML file, `--set` assignments and flags into one frozen dataclass.

A configuration is a dataclass whose fields are sections, and a section a dataclass whose fields are settings
with defaults. Nothing is guessed: an unknown name or a value of the wrong type is an error, and all such
errors are reported together.
"""

import ast
import difflib
import inspect
import json
import math
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from nmt_cli.errors import UserError

Config = TypeVar("Config")

PRESETS = Path(__file__).parent / "presets"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as `--help` shows it."""

    name: str
    default: object
    choices: tuple[object, ...]
    """All there are, where they are named; else empty."""

    meaning: str


@dataclass(frozen=True, slots=True)
class Given:
    """A value that somebody gave, and where."""

    name: str
    value: object
    origin: str


def read(
    config: type[Config],
    file: Path | None = None,
    assignments: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
    preset: Path | None = None,
) -> Config:
    """Fill `config` from its defaults, `preset`, `file`, `assignments` (`section.key=value`), then `flags`.

    `flags` maps `section.key` to a value; None means that the flag was not given.
    """
    problems: list[str] = []
    given = list(_from_file(preset)) if preset else []
    given += _given(file, assignments, flags or {}, problems)
    sections = get_type_hints(config)
    types = {f"{section}.{key}": kind for section, cls in sections.items() for key, kind in _keys(cls)}
    values: dict[str, dict[str, object]] = {section: {} for section in sections}
    for item in given:
        if item.name not in types:
            problems.append(_unknown(item, types))
        elif (value := _converted(item.value, types[item.name])) is None:
            problems.append(
                f"{item.origin}: {item.name} takes {_wanted(types[item.name])}, not {item.value!r}"
            )
        else:
            section, _, key = item.name.partition(".")
            values[section][key] = value
    if problems:
        raise UserError("; ".join(problems))
    built = {name: _built(name, cls, values[name], given, problems) for name, cls in sections.items()}
    if problems:
        raise UserError("; ".join(problems))
    return config(**built)


def preset_path(name: str) -> Path:
    """The file of a preset that comes with the package."""
    if name not in preset_names():
        raise UserError(f"there is no preset {name}; {nearest(name, preset_names())}")
    return PRESETS / f"{name}.toml"


def preset_names() -> list[str]:
    """All presets there are."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def section_of(section: type[Config], values: Any) -> Config:
    """A section from values that `asdict` once gave; `ValueError` where they are none.

    A setting that did not exist then has its default, which must mean what was done without it.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"no {section.__name__}: {values!r}")
    kinds = dict(_keys(section))
    wrong = [key for key in values if key not in kinds or _converted(values[key], kinds[key]) is None]
    if wrong:
        raise ValueError(f"no {section.__name__}: {', '.join(wrong)}")
    return section(**{key: _converted(value, kinds[key]) for key, value in values.items()})


def describe(config: type[object]) -> list[Setting]:
    """Every setting of `config` with its default and its meaning, in the order they are written."""
    return [
        Setting(f"{section}.{name}", defaults[name], _choices(kind), meanings.get(name, ""))
        for section, cls in get_type_hints(config).items()
        for meanings in [_meanings(cls)]
        for defaults in [{field.name: field.default for field in fields(cls)}]
        for name, kind in _keys(cls)
    ]


def given_names(file: Path | None, assignments: Sequence[str], flags: Mapping[str, object]) -> frozenset[str]:
    """The settings that somebody gave, be it at their defaults."""
    return frozenset(item.name for item in _given(file, assignments, flags, problems=[]))


def nearest(name: str, choices: Iterable[str]) -> str:
    """A sentence that names the choice most like `name`, or all choices where none is alike."""
    known = list(choices)
    match = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {match[0]}?" if match else f"there are {', '.join(known)}."


def toml_literal(value: object) -> str:
    """`value` as one would write it in a TOML file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(toml_literal, value)) + "]"
    return str(value)


def as_toml(config: Any) -> str:
    """A TOML file that `read` makes the same configuration of."""
    sections = []
    for section in fields(config):
        values = getattr(config, section.name)
        lines = [f"{key.name} = {toml_literal(getattr(values, key.name))}" for key in fields(values)]
        sections.append("\n".join([f"[{section.name}]", *lines, ""]))
    return "\n".join(sections)


def _given(
    file: Path | None, assignments: Sequence[str], flags: Mapping[str, object], problems: list[str]
) -> list[Given]:
    """All that was given, what counts more behind what counts less."""
    given = list(_from_file(file)) if file else []
    given += [item for text in assignments if (item := _from_assignment(text, problems))]
    return given + [Given(name, value, "flag") for name, value in flags.items() if value is not None]


def _from_file(file: Path) -> Iterator[Given]:
    try:
        sections = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{file} is not a TOML file: {error}") from error
    for section, keys in sections.items():
        if not isinstance(keys, dict):
            yield Given(section, keys, str(file))
            continue
        for key, value in keys.items():
            yield Given(f"{section}.{key}", value, str(file))


def _from_assignment(text: str, problems: list[str]) -> Given | None:
    name, equals, value = text.partition("=")
    if not equals:
        problems.append(f"--set {text}: write it as section.key=value")
        return None
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    return Given(name.strip(), parsed, "--set")


def _keys(section: Any) -> Iterator[tuple[str, Any]]:
    hints = get_type_hints(section)
    return ((field.name, hints[field.name]) for field in fields(section))


def _choices(kind: Any) -> tuple[object, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


def _unknown(item: Given, types: Mapping[str, object]) -> str:
    section, _, key = item.name.partition(".")
    mates = [name for name in types if name.startswith(f"{section}.")]
    elsewhere = [name for name in types if key and name.endswith(f".{key}")]
    hint = f"did you mean {elsewhere[0]}?" if elsewhere else nearest(item.name, mates or types)
    return f"{item.origin}: there is no setting {item.name}; {hint}"


def _converted(value: object, kind: Any) -> object | None:
    """`value` as a `kind`, or None where it isn't one."""
    if get_origin(kind) is Literal:
        return value if value in get_args(kind) else None
    if get_origin(kind) is tuple:
        items = (
            [_converted(item, get_args(kind)[0]) for item in value]
            if isinstance(value, list | tuple)
            else [None]
        )
        return None if None in items else tuple(items)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is float and not math.isfinite(value):
        return None
    return value if type(value) is kind else None


def _wanted(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(toml_literal, get_args(kind)))
    if get_origin(kind) is tuple:
        return "a list, each item " + _wanted(get_args(kind)[0])
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    return names[kind]


def _built(
    name: str, section: Any, values: Mapping[str, object], given: Sequence[Given], problems: list[str]
) -> object:
    try:
        return section(**values)
    except UserError as error:
        origins = dict.fromkeys(item.origin for item in given if item.name.startswith(f"{name}."))
        problems.append(f"{', '.join(origins)} [{name}]: {error}")
        return None


def _meanings(section: Any) -> dict[str, str]:
    """The text under each field of a dataclass, folded to one line."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(section)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
