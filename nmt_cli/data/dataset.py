"""The dataset folder: its files, its manifest, and how to open it.

Each split, such as the training set, has `SPLIT.SIDE.tokens.npy` (token ids, each sentence with its end
token) and `SPLIT.SIDE.offsets.npy` (the first token of each sentence). The training set also has its prepared
text, to segment it again, in `train.SIDE.txt` with `train.SIDE.lines.npy`. Other splits have their lines
before preparation, with invalid UTF-8 replaced, in `SPLIT.SIDE.raw.txt`.

A training set with alignments has `train.links.tokens.npy` (the links between tokens, see `LINK_BITS`) and
`train.links.offsets.npy` (the first link of each pair). The links between words, from which those of other
tokens are made if an epoch changes the text, are in `train.word_links`. The manifest, `dataset.json`, lists
all files with size and hash.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nmt_cli.config import section_of
from nmt_cli.data.array_files import Offsets, mapped_array
from nmt_cli.errors import UserError
from nmt_cli.named_values import Values
from nmt_cli.runtime.atomic import size_and_hash
from nmt_cli.runtime.foreign_text import is_inside, parsed_json, read_ordinary
from nmt_cli.text.tokenizer import SIDES, Side

FORMAT = 1
MANIFEST = "dataset.json"
FILTER_REPORT = "filter-report.json"
FILTER_PAGE = "filter-report.html"
TOKENIZERS = "tokenizer"
TRAIN = "train"

ARRAY_ERRORS = (ValueError, TypeError, OverflowError)
"""The errors of NumPy for a file that is not an array."""

Role = Literal["train", "valid", "test"]

Links = Literal["links", "word_links"]
LINKS: Links = "links"
WORD_LINKS: Links = "word_links"
LINK_BITS = 16
"""A link is one number: its target position times 2 to this power, plus its source position. Positions count
tokens, or words in `WORD_LINKS`."""


def damaged(path: Path, problem: str) -> UserError:
    """Return the error for a file of a dataset. `problem` follows its name, such as "is missing"."""
    return UserError(f"{path} {problem}. Make the dataset again with --overwrite.")


def side_path(folder: Path, split: str, side: Side | Links, content: str) -> Path:
    """Return the path FOLDER/SPLIT.SIDE.CONTENT. `content` is an ending such as "tokens.npy" or "raw.txt"."""
    return folder / f"{split}.{side}.{content}"


@dataclass(frozen=True, slots=True)
class Sentences:
    """One side of a split, mapped from disk. `tokens[offsets[i]:offsets[i + 1]]` is sentence i with its end
    token."""

    tokens: NDArray[Any]
    offsets: Offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def arrays(self, first: int, end: int) -> list[NDArray[Any]]:
        """Return the tokens of each of the sentences [`first`, `end`), read from disk."""
        offsets = np.asarray(self.offsets[first : end + 1])
        return np.split(np.asarray(self.tokens[offsets[0] : offsets[-1]]), offsets[1:-1] - offsets[0])


@dataclass(frozen=True, slots=True)
class Split:
    """A set of sentence pairs in a dataset."""

    name: str
    role: Role
    source: Sentences
    target: Sentences
    links: Sentences | None = None
    """The links between the tokens of each pair, or None if the dataset has no alignments. End tokens have no
    links."""

    word_links: Sentences | None = None
    """The links between the words of each pair. None without alignments, or if an older version made the
    dataset."""

    def __len__(self) -> int:
        return len(self.source)

    def lengths(self, pairs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of tokens of each source and of each target, with end tokens, for pairs given by
        their numbers."""
        source, target = (
            np.asarray(side.offsets[pairs + 1] - side.offsets[pairs]) for side in (self.source, self.target)
        )
        return source, target


@dataclass(frozen=True, slots=True)
class Dataset:
    """An open dataset folder. Its arrays are read from disk when they are used."""

    folder: Path
    manifest: Mapping[str, Any]
    splits: Mapping[str, Split]

    @property
    def valid_sets(self) -> list[Split]:
        """The validation sets, in the order that the user gave."""
        return [split for split in self.splits.values() if split.role == "valid"]


@dataclass(frozen=True, slots=True)
class TrainCorpus:
    """The part of the training set that comes from one corpus: `pairs` pairs from number `first`."""

    name: str
    first: int
    pairs: int
    weight: float = 0.0
    """The share in training that a dataset of an older version may have, relative to other corpora. If 0, the
    size of the corpus decides."""

    tag: str = ""
    """The symbol at the start of the corpus's source sentences. Empty for none."""


