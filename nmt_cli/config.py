"""Strict reading of settings: a TOML file, `--set` assignments and flags into one frozen dataclass.

A configuration is a dataclass whose fields are sections, and a section a dataclass whose fields are settings
with defaults, bounds and a meaning. Nothing is guessed: an unknown name, a value of the wrong type or one out
of bounds is an error, and all such errors are reported together.

A section may have a class variable `gone`: settings that old files still have, by name; and one `tables`: the
setting that `[[section]]` is short for.
"""

import operator
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from nmt_cli.errors import UserError
from nmt_cli.other_toolkits import named_here, not_here
from nmt_cli.setting_values import converted, meanings_of, nearest, toml_literal, wanted

Config = TypeVar("Config")
Value = TypeVar("Value")

Kind = Literal["shape", "use", "training only", "whole run"]
"""What a model setting decides: how many weights there are and their shapes; how weights are used, which with
another value may fit, but mean something else; or nothing once training is over. The settings of training
that a run keeps from its first step to its last are of kind "whole run"."""

HOLDS = {"at least": operator.ge, "more than": operator.gt, "less than": operator.lt, "at most": operator.le}

PRESETS = Path(__file__).parent / "presets"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as `--help` shows it."""

    name: str
    default: object
    takes: str
    """Its choices or bounds, in words; empty where there are none."""

    meaning: str
    everyday: bool
    """Whether people touch it often."""

    needs: str
    """An assignment of another setting without which this one has no effect; empty if it needs none."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The numbers that a setting takes."""

    limits: Mapping[str, float]
    """By words of `HOLDS`."""

    or_zero: bool
    """0 is one of them, whatever the limits."""

    def __contains__(self, number: float) -> bool:
        held = all(HOLDS[words](number, limit) for words, limit in self.limits.items())
        return held or (self.or_zero and number == 0)

    def __str__(self) -> str:
        told = " and ".join(f"{words} {limit:.9g}" for words, limit in self.limits.items())
        if set(self.limits) == {"at least", "at most"}:
            told = "{at least:.9g} to {at most:.9g}".format_map(self.limits)
        return f"0, or {told}" if self.or_zero else told


@dataclass(frozen=True, slots=True)
class Gone:
    """A setting that old files still have."""

    now: str
    """What is done in its place, and how to come by what it was for."""

    meant: object = None
    """The one value that means what is done now; None where any does."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value that somebody gave, and where."""

    name: str
    value: object
    origin: str


