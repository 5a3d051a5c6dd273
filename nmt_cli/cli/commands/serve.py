"""`nmt serve`: an HTTP server for one or more models."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from nmt_cli.cli.options import (
    EXISTING,
    EXISTING_FILE,
    CommandWithSettings,
    Number,
    chosen,
    common,
    device_options,
    own_defaults,
    printer,
    with_settings,
)
from nmt_cli.errors import UserError
from nmt_cli.serving.config import ServeConfig
from nmt_cli.setting_values import Bounds

NEEDED = ("starlette", "uvicorn", "py3langid", "prometheus_client")
"""The packages of the extra "serve", which an installation may lack."""

PORT = Number(Bounds(least=0, most=65_535))


SPLIT = {"input.sentences": "split"}
"""The defaults that differ from those of `nmt translate`, because requests contain paragraphs, not single
lines."""


@click.command(
    cls=CommandWithSettings,
    settings=ServeConfig,
    defaults=SPLIT,
    epilog="nmt serve en-de de-en --port 5000",
)
@click.argument("models", nargs=-1, required=True, metavar="MODEL ...", type=EXISTING)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on. 0.0.0.0 means all."
)
@click.option("--port", type=PORT, default=5000, show_default=True, help="Port. 0 takes any free one.")
@click.option(
    "--api-keys", "keys", type=EXISTING_FILE, help="File of API keys that clients must send, one a line."
)
@device_options
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
    devices: int,
    quiet: bool,
) -> None:
    """Serve translations over HTTP.

    MODEL is a model, checkpoint or run folder, a package of Argos Translate, or
    a folder of packages. Give one per language pair. Packages are imported once,
    into ~/.cache/nmt. The server implements the LibreTranslate API and parts of
    the DeepL and OpenAI APIs. Its start page translates in the browser.

    Ctrl-C, SIGTERM and SIGHUP finish the accepted requests before the end.
    """
    config = chosen(ServeConfig)
    if missing := [name for name in NEEDED if not find_spec(name)]:
        raise UserError(f"nmt serve needs {missing[0]}, which is not installed: pip install '.[serve]'.")
    from nmt_cli.api import TranslateConfig, load
    from nmt_cli.checkpoints.finding import recipe_of, weights_size
    from nmt_cli.interop.argos import model_folders
    from nmt_cli.runtime.memory import resident_memory
    from nmt_cli.runtime.threads import set_own_threads
    from nmt_cli.serving.keys import Keys
    from nmt_cli.serving.models import Served
    from nmt_cli.serving.server import serve as serve_models

    accepted_keys = Keys(keys)
    # The limit is enforced by the memory that a process uses, which only Linux reports in /proc.
    if config.server.memory and not resident_memory():
        raise UserError("server.memory needs Linux, since other systems have no /proc. Use server.memory=0.")
    where: dict[str, Any] = {"device": device, "devices": devices, "precision": precision, "threads": threads}
    with ExitStack() as stack:
        served: dict[str, Served] = {}
        for folder in model_folders(models, printer(quiet)):
            # For each model, because an imported one has its own search settings.
            settings = chosen(ServeConfig, defaults=own_defaults(folder))
            both = TranslateConfig(search=settings.search, input=settings.input)
            load_model = partial(load, folder, config=both, **where)
            # With a limit, models are loaded when they are needed.
            model = None if config.server.memory else load_model()
            recipe = model.tokenizers.recipe if model else recipe_of(folder)
            one = served[_name(folder, served)] = Served(recipe, load_model, weights_size(folder), model)
            stack.callback(one.close)
        # The threads of this process must not slow the workers down.
        set_own_threads(1)
        serve_models(served, (host, port), accepted_keys, config.server, printer(quiet))


def _name(folder: Path, taken: Mapping[str, object]) -> str:
    """Return a name for the model in `folder` that is not in `taken`.

    It is the last part of the resolved path, the path as typed, or the resolved path. Raise `UserError` if
    all are taken.
    """
    # Two models once got the same name, and the second replaced the first without a message.
    for name in (folder.resolve().name, str(folder), str(folder.resolve())):
        if name not in taken:
            return name
    raise UserError(f"{folder} is given several times. Give each MODEL once.")
