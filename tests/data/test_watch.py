"""A dataset in use: what is done to its files is noticed, and what changes nothing is let be."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nmt_cli.data.dataset import open_dataset
from nmt_cli.data.preprocessing.preprocess import Outcome
from nmt_cli.data.watch import Watch
from nmt_cli.errors import UserError

NAME = "train.source.tokens.npy"


@pytest.fixture
def folder(tmp_path: Path, toy_dataset: Path) -> Path:
    return Path(shutil.copytree(toy_dataset, tmp_path / "data"))


@pytest.fixture
def watch(folder: Path) -> Iterator[Watch]:
    with Watch(open_dataset(folder)) as watch:
        yield watch


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
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))  # not every clock of a file system ticks in between


def flip_and_put_the_time_back(path: Path) -> None:
    before = path.stat()
    while (
        path.stat().st_ctime_ns == before.st_ctime_ns
    ):  # the clock of a file system ticks a few times a second
        flip(path)
        flip(path)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    flip(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("change", [cut, grow, flip, flip_and_put_the_time_back])
def test_a_change_in_place_is_noticed_wherever_the_folder_is(
    watch: Watch, folder: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    watch.refuse_changed()
    folder.rename(tmp_path / "moved")
    watch.refuse_changed()
    change(tmp_path / "moved" / NAME)
    with pytest.raises(UserError, match=rf"{NAME} was changed while it was in use, .* put it back as it was"):
        watch.refuse_changed()
    if change in (cut, grow):
        with pytest.raises(UserError, match=NAME):
            watch.refuse_cut()


def test_the_same_bytes_with_another_time_are_no_change(watch: Watch, folder: Path) -> None:
    content = (folder / NAME).read_bytes()
    flip(folder / NAME)
    with (folder / NAME).open("r+b") as file:
        file.write(content)
    os.utime(folder / "dev.source.raw.txt", ns=(1, 1))
    watch.refuse_changed()
    watch.refuse_changed()


def test_a_dataset_that_was_moved_removed_or_replaced_is_gone(
    watch: Watch, folder: Path, tmp_path: Path, make: Callable[..., Outcome], toy: str
) -> None:
    make(other := tmp_path / "other", [toy])
    assert not watch.gone()
    folder.rename(tmp_path / "moved")
    assert watch.gone()
    shutil.copytree(other, folder)
    assert watch.gone()
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "moved", folder)
    assert not watch.gone()
    (folder / "dev.source.raw.txt").unlink()
    assert watch.gone()
    watch.refuse_changed()
