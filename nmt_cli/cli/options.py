"""The parts that commands share: settings on the command line, types of options, --quiet and --debug.

An assignment is the text KEY=VALUE after --set. An entry is a value that the user gave to a setting.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from nmt_cli.checkpoints.finding import own_search, recipe_of
from nmt_cli.config import (
    MALFORMED,
    Setting,
    as_commented_toml,
    describe,
    from_file,
    given_entries,
    own_entries,
    resolved,
)
from nmt_cli.errors import UserError, does_not_exist, printable
from nmt_cli.other_toolkits import first_batch_size, named_here, not_here, note_on, value_here
from nmt_cli.removed_settings import REMOVED, removed_like
from nmt_cli.setting_values import Bounds, Entry, shown, spelt_like, toml_literal
from nmt_cli.text.model_languages import listed

Function = TypeVar("Function", bound=Callable[..., Any])
Config = TypeVar("Config")

LIST_ALL = "--settings"
"""The flag that prints all settings instead of running the command."""

TYPED = "nmt_cli.typed_settings"
"""The key of the settings of the running command in the context of click."""


class PathType(click.Path):
    """A path as the type of an option. With `exists`, a missing path raises `UserError`."""

    def __init__(
        self,
        *,
        exists: bool = False,
        file: bool = False,
        dash: Literal["a name", "a stream", "refused"] = "a name",
    ) -> None:
        """`exists` requires an existing path. `file` refuses existing folders. `dash` is the meaning of "-".
        "a stream" is stdin or stdout, the same as no option."""
        super().__init__(exists=exists, dir_okay=not file, path_type=Path)
        self._dash = dash

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return `value` as a `Path`, or None for a stream. Raise `UserError` for a missing path that must
        exist. Raise `UsageError` for a refused "-", and for a folder where only files are allowed."""
        if value == "-" and self._dash == "a stream":
            return None
        if value == "-" and self._dash == "refused":
            flag = param.opts[0] if param else "the path"
            raise click.UsageError(f"{flag} can't be stdout (-). Name another path.", ctx)
        return super().convert(must_exist(value) if self.exists else value, param, ctx)


PATH, EXISTING, EXISTING_FILE = PathType(), PathType(exists=True), PathType(exists=True, file=True)
OUT, OUT_FILE = PathType(dash="refused"), PathType(file=True, dash="refused")
STDIN_OR_FILE = PathType(exists=True, file=True, dash="a stream")
STDOUT_OR_FILE = PathType(file=True, dash="a stream")


def must_exist(path: str | Path) -> Path:
    """Return `path` as a `Path`. Raise `UserError` if it does not exist. A broken symbolic link is enough."""
    if not os.path.lexists(path):
        raise does_not_exist(path)
    return Path(path)


