"""Detect the toolkit of a model, and read the model."""

import re
from pathlib import Path

from nmt_cli.checkpoints.foreign import IMPORTED, foreign_kind
from nmt_cli.errors import UserError
from nmt_cli.interop.foreign import Foreign, ImportOptions, with_sane_search
from nmt_cli.interop.foreign_settings import read_json
from nmt_cli.interop.importers import fairseq, huggingface, marian

SUPPORTED = (
    "a Hugging Face folder with Marian, M2M100 or NLLB, an .npz or .zip of Marian, or a checkpoint of fairseq"
)
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
NEEDED = ("*.json", "*.safetensors", "*.spm", "sentencepiece.bpe.model")
"""Files to download from the Hub. The pickled weights are downloaded only if there are no others."""


def read(source: str, options: ImportOptions) -> Foreign:
    """Return the model at the path `source`. If the path does not exist, download the model named `source`,
    OWNER/MODEL, from the Hugging Face Hub. Leave out search settings that are out of bounds. Add a note for
    each setting out of bounds. Raise `UserError` if the download fails, or nmt cannot express the model."""
    return with_sane_search(_read(source, options))


def _read(source: str, options: ImportOptions) -> Foreign:
    """Return the model as `read` does, but keep search settings that are out of bounds. Raise `UserError` as
    `read` does. Refuse a model folder of nmt, and a toolkit that nmt does not import."""
    path = Path(source)
    if not path.exists():
        path = _from_hub(source)
    toolkit = foreign_kind(path)
    if toolkit and toolkit not in IMPORTED:
        raise UserError(f"{path} is a model of {toolkit}. nmt import takes {SUPPORTED}.")
    if path.is_dir() and (path / huggingface.CONFIG).is_file():
        description = read_json(path / huggingface.CONFIG)
        if isinstance(description, dict) and "nmt" in description:
            raise UserError(f"{path} is a model folder of nmt already. Use it as it is.")
        return huggingface.read(path, options)
    if marian.is_model(path):
        return marian.read(path, options)
    if fairseq.is_checkpoint(path):
        return fairseq.read(path, options)
    raise UserError(f"{path} is not a model that nmt import supports. It takes {SUPPORTED}.")


def _from_hub(name: str) -> Path:
    """Download the model `name`, and return its folder. Prefer weights that are not pickled. Raise
    `UserError` if `name` is not OWNER/MODEL, the download fails, or huggingface_hub is not installed."""
    if not HUB_NAME.fullmatch(name):
        raise UserError(
            f"{name} does not exist. Name a model file or folder, or a model on the Hub such as owner/model."
        )
    try:
        import huggingface_hub
    except ImportError as error:
        raise UserError(
            f"{name} does not exist here. To download it from the Hub: pip install huggingface_hub."
        ) from error
    try:
        folder = Path(huggingface_hub.snapshot_download(name, allow_patterns=[*NEEDED]))
        if not (folder / huggingface.WEIGHTS).is_file():
            options = [*NEEDED, huggingface.PICKLED]
            folder = Path(huggingface_hub.snapshot_download(name, allow_patterns=options))
        return folder
    except (OSError, ValueError, RuntimeError) as error:
        first = str(error).strip().split("\n")[0]
        raise UserError(
            f"{name} does not exist here, and downloading it from the Hub failed ({first})."
        ) from error
