"""Recognise other toolkits' models by the names and first bytes of their files. Nothing is unpickled."""

from pathlib import Path
from typing import Literal, get_args
from zipfile import ZipFile

from nmt_cli.errors import UserError
from nmt_cli.runtime.foreign_text import parsed_json, read_ordinary
from nmt_cli.runtime.zips import DAMAGE

ForeignKind = Literal["Hugging Face", "CTranslate2", "Marian", "fairseq", "OpenNMT"]

IMPORTED: tuple[ForeignKind, ...] = ("Hugging Face", "Marian", "fairseq")
"""Toolkits whose models `nmt import` reads."""

CTRANSLATE2_MARK = b"\x10\x00TransformerSpec\x00"
"""The name of the specification with its length. Four bytes of version precede it."""

MARIAN_SETTINGS, MARIAN_WEIGHTS = "special:model.yml.npy", "decoder_l1_self_Wq.npy"
MARIAN_VERSION, MARIAN_HEADERS = (1).to_bytes(8, "little"), 1 << 18
MARIAN_NAMES = (b"special:model.yml", b"decoder_l1_context_Wq")
PICKLED_NAMES = (
    *("optimizer_history", "args", "cfg", "encoder.embed_tokens.weight"),  # of fairseq
    *("generator", "vocab", "opt"),  # of OpenNMT
)
PICKLE_BYTES = 1 << 24
"""Size of the part of a checkpoint that contains all keys. Keys precede the numbers."""


def refuse_foreign_model(path: Path) -> None:
    """Raise `UserError` if `path` is another toolkit's model. Advise `nmt import` for those in `IMPORTED`."""
    if toolkit := foreign_kind(path):
        remedy = "Name a folder that nmt train, nmt average-checkpoints or nmt import wrote"
        if toolkit in IMPORTED:
            remedy = f"Convert it: nmt import {path} --out MODEL"
        raise UserError(f"{path} is a model of {toolkit}, not of nmt. {remedy}.")


def foreign_kind(path: Path) -> ForeignKind | None:
    """Return the toolkit of the model file or folder at `path`, or None for ours and anything else."""
    kinds = {_kind_of_file(file) for file in (path, *(path.iterdir() if path.is_dir() else ()))}
    return next((kind for kind in get_args(ForeignKind) if kind in kinds), None)


def _kind_of_file(path: Path) -> ForeignKind | None:
    """Return the toolkit whose model the file `path` belongs to, or None."""
    kind: ForeignKind | None = None
    if path.name == "config.json" and path.is_file():
        try:
            described = parsed_json(read_ordinary(path))
        except (OSError, ValueError, UserError):
            described = None
        if isinstance(described, dict) and {"model_type", "architectures"} & described.keys():
            kind = "Hugging Face"
    elif path.suffix == ".bin" and _start(path, 4 + len(CTRANSLATE2_MARK))[4:] == CTRANSLATE2_MARK:
        kind = "CTranslate2"
    elif path.suffix == ".npz":
        kind = "Marian" if {MARIAN_SETTINGS, MARIAN_WEIGHTS} & _members(path) else None
    elif is_marian_binary(path):
        kind = "Marian"
    elif path.suffix in (".pt", ".pth"):
        # PyTorch does not compress its zip files. A pickled text is an X, its length in four bytes, and its
        # characters.
        start = _start(path, PICKLE_BYTES)
        names = {
            name for name in PICKLED_NAMES if b"X" + len(name).to_bytes(4, "little") + name.encode() in start
        }
        has_settings = bool(names & {"args", "cfg"})
        if "optimizer_history" in names or ("encoder.embed_tokens.weight" in names and has_settings):
            kind = "fairseq"
        elif names >= {"generator", "vocab", "opt"}:
            kind = "OpenNMT"
    return kind


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
