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
from nmt_cli.checkpoints.finding import checkpoints, find_model
from nmt_cli.checkpoints.model_folder import Identity, LoadedModel, read_model, weights
from nmt_cli.checkpoints.run_folder import (
    OPTIMIZER,
    Checkpoint,
    keep_only,
    point,
    read_state,
    save_checkpoint,
    sweep,
)
from nmt_cli.checkpoints.verified_files import read_tensors, write_description
from nmt_cli.errors import Caution, UserError
from tests.checks import differing, refusal

Save = Callable[[int], Path]
Digests = Callable[[Path], dict[str, str]]
FullDisk = Callable[[int], AbstractContextManager[None]]

FILES = [
    *("config.json", "model.safetensors", "state.json", "optimizer.safetensors"),
    *("tokenizer/tokenizer.json", "tokenizer/joint.characters.txt", "tokenizer/joint.vocabulary.txt"),
]


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def read_whole(folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor], LoadedModel]:
    """Return everything in a checkpoint, as a resumed run reads it."""
    return read_state(folder), read_tensors(folder / OPTIMIZER), read_model(folder)


def test_a_checkpoint_comes_back_bit_by_bit(save: Save, checkpoint: Callable[[int], Checkpoint]) -> None:
    folder, written = save(40), checkpoint(40)
    state, optimizer, model = read_whole(folder)
    assert {key: state[key] for key in ("step", *written.progress)} == {"step": 40, **written.progress}
    assert not differing(optimizer, written.optimizer)
    assert not differing(weights(model.transformer), written.weights)


def test_a_checkpoint_is_these_files(save: Save) -> None:
    folder = save(12_000)
    assert folder.name == "step-00012000"
    assert files_of(folder) == sorted(FILES)


def test_checkpoints_that_vanish_while_they_are_listed_are_no_error(
    save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanished(folder: Path) -> None:
        raise FileNotFoundError(folder)

    run = save(40).parents[1]
    assert list(checkpoints(run)) == [40]
    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, vanished)
    assert checkpoints(run) == {}


def test_a_moving_average_is_stored_with_the_weights_and_is_the_model(
    tmp_path: Path, identity: Identity, checkpoint: Callable[[int], Checkpoint]
) -> None:
    written = checkpoint(7)
    ema = {name: tensor.detach() + 1 for name, tensor in written.weights.items()}
    folder = save_checkpoint(tmp_path, identity, replace(written, ema=ema))
    assert files_of(folder) == sorted([*FILES, "ema.safetensors"])
    assert not differing(weights(read_model(folder).transformer), ema)
    path = folder / "ema.safetensors"
    path.write_bytes(flipped(path.read_bytes(), 0.75))
    assert refusal(read_model, folder).startswith(f"{path} is damaged")


