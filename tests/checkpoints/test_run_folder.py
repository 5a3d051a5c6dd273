"""Checkpoints: written atomically, checked for damage, and found through every link."""

import errno
import math
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli.checkpoints import run_folder
from nmt_cli.checkpoints.files import read_tensors, write_description
from nmt_cli.checkpoints.finding import checkpoints
from nmt_cli.checkpoints.model_folder import Identity, read_model, weights
from nmt_cli.checkpoints.run_folder import (
    OPTIMIZER,
    Checkpoint,
    keep_only,
    point,
    read_state,
    save_checkpoint,
    sweep,
)
from nmt_cli.errors import UserError

Save = Callable[[int], Path]
Digests = Callable[[Path], dict[str, str]]
FullDisk = Callable[[int], AbstractContextManager[None]]

FILES = [
    *("config.json", "model.safetensors", "state.json", "optimizer.safetensors"),
    *("tokenizer/tokenizer.json", "tokenizer/joint.characters.txt", "tokenizer/joint.vocabulary.txt"),
]


def read_whole(place: Path) -> tuple[object, ...]:
    """Return everything in a checkpoint, as a resumed run reads it."""
    return read_state(place), read_tensors(place / OPTIMIZER), read_model(place)


def test_a_checkpoint_comes_back_bit_by_bit(save: Save, checkpoint: Callable[[int], Checkpoint]) -> None:
    place, written = save(40), checkpoint(40)
    state = read_state(place)
    assert {key: state[key] for key in ("step", *written.progress)} == {"step": 40, **written.progress}
    optimizer = read_tensors(place / OPTIMIZER)
    assert optimizer.keys() == written.optimizer.keys()
    assert all(torch.equal(optimizer[name], tensor) for name, tensor in written.optimizer.items())
    found = weights(read_model(place).transformer)
    assert all(torch.equal(found[name], tensor) for name, tensor in written.weights.items())


def test_a_checkpoint_is_these_files(save: Save) -> None:
    place = save(12_000)
    assert place.name == "step-00012000"
    found = [str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()]
    assert sorted(found) == sorted(FILES)


def test_a_run_can_be_looked_at_while_its_folders_vanish(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    def vanished(folder: Path) -> None:
        raise FileNotFoundError(folder)

    run = save(40).parents[1]
    assert list(checkpoints(run)) == [40]
    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, vanished)
    assert checkpoints(run) == {}


def test_a_moving_average_lies_beside_the_weights_and_is_the_model(
    tmp_path: Path, identity: Identity, checkpoint: Callable[[int], Checkpoint]
) -> None:
    written = checkpoint(7)
    ema = {name: tensor.detach() + 1 for name, tensor in written.weights.items()}
    place = save_checkpoint(tmp_path, identity, replace(written, ema=ema))
    found = [str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()]
    assert sorted(found) == sorted([*FILES, "ema.safetensors"])
    model = weights(read_model(place).transformer)
    assert all(torch.equal(model[name], tensor) for name, tensor in ema.items())
    path = place / "ema.safetensors"
    path.write_bytes(flipped(path.read_bytes(), 0.75))
    with pytest.raises(UserError, match=r"ema\.safetensors is damaged"):
        read_model(place)


def flipped(content: bytes, place: float) -> bytes:
    """Return the content with one bit changed."""
    where = int(place * (len(content) - 1))
    return content[:where] + bytes([content[where] ^ 4]) + content[where + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes] | None] = {
    "missing": None,
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "three bytes short": lambda content: content[:-3],
    "zeros": lambda content: bytes(len(content)),
    "foreign": lambda content: b'{"format": 1, "a": [1, 2, 3]}\n',
    **{
        f"bit flipped at {place:.0%}": partial(flipped, place=place)
        for place in (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
    },
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_one_line_that_names_it(save: Save, name: str, damage: str) -> None:
    place = save(1)
    path, change = place / name, DAMAGES[damage]
    content = path.read_bytes()
    path.unlink()
    if change:
        path.write_bytes(change(content))
    with pytest.raises(UserError) as caught:
        read_whole(place)
    assert "\n" not in str(caught.value)
    assert str(path if "tokenizer/" not in name else path.parent) in str(caught.value)


@pytest.mark.parametrize("name", ["config.json", "state.json"])
def test_a_number_that_changed_in_a_description_is_noticed(save: Save, name: str) -> None:
    path = save(41) / name
    text = path.read_text(encoding="utf-8")
    assert '"step": 41' in text
    path.write_text(text.replace('"step": 41', '"step": 43'), encoding="utf-8")
    with pytest.raises(UserError, match=name):
        read_whole(path.parent)


@pytest.mark.parametrize("size", [100, 3000], ids="{} bytes".format)
def test_a_full_disk_is_told_and_the_checkpoint_before_it_stays(
    save: Save, tmp_path: Path, digests: Digests, full_disk: FullDisk, size: int
) -> None:
    before = digests(save(1))
    with (
        full_disk(size),
        pytest.raises(UserError, match=r"step-00000002 can't be written: .*; free some space"),
    ):
        save(2)
    assert digests(checkpoints(tmp_path)[1]) == before
    assert list(checkpoints(tmp_path)) == [1]
    assert (tmp_path / "last").resolve() == checkpoints(tmp_path)[1]


def fails(error: int) -> Callable[..., None]:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(error, os.strerror(error))

    return fail


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["no space", "the disk is broken"])
@pytest.mark.parametrize("what", ["a tensor", "a description", "fsync"])
def test_whatever_fails_in_a_save_the_checkpoint_before_it_stays(
    save: Save, tmp_path: Path, digests: Digests, monkeypatch: pytest.MonkeyPatch, what: str, error: int
) -> None:
    before = digests(save(1))
    module, name = {
        "a tensor": (run_folder, "write_tensors"),
        "a description": (run_folder, "write_description"),
        "fsync": (os, "fsync"),
    }[what]
    with monkeypatch.context() as patch, pytest.raises((UserError, OSError)):
        patch.setattr(module, name, fails(error))
        save(2)
    assert {step: digests(place) for step, place in checkpoints(tmp_path).items()} == {1: before}
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]
    save(2)
    assert list(checkpoints(tmp_path)) == [1, 2]