def setting(
    default: Value,
    *,
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    most: float | None = None,
    or_zero: bool = False,
    kind: Kind | None = None,
    everyday: bool = False,
    needs: str = "",
) -> Value:
    """Return a field of a section. The bounds of a list are those of each item. `Setting` has the others."""
    limits = dict(zip(HOLDS, (least, above, below, most), strict=True))  # in the order of HOLDS
    bounds = Bounds({words: limit for words, limit in limits.items() if limit is not None}, or_zero)
    metadata = {"bounds": bounds, "kind": kind, "everyday": everyday, "needs": needs}
    if isinstance(default, dict):  # each section has one of its own
        return field(default_factory=lambda: copy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def check(section: Any) -> None:
    """Refuse values of a wrong type or out of bounds, all at once; for the `__post_init__` of sections."""
    problems = []
    for key, (_, kind) in zip(fields(section), _keys(type(section)), strict=True):
        value = getattr(section, key.name)
        if converted(value, kind) is None and not (value is None and NoneType in get_args(kind)):
            problems.append(f"{key.name} takes {wanted(kind)}, not {value!r}.")
            continue
        verb = "holds" if isinstance(value, tuple) else "is"
        numbers = value if isinstance(value, tuple) else (value,)
        bounds = key.metadata.get("bounds")
        problems += [f"{key.name} {verb} {n}; take {bounds}." for n in numbers if bounds and n not in bounds]
    if problems:
        raise UserError(" ".join(problems))


def changed(section: Any, *names: str) -> list[str]:
    """Those of `names` that are not at their defaults."""
    keys = {key.name: key for key in fields(section)}
    return [name for name in names if getattr(section, name) != _default(keys[name])]


def _default(key: "Field[Any]") -> object:
    return key.default if key.default_factory is MISSING else key.default_factory()


def settings_of_kind(section: Any, kind: Kind) -> tuple[str, ...]:
    """The settings of `section` that decide such things, in order."""
    return tuple(key.name for key in fields(section) if key.metadata.get("kind") == kind)


def read(
    config: type[Config],
    file: Path | None = None,
    assignments: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
    preset: Path | None = None,
    note: Callable[[str], None] = lambda text: None,
    defaults: Mapping[str, object] | None = None,
) -> Config:
    """Fill `config` from its defaults, `preset`, `file`, `assignments` (`section.key=value`), then `flags`.

    `flags` maps `section.key` to a value; None means that the flag was not given. `defaults`, in the same
    form, are what a model comes with; they count less than all the others. Settings that are gone are
    left out if that changes nothing, which is told by `note`, and are an error otherwise.
    """
    problems: list[str] = []
    given = [Given(name, value, "the model's own settings") for name, value in (defaults or {}).items()]
    given += from_file(preset) if preset else []
    given += _given(file, assignments, flags or {}, problems)
    sections = get_type_hints(config)
    given = _without_gone(_unfolded(given, sections), sections, problems, note)
    types = {f"{section}.{key}": kind for section, cls in sections.items() for key, kind in _keys(cls)}
    values: dict[str, dict[str, object]] = {section: {} for section in sections}
    for item in given:
        if item.name not in types:
            problems.append(_unknown(item, types))
        elif (value := _converted(item, types[item.name], problems)) is not None:
            section, _, key = item.name.partition(".")
            values[section][key] = value
    if problems:
        raise UserError("; ".join(problems))
    # Only now: sections check values against each other, which says little while some can't even be read.
    built = {name: _built(name, cls, values[name], given, problems) for name, cls in sections.items()}
    if problems:
        raise UserError("; ".join(problems))
    return config(**built)


def _converted(item: Given, kind: Any, problems: list[str]) -> object | None:
    """The value of `item` as a `kind`; None, with the problem told, where it isn't one."""
    # A text needs no quotation marks on a command line, even one that is made of digits.
    as_text = kind is str and item.origin == "--set" and type(item.value) is int
    try:
        value = converted(str(item.value) if as_text else item.value, kind)
    except UserError as error:
        problems.append(f"{item.origin}: {item.name}: {error}")
        return None
    if value is None:
        problems.append(f"{item.origin}: {item.name} takes {wanted(kind)}, not {item.value!r}")
    return value


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
    wrong = [key for key in values if key not in kinds or converted(values[key], kinds[key]) is None]
    if wrong:
        raise ValueError(f"no {section.__name__}: {', '.join(wrong)}")
    return section(**{key: converted(value, kinds[key]) for key, value in values.items()})


def describe(config: type[object]) -> list[Setting]:
    """Every setting of `config` with its default and its meaning, in the order they are written."""
    return [
        Setting(
            name=f"{section}.{key.name}",
            default=_default(key),
            takes=" | ".join(map(str, _choices(hints[key.name]))) or str(key.metadata.get("bounds", "")),
            meaning=meanings.get(key.name, ""),
            everyday=key.metadata.get("everyday", False),
            needs=key.metadata.get("needs", ""),
        )
        for section, cls in get_type_hints(config).items()
        for meanings, hints in [(meanings_of(cls), get_type_hints(cls))]
        for key in fields(cls)
    ]


def given_names(file: Path | None, assignments: Sequence[str], flags: Mapping[str, object]) -> frozenset[str]:
    """The settings that somebody gave, be it at their defaults."""
    # What is wrong with them, `read` says.
    return frozenset(item.name for item in _given(file, assignments, flags, problems=[]))


def as_toml(config: Any) -> str:
    """A TOML file that `read` makes the same configuration of."""
    sections = []
    for section in fields(config):
        values = getattr(config, section.name)
        lines = [f"{key.name} = {toml_literal(getattr(values, key.name))}" for key in fields(values)]
        sections.append("\n".join([f"[{section.name}]", *lines, ""]))
    return "\n".join(sections)


def as_commented_toml(config: Any) -> str:
    """All settings with what they mean and take, as a TOML file that `read` makes the same configuration of.

    Values at their defaults are comments, so that who reads the file counts as given only what it changes.
    """
    lines = ["# Every setting, with its default where it begins with #. Take the # away to change one."]
    section = ""
    for told in describe(type(config)):
        before, (section, _, key) = section, told.name.partition(".")
        if section != before:
            lines += ["", f"[{section}]"]
        value = getattr(getattr(config, section), key)
        meaning = f"{told.meaning} [{told.takes}]" if told.takes else told.meaning
        lines += ["", *textwrap.wrap(meaning, 108, initial_indent="# ", subsequent_indent="# ")]
        lines.append(f"{'#' if value == told.default else ''}{key} = {toml_literal(value)}")
    return "\n".join([*lines, ""])


def _unfolded(given: Sequence[Given], sections: Mapping[str, Any]) -> list[Given]:
    """The same, with `[[section]]` as the setting that it is short for."""
    tables = {name: f"{name}.{cls.tables}" for name, cls in sections.items() if hasattr(cls, "tables")}
    return [
        replace(item, name=tables[item.name])
        if isinstance(item.value, list) and item.name in tables
        else item
        for item in given
    ]


def _without_gone(
    given: Sequence[Given],
    sections: Mapping[str, Any],
    problems: list[str],
    note: Callable[[str], None],
) -> list[Given]:
    """What was given and is still a setting."""
    gone: dict[str, Gone] = {
        f"{section}.{key}": was
        for section, cls in sections.items()
        for key, was in getattr(cls, "gone", {}).items()
    }
    left_out: dict[str, list[str]] = {}
    for item in given:
        if item.name not in gone:
            continue
        if gone[item.name].meant in (None, item.value):
            left_out.setdefault(item.origin, []).append(item.name)
        else:
            problems.append(
                f"{item.origin}: {item.name} = {toml_literal(item.value)} can't be had any more: "
                f"{gone[item.name].now}; take it out"
            )
    for origin, names in left_out.items():
        note(f"{origin}: no settings any more, and left out without effect: {', '.join(names)}")
    return [item for item in given if item.name not in gone]


def _given(
    file: Path | None, assignments: Sequence[str], flags: Mapping[str, object], problems: list[str]
) -> list[Given]:
    """All that was given, what counts more behind what counts less."""
    given = list(from_file(file)) if file else []
    given += [item for text in assignments if (item := _from_assignment(text, problems))]
    return given + [Given(name, value, "flag") for name, value in flags.items() if value is not None]


def from_file(file: Path) -> Iterator[Given]:
    """What a TOML file says, known settings or not."""
    try:
        # Editors on Windows begin files with a mark; and a path in a file need not be UTF-8.
        sections = tomllib.loads(file.read_text(encoding="utf-8-sig", errors="surrogateescape"))
    except RecursionError as error:
        raise UserError(f"{file} is not a TOML file of settings: it is nested too deeply") from error
    except ValueError as error:
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
    except (ValueError, RecursionError):
        # A text needs no quotation marks here: the shell would take them away.
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
    if here := named_here(key or section, types):
        hint = f"did you mean {' or '.join(here)}?"
    else:
        hint = not_here(key or section, types) or nearest(item.name, mates or types)
    return f"{item.origin}: there is no setting {item.name}; {hint}"


def _built(
    name: str, section: Any, values: Mapping[str, object], given: Sequence[Given], problems: list[str]
) -> object:
    try:
        return section(**values)
    except UserError as error:
        origins = dict.fromkeys(item.origin for item in given if item.name.startswith(f"{name}."))
        problems.append(f"{', '.join(origins)} [{name}]: {error}")
        return None
