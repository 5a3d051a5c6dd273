"""The `nmt` command: it runs a subcommand, and turns errors into single lines and exit codes."""

import atexit
import errno
import faulthandler
import os
import platform
import signal
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click
from click.shell_completion import shell_complete

from nmt_cli import __version__
from nmt_cli.cli.commands.average_checkpoints import average_checkpoints
from nmt_cli.cli.commands.demo import demo
from nmt_cli.cli.commands.export import export
from nmt_cli.cli.commands.help import help_pages
from nmt_cli.cli.commands.import_model import import_model
from nmt_cli.cli.commands.info import info
from nmt_cli.cli.commands.preprocess import preprocess
from nmt_cli.cli.commands.report import report
from nmt_cli.cli.commands.score import score
from nmt_cli.cli.commands.serve import serve
from nmt_cli.cli.commands.shortlist import shortlist
from nmt_cli.cli.commands.train import train
from nmt_cli.cli.commands.translate import translate
from nmt_cli.errors import (
    EXIT_CODES,
    LONGEST_MESSAGE,
    Caution,
    Notice,
    UserError,
    does_not_exist,
    printable,
    shortened,
)
from nmt_cli.other_toolkits import command_like
from nmt_cli.runtime.atomic import NO_ROOM

FAILED, READER_GONE = 1, 141

WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000"}
"""The way in which OpenMP's threads wait for each other: they spin for about 0.1 ms and then sleep."""

QUIET = {"HF_HUB_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
"""Variables that --quiet sets. Without them, huggingface_hub prints its progress and repeated requests."""

COMPLETE = "_NMT_COMPLETE"
"""The environment variable that click's scripts for completion set."""

GROUPS = {
    "Data and training": (preprocess, train, average_checkpoints),
    "Translating": (translate, serve, score, shortlist),
    "Other toolkits' models": (import_model, export),
    "Inspecting": (info, report),
    "Learning": (demo, help_pages),
}
"""The commands by workflow, in the order of the help."""


def _versions(context: click.Context, _: click.Parameter, requested: bool) -> None:
    """Print versions and the device, and exit, for --version. Do nothing while a shell completes a word."""
    if not requested or context.resilient_parsing:
        return
    click.echo(f"nmt {__version__}")
    # Imported here because it takes seconds, and --help must appear at once.
    import torch

    from nmt_cli.runtime.devices import gpu_name, processor_name, usable_devices

    device = usable_devices("auto")[0]
    python = f"Python {platform.python_version()} on {platform.platform()}"
    click.echo(f"{python}, PyTorch {torch.__version__}, {gpu_name(device) or processor_name()}")
    context.exit()


class _Group(click.Group):
    """All commands. The help lists them by workflow, and the error for an unknown command suggests a known
    one."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands to the help, under the headings of `GROUPS`."""
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(str(each.name), each.get_short_help_str(limit=50)) for each in commands])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command as click does. For an unknown one, raise `UsageError` with a similar name if there
        is one."""
        if args[0] not in self.commands and (like := command_like(args[0], self.commands)):
            raise click.UsageError(f"No such command '{args[0]}'. Did you mean {like}?", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Group,
    invoke_without_command=True,
    subcommand_metavar="COMMAND",
    epilog="Run nmt COMMAND --help for its options. nmt help lists the documentation.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option(
    "--version",
    is_flag=True,
    callback=_versions,
    expose_value=False,
    is_eager=True,
    help="Show versions and device.",
)
@click.pass_context
def nmt(context: click.Context) -> None:
    """Train Transformer models on parallel text, and translate with them."""
    if not context.invoked_subcommand:
        click.echo(context.get_help(), err=True)
        context.exit(2)


for _commands in GROUPS.values():
    for _command in _commands:
        nmt.add_command(_command)


def program() -> NoReturn:
    """Run `main` as the program `nmt`. The process ends with its exit code, and without freeing memory."""
    try:
        main()
    except SystemExit as ended:
        atexit.register(_end, ended.code if isinstance(ended.code, int) else 0)
        raise


def main() -> NoReturn:
    """Run `nmt` on the arguments of this process, and exit.

    An error is printed as one line on stderr. With --debug, it is raised instead. The exit code is 0 for
    success, 1 for an error, 2 for wrong usage, 130 for Ctrl-C, and `READER_GONE` if the reader of stdout has
    ended.

    This changes the process: signal handlers, closed standard streams, the format of warnings, and variables
    of OpenMP and huggingface_hub. If the environment variable `COMPLETE` is set, it only prints completions
    for a shell.
    """
    _open_streams()
    # A mapped file that is truncated while it is read kills the process. This prints the stack then.
    with suppress(OSError, ValueError):
        faulthandler.enable()
    if instruction := os.environ.get(COMPLETE):
        sys.exit(shell_complete(nmt, {}, "nmt", COMPLETE, instruction))
    warnings.formatwarning = _one_line_if_ours
    _handle_signals()
    _set_variables()
    try:
        # Not `nmt.main()`, which exits with 1 after Ctrl-C and when the reader of stdout has ended.
        with nmt.make_context("nmt", sys.argv[1:]) as context:
            nmt.invoke(context)
        code = 0
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.ClickException as error:
        message = printable(shortened(error.message, LONGEST_MESSAGE))
        vars(error).update(message=message)  # `message` is declared final
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _ignore_signals()
        # Otherwise Python dies of a signal that arrived within exec(), though it was caught.
        exec("")
        code = _failed("interrupted.", code=EXIT_CODES[signal.SIGINT])
    except BrokenPipeError:
        code = READER_GONE
    except UserError as error:
        code = _failed(*error.args)
    except OSError as error:
        code = _failed(_described(error))
    except Exception as error:
        bug = f"{type(error).__name__}: {error}"
        code = _failed(f"a bug in nmt ({bug}). Run the command again with --debug and report it.")
    finally:
        reader_gone = _flush()
    sys.exit(code or reader_gone)


def _flush() -> int:
    """Flush stdout. Return `READER_GONE` if its reader has ended, otherwise 0, also after other errors."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout again when it exits, which would fail and print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except (OSError, ValueError):  # reported by Python when it exits, or closed
        pass
    return 0


