"""The dataset folder: which files it has, what its manifest says, and opening it.

For each split there are `SPLIT.SIDE.tokens.npy` (ids, each sentence with its end mark) and
`SPLIT.SIDE.offsets.npy` (where each sentence begins). Train also has its prepared text, `train.SIDE.txt` with
`train.SIDE.lines.npy`, to segment again; the others have their untouched raw lines, `SPLIT.SIDE.raw.txt`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nmt_cli.config import section_of
from nmt_cli.data.arrays import Offsets
from nmt_cli.errors import UserError
from nmt_cli.runtime.atomic import size_and_hash
from nmt_cli.runtime.foreign_text import is_inside, parsed_json, read_ordinary
from nmt_cli.text.tokenizer import SIDES, Side

FORMAT = 1
MANIFEST = "dataset.json"
FILTER_REPORT = "filter-report.json"
FILTER_PAGE = "filter-report.html"
TOKENIZERS = "tokenizer"
TRAIN = "train"

NO_ARRAY = (ValueError, TypeError, EOFError, OverflowError, SyntaxError, TokenError)
"""What NumPy raises where a file is none; it reads the header as Python."""

Role = Literal["train", "valid", "test"]


def side_path(folder: Path, split: str, side: Side, what: str) -> Path:
    """The file of one side of a split: `what` is tokens.npy, offsets.npy, txt, lines.npy or raw.txt."""
    return folder / f"{split}.{side}.{what}"


@dataclass(frozen=True, slots=True)
class Sentences:
    """One side of a split, mapped from disk: sentence i is `tokens[offsets[i]:offsets[i + 1]]`, end mark
    included."""

    tokens: NDArray[Any]
    offsets: Offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True)
class Split:
    """One set of sentence pairs, of a dataset folder."""

    name: str
    role: Role
    source: Sentences
    target: Sentences

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, slots=True)
class Dataset:
    """An open dataset folder; its arrays are mapped, so they are read from disk as they are used."""

    folder: Path
    manifest: Mapping[str, Any]
    splits: Mapping[str, Split]


@dataclass(frozen=True, slots=True)
class TrainCorpus:
    """Where one corpus lies in the training set: `pairs` from `first` on."""

    name: str
    first: int
    pairs: int
    weight: float = 0.0
    """Its share in training relative to the others'; 0 where its size decides."""

    tag: str = ""
    """The symbol that its sources begin with."""


def train_corpora(dataset: Dataset) -> tuple[TrainCorpus, ...]:
    """The corpora of the training set, in order; one, named as the set, where they can't be told apart."""
    told = dataset.manifest["splits"][TRAIN].get("corpora")
    pairs = len(dataset.splits[TRAIN])
    if told is None:
        return (TrainCorpus(TRAIN, 0, pairs),)
    try:
        corpora = tuple(section_of(TrainCorpus, corpus) for corpus in told)
    except (TypeError, ValueError) as error:
        corpora, why = (), f" ({error})"
    else:
        why = ""
    ends = [0, *(corpus.first + corpus.pairs for corpus in corpora)]
    if [corpus.first for corpus in corpora] != ends[:-1] or ends[-1] != pairs or sorted(ends) != ends:
        raise UserError(
            f"{dataset.folder / MANIFEST} is damaged (its corpora are not the pairs of {TRAIN}{why}); "
            "make the dataset again with --overwrite."
        )
    return corpora


def open_dataset(folder: Path) -> Dataset:
    """Map all splits, after checking that every file is there and as long as the manifest says."""
    manifest = read_manifest(folder)
    check_sizes(folder, manifest)
    splits = {
        name: Split(name, split["role"], *(open_sentences(folder, name, side) for side in SIDES))
        for name, split in manifest["splits"].items()
    }
    return Dataset(folder, manifest, splits)


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `dataset.json` says."""
    path = folder / MANIFEST
    try:
        manifest = parsed_json(read_ordinary(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(
            f"{folder} is no dataset folder: it has no {MANIFEST}; make one with nmt preprocess."
        ) from error
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); make the dataset again with --overwrite.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise UserError(
            f"{path} is not of format {FORMAT}, which this version reads; make the dataset again."
        )
    if not _is_whole(manifest):
        raise UserError(
            f"{path} is damaged (its files or splits are not told); make the dataset again with --overwrite."
        )
    return manifest


def _is_whole(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest names files of its own, with sizes and hashes, and splits that have a role."""
    files, splits = manifest.get("files"), manifest.get("splits")
    return (
        isinstance(files, dict)
        and isinstance(splits, dict)
        and TRAIN in splits
        and all(isinstance(split, dict) and split.get("role") in get_args(Role) for split in splits.values())
        and all(
            is_inside(name)
            and isinstance(written, dict)
            and type(written.get("bytes")) is int
            and isinstance(written.get("sha256"), str)
            for name, written in files.items()
        )
    )


def raw_lines(dataset: Dataset, split: Split, side: Side) -> list[str]:
    """The untouched lines of one side of a valid or test set."""
    text = side_path(dataset.folder, split.name, side, "raw.txt").read_bytes().decode(errors="replace")
    lines = text.split("\n")[:-1]
    if len(lines) < len(split):  # a split may be the beginning of a set
        path = side_path(dataset.folder, split.name, side, "raw.txt")
        raise UserError(
            f"{path} has {len(lines):,} lines, but {len(split):,} were encoded; "
            "make the dataset again with --overwrite."
        )
    return lines


def check_sizes(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise `UserError` for the first file that is missing or of another size than it was written."""
    for name, written in manifest["files"].items():
        path = folder / name
        size = path.stat().st_size if path.is_file() else None
        if size is None:
            raise UserError(f"{path} is missing; make the dataset again with --overwrite.")
        if size != written["bytes"]:
            raise UserError(
                f"{path} has {size:,} bytes, but {written['bytes']:,} were written; "
                "make the dataset again with --overwrite."
            )


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write `dataset.json`, with the size and hash of every file that is in `folder` by now."""
    # The manifest is written last, so all other files of a dataset are there.
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    written = {str(path.relative_to(folder)): size_and_hash(path) for path in paths}
    text = json.dumps({"format": FORMAT, **manifest, "files": written}, indent=1, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def open_sentences(folder: Path, split: str, side: Side) -> Sentences:
    """Map one side of a split."""
    paths = [side_path(folder, split, side, what) for what in ("tokens.npy", "offsets.npy")]
    tokens, offsets = map(_mapped, paths)
    if tokens.ndim != 1 or tokens.dtype.kind != "u":
        raise _no_row(paths[0], tokens, "token ids")
    if offsets.ndim != 1 or offsets.dtype != np.int64 or not len(offsets):
        raise _no_row(paths[1], offsets, "int64")
    return Sentences(tokens, offsets)


def _no_row(path: Path, array: NDArray[Any], wanted: str) -> UserError:
    return UserError(
        f"{path} holds {array.ndim} axes of {array.dtype}, not a row of {wanted}; "
        "make the dataset again with --overwrite."
    )


def _mapped(path: Path) -> NDArray[Any]:
    try:
        # Not `np.load`: it takes zips too, and pickles, which could run any code.
        array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except NO_ARRAY as error:
        raise UserError(f"{path} is damaged; make the dataset again with --overwrite.") from error
    return array
