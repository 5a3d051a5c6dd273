"""Recognise other toolkits' models by the names and first bytes of their files. Nothing is unpickled."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args
from zipfile import ZipFile

from nmt_cli.errors import UserError
from nmt_cli.runtime.foreign_text import parsed_json, read_ordinary
from nmt_cli.runtime.zips import DAMAGE

Imported = Literal["Hugging Face", "CTranslate2", "Argos Translate", "Marian", "fairseq", "eole"]
"""Toolkits whose models `nmt import` reads."""

Format = Literal["GGUF", "ONNX", "TorchScript"]
"""Formats that models of toolkits are converted to."""

ForeignKind = Literal[Imported, "OpenNMT-py", "JoeyNMT", "Sockeye", Format]

CTRANSLATE2_START = re.compile(rb"[\1-\6]\0{3}.\0\w{1,60}Spec\0")
"""The version, and the name of the specification after its length."""

STARTS: Mapping[str, tuple[ForeignKind, bytes]] = {
    ".gguf": ("GGUF", b"GGUF"),
    ".onnx": ("ONNX", b"\x08"),  # the key of the first field, the version
    "config": ("Sockeye", b"!ModelConfig"),
}
"""Kind and first bytes of files with this suffix or name."""

MARIAN_SETTINGS, MARIAN_WEIGHTS = "special:model.yml.npy", "decoder_l1_self_Wq.npy"
MARIAN_VERSION, MARIAN_HEADERS = (1).to_bytes(8, "little"), 1 << 18
MARIAN_NAMES = (b"special:model.yml", b"decoder_l1_context_Wq")
PICKLES = (".pt", ".pth", ".ckpt", ".ts")
PICKLED_NAMES: Sequence[tuple[ForeignKind, set[str]]] = (
    ("fairseq", {"optimizer_history"}),
    ("fairseq", {"encoder.embed_tokens.weight", "args"}),
    ("fairseq", {"encoder.embed_tokens.weight", "cfg"}),
    ("OpenNMT-py", {"generator", "vocab", "opt"}),
    ("OpenNMT-py", {"optim", "vocab", "opt"}),  # beside weights in safetensors
    ("JoeyNMT", {"model_state", "optimizer_state", "scheduler_state"}),
)
"""Names that checkpoints of each kind contain together."""

PICKLE_BYTES = 1 << 24
"""Size of the part of a checkpoint that contains all keys. Keys precede the numbers."""


def refuse_foreign_model(path: Path) -> None:
    """Raise `UserError` with a remedy if `path` is another toolkit's model."""
    if kind := foreign_kind(path):
        raise UserError(f"{path} is {in_words(kind)}, not of nmt. {remedy(kind, path)}")


def in_words(kind: ForeignKind) -> str:
    """Return a phrase such as "a model of Marian" or "a model in ONNX format"."""
    return f"a model in {kind} format" if kind in get_args(Format) else f"a model of {kind}"


def remedy(kind: ForeignKind, path: Path) -> str:
    """Return a sentence that says how to get a model of nmt from the model of `kind` at `path`."""
    if kind in get_args(Imported):
        return f"Convert it: nmt import {path} --out MODEL."
    if kind in get_args(Format):
        return "It was converted from another model. Give that model to nmt import."
    if kind == "OpenNMT-py":
        return "Convert it with ct2-opennmt-py-converter, and give nmt import the folder of CTranslate2."
    return "nmt import does not read it. Train a model on the same text with nmt preprocess and nmt train."


def foreign_kind(path: Path) -> ForeignKind | None:
    """Return the toolkit or format of the model at `path`, a file or a folder. For a model of nmt and for
    anything else, return None.

    A folder may have a description of Hugging Face beside weights in another format only. Then the result is
    that format.
    """
    files = [path, *(path.iterdir() if path.is_dir() else ())]
    kinds = {_kind_of_file(file) for file in files} - {None}
    if len(kinds) > 1 and not any(file.suffix in (".safetensors", ".bin") for file in files):
        kinds.discard("Hugging Face")
    # In a fixed order, since a set has none.
    return next((kind for kind in get_args(ForeignKind) if kind in kinds), None)


def _kind_of_file(path: Path) -> ForeignKind | None:
    """Return the kind of model that the file `path` belongs to, or None."""
    if path.suffix == ".safetensors":
        path = path.with_name("config.json")
    elif re.fullmatch(r"params\.(best|\d{5})", path.name):
        path = path.with_name("config")  # of Sockeye
    kind: ForeignKind | None = None
    if path.name in ("config.json", "metadata.json") and path.is_file():
        kind = _kind_of_description(path)
    elif (start := STARTS.get(path.suffix or path.name)) and _start(path, len(start[1])) == start[1]:
        kind = start[0]
    elif path.suffix == ".bin" and CTRANSLATE2_START.match(_start(path, 80)):
        kind = "CTranslate2"
    elif path.suffix == ".argosmodel":
        kind = "Argos Translate"
    elif path.suffix == ".npz":
        kind = "Marian" if {MARIAN_SETTINGS, MARIAN_WEIGHTS} & _members(path) else None
    elif is_marian_binary(path):
        kind = "Marian"
    elif path.suffix in PICKLES:
        kind = _kind_of_checkpoint(path)
    return kind


def _kind_of_description(path: Path) -> ForeignKind | None:
    """Return the kind of model that the JSON file `path` describes, or None."""
    try:
        described = parsed_json(read_ordinary(path))
    except (OSError, ValueError, UserError):
        return None
    if not isinstance(described, dict):
        return None
    if {"model_type", "architectures"} & described.keys():
        return "Hugging Face"
    if described.keys() >= {"from_code", "to_code"}:
        return "Argos Translate"
    model = described.get("model")
    return "eole" if isinstance(model, dict) and "architecture" in model else None


def _kind_of_checkpoint(path: Path) -> ForeignKind | None:
    """Return the kind of a file that PyTorch wrote, or None. Only TorchScript has code."""
    if any(name.partition("/")[2] == "constants.pkl" for name in _members(path)):
        return "TorchScript"
    # PyTorch does not compress its zip files. A pickled text is an X, its length in four bytes, and its
    # characters.
    start = _start(path, PICKLE_BYTES)
    for kind, names in PICKLED_NAMES:
        if all(b"X" + len(name).to_bytes(4, "little") + name.encode() in start for name in names):
            return kind
    return None


def is_marian_binary(path: Path) -> bool:
    """Return whether `path` is a .bin file of Marian: it has version 1 and names settings or a weight."""
    if path.suffix != ".bin":
        return False
    start = _start(path, MARIAN_HEADERS)
    return start.startswith(MARIAN_VERSION) and any(name in start for name in MARIAN_NAMES)


def _members(path: Path) -> set[str]:
    """Return the names of the files in a zip file, or the empty set for anything else."""
    if not path.is_file():
        return set()
    try:
        with ZipFile(path) as archive:
            return set(archive.namelist())
    except (OSError, *DAMAGE):  # names may be invalid text
        return set()


def _start(path: Path, size: int) -> bytes:
    """Return up to `size` first bytes of a file, or b"" if the file is a pipe, missing or not readable."""
    if not path.is_file():  # opening a pipe would block
        return b""
    try:
        with path.open("rb") as stream:
            return stream.read(size)
    except OSError:
        return b""
