"""Read settings strictly: from TOML files, `--set` assignments and options into one frozen dataclass.

The fields of a configuration are sections. The fields of a section are settings, each with a default, bounds
and a meaning. An unknown name, a value of the wrong type and a value out of bounds are errors. All errors are
reported together. Old files may have settings that were removed: see `removed_settings`. The class variable
`tables` of a section names the setting that `[[section]]` is short for.
"""

import re
import textwrap
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

from nmt_cli.errors import UserError
from nmt_cli.named_values import Values
from nmt_cli.other_toolkits import named_here, not_here, toolkit_of_yaml, value_here
from nmt_cli.removed_settings import REMOVED, removed_from
from nmt_cli.setting_values import (
    Bounds,
    Entry,
    meanings_of,
    nearest,
    problems_with,
    respelt,
    spelt_like,
    toml_literal,
    with_full_names,
)

Config = TypeVar("Config")
Value = TypeVar("Value")

Kind = Literal["shape", "use", "training only", "whole run"]
"""The effect of a setting. "shape": the shapes of the weights. "use": how weights are used. With another
value, weights still fit but mean something else. "training only": nothing after training. "whole run":
training, with one value from the first step of a run to the last."""

PRESETS = Path(__file__).parent / "presets"

OWN = "the model's own settings"
"""The origin of settings that a model brings."""

MALFORMED: Any = object()
"""The value of an assignment without "=". All problems with settings are reported together, so it is an entry
until then."""

SUMMARY_LENGTH = 60
"""Characters of a setting's meaning that `--help` shows."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The description of one setting."""

    name: str
    """The section and the name, such as "training.max_steps"."""

    default: object
    takes: str
    """The choices or bounds in words, such as "at least 1". Empty if there are none."""

    meaning: str
    everyday: bool
    """Whether `--help` shows it."""

    needs: str
    """An assignment, such as "model.norm=pre", without which this setting has no effect. Empty for none."""

    @property
    def summary(self) -> str:
        """The first sentences of the meaning that fit into `SUMMARY_LENGTH`, at least one sentence."""
        first, *more = re.split(r"(?<=[.!?]) ", self.meaning)
        for sentence in more:
            if len(first) + 1 + len(sentence) > SUMMARY_LENGTH:
                break
            first = f"{first} {sentence}"
        return first


