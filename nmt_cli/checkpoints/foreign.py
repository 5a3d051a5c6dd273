"""Recognise other toolkits' models by the names and first bytes of their files. Nothing is unpickled."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal
from zipfile import ZipFile

from nmt_cli.errors import UserError
from nmt_cli.runtime.foreign_text import parsed_json, read_ordinary
from nmt_cli.runtime.zips import DAMAGE, LOCAL_HEADER

ForeignKind = Literal["Hugging Face", "CTranslate2", "Marian", "fairseq", "OpenNMT"]

IMPORTED: tuple[ForeignKind, ...] = ("Hugging Face", "Marian", "fairseq")
"""Toolkits whose models `nmt import` reads."""

CTRANSLATE2_MARK = b"\x10\x00TransformerSpec\x00"
"""The name of the specification with its length. Four bytes of version precede it."""

MARIAN_SETTINGS, MARIAN_WEIGHTS = "special:model.yml.npy", "decoder_l1_self_Wq.npy"
MARIAN_VERSION, MARIAN_HEADERS = (1).to_bytes(8, "little"), 1 << 18
MARIAN_NAMES = (b"special:model.yml", b"decoder_l1_context_Wq")
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
    tests: Mapping[ForeignKind, Callable[[Path], bool]] = {
        "Hugging Face": _is_huggingface,
        "CTranslate2": _is_ctranslate2,
        "Marian": _is_marian,
        "fairseq": _is_fairseq,
        "OpenNMT": _is_opennmt,
    }
    files = [path, *sorted(path.iterdir())] if path.is_dir() else [path]
    return next((toolkit for toolkit, is_model in tests.items() if any(map(is_model, files))), None)


def _is_huggingface(path: Path) -> bool:
    """Return whether `path` is a `config.json` with "model_type" or "architectures" of transformers."""
    if path.name != "config.json" or not path.is_file():
        return False
    try:
        described = parsed_json(read_ordinary(path))
    except (OSError, ValueError, UserError):
        return False
    return isinstance(described, dict) and bool({"model_type", "architectures"} & described.keys())


def _is_ctranslate2(path: Path) -> bool:
    return path.suffix == ".bin" and _start(path, 4 + len(CTRANSLATE2_MARK))[4:] == CTRANSLATE2_MARK


def _is_marian(path: Path) -> bool:
    """Return whether `path` is a model of Marian: a .npz file with its arrays, or its binary form."""
    is_npz = path.suffix == ".npz" and bool({MARIAN_SETTINGS, MARIAN_WEIGHTS} & _members(path))
    return is_npz or is_marian_binary(path)


def is_marian_binary(path: Path) -> bool:
    """Return whether `path` is a .bin file of Marian: it has version 1 and names settings or a weight."""
    if path.suffix != ".bin":
        return False
    start = _start(path, MARIAN_HEADERS)
    return start.startswith(MARIAN_VERSION) and any(name in start for name in MARIAN_NAMES)


def _is_fairseq(path: Path) -> bool:
    keys = _pickled_names(path, "optimizer_history", "args", "cfg", "encoder.embed_tokens.weight")
    return "optimizer_history" in keys or ("encoder.embed_tokens.weight" in keys and len(keys) > 1)


def _is_opennmt(path: Path) -> bool:
    names = ("generator", "vocab", "opt")
    return _pickled_names(path, *names) == set(names)


def _pickled_names(path: Path, *names: str) -> set[str]:
    """Return the `names` found in the first 16 MiB of a pickled .pt or .pth file, zipped or not."""
    if path.suffix not in (".pt", ".pth") or not path.is_file():
        return set()
    pickled = _zipped_start(path) if _start(path, 4) == LOCAL_HEADER else _start(path, PICKLE_BYTES)
    # A pickled text is an X, its length in four bytes, and its characters.
    return {name for name in names if b"X" + len(name).to_bytes(4, "little") + name.encode() in pickled}


def _members(path: Path) -> set[str]:
    """Return the names of the files in a zip file, or the empty set for anything else."""
    if not path.is_file():
        return set()
    try:
        with ZipFile(path) as archive:
            return set(archive.namelist())
    except (OSError, *DAMAGE):  # names may be invalid text
        return set()


def _zipped_start(path: Path) -> bytes:
    """Return the first `PICKLE_BYTES` of the unpacked `data.pkl` in a zip file, or b"" if damaged."""
    member = next((name for name in _members(path) if name.endswith("/data.pkl")), "")
    try:
        with ZipFile(path) as archive, archive.open(member) as stream:
            return stream.read(PICKLE_BYTES)
    except (OSError, LookupError, *DAMAGE):
        return b""


def _start(path: Path, size: int) -> bytes:
    """Return up to `size` first bytes of a file, or b"" if the file is a pipe, missing or not readable."""
    if not path.is_file():  # opening a pipe would block
        return b""
    try:
        with path.open("rb") as stream:
            return stream.read(size)
    except OSError:
        return b""
