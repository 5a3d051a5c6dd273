"""Write the generated pages of the reference: `python -m recipes.docs.reference`.

The pages follow from click, the settings and the docstrings. `tests/test_reference.py` compares them.
"""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, get_args, get_type_hints

import click

import nmt_cli
from nmt_cli import api
from nmt_cli.api import events
from nmt_cli.cli.main import GROUPS, nmt
from nmt_cli.cli.options import CommandWithSettings
from nmt_cli.config import PRESETS, describe, preset_names, preset_path, read
from nmt_cli.errors import UserError
from nmt_cli.setting_values import meanings_of, toml_literal, type_in_words
from nmt_cli.training.config import TrainConfig

REFERENCE = Path(nmt_cli.__file__).parent / "docs" / "reference"

SHARED = ("--config", "--set", "--settings", "--quiet", "--debug", "--help")
"""Options that several commands have, and that the page of commands describes once."""

COMMANDS = """# Commands

This page lists every command of `nmt` with its arguments, options and defaults. `nmt COMMAND --help` prints
the same for one command. Exit codes are in [log](log.md).

All commands have `--quiet` (print warnings and errors only), `--debug` (show the traceback of an error) and
`--help`. `nmt --version` prints the versions of nmt, Python and PyTorch, and the device.

Commands with [settings](settings.md) have three more options. `--config FILE` reads a TOML file with
settings. `--set KEY=VALUE` changes one setting and can be repeated. `--settings` prints all settings as a
file for `--config`.
"""

SETTINGS = """# Settings

This page lists every setting of every command, with its values, default and meaning.

Set one with `--set section.name=value`, or write it into a TOML file for `--config`. Later sources override
earlier ones: the preset, the file, `--set`, options. `nmt COMMAND --settings` prints the same list as such a
file. Unknown settings and values out of bounds are errors. In a choice, case, "-" and "_" do not count:
`inverse_sqrt` is `inverse-sqrt`.
"""

PRESET_INTRODUCTION = """# Presets

A preset is a named set of settings for `nmt train --preset NAME`. A file, `--set` and options override it.

"""

_PLAIN = (str, int, float, tuple, Mapping)
"""The types of defaults. A setting with another default is required."""


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table in Markdown. `|` in a cell is escaped."""
    lines = [[str(cell).replace("|", "\\|") for cell in row] for row in (header, *rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def commands() -> str:
    """Return the page of all commands with their options."""
    text = COMMANDS
    for title, group in GROUPS.items():
        text += f"\n## {title}\n" + "".join(map(_command, group))
    return text


def _command(command: click.Command) -> str:
    """Return the section of one command."""
    context = nmt.make_context("nmt", [], resilient_parsing=True)
    context = click.Context(command, context, command.name, max_content_width=110)
    usage = " ".join([f"nmt {command.name}", *command.collect_usage_pieces(context)])
    text = f"\n### nmt {command.name}\n\n```\n{usage}\n```\n\n{_help(command)}\n"
    records = [param.get_help_record(context) for param in command.params if isinstance(param, click.Option)]
    rows = []
    for names, meaning in filter(None, records):
        if names.split()[0].rstrip(",") not in SHARED:
            is_required = "required" if meaning.endswith("  [required]") else ""
            meaning, _, default = meaning.removesuffix("]").partition("  [")
            rows.append((f"`{names}`", is_required or default.removeprefix("default: "), meaning))
    if rows:
        text += "\n" + table(("option", "default", "meaning"), rows)
    if isinstance(command, CommandWithSettings):
        common = [f"`{setting.name}`" for setting in describe(command.settings) if setting.everyday]
        text += f"\nSettings used most: {', '.join(common)}.\n"
    return text + f"\nExample:\n\n```\n{command.epilog}\n```\n"


def _help(command: click.Command) -> str:
    """Return the help text of a command as Markdown. Text that click does not wrap becomes a code block."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(
        "```\n" + part.removeprefix("\b\n") + "\n```" if part.startswith("\b") else " ".join(part.split())
        for part in paragraphs
    )


def settings() -> str:
    """Return the page of all settings, by command and section."""
    text = SETTINGS
    anchors: dict[Any, str] = {}
    for command in nmt.commands.values():
        if not isinstance(command, CommandWithSettings):
            continue
        text += f"\n## nmt {command.name}\n"
        for section, cls in get_type_hints(command.settings).items():
            if not fields(cls):
                continue
            anchor = f"{command.name}-{section}"
            text += f'\n### <a id="{anchor}"></a>[{section}]\n\n'
            if cls in anchors:
                text += f"The settings are those of [{anchors[cls]}](#{anchors[cls]})."
                text += f"{_own_defaults(command, section)}\n"
                continue
            anchors[cls] = anchor
            own = [item for item in describe(command.settings) if item.name.startswith(f"{section}.")]
            text += _section(cls, {item.name.partition(".")[2]: item.needs for item in own})
    return text


