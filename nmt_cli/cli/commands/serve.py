"""`nmt serve`: models in, an HTTP server for LibreTranslate's clients, other programs, and people."""

from collections.abc import Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from nmt_cli.cli.options import EXISTING_FOLDER, FILE, CommandWithSettings, chosen, common, with_settings
from nmt_cli.errors import UserError, printable
from nmt_cli.serving.config import ServeConfig

NEEDED = ("starlette", "uvicorn", "python_multipart", "py3langid")


@click.command(
    cls=CommandWithSettings,
    settings=ServeConfig,
    epilog="nmt serve en-de de-en --port 5000",
)
@click.argument("models", nargs=-1, required=True, metavar="MODEL ...", type=EXISTING_FOLDER)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at; 0.0.0.0 for all.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=5000, show_default=True, help="0 for any free."
)
@click.option("--api-keys", "keys", type=FILE, help="File with a key a line; one of them must be sent.")
@click.option(
    "--precision",
    type=click.Choice(["fp32", "fp16", "bf16", "int8"]),
    help="Numbers to compute with.  [default: fp16 on a GPU, fp32 elsewhere]",
)
@click.option("--threads", type=click.IntRange(min=1), help="Processors to use.  [default: all]")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", help="What to run on.")
@with_settings
@common
def serve(
    models: tuple[Path, ...],
    host: str,
    port: int,
    keys: Path | None,
    precision: str | None,
    threads: int | None,
    device: str,
    file: Path | None,
    assignments: tuple[str, ...],
    quiet: bool,
) -> None:
    """Answer requests for translations over HTTP with MODEL, a model, checkpoint or run folder.

    Several are several pairs of languages. It speaks as LibreTranslate, and a little as DeepL and OpenAI; a
    page to try it stands at /. Ctrl-C and SIGTERM end it when what was asked is answered.
    """
    plain = {"input.sentences": "split"}  # requests hold paragraphs
    config = chosen(ServeConfig, file, assignments, defaults=plain)
    if missing := [name for name in NEEDED if not find_spec(name)]:
        raise UserError(f"nmt serve needs {missing[0]}, which is not installed: pip install '.[serve]'.")

    from nmt_cli.api import Model, TranslateConfig, load
    from nmt_cli.checkpoints.finding import own_search
    from nmt_cli.runtime.threads import set_own_threads
    from nmt_cli.serving.keys import Keys
    from nmt_cli.serving.server import serve as serve_models

    good = Keys(keys)
    where: dict[str, Any] = {"device": device, "precision": precision, "threads": threads}
    with ExitStack() as stack:
        loaded: dict[str, Model] = {}
        for folder in models:
            own = {f"search.{name}": value for name, value in own_search(folder).items()}
            settings = chosen(ServeConfig, file, assignments, defaults=plain | own)
            both = TranslateConfig(search=settings.search, input=settings.input)
            loaded[_name(folder, loaded)] = stack.enter_context(load(folder, config=both, **where))
        set_own_threads(1)  # what the threads of this process compute shall not slow the workers down
        serve_models(loaded, (host, port), good, config.server, _ignore if quiet else _tell)


def _name(folder: Path, taken: Mapping[str, object]) -> str:
    name = folder.resolve().name
    return name if name not in taken else str(folder)


def _tell(text: str) -> None:
    click.echo(printable(text), err=True)


def _ignore(text: str) -> None:
    """For --quiet."""
