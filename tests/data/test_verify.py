"""Verifying a dataset folder finds every change after it was written."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nmt_cli.data import verify as verify_module
from nmt_cli.data.arrays import Array
from nmt_cli.data.dataset import open_dataset, write_manifest
from nmt_cli.data.verify import verify
from tests.checks import refusal

Change = Callable[[Array], Array | None]


@pytest.fixture
def folder(tmp_path: Path, toy_dataset: Path) -> Path:
    """Return a copy of a dataset to damage."""
    return Path(shutil.copytree(toy_dataset, tmp_path / "dataset"))


def test_an_undamaged_dataset_passes(toy_dataset: Path) -> None:
    verify(open_dataset(toy_dataset))


@pytest.mark.parametrize(
    "name",
    ["train.source.tokens.npy", "dev.target.raw.txt", "tokenizer/tokenizer.json", "filter-report.json"],
)
def test_a_flipped_bit_in_any_file_is_an_error_of_one_line(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[-3] ^= 4
    (folder / name).write_bytes(content)
    message = refusal(lambda: verify(open_dataset(folder)))
    assert re.search(rf"{name} was changed: .* Make the dataset again", message)


def offsets(change: Change) -> Callable[[Path], None]:
    return changed("train.source.offsets.npy", change)


def tokens(change: Change) -> Callable[[Path], None]:
    return changed("train.target.tokens.npy", change)


def changed(name: str, change: Change) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        array = np.load(folder / name)
        changed_array = change(array)
        np.save(folder / name, array if changed_array is None else changed_array)

    return damage


def put(index: int, value: int) -> Change:
    def change(array: Array) -> None:
        array[index] = value

    return change


def fewer_targets(folder: Path) -> None:
    last = int(np.load(folder / "train.target.offsets.npy")[-2])
    changed("train.target.offsets.npy", lambda old: old[:-1])(folder)
    changed("train.target.tokens.npy", lambda old: old[:last])(folder)


def without_vocabulary(folder: Path) -> None:
    manifest = json.loads((folder / "dataset.json").read_text())
    del manifest["tokenizer"]
    (folder / "dataset.json").write_text(json.dumps(manifest))


INVALID_ARRAYS = {
    "a first offset": (offsets(put(0, 1)), r"train.source.offsets.npy ranges from 1 to "),
    "a last offset": (offsets(put(-1, 5)), r"train.source.offsets.npy ranges from 0 to 5, but there are "),
    "offsets that fall": (offsets(put(7, 1)), r"train.source.offsets.npy does not increase at sentence 6"),
    "offsets that stay": (
        offsets(lambda old: put(200, old[199])(old)),
        r"train.source.offsets.npy does not increase at sentence 199",
    ),
    "offsets that stay at the end of a chunk": (
        offsets(lambda old: put(64, old[63])(old)),
        r"train.source.offsets.npy does not increase at sentence 63",
    ),
    "offsets beyond the end": (
        offsets(put(200, 10**12)),
        r"train.source.offsets.npy does not increase at sentence 200",
    ),
    "offsets of floats": (offsets(lambda old: old.astype(float)), r"offsets.npy holds 1 axes of float64"),
    "no offsets": (offsets(lambda old: old[:0]), r"offsets.npy holds 1 axes of int64"),
    "no end mark": (
        offsets(lambda old: put(200, old[200] - 1)(old)),
        r"train.source.tokens.npy has no end token after sentence 199",
    ),
    "a token": (tokens(put(300, 999)), r"train.target.tokens.npy has token 999, but the vocabulary has \d+"),
    "signed tokens": (tokens(lambda old: old.astype(np.int32)), r"tokens.npy holds 1 axes of int32"),
    "fewer targets": (fewer_targets, r"train has 300 source sentences, but 299 target sentences"),
    "no vocabulary": (
        without_vocabulary,
        r"dataset.json is damaged: it has no size of the source vocabulary",
    ),
}


@pytest.mark.parametrize(("damage", "message"), INVALID_ARRAYS.values(), ids=INVALID_ARRAYS)
def test_invalid_arrays_are_found_even_with_correct_hashes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None], message: str
) -> None:
    monkeypatch.setattr(verify_module, "AT_ONCE", 64)
    damage(folder)
    manifest = json.loads((folder / "dataset.json").read_text())
    (folder / "dataset.json").unlink()
    write_manifest(folder, {key: manifest[key] for key in manifest if key not in ("format", "files")})
    assert re.search(f"{message}.*Make the dataset again", refusal(lambda: verify(open_dataset(folder))))
