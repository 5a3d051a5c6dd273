"""What the commands' options have in common: settings, their help, --quiet and --debug."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from nmt_cli.config import Setting, describe, toml_literal

Function = TypeVar("Function", bound=Callable[..., Any])


class CommandWithSettings(click.Command):
    """A command whose help ends with its settings, read off the dataclass that holds them."""

    def __init__(self, *args: Any, settings: type[object], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._settings = settings

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the settings below the flags."""
        with formatter.section(
            "Settings (keys of --config FILE.toml; --set KEY=VALUE wins over it, a flag over both)"
        ):
            formatter.write_dl(
                [(f"{s.name} = {toml_literal(s.default)}", _meaning(s)) for s in describe(self._settings)],
                col_max=34,
            )


def _meaning(setting: Setting) -> str:
    choices = " | ".join(map(str, setting.choices))
    return f"{setting.meaning} [{choices}]" if choices else setting.meaning


def common(function: Function) -> Function:
    """--quiet and --debug, which every command has; `main` looks for the latter."""
    quiet = click.option("--quiet", is_flag=True, help="Say nothing but warnings and errors.")
    debug = click.option("--debug", is_flag=True, expose_value=False, help="Show where an error came from.")
    return quiet(debug(function))