def _end(code: int) -> None:
    """End this process with `code`, after the functions that are registered with `atexit`. If that is not
    possible, return, and Python exits as usual.

    Objects are not freed. So `nmt translate` ends 0.04 s after the last line instead of 0.24 s (medians of
    eight runs).
    """
    atexit.unregister(_end)
    if ended := getattr(atexit, "_run_exitfuncs", None):
        ended()
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _handle_signals() -> None:
    """Let SIGTERM and Ctrl-C end the command after a cleanup. A signal that the parent process has ignored
    stays ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # A shell starts background jobs with SIGINT ignored, which must stay so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def _stop(number: int, _: FrameType | None) -> NoReturn:
    """Handle SIGINT by raising `KeyboardInterrupt`, and SIGTERM by printing an error and exiting."""
    _ignore_signals()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    click.echo("Error: terminated.", err=True)
    sys.exit(EXIT_CODES[signal.SIGTERM])


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _open_streams() -> None:
    """Open /dev/null in place of stdin, stdout and stderr if they are closed. Otherwise the next file that is
    opened would get the number of the stream, and all printed text."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            if (opened := os.open(os.devnull, os.O_RDWR)) != number:
                os.dup2(opened, number)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w"))


def _set_variables() -> None:
    """Let OpenMP's idle threads sleep instead of spin, unless OMP_WAIT_POLICY is set. With --quiet, also
    silence huggingface_hub. Environment variables do both."""
    # By default, OpenMP's threads spin, which is very slow on a machine that other programs use, too. If they
    # sleep at once, waking them takes as long as a matrix product.
    for name, value in WAITING.items() if "OMP_WAIT_POLICY" not in os.environ else ():
        os.environ.setdefault(name, value)
    if "--quiet" in sys.argv:
        os.environ.update(QUIET)


def _failed(*messages: object, code: int = FAILED) -> int:
    """Print each message as a line on stderr, and return `code`. With --debug, raise the current error
    instead."""
    if "--debug" in sys.argv:
        raise
    for message in map(printable, messages):
        click.echo(f"Error: {message}", err=True)
    return code


def _one_line_if_ours(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Return the text of a warning. Python calls this in place of `warnings.formatwarning`.

    A `Caution` or a `Notice` is one line, and a `Notice` is "" with --quiet. Other warnings also have file,
    line number and category.
    """
    if issubclass(category, Caution):
        return f"Warning: {printable(message)}\n"
    if issubclass(category, Notice):
        return "" if "--quiet" in sys.argv else f"{printable(message)}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def _described(error: OSError) -> str:
    """Return a message for an error of the system, with the path and a remedy."""
    if error.errno in NO_ROOM and not error.filename:  # writers of files add the name
        return f"cannot write to stdout: {error.strerror}. Free space on its disk."
    if error.errno == errno.ENOENT and error.filename:
        path = Path(os.fsdecode(error.filename))
        return str(does_not_exist(path if path.parent.is_dir() else path.parent))
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror}. Check the path and its permissions."
