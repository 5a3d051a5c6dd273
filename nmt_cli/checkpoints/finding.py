"""Find models, checkpoints and runs. This module does not load PyTorch, so a wrong path fails at once."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt_cli.checkpoints.foreign_kinds import refuse_foreign_model
from nmt_cli.errors import UserError
from nmt_cli.runtime.foreign_text import parsed_json, read_ordinary

if TYPE_CHECKING:
    from nmt_cli.text.tokenizers import Recipe

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TOKENIZERS = "tokenizer"
EMA = "ema.safetensors"
SETTINGS = "config.toml"
"""The settings of a run."""

CHECKPOINTS = "checkpoints"
BEST, LAST = "best", "last"
NAME = re.compile(r"step-(\d{8,})")


def checkpoints(run: Path) -> dict[int, Path]:
    """Return a run's complete checkpoints by step, in ascending order. Return {} if there are none."""
    try:
        paths = list((run / CHECKPOINTS).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    by_step = {int(match[1]): path for path in paths if (match := NAME.fullmatch(path.name))}
    return dict(sorted(by_step.items()))


def find_model(path: Path) -> Path:
    """Return the folder of the model at `path`: a model folder itself, or one of a run folder.

    For a run, it is the link `best`, else `last`, else the newest checkpoint. Raise `UserError` for any
    other path, such as a model of another toolkit.
    """
    refuse_foreign_model(path)
    for folder in (path, path / BEST, path / LAST):
        if (folder / CONFIG).is_file():
            return folder
    if complete := checkpoints(path):
        return list(complete.values())[-1]
    if (path / SETTINGS).is_file():
        raise UserError(f"{path} has no checkpoint yet. Wait for one, or train with --save-every.")
    raise UserError(
        f"{path} is not a model: it has no {CONFIG} and no checkpoint. "
        "Name a model, checkpoint or run folder."
    )


def recipe_of(path: Path) -> "Recipe":
    """Return the recipe of the tokenisers of a model, checkpoint or run folder, which names its languages.
    Neither weights nor vocabularies are read.

    Raise `UserError` if there is no model, or if its recipe is damaged.
    """
    # Late, since every command imports this module, and tokenisers take a tenth of a second.
    from nmt_cli.text.tokenizers import read_recipe

    return read_recipe(find_model(path) / TOKENIZERS)


def weights_size(path: Path) -> int:
    """Return the size of the weights of a model, checkpoint or run folder, in bytes. Raise `UserError` if
    there is no model. Missing files count as 0."""
    files = (find_model(path) / name for name in (EMA, WEIGHTS))
    return next((file.stat().st_size for file in files if file.is_file()), 0)


def own_search(path: Path) -> dict[str, Any]:
    """Return the search settings of an imported model, or {} for other models and unreadable paths."""
    try:
        search = parsed_json(read_ordinary(find_model(path) / CONFIG)).get("search", {})
    except (UserError, OSError, ValueError, AttributeError):
        return {}  # reading the model reports the error
    return search if isinstance(search, dict) else {}