def _section(cls: Any, needs: Mapping[str, str]) -> str:
    """Return the description and the table of one section. `needs` is from `Setting`, by name."""
    kinds = get_type_hints(cls)
    rows = []
    for key in fields(cls):
        default = key.default_factory() if callable(key.default_factory) else key.default
        bounds = str(key.metadata.get("bounds") or "")
        kind = type_in_words(kinds[key.name]).replace('"', "").replace("a text in UTF-8", "text")
        meaning = meanings_of(cls).get(key.name, "")
        if needs.get(key.name):
            meaning += f" {_needed(cls, key.name, default, needs[key.name])}"
        default_text = "required" if not isinstance(default, _PLAIN) else f"`{toml_literal(default)}`"
        rows.append((f"`{key.name}`", f"{kind}, {bounds}".removesuffix(", "), default_text, meaning))
    text = table(("setting", "value", "default", "meaning"), rows)
    for key in fields(cls):
        for inside in get_args(kinds[key.name]):
            if is_dataclass(inside):
                text += f"\nEach table of `{key.name}` has these settings:\n\n{_section(inside, {})}"
    return f"{_summary(cls)}\n\n{text}"


def _own_defaults(command: CommandWithSettings, section: str) -> str:
    """Return the defaults of a section that only this command has, as sentences, or "" without any."""
    own = {name: value for name, value in command.defaults.items() if name.startswith(f"{section}.")}
    return "".join(f" The default of `{name}` is `{toml_literal(value)}`." for name, value in own.items())


def _needed(cls: Any, name: str, default: Any, assignment: str) -> str:
    """Return a sentence about the assignment without which the setting `name` has no effect, with the other
    choices that work. A number is an example."""
    needed, _, value = assignment.partition("=")
    needed_name = needed.partition(".")[2]
    kind = get_type_hints(cls)[needed_name]
    if kind is float:
        return f"Needs `{needed}`, such as {value}."
    changed = default + 1 if isinstance(default, int) else (default or 1) / 2
    choices = [choice for choice in get_args(kind) if _agree(cls, {needed_name: choice, name: changed})]
    others = [f"`{choice}`" for choice in choices if choice != value]
    listed = ", ".join([f"`{assignment}`", *others[:-1]])
    return f"Needs {listed} or {others[-1]}." if others else f"Needs {listed}."


def _agree(cls: Any, values: Mapping[str, object]) -> bool:
    """Return whether the section `cls` accepts these values together."""
    try:
        cls(**values)
    except UserError:
        return False
    return True


def _summary(cls: Any) -> str:
    """Return the docstring of a class, without the meanings that `nmt_cli.api` appends."""
    return " ".join((cls.__doc__ or "").split("\n\n")[0].split())


def presets() -> str:
    """Return the page that compares the presets of `nmt train`."""
    names = preset_names()
    values = [read(TrainConfig, preset=preset_path(name)) for name in names]
    rows = []
    for setting in describe(TrainConfig):
        section, _, name = setting.name.partition(".")
        own = [getattr(getattr(config, section), name) for config in values]
        if any(value != setting.default for value in own):
            cells = (f"**{_shown(value)}**" if value != setting.default else _shown(value) for value in own)
            rows.append((f"`{setting.name}`", _shown(setting.default), *cells))
    descriptions = []
    for name in names:
        comments = re.match(r"(?:# .*\n)+", (PRESETS / f"{name}.toml").read_text(encoding="utf-8"))
        lines = comments[0].replace("# ", "").splitlines() if comments else []
        descriptions.append((f"`{name}`", " ".join([*lines[1:], *lines[:1]])))
    return (
        PRESET_INTRODUCTION
        + table(("preset", "model"), descriptions)
        + "\nSettings that differ between presets. Values other than the default are bold. All other "
        "[settings](settings.md#nmt-train) have their defaults in every preset.\n\n"
        + table(("setting", "default", *(f"`{name}`" for name in names)), rows)
    )


def _shown(value: object) -> str:
    return toml_literal(value).strip('"')


