"""Verification finds every change to a dataset, and the guard every change during use, on any rank."""

import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt_cli.data import guard as guard_module
from nmt_cli.data.array_files import Array
from nmt_cli.data.dataset import Dataset, open_dataset, write_manifest
from nmt_cli.data.guard import DatasetGuard, verify
from nmt_cli.errors import UserError
from tests.checks import refusal
from tests.data.corpora import Make

Change = Callable[[Array], Array]

NAME = "train.source.tokens.npy"


@pytest.fixture
def folder(tmp_path: Path, toy_dataset: Path) -> Path:
    return Path(shutil.copytree(toy_dataset, tmp_path / "data"))


@pytest.fixture
def notes() -> list[str]:
    """The notes that the guard wrote for the user."""
    return []


@pytest.fixture
def statuses() -> list[str]:
    """The next statuses of a second rank. After the last one it has no problem."""
    return []


@pytest.fixture
def guard(
    folder: Path, notes: list[str], statuses: list[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[DatasetGuard]:
    monkeypatch.setattr(guard_module, "POLL_SECONDS", 0.01)

    def gather(value: Any) -> list[Any]:
        return [value, statuses.pop(0) if statuses else type(value)()]

    with DatasetGuard(open_dataset(folder), gather, notes.append) as guard:
        yield guard


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0")


def flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-2, os.SEEK_END)
        file.write(bytes([byte ^ 1]))
    # The clock of some file systems is too coarse to advance in between.
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def flip_and_restore_the_time(path: Path) -> None:
    before = path.stat()
    # The change time follows the clock of the file system, which advances a few times per second.
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        flip(path)
        flip(path)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    flip(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("change", [cut, grow, flip, flip_and_restore_the_time])
def test_a_changed_file_is_an_error_even_after_its_folder_moved(
    guard: DatasetGuard, folder: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    guard.check_contents()
    folder.rename(tmp_path / "moved")
    guard.check_contents()
    change(tmp_path / "moved" / NAME)
    for check in (guard.check_contents, guard.check_all_ranks):
        with pytest.raises(UserError, match=rf"{NAME} was changed while it was in use\. Restore it"):
            check()
    if change in (cut, grow):
        with pytest.raises(UserError, match=NAME):
            guard.check_quickly()


def test_equal_bytes_with_another_time_are_not_a_change(guard: DatasetGuard, folder: Path) -> None:
    guard.check_contents()
    content = (folder / NAME).read_bytes()
    flip(folder / NAME)
    with (folder / NAME).open("r+b") as file:
        file.write(content)
    os.utime(folder / "dev.source.raw.txt", ns=(1, 1))
    guard.check_contents()
    guard.check_contents()


def test_a_dataset_that_was_moved_removed_or_replaced_is_gone(
    guard: DatasetGuard, statuses: list[Any], folder: Path, tmp_path: Path, make: Make, toy: str
) -> None:
    guard.check_contents()
    make(other := tmp_path / "other", [toy])
    assert not guard.is_gone()
    folder.rename(tmp_path / "moved")
    assert guard.is_gone()
    shutil.copytree(other, folder)
    assert guard.is_gone()
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "moved", folder)
    assert not guard.is_gone()
    statuses.append(True)
    assert guard.is_gone()
    (folder / "dev.source.raw.txt").unlink()
    assert guard.is_gone()
    guard.check_contents()


def test_a_sound_dataset_passes_all_checks(guard: DatasetGuard, notes: list[str]) -> None:
    guard.check_quickly()
    guard.check_all_ranks()
    assert notes == []


def test_all_ranks_report_the_problem_of_one(guard: DatasetGuard, statuses: list[str]) -> None:
    guard.check_contents()
    statuses.append("theirs is damaged")
    with pytest.raises(UserError, match="theirs is damaged"):
        guard.check_all_ranks()


def test_a_long_verification_of_another_rank_is_reported_once(
    guard: DatasetGuard, statuses: list[str], notes: list[str]
) -> None:
    statuses += ["running"] * 100
    guard.check_all_ranks()
    (note,) = notes
    assert "still being verified" in note


def test_training_continues_until_the_verification_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    def fail(dataset: Dataset) -> None:
        ended.wait(60)
        raise UserError("damaged")

    monkeypatch.setattr(guard_module, "verify", fail)
    with DatasetGuard(open_dataset(folder), lambda value: [value], print) as guard:
        guard.check_quickly()
        ended.set()
        for check in (guard.check_all_ranks, guard.check_contents, guard.check_quickly):
            with pytest.raises(UserError, match="damaged"):
                check()


def test_a_rank_that_does_not_verify_passes_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(guard_module, "verify")
    with DatasetGuard(open_dataset(folder), lambda value: [value], print, verifies=False) as guard:
        guard.check_all_ranks()


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


def put(index: int, value: int) -> Change:
    def change(array: Array) -> Array:
        array[index] = value
        return array

    return change


def equal_to_the_one_before(index: int) -> Change:
    return lambda old: put(index, old[index - 1])(old)


INVALID_ARRAYS: dict[str, tuple[str, Change, str]] = {
    "a first offset": ("offsets", put(0, 1), "ranges from 1 to "),
    "a last offset": ("offsets", put(-1, 5), "ranges from 0 to 5, but there are "),
    "offsets that fall": ("offsets", put(7, 1), "does not increase at sentence 6"),
    "offsets that stay": ("offsets", equal_to_the_one_before(200), "does not increase at sentence 199"),
    "offsets at the end of a chunk": (
        *("offsets", equal_to_the_one_before(64), "does not increase at sentence 63"),
    ),
    "offsets beyond the end": ("offsets", put(200, 10**12), "does not increase at sentence 200"),
    "offsets of floats": ("offsets", lambda old: old.astype(float), "holds 1 axes of float64"),
    "no offsets": ("offsets", lambda old: old[:0], "holds 1 axes of int64"),
    "no end token": (
        *("offsets", lambda old: put(200, old[200] - 1)(old), "has no end token after sentence 199"),
    ),
    "a token": ("tokens", put(300, 999), r"has token 999, but the vocabulary has \d+"),
    "signed tokens": ("tokens", lambda old: old.astype(np.int32), "holds 1 axes of int32"),
}


def refused_with_correct_hashes(folder: Path) -> str:
    """Write the manifest of a changed dataset again, and return the error of its verification."""
    manifest = json.loads((folder / "dataset.json").read_text())
    (folder / "dataset.json").unlink()
    write_manifest(folder, {key: manifest[key] for key in manifest if key not in ("format", "files")})
    return refusal(lambda: verify(open_dataset(folder)))


@pytest.mark.parametrize(("name", "change", "message"), INVALID_ARRAYS.values(), ids=INVALID_ARRAYS)
def test_invalid_arrays_are_found_even_with_correct_hashes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, change: Change, message: str
) -> None:
    monkeypatch.setattr(guard_module, "AT_ONCE", 64)
    path = folder / f"train.source.{name}.npy"
    np.save(path, change(np.load(path)))
    error = refused_with_correct_hashes(folder)
    assert re.search(rf"train\.source\.\w+\.npy {message}.*Make the dataset again", error)


def test_sides_of_unequal_length_are_found_even_with_correct_hashes(folder: Path) -> None:
    tokens, offsets = (folder / f"train.target.{name}.npy" for name in ("tokens", "offsets"))
    np.save(tokens, np.load(tokens)[: np.load(offsets)[-2]])
    np.save(offsets, np.load(offsets)[:-1])
    error = refused_with_correct_hashes(folder)
    assert "train has 300 source sentences, but 299 target sentences" in error
