"""Finding models in folders, checkpoints and runs, and the errors for other paths."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nmt_cli.checkpoints.finding import checkpoints, find_model
from nmt_cli.checkpoints.model_folder import read_model
from nmt_cli.checkpoints.run_folder import keep_only, point
from tests.checks import refusal

Save = Callable[[int], Path]


def test_only_whole_checkpoints_count_oldest_first(save: Save, tmp_path: Path) -> None:
    for step in (100, 20, 123_456_789):
        save(step)
    for name in (".step-00000007.unfinished", "step-7", "step-00000008.old", "other"):
        (tmp_path / "checkpoints" / name).mkdir()
    assert list(checkpoints(tmp_path)) == [20, 100, 123_456_789]
    assert checkpoints(tmp_path / "nowhere") == {}


def test_the_model_of_a_run_is_its_best_checkpoint_or_else_the_last(save: Save, tmp_path: Path) -> None:
    first, second = save(1), save(2)
    assert find_model(tmp_path).resolve() == second
    assert find_model(first) == first
    point(tmp_path, "best", first)
    assert find_model(tmp_path).resolve() == first
    keep_only(tmp_path, {2})  # the target of `best` is removed
    assert find_model(tmp_path).resolve() == second
    (tmp_path / "last").unlink()
    assert find_model(tmp_path) == second
    assert read_model(find_model(tmp_path)).description["step"] == 2


@pytest.mark.parametrize("kind", ["empty", "file", "missing"])
def test_a_path_without_a_model_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "empty":
        path.mkdir()
    if kind == "file":
        path.touch()
    assert refusal(find_model, path) == (
        f"{path} is not a model: it has no config.json and no checkpoint. "
        "Name a model, checkpoint or run folder."
    )