def setting(
    default: Value,
    bounds: Bounds | None = None,
    *,
    kind: Kind | None = None,
    everyday: bool = False,
    needs: str = "",
) -> Value:
    """Return a field of a section, a setting with `default`.

    bounds: The accepted numbers. If the value is a list, they hold for each item.
    kind: The effect of the setting.
    everyday: Whether `--help` shows it.
    needs: An assignment without which it has no effect, such as "optimizer.kind=adamw".
    """
    metadata = {"bounds": bounds, "kind": kind, "everyday": everyday, "needs": needs}
    if isinstance(default, dict):  # each section has a copy
        return field(default_factory=lambda: copy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def check(section: Any) -> None:
    """Raise `UserError` with a message for each value of `section` of a wrong type or out of bounds."""
    problems = [
        problem
        for key, kind in _types(type(section))
        for problem in problems_with(key.name, getattr(section, key.name), kind, _bounds(key))[1]
    ]
    if problems:
        raise UserError(*problems)


def _bounds(key: "Field[Any]") -> Bounds | None:
    return key.metadata.get("bounds")


class Section:
    """A section of settings. Creation checks each value by `check`. A section whose settings can contradict
    each other has its own `__post_init__`."""

    __slots__ = ()
    section: ClassVar[str] = ""
    """The name of the section in files, such as "model"."""

    def __new__(cls, **values: object) -> Self:
        """Return a section without values. Raise `UserError` for a removed setting in `values`."""
        # Python's own error would only say that the argument is unexpected.
        known = {key.name for key in fields(cls)}  # type: ignore[arg-type]  # subclasses are dataclasses
        removed = removed_from(cls.section, [name for name in values if name not in known])
        if refusals := [one.refusal(f"{cls.section}.{name}", values[name]) for name, one in removed.items()]:
            raise UserError(*refusals)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        check(self)


def changed(section: Any, *names: str) -> list[str]:
    """Return the items of `names` whose settings in `section` differ from their defaults, in order."""
    keys = {key.name: key for key in fields(section)}
    return [name for name in names if getattr(section, name) != _default(keys[name])]


def _default(key: "Field[Any]") -> object:
    return key.default if key.default_factory is MISSING else key.default_factory()


def settings_of_kind(section: Any, kind: Kind) -> tuple[str, ...]:
    """Return the names of all settings of `section` with the effect `kind`, in the order of the fields."""
    return tuple(key.name for key in fields(section) if key.metadata.get("kind") == kind)


def read(
    config: type[Config],
    file: Path | None = None,
    assignments: Sequence[str] = (),
    options: Sequence[Entry] = (),
    preset: Path | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> Config:
    """Read a configuration from `preset`, and then from what the user gave, as in `given_entries`. Raise
    `UserError` and call `note` as `resolved` does."""
    entries = [*(from_file(preset) if preset else ()), *given_entries(file, assignments, options)]
    return resolved(config, entries, note)


def given_entries(
    file: Path | None = None, assignments: Sequence[str] = (), options: Sequence[Entry] = ()
) -> list[Entry]:
    """Return the entries of the user, the important ones last: those of a TOML file, then assignments
    "section.key=value", then options. Raise `UserError` if `file` is not TOML."""
    entries = from_file(file) if file else ()
    return [*entries, *map(_from_assignment, assignments), *options]


def own_entries(values: Mapping[str, object]) -> list[Entry]:
    """Return the entries of a model's own settings, given by their full names."""
    return [Entry(name, value, OWN) for name, value in values.items()]


def resolved(
    config: type[Config],
    entries: Sequence[Entry],
    note: Callable[[str], None] = lambda text: None,
    flags: Mapping[str, str] = {},
) -> Config:
    """Return the configuration that `entries` give, or the defaults of its sections. Raise one `UserError`
    with all problems.

    entries: later ones override earlier ones.
    note: is called with a message about removed settings without effect, which are skipped.
    flags: the options of settings, by full name. Contradictions name settings by them that no entry has.
    """
    problems = [entry.name for entry in entries if entry.value is MALFORMED]
    entries = [entry for entry in entries if entry.value is not MALFORMED]
    sections = get_type_hints(config)
    # `[[section]]` is short for a setting of the section.
    tables = {name: f"{name}.{cls.tables}" for name, cls in sections.items() if hasattr(cls, "tables")}
    entries = [
        replace(entry, name=tables.get(entry.name, entry.name)) if isinstance(entry.value, list) else entry
        for entry in entries
    ]
    keys = {f"{name}.{key.name}": (key, kind) for name, cls in sections.items() for key, kind in _types(cls)}
    entries = _without_removed(entries, keys, problems, note)
    values: dict[str, dict[str, object]] = {section: {} for section in sections}
    for entry in entries:
        section, _, name = entry.name.partition(".")
        if entry.name not in keys:
            problems.append(_unknown(entry, keys))
        elif (value := _converted(entry, *keys[entry.name], problems)) is not None:
            values[section][name] = value
    if problems:
        raise UserError(*problems)
    # Sections compare their settings with each other, which is possible only once each value is valid.
    labels = [Entry(name, None, flags.get(name, "--set")) for name in keys]
    labels += [entry for entry in entries if entry.origin != OWN or entry.name not in flags]
    built = {name: _built(name, cls, values[name], labels, problems) for name, cls in sections.items()}
    if problems:
        raise UserError(*problems)
    return config(**built)


def _converted(entry: Entry, key: "Field[Any]", kind: Any, problems: list[str]) -> object | None:
    """Return the value of `entry` as type `kind`. If invalid, add a message to `problems` and return None."""
    # On the command line, text needs no quotation marks, even if it consists of digits.
    as_text = kind is str and entry.origin == "--set" and type(entry.value) is int
    raw = str(entry.value) if as_text else respelt(entry.value, kind)
    value: object | None = None
    try:
        value, wrong = problems_with(entry.label, raw, kind, _bounds(key))
        if wrong and isinstance(raw, str) and (here := value_here(entry.name, raw)):
            wrong = [f"{wrong[0]}: did you mean {here}?"]
    except UserError as error:
        wrong = [f"{entry.label}: {error.message}"]
    problems += [f"{problem}{entry.in_file}" for problem in wrong]
    return None if wrong else value


def preset_path(name: str) -> Path:
    """Return the file of a preset that comes with the package. Raises `UserError` for an unknown name."""
    if not (spelt := spelt_like(name, preset_names())):
        here = value_here("--preset", name)
        hint = f"did you mean {here}?" if here else nearest(name, preset_names())
        raise UserError(f"there is no preset {name}: {hint}")
    return PRESETS / f"{spelt}.toml"


def preset_names() -> list[str]:
    """Return the names of all presets, sorted."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def section_of(section: type[Config], values: Any) -> Config:
    """Return a section of type `section` from `values`, the result of `asdict`. A missing setting gets its
    default. A removed setting without effect on a trained model is ignored. Raise `ValueError` for another
    type or an unknown name, and `UserError` for a removed setting with an effect, or if the section does."""
    given = Values(values, ValueError)
    kinds = {key.name: kind for key, kind in _types(section)}
    label = getattr(section, "section", "")
    removed = removed_from(label, [name for name in values if name not in kinds])
    for name, one in removed.items():
        if not (one.training_only or one.is_harmless(values[name], values)):
            raise UserError(one.refusal(f"{label}.{name}", values[name]))
    values = {name: value for name, value in values.items() if name not in removed}
    if unknown := [name for name in values if name not in kinds]:
        raise ValueError(f"it has an unknown setting: {unknown[0]}")
    return section(**{name: given.read(name, kinds[name]) for name in values})


def describe(config: type[object]) -> list[Setting]:
    """Return a description of every setting of a configuration, in the order of sections and fields."""
    return [
        Setting(
            name=f"{section}.{key.name}",
            default=_default(key),
            takes=" | ".join(map(str, get_args(kind)))
            if get_origin(kind) is Literal
            else str(_bounds(key) or ""),
            meaning=meanings.get(key.name, ""),
            everyday=key.metadata.get("everyday", False),
            needs=key.metadata.get("needs", ""),
        )
        for section, cls in get_type_hints(config).items()
        for meanings in [meanings_of(cls)]
        for key, kind in _types(cls)
    ]


def as_toml(config: Any) -> str:
    """Return `config` as the text of a TOML file, from which `read` returns an equal configuration."""
    sections = []
    for section in fields(config):
        values = getattr(config, section.name)
        lines = [f"{key.name} = {toml_literal(getattr(values, key.name))}" for key in fields(values)]
        sections.append("\n".join([f"[{section.name}]", *lines, ""]))
    return "\n".join(sections)


def as_commented_toml(config: Any, defaults: Mapping[str, object] | None = None) -> str:
    """Return `config` as the text of a TOML file with all settings, each after its meaning, bounds and
    default. Values equal to their defaults are comments, which change nothing. `defaults`, by full
    name, replace those of the sections."""
    lines = ["# Every setting. Lines that begin with # show defaults: remove the # to change one."]
    section = ""
    for described in describe(type(config)):
        before, (section, _, name) = section, described.name.partition(".")
        if section != before:
            lines += ["", f"[{section}]"]
        value = getattr(getattr(config, section), name)
        default = (defaults or {}).get(described.name, described.default)
        is_default = value == default
        notes = [described.takes, "" if is_default else f"default {toml_literal(default)}"]
        note = "; ".join(filter(None, notes))
        meaning = f"{described.meaning} [{note}]".lstrip() if note else described.meaning
        lines += ["", *textwrap.wrap(meaning, 108, initial_indent="# ", subsequent_indent="# ")]
        lines.append(f"{'#' if is_default else ''}{name} = {toml_literal(value)}")
    return "\n".join([*lines, ""])


def _without_removed(
    entries: Sequence[Entry], known: Collection[str], problems: list[str], note: Callable[[str], None]
) -> list[Entry]:
    """Return the entries of settings that were not removed, or that are in `known`. Add a message to
    `problems` for each removed setting whose value would change results. Pass the other removed settings to
    `note`, in a message per origin."""
    kept = [entry for entry in entries if entry.name in known or entry.name not in REMOVED]
    ignored: dict[str, list[str]] = {}
    for entry in entries:
        if entry in kept:
            continue
        section = entry.name.partition(".")[0]
        others = {
            one.name.removeprefix(f"{section}."): one.value
            for one in kept
            if one.name.startswith(f"{section}.") and one.origin == entry.origin
        }
        removed = REMOVED[entry.name]
        if removed.is_harmless(entry.value, others):
            ignored.setdefault(entry.origin, []).append(entry.name)
        else:
            problems.append(removed.refusal(entry.name, entry.value, entry.in_file))
    for origin, names in ignored.items():
        note(f"{origin}: ignored settings that were removed and change nothing: {', '.join(names)}")
    return kept


def from_file(file: Path) -> Iterator[Entry]:
    """Yield the entries of a TOML file, even for unknown settings. Raise `UserError` for invalid TOML."""
    # Editors on Windows begin files with a byte order mark. A path in a file need not be UTF-8.
    text = file.read_text(encoding="utf-8-sig", errors="surrogateescape")
    try:
        sections = tomllib.loads(text)
    except RecursionError as error:
        raise UserError(f"{file} is not a TOML file of settings: it is nested too deeply") from error
    except ValueError as error:
        if (toolkit := toolkit_of_yaml(text)) is None:
            raise UserError(f"{file} is not a TOML file: {error}") from error
        kind = f"a YAML file of {toolkit}" if toolkit else "a YAML file"
        raise UserError(
            f"{file} is {kind}, and nmt reads TOML. --settings prints all settings as TOML. "
            "nmt help from-other-toolkits has the counterparts of other toolkits' options."
        ) from error
    for section, values in sections.items():
        if isinstance(values, dict):
            yield from (Entry(f"{section}.{name}", value, str(file)) for name, value in values.items())
        else:
            yield Entry(section, values, str(file))


def _from_assignment(text: str) -> Entry:
    """Return the entry of "section.key=value". The value is TOML, or text if it is not valid TOML. If there
    is no "=", the value is `MALFORMED`, and the name is a message."""
    name, equals, value = text.partition("=")
    if not equals:
        return Entry(f"--set {text} must have the form section.key=value", MALFORMED, "--set")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        # Text needs no quotation marks here, as the shell removes them.
        parsed = value
    return Entry(name.strip(), parsed, "--set")


def _types(section: Any) -> Iterator[tuple["Field[Any]", Any]]:
    """Yield the field and the type of each setting of a section."""
    hints = _hints(section)
    return ((key, hints[key.name]) for key in fields(section))


@cache
def _hints(section: Any) -> Mapping[str, Any]:
    return get_type_hints(section)


def _unknown(entry: Entry, keys: Mapping[str, tuple["Field[Any]", Any]]) -> str:
    """Return the message about an unknown entry, with a suggestion, an answer or the names in its
    section. For an unknown section, list the sections of `keys`."""
    section, _, name = entry.name.partition(".")
    typed = name or section
    # Python refuses to write very large whole numbers.
    value = str(entry.value) if isinstance(entry.value, str | float) or entry.value in range(1000) else ""
    if similar := named_here(typed, keys, value):
        settings = [" and ".join(re.sub(r"={\d}", "", one).split()) for one in similar]
        hint = f"did you mean {' or '.join(settings)}?"
    elif answer := not_here(typed, keys, value):
        hint = answer
    elif siblings := [other for other in keys if other.startswith(f"{section}.")]:
        # Only the last parts are compared, since an equal section makes all names similar.
        near = get_close_matches(name, [other.partition(".")[2] for other in siblings], n=1)
        hint = f"did you mean {section}.{near[0]}?" if near else f"there are {', '.join(siblings)}."
    else:
        sections = ", ".join(dict.fromkeys(key.partition(".")[0] for key in keys))
        otherwise = f"the sections are {sections}. --settings prints all settings."
        hint = nearest(entry.name, keys, otherwise)
    return f"there is no setting {entry.name}{entry.in_file}: {hint}"


def _built(
    name: str, section: Any, values: Mapping[str, object], entries: Sequence[Entry], problems: list[str]
) -> object:
    """Return the section `name` of type `section` with `values`. If the values contradict each other, add
    messages to `problems` and return None. `entries` give the names of all settings, those that the user
    typed last."""
    try:
        return section(**values)
    except UserError as error:
        own = [entry for entry in entries if entry.name.startswith(f"{name}.")]
        typed = {entry.name.partition(".")[2]: entry for entry in own}
        problems += [with_full_names(str(message), typed) for message in error.args]
        return None