def python() -> str:
    """Return the page of the Python library."""
    names = [name for name in api.__all__ if not name.endswith("Config")]
    sections = [name for name in api.__all__ if name.endswith("Config")]
    functions = [name for name in names if isinstance(getattr(api, name), FunctionType)]
    classes = [name for name in names if inspect.isclass(getattr(api, name)) and name != "UserError"]
    text = "# Python library\n\nEvery function and class of `nmt_cli.api`.\n\n"
    text += _docstring(api).replace("The Python library.\n\n", "") + "\n"
    text += "\n## Functions\n" + "".join(_function(name, getattr(api, name)) for name in functions)
    text += "\n## Classes\n" + "".join(_class(name, getattr(api, name)) for name in classes)
    text += f"\n### UserError\n\n{_docstring(api.UserError)}\n"
    text += (
        "\n## Events\n\nThe argument `report` of `train` is called with these, from `nmt_cli.api.events`.\n"
    )
    kinds = {name: getattr(events, name) for name in events.__all__}
    text += "".join(_class(name, kind) for name, kind in kinds.items() if inspect.isclass(kind))
    rows = [(f"`{name}`", _summary(getattr(api, name))) for name in sections]
    text += "\n## Settings\n\nThese frozen dataclasses take settings as keyword arguments, such as "
    text += "`SearchConfig(beam=1)`. [Settings](settings.md) has their fields.\n\n"
    return text + table(("class", "content"), rows)


def _class(name: str, cls: Any) -> str:
    """Return the section of a class: fields, properties and methods that are not private."""
    text = f"\n### {name}\n\n{_docstring(cls)}\n"
    if cls.__init__.__doc__ and "__init__" in vars(cls) and not is_dataclass(cls):
        text += "\n" + _function(name, cls.__init__).partition("\n\n")[2].replace(" -> None", "", 1)
    meanings = meanings_of(cls)
    kinds = {key.name: str(key.type) for key in getattr(cls, "__dataclass_fields__", {}).values()}
    if hasattr(cls, "_fields"):  # a named tuple
        kinds = {name: inspect.formatannotation(kind) for name, kind in cls.__annotations__.items()}
    if kinds:
        rows = [
            (f"`{key}`", f"`{_unquoted(kind)}`", meanings.get(key, ""))
            for key, kind in kinds.items()
            if key[0] != "_"
        ]
        text += "\n" + table(("field", "type", "meaning"), rows)
    members = [(key, member) for key, member in vars(cls).items() if key[0] != "_"]
    properties = [
        (f"`{key}`", " ".join(_docstring(member).split("\n\n")[0].split()))
        for key, member in members
        if isinstance(member, property)
    ]
    if properties:
        text += "\n" + table(("property", "value"), properties)
    return text + "".join(
        _function(f"{name}.{key}", member, "####")
        for key, member in members
        if isinstance(member, FunctionType)
    )


def _function(name: str, function: Callable[..., object], heading: str = "###") -> str:
    """Return the section of a function: its signature and its docstring."""
    signature = inspect.signature(function)
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
    texts = [
        _unquoted(str(parameter.replace(default=...) if inspect.isfunction(parameter.default) else parameter))
        for parameter in parameters
    ]
    kinds = [parameter.kind for parameter in parameters]
    if inspect.Parameter.VAR_POSITIONAL not in kinds and inspect.Parameter.KEYWORD_ONLY in kinds:
        texts.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    start = name.rpartition(".")[2]
    end = _unquoted(str(signature.replace(parameters=[]))).removeprefix("()")
    line = f"{start}({', '.join(texts)}){end}"
    if len(line) > 100:
        lines = "".join(f"    {text},\n" for text in texts)
        line = f"{start}(\n{lines}){end}"
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    line = f"async {line}" if is_async else line
    return f"\n{heading} {name}\n\n```python\n{line}\n```\n\n{_docstring(function)}\n"


def _unquoted(text: str) -> str:
    """Return a signature without the quotation marks of annotations, and with short names of types."""
    text = re.sub(r"(: |-> )(['\"])(.*?)\2(?=,|\)| =|$)", r"\1\3", text)
    text = re.sub(r"<class '([^']*)'>", r"\1", text).replace("Ellipsis", "...")
    return re.sub(r"\b(?:[a-z_]+\.)+([A-Za-z]+)", r"\1", text)


def _docstring(item: object) -> str:
    """Return a docstring as Markdown. Examples and indented blocks become code blocks, lists stay lists."""
    blocks = inspect.getdoc(item) or ""
    text = ""
    for block in blocks.split("\n\n"):
        if block.startswith(">>>"):
            text += f"\n\n```python\n{block}\n```"
        elif block.startswith("    "):
            text += f"\n\n```python\n{textwrap.dedent(block)}\n```"
        elif block.startswith("- "):
            items = (" ".join(item.split()) for item in block.removeprefix("- ").split("\n- "))
            text += "\n\n" + "\n".join(f"- {item}" for item in items)
        else:
            text += "\n\n" + " ".join(block.split())
    return text.strip().replace("```\n\n```python\n", "\n")


PAGES: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "settings": settings,
    "presets": presets,
    "python": python,
}
"""The generated pages by the names of their files."""


def main() -> None:
    """Write all generated pages."""
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (REFERENCE / f"{name}.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
