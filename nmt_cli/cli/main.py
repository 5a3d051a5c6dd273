"""The `nmt` command: finds the command, and turns what goes wrong into one line and an exit code."""

import atexit
import faulthandler
import os
import platform
import signal
import sys
import warnings
from contextlib import suppress
from types import FrameType
from typing import NoReturn

import click
from click.shell_completion import shell_complete

from nmt_cli import __version__
from nmt_cli.cli.commands.average_checkpoints import average_checkpoints
from nmt_cli.cli.commands.demo import demo
from nmt_cli.cli.commands.export import export
from nmt_cli.cli.commands.import_model import import_model
from nmt_cli.cli.commands.info import info
from nmt_cli.cli.commands.preprocess import preprocess
from nmt_cli.cli.commands.report import report
from nmt_cli.cli.commands.score import score
from nmt_cli.cli.commands.serve import serve
from nmt_cli.cli.commands.train import train
from nmt_cli.cli.commands.translate import translate
from nmt_cli.errors import EXIT_CODES, Caution, Notice, UserError, printable
from nmt_cli.other_toolkits import command_like
from nmt_cli.runtime.atomic import NO_ROOM

FAILED, READER_GONE = 1, 141
MOST_SHOWN = 2000
"""Characters of an error."""

WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000"}
"""How OpenMP's threads wait for each other: after so many turns of a loop, some 0.1 ms, they go to sleep."""

# The name by which click's completion scripts ask.
COMPLETE = "_NMT_COMPLETE"

VERSIONS = "Show the versions of nmt, Python and PyTorch, and the device it finds, and exit."


def _versions(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """What a report of a fault should have."""
    if not wanted or context.resilient_parsing:
        return
    click.echo(f"nmt {__version__}")
    # Not above: it takes seconds, and --help is to be there at once.
    import torch

    from nmt_cli.runtime.devices import gpu_name, processor_name, usable_devices

    device = usable_devices("auto")[0]
    python = f"Python {platform.python_version()} on {platform.platform()}"
    click.echo(f"{python}, PyTorch {torch.__version__}, {gpu_name(device) or processor_name()}")
    context.exit()


class _Group(click.Group):
    """The commands; the error for an unknown one suggests a known one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See click."""
        if args[0] not in self.commands and (like := command_like(args[0], self.commands)):
            raise click.UsageError(f"No such command '{args[0]}'. Did you mean {like}?", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Group,
    invoke_without_command=True,
    epilog="Example: nmt demo, which takes four minutes.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option("--version", is_flag=True, callback=_versions, expose_value=False, is_eager=True, help=VERSIONS)
@click.pass_context
def nmt(context: click.Context) -> None:
    """Translate with the Transformer: from raw parallel text to scored translations."""
    if not context.invoked_subcommand:
        click.echo(context.get_help(), err=True)
        context.exit(2)


nmt.add_command(average_checkpoints)
nmt.add_command(export)
nmt.add_command(import_model)
nmt.add_command(demo)
nmt.add_command(info)
nmt.add_command(preprocess)
nmt.add_command(report)
nmt.add_command(score)
nmt.add_command(serve)
nmt.add_command(train)
nmt.add_command(translate)


def program() -> NoReturn:
    """`main`, for a process that is `nmt` and nothing else: it ends without taking Python apart."""
    try:
        main()
    except SystemExit as ended:
        atexit.register(_end, ended.code if isinstance(ended.code, int) else 0)
        raise


def main() -> NoReturn:
    """Run `nmt` on this process's arguments and exit."""
    _open_streams()
    # A mapped file that is cut while it is read ends us by a signal; this says where we were.
    with suppress(OSError, ValueError):
        faulthandler.enable()
    if asked := os.environ.get(COMPLETE):  # by a shell, for the words that may follow
        sys.exit(shell_complete(nmt, {}, "nmt", COMPLETE, asked))
    warnings.formatwarning = _one_line_if_ours
    _hear_signals()
    # OpenMP's threads would wait in busy loops, many times slower where others use the machine too; or asleep
    # at once, and to wake them takes as long as many a product.
    for name, value in WAITING.items() if "OMP_WAIT_POLICY" not in os.environ else ():
        os.environ.setdefault(name, value)
    try:
        # Not `nmt.main()`, which answers Ctrl-C and a reader that went away itself, both with exit code 1.
        with nmt.make_context("nmt", sys.argv[1:]) as context:
            nmt.invoke(context)
        code = 0
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.ClickException as error:
        vars(error).update(message=printable(error.message))  # click calls it final, and shows it as it is
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _hear_no_more()
        exec("")  # or else Python, if the signal came within exec(), ends by it although it was caught
        code = _failed("interrupted.", EXIT_CODES[signal.SIGINT])
    except BrokenPipeError:
        code = READER_GONE
    except UserError as error:
        code = _failed(str(error), FAILED)
    except OSError as error:
        code = _failed(_plainly(error), FAILED)
    except Exception as error:
        bug = f"{type(error).__name__}: {error}"
        code = _failed(f"a fault of nmt's own ({bug}); run it again with --debug and report it.", FAILED)
    finally:
        reader_gone = _flush()
    sys.exit(code or reader_gone)


def _flush() -> int:
    """Write what is left for stdout; the exit code where nobody reads it any more."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more at its end, which would fail again and tell of it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except (OSError, ValueError):  # told by Python at its end, or closed
        pass
    return 0


def _end(code: int) -> None:
    """End this process without freeing modules and objects.

    `atexit` calls this function first, after all threads ended. It runs the other registered functions before
    it ends the process. This saves 0.20 s of `nmt translate` after the last line: 0.04 s in place of 0.24 s,
    medians of eight runs.
    """
    atexit.unregister(_end)
    if ended := getattr(atexit, "_run_exitfuncs", None):
        ended()
        with suppress(OSError, ValueError):  # or else Python flushes them again, and tells
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _hear_signals() -> None:
    """Let SIGTERM and Ctrl-C end the command in order, unless it was started to ignore them."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, _terminate)
    # A shell starts background jobs with SIGINT ignored, and that is to stay so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _open_streams() -> None:
    """Put /dev/null in the place of closed standard streams: the next file to be opened would take the number
    of one of them, and get what is printed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            if (opened := os.open(os.devnull, os.O_RDWR)) != number:
                os.dup2(opened, number)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w"))


def _failed(message: str, code: int) -> int:
    if "--debug" in sys.argv:
        raise  # called within an `except`, so with the traceback
    told = printable(message)
    if len(told) > MOST_SHOWN:  # a damaged file may be quoted in it
        told = f"{told[: MOST_SHOWN // 2]} … {told[-MOST_SHOWN // 2 :]}"
    click.echo(f"Error: {told}", err=True)
    return code


def _one_line_if_ours(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    if issubclass(category, Caution):
        return f"Warning: {printable(message)}\n"
    if issubclass(category, Notice):
        return "" if "--quiet" in sys.argv else f"{printable(message)}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def _plainly(error: OSError) -> str:
    if error.errno in NO_ROOM and not error.filename:  # files are named where they are written
        return f"stdout can't be written: {error.strerror}; make room where it leads to."
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror}; check the path, and who may use it."


def _hear_no_more() -> None:
    """A second signal must not interrupt the cleaning up."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _interrupt(_: int, __: FrameType | None) -> NoReturn:
    _hear_no_more()
    raise KeyboardInterrupt


def _terminate(_: int, __: FrameType | None) -> NoReturn:
    _hear_no_more()
    click.echo("Error: terminated.", err=True)
    sys.exit(EXIT_CODES[signal.SIGTERM])
