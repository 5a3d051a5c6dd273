"""What the commands' options have in common: settings, their help and completion, --quiet and --debug."""

import re
import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from nmt_cli.config import Setting, as_commented_toml, describe, read
from nmt_cli.errors import UserError, printable
from nmt_cli.other_toolkits import named_here, not_here, spelt_like
from nmt_cli.setting_values import toml_literal

Function = TypeVar("Function", bound=Callable[..., Any])
Config = TypeVar("Config")

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class _Folder(click.Path):
    """A path that shells complete with folders; what else stands there, the library says."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """See click."""
        return [CompletionItem(incomplete, type="dir")]


FOLDER = _Folder(path_type=Path)
EXISTING = click.Path(exists=True, path_type=Path)
EXISTING_FOLDER = _Folder(exists=True, path_type=Path)


def bounded(section: type[Any], name: str) -> click.IntRange:
    """Return the type of a flag for a whole number that has the bounds of a setting."""
    limits = next(key for key in fields(section) if key.name == name).metadata["bounds"].limits
    return click.IntRange(limits.get("at least"), limits.get("at most"))


ALL = "--settings"
"""The flag that asks for all settings in place of what a command does."""


class Command(click.Command):
    """A command that suggests what to use in place of an unknown option, and whose help ends with an example.

    The example is its `epilog`: lines as one would type them.
    """

    settings: type[Any] = object
    """The dataclass of its settings; `object` if it has none."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click, which would fold the lines."""
        if self.epilog:
            with formatter.section("Example"):
                formatter.write("".join(f"  {line}\n" for line in self.epilog.splitlines()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does; the error for an unknown option suggests a known one."""
        given = [*args]  # click removes the words from the list as it reads them
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            # Of -batch_size, which others accept, click names only the first letter.
            typed = next(each for each in enumerate(given) if each[1].startswith(error.option_name))
            option, equals, value = typed[1].partition("=")
            following = given[typed[0] + 1 :][:1]
            if not equals and following and not following[0].startswith("-"):
                value = following[0]
            hint = self._hint(option, value)
            raise click.UsageError(f"No such option '{error.option_name}'{hint}", ctx) from error

    def _hint(self, option: str, value: str) -> str:
        """Return how the error for `option` ends; `value` is what the user typed after it, if anything."""
        settings = {one.name: one for one in describe(self.settings)}
        known = [*(flag for param in self.params for flag in param.opts if flag[:2] == "--"), *settings]
        if not (here := named_here(option, known)) and (reason := not_here(option, known)):
            return f": {reason}"
        each = [self._typed(one, settings, value) for one in here or spelt_like(option, known)]
        return f": did you mean {' or '.join(each)}?" if each else "."

    def _typed(self, here: str, settings: Mapping[str, Setting], value: str) -> str:
        """Return `here`, a flag or a setting, as words to type; a setting has `value`, if it accepts that."""
        name, _, fixed = here.partition("=")
        if name not in settings:
            flag, _, choice = here.partition(" ")
            choices = next(getattr(param.type, "choices", ()) for param in self.params if flag in param.opts)
            return flag if choice and choices and choice not in choices else here
        one = settings[name]
        needed = [one.needs] if one.needs else []
        texts = (fixed, value, value and toml_literal([value]))
        usable = (text for text in texts if text and self._accepts([*needed, f"{name}={text}"]))
        takes = ""
        if not (example := next(usable, "")):
            example, takes = _values(one)[0], f" ({one.takes})" if one.takes else ""
        words = " ".join(f"--set {shlex.quote(word)}" for word in (*needed, f"{name}={example}"))
        return f"{words}{takes}"

    def _accepts(self, assignments: Sequence[str]) -> bool:
        try:
            read(self.settings, assignments=assignments)
        except UserError:
            return False
        return True


class CommandWithSettings(Command):
    """A command whose help has its everyday settings, read off the dataclass that holds them."""

    def __init__(self, *args: Any, settings: type[object], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = settings

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """With --settings nothing is required, for nothing is done."""
        ctx.meta[ALL] = ALL in args
        required = [param for param in self.params if param.required]
        for param in required:
            param.required = not ctx.meta[ALL]
        try:
            return super().parse_args(ctx, args)
        finally:
            for param in required:
                # The parameters belong to the command, which may be called again in the same process, as
                # tests do.
                param.required = True

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the settings below the flags."""
        shown = [setting for setting in describe(self.settings) if setting.everyday]
        with formatter.section(
            f"Settings (--set KEY=VALUE, or --config FILE.toml; all of them: {ctx.command_path} {ALL})"
        ):
            names = [f"{setting.name} = {toml_literal(setting.default)}" for setting in shown]
            # click puts two blanks before a name and two behind it.
            room = formatter.width - max(map(len, names)) - 4
            rows = zip(names, (_meaning(setting, room) for setting in shown), strict=True)
            formatter.write_dl(list(rows), col_max=formatter.width)
        super().format_epilog(ctx, formatter)


def _meaning(setting: Setting, room: int) -> str:
    """As much of it as a line has room for; --settings has it whole."""
    first = re.split("[.;] ", setting.meaning)[0].rstrip(".")
    takes = f" [{setting.takes}]" if setting.takes else ""
    return textwrap.shorten(f"{first}.", max(room - len(takes), 20), placeholder=" …") + takes


def with_settings(function: Function) -> Function:
    """--config, --set and --settings; the values of the first two are for `chosen`."""
    file = click.option("--config", "file", type=FILE, help="Settings as TOML.")
    assignments = click.option(
        *("--set", "assignments"),
        multiple=True,
        metavar="KEY=VALUE",
        shell_complete=_assignments,
        help="One setting; repeatable.",
    )
    everything = click.option(
        ALL, is_flag=True, expose_value=False, help="Print all settings as a file for --config, and end."
    )
    return file(assignments(everything(function)))


def _assignments(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Each setting with each of its choices, or else with its default."""
    command = context.command
    found = describe(command.settings) if isinstance(command, CommandWithSettings) else []
    every = ((f"{one.name}={value}", one.meaning) for one in found for value in _values(one))
    return [CompletionItem(text, help=meaning) for text, meaning in every if text.startswith(incomplete)]


def _values(setting: Setting) -> list[str]:
    if isinstance(setting.default, bool):
        return ["true", "false"]
    if " | " in setting.takes:
        return setting.takes.split(" | ")
    return [setting.default if isinstance(setting.default, str) else toml_literal(setting.default)]


def chosen(
    config: type[Config],
    file: Path | None,
    assignments: Sequence[str],
    flags: Mapping[str, object] | None = None,
    preset: Path | None = None,
    defaults: Mapping[str, object] | None = None,
) -> Config:
    """The settings of the command that runs; where all are asked for, they are printed, and it ends."""
    context = click.get_current_context()
    note = _ignore if context.params["quiet"] else _tell
    found = read(config, file, assignments, flags, preset, note, defaults)
    if context.meta[ALL]:
        # As bytes: a path among the settings need not be UTF-8.
        click.echo(as_commented_toml(found).encode(errors="surrogateescape"), nl=False)
        context.exit()
    return found


def _tell(note: str) -> None:
    click.echo(printable(note), err=True)


def _ignore(note: str) -> None:
    """For --quiet."""


def common(function: Function) -> Function:
    """--quiet and --debug, which every command has; `main` looks for the latter."""
    quiet = click.option("--quiet", is_flag=True, help="Say nothing but warnings and errors.")
    debug = click.option("--debug", is_flag=True, expose_value=False, help="Show where an error came from.")
    return quiet(debug(function))
