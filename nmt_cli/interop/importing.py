"""Detect the toolkit of a model, and read the model."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import get_args

from nmt_cli.checkpoints.finding import SETTINGS, checkpoints, find_model
from nmt_cli.checkpoints.foreign_kinds import Imported, foreign_kind, in_words, remedy
from nmt_cli.checkpoints.model_folder import read_model, weights
from nmt_cli.errors import UserError
from nmt_cli.interop import argos, ctranslate2, eole, fairseq, hub, huggingface, marian
from nmt_cli.interop.foreign import POSITIONS, Foreign, ImportOptions
from nmt_cli.interop.foreign_settings import read_json

SUPPORTED = (
    "a Hugging Face folder with Marian, M2M100, NLLB, T5 or MADLAD, a folder of CTranslate2, a package of "
    "Argos Translate, an .npz, .bin or .zip of Marian, a folder of eole, or a checkpoint of fairseq"
)
NEEDED = ["*.json", "model*.safetensors", "*.spm", "*.model", "*_vocabulary.txt", "nmt-tokenizer/*"]
"""Files to download from the Hub. Other weights are downloaded only if there are no safetensors."""

BOUNDS: Mapping[tuple[str, ...], tuple[int, int]] = {
    ("beam",): (1, 100),
    ("length_penalty", "length_rule"): (0, 10),
    ("cap_ratio", "cap_extra"): (0, 100),
    ("cap_extra", "cap_ratio"): (0, 10_000),
}
"""Lowest and highest value of an imported search setting. Further names are settings that depend on it."""


def read(source: str, options: ImportOptions, *, own: bool = False) -> Foreign:
    """Return the model of another toolkit at the path `source`, or from the Hugging Face Hub. With `own`, it
    may also be a model or run folder of nmt.

    If the path does not exist, `source` is the name of a model on the Hub, OWNER/MODEL, which is downloaded.
    A search setting out of `BOUNDS` is left out with a note, and so are the settings that depend on it.
    Raise `UserError` if the download fails, or if nmt cannot express the model.
    """
    path = Path(source)
    if own and path.is_dir() and not foreign_kind(path) and (checkpoints(path) or _is_own(path)):
        return _own(path)
    if not path.exists():
        path = hub.download(source, NEEDED)
        if not any(path.glob("*.safetensors")):
            path = hub.download(source, [*NEEDED, ctranslate2.WEIGHTS, huggingface.PICKLED])
    # Otherwise an empty model.bin would be reported as a damaged config.json.
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        if (
            file.suffix in (".bin", ".npz", ".safetensors", ".zip")
            and file.is_file()
            and not file.stat().st_size
        ):
            raise UserError(f"{file} is empty. Copy it again.")
    foreign = _read(path, options)
    if options.positions and foreign.config.positions != POSITIONS[options.positions]:
        raise UserError(f"{source} has only one kind of positions. Omit --positions.")
    search, notes = dict(foreign.search), [*foreign.notes]
    for (name, *dependent), (low, high) in BOUNDS.items():
        if not low <= (value := foreign.search.get(name, low)) <= high:
            search = {key: search[key] for key in search if key not in (name, *dependent)}
            notes.append(f"{name} is {value!s:.20}, not {low} to {high}, so nmt decodes with its default")
    return replace(foreign, search=search, notes=notes)


def _read(path: Path, options: ImportOptions) -> Foreign:
    """Return the model in a file or folder by the reader of its toolkit.

    Raise `UserError` for a model folder of nmt, for a toolkit that nmt does not import, and for a model that
    nmt cannot express.
    """
    toolkit = foreign_kind(path)
    if toolkit and toolkit not in get_args(Imported):
        raise UserError(
            f"{path} is {in_words(toolkit)}. {remedy(toolkit, path)} nmt import takes {SUPPORTED}."
        )
    if toolkit == "CTranslate2":
        return ctranslate2.read(path if path.is_dir() else path.parent, options)
    if toolkit == "Argos Translate":
        return argos.read_package(path, options)
    if toolkit == "eole":
        return eole.read(path if path.is_dir() else path.parent, options)
    if path.is_dir() and (path / huggingface.CONFIG).is_file():
        if _is_own(path):
            raise UserError(f"{path} is a model folder of nmt already. Use it as it is.")
        return huggingface.read(path, options)
    suffixes = {file.suffix for file in (path.iterdir() if path.is_dir() else [path])}
    if toolkit == "Marian" or ".npz" in suffixes or path.suffix == ".zip":
        return marian.read(path, options)
    if ".pt" in suffixes:
        return fairseq.read(path, options)
    if (path / SETTINGS).is_file() or checkpoints(path):
        raise UserError(f"{path} is a run folder of nmt already. Use it as it is: nmt translate {path}.")
    raise UserError(f"{path} is not a model that nmt import supports. It takes {SUPPORTED}.")


def _is_own(folder: Path) -> bool:
    """Return whether a folder with `config.json` is a model folder of nmt."""
    file = folder / huggingface.CONFIG
    description = read_json(file) if file.is_file() else None
    return isinstance(description, dict) and "nmt" in description


def _own(folder: Path) -> Foreign:
    """Return the model in a model or run folder of nmt."""
    model = read_model(find_model(folder))
    identity, description = model.identity, model.description
    return Foreign(
        kind=description.get("imported", "nmt"),
        config=identity.config,
        tokenizers=identity.tokenizers,
        tensors={name: tensor.detach() for name, tensor in weights(model.transformer).items()},
        search=description.get("search", {}),
        trained_on=identity.trained_on,
    )