def flipped(content: bytes, position: float) -> bytes:
    """Return the content with one bit changed."""
    index = int(position * (len(content) - 1))
    return content[:index] + bytes([content[index] ^ 4]) + content[index + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes] | None] = {
    "missing": None,
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "three bytes short": lambda content: content[:-3],
    "zeros": lambda content: bytes(len(content)),
    "foreign": lambda content: b'{"format": 1, "a": [1, 2, 3]}\n',
    **{
        f"bit flipped at {position:.0%}": partial(flipped, position=position)
        for position in (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
    },
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_one_line_that_names_it(save: Save, name: str, damage: str) -> None:
    folder = save(1)
    path, change = folder / name, DAMAGES[damage]
    content = path.read_bytes()
    path.unlink()
    if change:
        path.write_bytes(change(content))
    assert str(path if "tokenizer/" not in name else path.parent) in refusal(read_whole, folder)


@pytest.mark.parametrize("size", [100, 3000], ids="{} bytes".format)
def test_a_full_disk_is_reported_and_the_earlier_checkpoint_stays(
    save: Save, tmp_path: Path, digests: Digests, full_disk: FullDisk, size: int
) -> None:
    before = digests(save(1))
    with full_disk(size):
        message = refusal(save, 2)
    assert "step-00000002 can't be written: " in message and ". Free some space" in message
    assert digests(checkpoints(tmp_path)[1]) == before
    assert list(checkpoints(tmp_path)) == [1]
    assert (tmp_path / "last").resolve() == checkpoints(tmp_path)[1]


def fails(error: int) -> Callable[..., None]:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(error, os.strerror(error))

    return fail


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["no space", "the disk is broken"])
@pytest.mark.parametrize("what", ["a tensor", "a description", "fsync"])
def test_a_failed_save_keeps_the_earlier_checkpoint(
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
    assert {step: digests(folder) for step, folder in checkpoints(tmp_path).items()} == {1: before}
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]
    save(2)
    assert list(checkpoints(tmp_path)) == [1, 2]


def test_a_step_that_is_saved_again_replaces_the_first(save: Save, tmp_path: Path) -> None:
    (save(3) / "rubbish").touch()
    assert not (save(3) / "rubbish").exists()
    assert list(checkpoints(tmp_path)) == [3]


def test_links_lead_to_the_newest_and_the_best_checkpoint(save: Save, tmp_path: Path) -> None:
    first = save(1)
    point(tmp_path, "best", first)
    second = save(2)
    assert (tmp_path / "best").resolve() == first
    assert (tmp_path / "last").resolve() == second
    point(tmp_path, "best", second)
    assert (tmp_path / "best").resolve() == second


def test_links_survive_a_move_of_the_run(save: Save, tmp_path: Path) -> None:
    save(1)
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("checkpoints", "last"):
        (tmp_path / name).rename(moved / name)
    assert read_state(moved / "last")["step"] == 1


def test_a_link_is_made_although_a_killed_run_left_an_unfinished_one(save: Save, tmp_path: Path) -> None:
    folder = save(1)
    (tmp_path / ".last.new").symlink_to("nowhere")
    point(tmp_path, "last", folder)
    assert (tmp_path / "last").resolve() == folder
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "last"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_links_keeps_checkpoints_and_their_number(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def has_no_links(link: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number), target, None, link)

    monkeypatch.setattr(Path, "symlink_to", has_no_links)
    message = f"the file system of {tmp_path} has no links ({os.strerror(number)}), so nmt uses its newest "
    for step in (1, 2):
        with pytest.warns(Caution, match=re.escape(message)):
            newest = save(step)
    assert find_model(tmp_path) == newest
    assert [*tmp_path.iterdir()] == [newest.parent]


def test_a_link_that_cannot_be_written_is_an_error(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "symlink_to", is_full)
    with pytest.raises(OSError, match="No space"):
        save(1)


def test_remains_of_a_killed_save_are_removed(save: Save, tmp_path: Path) -> None:
    folder = save(1)
    (folder.with_name(".step-00000002.unfinished")).write_text("a file")
    (folder.with_name(".step-00000003.unfinished")).mkdir()
    sweep(tmp_path)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
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
def test_a_checkpoint_with_files_of_another_step_is_refused(save: Save, parts: tuple[str, ...]) -> None:
    checkpoint, other = save(40), save(80)
    for part in parts:
        (checkpoint / part).write_bytes((other / part).read_bytes())
    assert "step-00000040" in refusal(read_whole, checkpoint)


def test_a_checkpoint_in_the_folder_of_another_step_is_refused(save: Save) -> None:
    folder = save(40)
    moved = folder.rename(folder.with_name("step-00000090"))
    message = "state.json is of step 40, but the folder's name is of step 90"
    assert message in refusal(read_whole, moved)
    assert read_whole(moved.rename(folder.with_name("kept")))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_refused(
    tmp_path: Path, checkpoint: Callable[[int], Checkpoint], identity: Identity, value: float
) -> None:
    written = checkpoint(40)
    name, tensor = next(iter(written.weights.items()))
    spoilt = tensor.detach().clone()
    spoilt.view(-1)[-1] = value
    folder = save_checkpoint(tmp_path, identity, replace(written, weights={**written.weights, name: spoilt}))
    assert f"{name} has values that are not finite" in refusal(read_model, folder)


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
def test_an_impossible_state_is_a_plain_error(save: Save, key: str, value: object) -> None:
    folder = save(2)
    state = read_state(folder)
    del state["files"]
    write_description(folder, "state.json", {**state, key: value}, covers=["optimizer.safetensors"])
    with pytest.raises(UserError, match=rf"state\.json is damaged \(.*{key}"):
        read_state(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("scores", {"1": math.nan, "2": 3}),
        ("judged", {"2": {"bleu": math.nan, "nll": math.inf}}),
        ("seconds", 7),
        ("of a newer version", {"any": "value"}),
    ],
    ids=str,
)
def test_the_state_of_a_run_that_diverged_or_of_a_newer_version_is_read(
    save: Save, key: str, value: object
) -> None:
    folder = save(2)
    state = read_state(folder)
    del state["files"]
    write_description(folder, "state.json", {**state, key: value}, covers=["optimizer.safetensors"])
    assert str(read_state(folder)[key]) == str(value)


def test_the_two_descriptions_of_a_checkpoint_are_not_confused(save: Save) -> None:
    config, state = (save(2) / name for name in ("config.json", "state.json"))
    contents = config.read_bytes(), state.read_bytes()
    state.write_bytes(contents[0])
    assert "state.json is damaged (it is another file of a checkpoint)" in refusal(read_whole, state.parent)
    config.write_bytes(contents[1])
    assert "config.json is damaged (no model)" in refusal(read_model, config.parent)
