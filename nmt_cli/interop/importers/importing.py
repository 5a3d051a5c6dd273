"""Finds out whose model something is, and has it read."""

import re
from pathlib import Path

from nmt_cli.checkpoints.foreign import IMPORTED, foreign_kind
from nmt_cli.errors import UserError
from nmt_cli.interop.foreign import Foreign, Wanted, with_sane_search
from nmt_cli.interop.importers import fairseq, huggingface, marian
from nmt_cli.interop.told import read_json

KNOWN = (
    "a folder of Hugging Face's Marian, M2M100 or NLLB, an .npz or .zip of Marian's, or a checkpoint of "
    "fairseq's"
)
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
NEEDED = ("*.json", "*.safetensors", "*.spm", "sentencepiece.bpe.model")
"""Of what is on Hugging Face's Hub; its pickled file only where there is no other."""


def read(source: str, wanted: Wanted) -> Foreign:
    """Return the model at a path or of a name on Hugging Face's Hub. `UserError` if nmt can't express it.

    Search settings out of bounds are left out, with a note.
    """
    return with_sane_search(_read(source, wanted))


def _read(source: str, wanted: Wanted) -> Foreign:
    path = Path(source)
    if not path.exists():
        path = _from_hub(source)
    toolkit = foreign_kind(path)
    if toolkit and toolkit not in IMPORTED:
        raise UserError(f"{path} is a model of {toolkit}; nmt import takes {KNOWN}.")
    if path.is_dir() and (path / huggingface.CONFIG).is_file():
        description = read_json(path / huggingface.CONFIG)
        if isinstance(description, dict) and "nmt" in description:
            raise UserError(f"{path} is a model folder of nmt's already; use it as it is.")
        return huggingface.read(path, wanted)
    if marian.is_model(path):
        return marian.read(path, wanted)
    if fairseq.is_checkpoint(path):
        return fairseq.read(path, wanted)
    raise UserError(f"{path} is no model that nmt import knows; it takes {KNOWN}.")


def _from_hub(name: str) -> Path:
    if not HUB_NAME.fullmatch(name):
        raise UserError(f"{name} is not there; give the path of a model, or a name such as owner/model.")
    try:
        import huggingface_hub
    except ImportError as error:
        raise UserError(
            f"{name} is not there; to fetch it from the Hub, pip install huggingface_hub, or download it."
        ) from error
    try:
        folder = Path(huggingface_hub.snapshot_download(name, allow_patterns=[*NEEDED]))
        if not (folder / huggingface.WEIGHTS).is_file():
            wanted = [*NEEDED, huggingface.PICKLED]
            folder = Path(huggingface_hub.snapshot_download(name, allow_patterns=wanted))
        return folder
    except (OSError, ValueError, RuntimeError) as error:
        first = str(error).strip().split("\n")[0]
        raise UserError(f"{name} is not there, and can't be fetched from the Hub: {first}") from error