def not_empty(_: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """Return the `text` of an option. Raise `UsageError` if it is empty."""
    if text is not None and not text.strip():
        raise click.UsageError(f"{parameter.opts[0]} is empty. Give a value, or omit the option.")
    return text


class Number(click.ParamType[int]):
    """A whole number within bounds as the type of an option. The error for another names the bounds."""

    name = "n"

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return `value` as a number. Raise `UsageError` for a number out of bounds, or a text."""
        number = click.INT.convert(value, param, ctx)
        if number not in self._bounds:
            flag = param.opts[0] if param else "the number"
            raise click.UsageError(f"{flag} must be {self._bounds} (got {value})", ctx)
        return number


class Choice(click.Choice[str]):
    """One of some words as the type of an option. Case, "-" and "_" do not count. The error for the word of
    another toolkit suggests ours."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the choice that `value` spells. Raise `BadParameter` for another text."""
        name = param.setting if isinstance(param, SettingOption) else param.opts[0] if param else ""
        spelt = spelt_like(value, self.choices)
        if not spelt and (here := value_here(name, value)):
            self.fail(f"'{value}': did you mean {here}?", param, ctx)
        return super().convert(spelt or value, param, ctx)


COUNT = Number(Bounds(least=1))


class DeviceType(click.ParamType[str]):
    """The name of a device as the type of an option. Case does not count. Later, PyTorch checks whether the
    device exists."""

    name = "device"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return `value` as PyTorch spells it. Raise `UsageError` for a name of another form."""
        name = value.lower()
        if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", name):
            raise click.UsageError(f"--device must be auto, cpu, cuda or cuda:N (got {shown(value)}).", ctx)
        return name


DEVICE, DEVICES = DeviceType(), "[auto|cpu|cuda|cuda:N]"

ASSIGNMENT = re.compile(r"--set '?([\w.]+)=([^\s?']+)")
"""A setting and its value in a suggestion."""

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
NUMBERS = re.compile(r"[-+\d.eE,:()\[\] ]+")
"""Numbers as other toolkits write several of them: "(0.9, 0.98)", "0.9,0.98", "6:6"."""


class Command(click.Command):
    """A command whose error for an unknown option suggests a known one. Its `epilog` is an example."""

    settings: type[Any] = object
    """The dataclass of its settings, or `object` if the command has none."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write `epilog` to the help as an example, if there is one. click itself would wrap its lines."""
        if self.epilog:
            with formatter.section("Example"):
                formatter.write("".join(f"  {line}\n" for line in self.epilog.splitlines()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse `args` as click does. Raise `UsageError` with suggestions for all unknown options."""
        words = [*args]  # click removes the words from the list as it reads them
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise click.UsageError(" ".join(self._unknown(ctx, words)), ctx) from error

    def _unknown(self, ctx: click.Context, words: list[str]) -> Iterator[str]:
        """Yield a message for each unknown option in `words`, with suggestions or an answer. Options with the
        same answer share a message. Remove the options from `words`."""
        settings = {setting.name: setting for setting in describe(self.settings)}
        flags = [flag for param in self.params for flag in param.opts if flag[:2] == "--"]
        names = [*flags, *settings]
        unknown = [*self._unknown_options(ctx, words)]
        # What the user gives by --set, or by another unknown option: --lr-scheduler gives schedule.kind.
        given = {name: value for name, _, value in (word.partition("=") for word in words)}
        for _, option, values in unknown:
            value = next(iter(values), "")
            for suggestion in named_here(option, names, value):
                if suggestion in settings:
                    given[suggestion] = _own_value(settings[suggestion], value)
        hints = [self._hint(option, values, names, given) for _, option, values in unknown]
        options: dict[str, list[str]] = {}
        for (named, _, _), hint in zip(unknown, hints, strict=True):
            options.setdefault(_overruling(hint, hints) or hint, []).append(f"'{named}'")
        for hint, shown_options in options.items():
            yield f"No such option {', '.join(shown_options)}{hint}"
        if "--batch-tokens" in flags:
            sizes = {option: next(iter(values), "") for _, option, values in unknown}
            yield from filter(None, [first_batch_size(sizes)])

    def _unknown_options(self, ctx: click.Context, words: list[str]) -> Iterator[tuple[str, str, list[str]]]:
        """Yield each unknown option in `words` as click names it and as it was typed, and the words after it.
        Remove the option."""
        while True:
            try:
                self.make_parser(ctx).parse_args([*words])
                return
            except click.NoSuchOption as error:
                # click names only the first letter of -batch_size, which other toolkits accept.
                index = next(n for n, word in enumerate(words) if word.startswith(error.option_name))
                option, equals, value = words.pop(index).partition("=")
                values = [value] if equals else [*takewhile(lambda word: word[:1] != "-", words[index:])]
                yield error.option_name, option, values
            except click.UsageError:  # reported once all options are known
                return

    def _hint(self, option: str, values: list[str], names: list[str], given: Mapping[str, str]) -> str:
        """Return how the error about the unknown `option` ends: ": did you mean ...?", what to use instead of
        an option of another toolkit or a removed one, or "." if nothing is similar.

        values: the words after the option.
        names: the command's options and settings.
        given: the settings that the user gave.
        """
        value = next(iter(values), "")
        if not (similar := named_here(option, names, value)) and (answer := not_here(option, names, value)):
            return f": {answer}"
        if not similar and (removed := removed_like(option, names)):
            return f": {removed} was removed: {REMOVED[removed].now}."
        flags = [name for name in names if name.startswith("--")]
        similar = similar or get_close_matches(option, flags, n=1, cutoff=0.75)
        suggestions, remarks = [], []
        for name in similar:
            if name.startswith("--"):
                suggestions.append(self._typed_option(name, value))
            else:
                suggested, problem = self._typed_settings(name, values, given)
                suggestions.append(suggested)
                remarks.append(f" {problem}." if problem else "")
            remarks.append(f" {note}" if (note := note_on(name)) else "")
        return f": did you mean {' or '.join(suggestions)}?{''.join(remarks)}" if suggestions else "."

    def _typed_option(self, suggestion: str, value: str) -> str:
        """Return `suggestion`, an option and perhaps a choice, with the user's `value` if that is a choice.
        Leave out a suggested choice that the option lacks."""
        flag, _, choice = suggestion.partition(" ")
        param = next(param for param in self.params if flag in param.opts)
        if not isinstance(param.type, click.Choice):
            return suggestion
        choices = param.type.choices
        choice = choice or value_here(flag, value) or spelt_like(value, choices) or ""
        return f"{flag} {choice}" if choice in choices else flag

    def _typed_settings(
        self, suggestion: str, values: list[str], elsewhere: Mapping[str, str]
    ) -> tuple[str, str]:
        """Return `suggestion`, settings and perhaps values, as the user would type it. Before them are the
        assignments that they need, unless the user's settings `elsewhere` do, too. Without a value in the
        suggestion, a setting gets the first of `values`, else an example. If it refuses the value, the
        suggestion has VALUE in its place, and the second text is the error, else ""."""
        settings = {setting.name: setting for setting in describe(self.settings)}
        value = next(iter(values), "")
        numbers = NUMBER.findall(" ".join(takewhile(NUMBERS.fullmatch, values)))
        given: dict[str, str] = {}
        needed: dict[str, str] = {}
        open_names = []  # those whose value is the user's
        for word in suggestion.split():
            name, _, fixed = word.partition("=")
            if not fixed:
                open_names.append(name)
                fixed = _own_value(settings[name], value)
            elif place := re.fullmatch(r"{(\d)}", fixed):
                number = int(place[1])
                if number > len(numbers) > 0:
                    continue
                open_names.append(name)
                fixed = numbers[number - 1] if numbers else _example(settings[name])
            given[name] = fixed
            needs, _, need = settings[name].needs.partition("=")
            needed |= {needs: need} if needs else {}
        needed = {name: value for name, value in needed.items() if name not in given}
        problem = self._problem({**needed, **given}) if value else ""
        if problem:
            given |= dict.fromkeys(open_names, "VALUE")
        others = {name: elsewhere[name] for name in needed if name in elsewhere}
        if others and not self._problem({**needed, **others, **given}):
            needed = {name: value for name, value in needed.items() if name not in others}
        words = [f"--set {shlex.quote(f'{name}={value}')}" for name, value in needed.items()]
        return " ".join([*words, *(self._assigned(name, value) for name, value in given.items())]), problem

    def _problem(self, values: Mapping[str, str]) -> str:
        """Return the error about settings with `values`, "" if there is none."""
        own = own_entries(getattr(self, "defaults", {}))
        assignments = [f"{name}={value}" for name, value in values.items()]
        try:
            resolved(self.settings, [*own, *given_entries(assignments=assignments)])
        except UserError as error:
            return str(error.args[0])
        return ""

    def _assigned(self, name: str, value: str) -> str:
        """Return the option that sets the setting `name` to `value`, --set if it has none of its own."""
        for param in self.params:
            if isinstance(param, SettingOption) and param.setting == name:
                if not param.is_flag:
                    return f"{param.opts[0]} {shlex.quote(value)}"
                flags = param.opts if value == "true" else param.secondary_opts
                return flags[0]
        return f"--set {shlex.quote(f'{name}={value}')}"


class CommandWithSettings(Command):
    """A command with settings. Its help lists the common settings, and --settings prints all."""

    def __init__(
        self,
        *args: Any,
        settings: type[object],
        defaults: Mapping[str, object] | None = None,
        other_files: Callable[[Path], Iterable[Entry] | None] = lambda file: None,
        **kwargs: Any,
    ) -> None:
        """Create a command.

        settings: the dataclass whose fields are sections of settings.
        defaults: the command's own defaults of some of them, by full name.
        other_files: returns the entries of a file of --config that is not TOML, or None for all others.
        """
        super().__init__(*args, **kwargs)
        self.settings, self.defaults, self.other_files = settings, defaults or {}, other_files

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse `args` like `Command`. With --settings, nothing is required, as the command does not run."""
        required = [param for param in self.params if param.required]
        for param in required:
            param.required = LIST_ALL not in args
        try:
            return super().parse_args(ctx, args)
        finally:
            # The options belong to the module, and later calls in this process use them again.
            for param in required:
                param.required = True

    def invoke(self, ctx: click.Context) -> Any:
        """Store the settings in the context for `typed_settings`. Run the command without the settings."""
        options = [
            Entry(param.setting, value, param.secondary_opts[0] if value is False else param.opts[0])
            for param in self.params
            if isinstance(param, SettingOption) and (value := ctx.params.pop(str(param.name))) is not None
        ]
        files, assignments, list_all = map(ctx.params.pop, ("config_files", "assignments", "list_all"))
        ctx.meta[TYPED] = TypedSettings(files, self.other_files, assignments, options, list_all)
        return super().invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the common settings with their defaults to the help, and then the example."""
        title = f"Common settings (--set KEY=VALUE; {ctx.command_path} {LIST_ALL} lists all)"
        with formatter.section(title):
            common = {one.name: one for one in describe(self.settings) if one.everyday}
            defaults = {name: self.defaults.get(name, one.default) for name, one in common.items()}
            formatter.write_dl(
                [(f"{name} = {toml_literal(defaults[name])}", one.summary) for name, one in common.items()]
            )
        super().format_epilog(ctx, formatter)


@dataclass(frozen=True, slots=True)
class TypedSettings:
    """The settings that the user gave on the command line, before they are checked."""

    files: Sequence[Path]
    other_files: Callable[[Path], Iterable[Entry] | None]
    assignments: Sequence[str]
    options: Sequence[Entry]
    list_all: bool
    """Whether the command prints all settings instead of running."""

    @property
    def entries(self) -> list[Entry]:
        """The settings, later ones overriding earlier ones. Raises `UserError` if a file can't be read."""
        read = (self.other_files(file) or from_file(file) for file in self.files)
        return [
            *chain.from_iterable(read),
            *given_entries(assignments=self.assignments, options=self.options),
        ]

    @property
    def values(self) -> dict[str, object]:
        """The values by full name, including those in files."""
        return {entry.name: entry.value for entry in self.entries if entry.value is not MALFORMED}

    @property
    def names(self) -> frozenset[str]:
        """The full names of the settings, including the settings in files."""
        return frozenset(self.values)


def typed_settings() -> TypedSettings:
    """Return the unchecked settings of the running command, which `CommandWithSettings` stores."""
    settings: TypedSettings = click.get_current_context().meta[TYPED]
    return settings


class SettingOption(click.Option):
    """An option that is short for a setting. Its help is the summary and the default of the setting."""

    def __init__(self, *args: Any, setting: str, default_text: str = "", **kwargs: Any) -> None:
        """`setting` is a full name, "training.max_steps". `default_text` replaces the default in the help."""
        super().__init__(*args, default=None, **kwargs)
        self.setting, self._default_text = setting, default_text

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option and its help: the summary, and the default unless it is "" or False."""
        setting = next(one for one in describe(ctx.command.settings) if one.name == self.setting)  # type: ignore[attr-defined]
        default = self._default_text or setting.default
        self.help = setting.summary if default in ("", False) else f"{setting.summary}  [default: {default}]"
        return super().get_help_record(ctx)


def setting_option(setting: str, *flags: str, **kwargs: Any) -> Callable[[Function], Function]:
    """Return a decorator that adds the option `flags` for `setting`. `kwargs` are those of `click.option`."""
    return click.option(*flags, cls=SettingOption, setting=setting, **kwargs)


def with_settings(function: Function) -> Function:
    """Add the options --config, --set and --settings to a command. `typed_settings` returns their values."""
    file = click.option(
        "--config",
        "config_files",
        multiple=True,
        type=EXISTING_FILE,
        help="TOML file with settings. Repeatable.",
    )
    assignments = click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change one setting. Repeatable.",
    )
    everything = click.option(
        *(LIST_ALL, "list_all"), is_flag=True, help="Print all settings as a file for --config."
    )
    return file(assignments(everything(function)))


def _own_value(setting: Setting, value: str) -> str:
    """Return the user's `value` for a similar option as a value of `setting`, an example if it is ""."""
    if isinstance(setting.default, bool) or not value:
        return _example(setting)  # the option was a flag, and the next word is something else
    if isinstance(setting.default, tuple):
        # Only lists of numbers have bounds.
        return f"[{value}]" if setting.takes else toml_literal(value.split(","))
    choices = setting.takes.split(" | ")
    return value_here(setting.name, value) or spelt_like(value, choices) or value


def _overruling(hint: str, hints: list[str]) -> str | None:
    """Return the one of `hints` that assigns all settings of `hint` other values, and further settings, or
    None. So weight decay, which needs optimizer.kind=adamw, overrules --optimizer adam."""
    own = dict(ASSIGNMENT.findall(hint))
    for other in hints:
        theirs = dict(ASSIGNMENT.findall(other))
        if own and own.keys() < theirs.keys() and all(theirs[name] != own[name] for name in own):
            return other
    return None


def _example(setting: Setting) -> str:
    """Return a value of a setting as text: its default, or the first choice. A default that is empty or turns
    something off becomes a placeholder, such as "N"."""
    if isinstance(setting.default, bool):
        return "true"
    if " | " in setting.takes:
        return setting.takes.split(" | ")[0]
    if setting.default == ():
        return '["TEXT"]'
    if isinstance(setting.default, str | int | float) and not setting.default:
        return {str: "TEXT", int: "N"}.get(type(setting.default), "X")
    return setting.default if isinstance(setting.default, str) else toml_literal(setting.default)


def chosen(
    config: type[Config], preset: Path | None = None, defaults: Mapping[str, object] | None = None
) -> Config:
    """Return the checked settings of the running command. With --settings, print the settings and exit
    instead. `defaults`, by full name, override those of the command and come before the file `preset`. The
    command line overrides all. Note removed settings on stderr. Raise `UserError` for an invalid setting."""
    context = click.get_current_context()
    settings = typed_settings()
    note = printer(context.params["quiet"])
    own = getattr(context.command, "defaults", {})
    defaults = {**own, **(defaults or {})}
    options = [param for param in context.command.params if isinstance(param, SettingOption)]
    flags = {option.setting: option.opts[0] for option in options}
    entries = [*own_entries(defaults), *(from_file(preset) if preset else ()), *settings.entries]
    values = resolved(config, entries, note, flags)
    if settings.list_all:
        # As bytes, because a path among the settings need not be UTF-8.
        click.echo(as_commented_toml(values, own).encode(errors="surrogateescape"), nl=False)
        context.exit()
    return values


def own_defaults(folder: Path) -> dict[str, Any]:
    """Return the search settings of the model in `folder` by full name, for `chosen`. If the user typed
    sampling, omit those without effect, since they would be an error that the user did not make."""
    # As text, since "Off" and "True" are accepted too.
    typed = {name: str(value).lower() for name, value in typed_settings().values.items()}
    beam = ("beam",) if typed.get("search.mbr", "off") == "off" else ()
    unused = (*beam, "stop_early") if typed.get("search.sample") == "true" else ()
    return {f"search.{name}": value for name, value in own_search(folder).items() if name not in unused}


def check_direction(folder: Path, source: str | None, target: str | None, quiet: bool) -> None:
    """Raise `UserError` unless the model in `folder` translates from language `source` into `target`, before
    it is loaded. If it has several targets and none is chosen, print how to choose one."""
    recipe = recipe_of(folder)
    languages, usual = recipe.own_languages, (recipe.source_lang, recipe.target_lang)
    if source or target or recipe.needs_direction:
        try:
            languages.direction(source, target, usual)
        except UserError as error:
            missing = recipe.needs_direction and not (source and target)
            remedy = " Give --source-lang and --target-lang." if missing else ""
            raise UserError(f"{folder}: {error.message}{remedy}") from error
    elif not recipe.begins and (tags := [*filter(None, languages.targets.values())]):
        targets = listed(languages.targets)
        printer(quiet)(
            f"{folder} translates into {targets}. Choose one with --target-lang, or begin each line with its "
            f"symbol, such as {tags[0]}."
        )


def printer(quiet: bool) -> Callable[[object], None]:
    """Return a function that prints its argument as a line to stderr, or does nothing if `quiet`."""
    return (lambda line: None) if quiet else lambda line: click.echo(printable(line), err=True)


def warn(text: object) -> None:
    """Print a warning, as one line, to stderr."""
    click.echo(f"Warning: {printable(text)}", err=True)


def device_options(function: Function) -> Function:
    """Add --precision, --threads, --device and --devices to a command that translates."""
    precisions = Choice(["fp32", "fp16", "bf16", "int8"])
    help_text = "Numeric precision.  [default: fp16 on a GPU, else fp32]"
    precision = click.option("--precision", type=precisions, help=help_text)
    threads = click.option("--threads", type=COUNT, help="CPU threads.  [default: all cores]")
    help_text = "Device to translate on.  [default: auto]"
    device = click.option("--device", type=DEVICE, metavar=DEVICES, default="auto", help=help_text)
    devices = click.option("--devices", type=COUNT, default=1, help="Number of GPUs.  [default: 1]")
    return precision(threads(device(devices(function))))


def common(function: Function) -> Function:
    """Add --quiet and --debug to a command, whose function gets `quiet`. `main` reads --debug."""
    quiet = click.option("--quiet", is_flag=True, help="Print warnings and errors only.")
    debug = click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
    return quiet(debug(function))
