"""Where models, checkpoints and runs lie; knows no PyTorch, so a wrong path is told at once."""

import re
from pathlib import Path
from typing import Any

from nmt_cli.checkpoints.foreign import refuse_foreign_model
from nmt_cli.errors import UserError
from nmt_cli.runtime.foreign_text import parsed_json, read_ordinary

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
EMA = "ema.safetensors"
CHECKPOINTS = "checkpoints"
BEST, LAST = "best", "last"
NAME = re.compile(r"step-(\d{8,})")


def checkpoints(run: Path) -> dict[int, Path]:
    """The whole checkpoints of a run by step, oldest first."""
    try:
        paths = list((run / CHECKPOINTS).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    found = {int(match[1]): path for path in paths if (match := NAME.fullmatch(path.name))}
    return dict(sorted(found.items()))


def find_model(path: Path) -> Path:
    """The model folder meant by `path`: itself, or the best or else the last checkpoint of a run."""
    refuse_foreign_model(path)
    for place in (path, path / BEST, path / LAST):
        if (place / CONFIG).is_file():
            return place
    whole = checkpoints(path)
    if whole:
        return list(whole.values())[-1]
    raise UserError(
        f"{path} is no model: it has no {CONFIG}, nor any checkpoint; name a model, checkpoint or run folder."
    )


def own_search(path: Path) -> dict[str, Any]:
    """How the owner of an imported model decodes: settings of the search by name; of any other model none."""
    try:
        search = parsed_json(read_ordinary(find_model(path) / CONFIG)).get("search", {})
    except (UserError, OSError, ValueError, AttributeError):
        return {}  # the model's own reader says what is wrong with it
    return search if isinstance(search, dict) else {}
