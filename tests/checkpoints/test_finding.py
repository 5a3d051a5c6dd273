"""Finding models in folders, checkpoints and runs, and the errors for other paths."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nmt_cli.checkpoints.finding import WEIGHTS, checkpoints, find_model
from nmt_cli.checkpoints.model_folder import read_model
from nmt_cli.checkpoints.run_folder import keep_only, point
from nmt_cli.errors import UserError

Save = Callable[[int], Path]


def test_only_whole_checkpoints_count_oldest_first(save: Save, tmp_path: Path) -> None:
    for step in (100, 20, 123_456_789):
        save(step)
    for name in (".step-00000007.unfinished", "step-7", "step-00000008.old", "other"):
        (tmp_path / "checkpoints" / name).mkdir()
    assert list(checkpoints(tmp_path)) == [20, 100, 123_456_789]
    assert checkpoints(tmp_path / "nowhere") == {}


def test_a_model_is_found_in_a_run_its_best_before_its_last(save: Save, tmp_path: Path) -> None:
    first, second = save(1), save(2)
    assert find_model(tmp_path).resolve() == second
    assert find_model(first) == first
    point(tmp_path, "best", first)
    assert find_model(tmp_path).resolve() == first
    keep_only(tmp_path, {2})  # and best leads nowhere
    assert find_model(tmp_path).resolve() == second
    (tmp_path / "last").unlink()
    assert find_model(tmp_path) == second
    assert read_model(find_model(tmp_path)).description["step"] == 2


def test_damaged_weights_are_an_error(save: Save) -> None:
    place = save(1)
    changed = bytearray((place / WEIGHTS).read_bytes())
    changed[-1] ^= 1
    (place / WEIGHTS).write_bytes(changed)
    with pytest.raises(UserError, match="is damaged"):
        read_model(place)


@pytest.mark.parametrize("kind", ["empty", "file", "missing"])
def test_what_is_no_model_is_told_so(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "empty":
        path.mkdir()
    if kind == "file":
        path.touch()
    with pytest.raises(UserError) as caught:
        find_model(path)
    assert str(caught.value) == (
        f"{path} is not a model: it has no config.json and no checkpoint. "
        "Name a model, checkpoint or run folder."
    )
