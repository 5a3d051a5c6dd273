"""Other toolkits' models, known by the names and the first bytes of their files; nothing is unpickled."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args
from zipfile import ZipFile

from nmt_cli.errors import UserError
from nmt_cli.runtime.foreign_text import parsed_json, read_ordinary
from nmt_cli.runtime.zips import DAMAGE, LOCAL_HEADER

ForeignKind = Literal["Hugging Face", "CTranslate2", "Marian", "fairseq", "OpenNMT"]

IMPORTED: tuple[ForeignKind, ...] = ("Hugging Face", "Marian", "fairseq")
"""Those whose models `nmt import` takes."""

CTRANSLATE2_MARK = b"\x10\x00TransformerSpec\x00"
"""The name of the specification with its length, behind four bytes of version."""

MARIAN_SETTINGS, MARIAN_WEIGHTS = "special:model.yml.npy", "decoder_l1_self_Wq.npy"
MARIAN_VERSION, MARIAN_HEADERS = (1).to_bytes(8, "little"), 1 << 18
MARIAN_NAMES = (b"special:model.yml", b"decoder_l1_context_Wq")
PICKLE_BYTES = 1 << 24
"""The keys of a checkpoint stand before its numbers; so much of it holds them all."""


def refuse_foreign_model(path: Path) -> None:
    """`UserError` where another toolkit's model is at `path`; says whose it is, and what makes it ours."""
    if toolkit := foreign_kind(path):
        raise UserError(f"{path} is a model of {toolkit}, not one of nmt's; {_cure(path, toolkit)}.")


def _cure(path: Path, toolkit: ForeignKind) -> str:
    if toolkit in IMPORTED:
        return f"make it one: nmt import {path} --out MODEL"
    return "name a folder that nmt train, nmt average-checkpoints or nmt import wrote"


def foreign_kind(path: Path) -> ForeignKind | None:
    """Whose model the folder or file at `path` is; None for our own, and for what is nobody's."""
    known: tuple[Callable[[Path], bool], ...] = (
        _is_huggingface,
        _is_ctranslate2,
        _is_marian,
        _is_fairseq,
        _is_opennmt,
    )
    places = [path, *sorted(path.iterdir())] if path.is_dir() else [path]
    for toolkit, holds in zip(get_args(ForeignKind), known, strict=True):
        if any(holds(place) for place in places):
            found: ForeignKind = toolkit
            return found
    return None


def _is_huggingface(path: Path) -> bool:
    """`config.json` of a checkpoint names a class of transformers or the kind of its model."""
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
    known = path.suffix == ".npz" and bool({MARIAN_SETTINGS, MARIAN_WEIGHTS} & _members(path))
    return known or is_marian_binary(path)


def is_marian_binary(path: Path) -> bool:
    """Whether a file is of the form that Marian reads fastest and browsers translate with."""
    if path.suffix != ".bin":
        return False
    start = _start(path, MARIAN_HEADERS)
    return start.startswith(MARIAN_VERSION) and any(name in start for name in MARIAN_NAMES)


def _is_fairseq(path: Path) -> bool:
    keys = _pickled_names(path, "optimizer_history", "args", "cfg", "encoder.embed_tokens.weight")
    return "optimizer_history" in keys or ("encoder.embed_tokens.weight" in keys and len(keys) > 1)


def _is_opennmt(path: Path) -> bool:
    wanted = ("generator", "vocab", "opt")
    return _pickled_names(path, *wanted) == set(wanted)


def _pickled_names(path: Path, *names: str) -> set[str]:
    """Those of `names` that a file that PyTorch pickled has as texts, be it of the new format or the old."""
    if path.suffix not in (".pt", ".pth") or not path.is_file():
        return set()
    pickled = _zipped_start(path) if _start(path, 4) == LOCAL_HEADER else _start(path, PICKLE_BYTES)
    # A pickle has a text as an X, its length in four bytes, and the text.
    return {name for name in names if b"X" + len(name).to_bytes(4, "little") + name.encode() in pickled}


def _members(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    try:
        with ZipFile(path) as archive:
            return set(archive.namelist())
    except (OSError, *DAMAGE):  # names may be no text
        return set()


def _zipped_start(path: Path) -> bytes:
    member = next((name for name in _members(path) if name.endswith("/data.pkl")), "")
    try:
        with ZipFile(path) as archive, archive.open(member) as stream:
            return stream.read(PICKLE_BYTES)
    except (OSError, LookupError, *DAMAGE):
        return b""


def _start(path: Path, size: int) -> bytes:
    """The first bytes of a file; none of what is no file, or can't be read."""
    if not path.is_file():  # a pipe would be waited for
        return b""
    try:
        with path.open("rb") as stream:
            return stream.read(size)
    except OSError:
        return b""