def train_corpora(dataset: Dataset) -> tuple[TrainCorpus, ...]:
    """Return the corpora of the training set, in order. If the manifest lists none, the training set is one
    corpus.

    Raise `UserError` if the entries are damaged, or do not cover the training set exactly.
    """
    sections = dataset.manifest["splits"][TRAIN].get("corpora")
    pairs = len(dataset.splits[TRAIN])
    if sections is None:
        return (TrainCorpus(TRAIN, 0, pairs),)
    path = dataset.folder / MANIFEST
    problem = f"is damaged: its corpora do not add up to the pairs of {TRAIN}"
    try:
        corpora = tuple(section_of(TrainCorpus, section) for section in sections)
    except (TypeError, ValueError, UserError) as error:
        raise damaged(path, f"{problem} ({error})") from error
    ends = [0, *(corpus.first + corpus.pairs for corpus in corpora)]
    # Gaps or overlaps would give pairs the tag and the weight of another corpus.
    if [corpus.first for corpus in corpora] != ends[:-1] or ends[-1] != pairs or sorted(ends) != ends:
        raise damaged(path, problem)
    return corpora


def open_dataset(folder: Path) -> Dataset:
    """Open a dataset. Its arrays are mapped, and hashes are not checked.

    Raise `UserError` for a damaged manifest, or a file that is missing, has another size, or is not a valid
    array.
    """
    manifest = read_manifest(folder)
    check_sizes(folder, manifest)
    splits = {
        name: Split(name, split["role"], *(open_sentences(folder, name, side) for side in SIDES))
        for name, split in manifest["splits"].items()
    }
    links, word_links = (
        open_sentences(folder, TRAIN, kind)
        if side_path(Path(), TRAIN, kind, "offsets.npy").name in manifest["files"]
        else None
        for kind in (LINKS, WORD_LINKS)
    )
    splits[TRAIN] = replace(splits[TRAIN], links=links, word_links=word_links)
    return Dataset(folder, manifest, splits)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the content of `dataset.json`. Raise `UserError` if it is missing or damaged, has another
    format, or names a file outside of the folder."""
    path = folder / MANIFEST
    try:
        manifest = parsed_json(read_ordinary(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(
            f"{folder} is not a dataset folder because it has no {MANIFEST}. Make one with nmt preprocess."
        ) from error
    except ValueError as error:
        raise damaged(path, f"is damaged ({error})") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise damaged(path, f"does not have format {FORMAT}, which this version reads")
    _check_entries(Values(manifest, lambda problem: damaged(path, f"is damaged: {problem}")))
    return manifest


def _check_entries(manifest: Values) -> None:
    """Raise the error of `manifest` unless it has what the other functions need: a safe name, size and hash
    of each file, the role of each split, and a training set."""
    files, splits = manifest.table("files"), manifest.table("splits")
    splits.table(TRAIN)
    for name in splits:
        splits.table(name).one_of("role", get_args(Role))
    for name in files:
        if not is_inside(name):
            raise manifest.error(f"it names {name!r}, a file outside of the folder")
        files.table(name).integer("bytes")
        files.table(name).text("sha256")


def raw_lines(dataset: Dataset, split: Split, side: Side) -> list[str]:
    """Return the lines of one side of a validation or test set before preparation. Invalid UTF-8 is U+FFFD.

    There may be more lines than pairs. Raise `UserError` if there are fewer.
    """
    path = side_path(dataset.folder, split.name, side, "raw.txt")
    lines = path.read_bytes().decode(errors="replace").split("\n")[:-1]
    # A split may be only the start of a set, so more lines are fine.
    if len(lines) < len(split):
        raise damaged(path, f"has {len(lines):,} lines, but {len(split):,} were encoded")
    return lines


def check_sizes(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise `UserError` for the first file in the manifest that is missing or has another size."""
    for name, file in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise damaged(path, "is missing")
        if (size := path.stat().st_size) != file["bytes"]:
            raise damaged(path, f"has {size:,} bytes, but {file['bytes']:,} were written")


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write `dataset.json`, with the size and hash of all other files in `folder`, which must be complete."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {str(path.relative_to(folder)): size_and_hash(path) for path in paths}
    text = json.dumps({"format": FORMAT, **manifest, "files": files}, indent=1, ensure_ascii=False)
    # Names of files may have bytes that are not UTF-8.
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def open_sentences(folder: Path, split: str, side: Side | Links) -> Sentences:
    """Return one side of a split, or its links, mapped from disk. Raise `UserError` if the arrays do not have
    the right types and axes."""
    paths = [side_path(folder, split, side, content) for content in ("tokens.npy", "offsets.npy")]
    tokens, offsets = map(_mapped, paths)
    if tokens.ndim != 1 or tokens.dtype.kind != "u":
        raise damaged(paths[0], f"holds {tokens.ndim} axes of {tokens.dtype}, not a row of token ids")
    if offsets.ndim != 1 or offsets.dtype != np.int64 or not len(offsets):
        raise damaged(paths[1], f"holds {offsets.ndim} axes of {offsets.dtype}, not a row of int64")
    return Sentences(tokens, offsets)


def _mapped(path: Path) -> NDArray[Any]:
    """Return the array of a `.npy` file, mapped from disk. Raise `UserError` if it is damaged."""
    try:
        return mapped_array(path)
    except ARRAY_ERRORS as error:
        raise damaged(path, "is damaged") from error