def test_a_step_saved_again_takes_the_place_of_the_first(save: Save, tmp_path: Path) -> None:
    (save(3) / "rubbish").touch()
    assert not (save(3) / "rubbish").exists()
    assert list(checkpoints(tmp_path)) == [3]


def test_last_leads_to_the_newest_and_best_to_where_it_was_pointed(save: Save, tmp_path: Path) -> None:
    first = save(1)
    point(tmp_path, "best", first)
    second = save(2)
    assert (tmp_path / "best").resolve() == first
    assert (tmp_path / "last").resolve() == second
    point(tmp_path, "best", second)
    assert (tmp_path / "best").resolve() == second


def test_pointers_survive_a_move_of_the_run(save: Save, tmp_path: Path) -> None:
    save(1)
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("checkpoints", "last"):
        (tmp_path / name).rename(moved / name)
    assert read_state(moved / "last")["step"] == 1


def test_a_pointer_is_made_although_a_killed_run_left_half_of_one(save: Save, tmp_path: Path) -> None:
    place = save(1)
    (tmp_path / ".last.new").symlink_to("nowhere")
    point(tmp_path, "last", place)
    assert (tmp_path / "last").resolve() == place
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "last"]


def test_what_a_killed_save_left_is_swept_up_even_if_it_is_a_file(save: Save, tmp_path: Path) -> None:
    place = save(1)
    (place.with_name(".step-00000002.unfinished")).write_text("a file")
    (place.with_name(".step-00000003.unfinished")).mkdir()
    sweep(tmp_path)
    assert [path.name for path in place.parent.iterdir()] == [place.name]
    assert save(2).is_dir()


def test_all_other_checkpoints_are_removed(save: Save, tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save(step)
    keep_only(tmp_path, {1, 4, 9})
    assert list(checkpoints(tmp_path)) == [1, 4]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


@pytest.mark.parametrize(
    "parts", [("state.json", "optimizer.safetensors"), ("config.json", "model.safetensors")]
)
def test_parts_of_another_step_are_not_taken_for_a_checkpoint(save: Save, parts: tuple[str, ...]) -> None:
    ours, theirs = save(40), save(80)
    for part in parts:
        (ours / part).write_bytes((theirs / part).read_bytes())
    with pytest.raises(UserError, match="step-00000040"):
        read_whole(ours)


def test_a_description_of_the_model_is_not_taken_for_where_training_stood(save: Save) -> None:
    place = save(40)
    (place / "state.json").write_bytes((place / "config.json").read_bytes())
    with pytest.raises(UserError, match=r"state\.json is damaged \(it is another file of a checkpoint\)"):
        read_whole(place)


def test_a_checkpoint_in_the_folder_of_another_step_is_refused(save: Save) -> None:
    place = save(40)
    moved = place.rename(place.with_name("step-00000090"))
    with pytest.raises(UserError, match=r"state\.json is of step 40, but the folder's name is of step 90"):
        read_whole(moved)
    assert read_whole(moved.rename(place.with_name("kept")))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_no_numbers_are_refused(
    tmp_path: Path, checkpoint: Callable[[int], Checkpoint], identity: Identity, value: float
) -> None:
    written = checkpoint(40)
    name, tensor = next(iter(written.weights.items()))
    spoilt = tensor.detach().clone()
    spoilt.view(-1)[-1] = value
    place = save_checkpoint(tmp_path, identity, replace(written, weights={**written.weights, name: spoilt}))
    with pytest.raises(UserError, match=f"{re.escape(name)} has values that are not finite"):
        read_model(place)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("step", None),
        ("epoch", -1),
        ("batch", 10**400),
        ("seconds", "long"),
        ("scores", {"x": 1.0}),
        ("scores", {"2": None}),
        ("judged", {"2": 0.5}),
    ],
    ids=str,
)
def test_a_state_that_no_run_can_have_is_a_plain_error(save: Save, key: str, value: object) -> None:
    place = save(2)
    state = read_state(place)
    del state["files"]
    write_description(place, "state.json", {**state, key: value}, covers=["optimizer.safetensors"])
    with pytest.raises(UserError, match=rf"state\.json is damaged \(.*{key}"):
        read_state(place)


def test_a_description_of_something_else_is_a_plain_error(save: Save) -> None:
    place = save(2)
    (place / "config.json").write_bytes((place / "state.json").read_bytes())
    with pytest.raises(UserError, match=r"config\.json is damaged \(no model\)"):
        read_model(place)
