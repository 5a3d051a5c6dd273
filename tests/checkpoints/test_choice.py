"""The choice of checkpoints to average, and its errors."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from nmt_cli.checkpoints.choice import best, named, newest
from nmt_cli.checkpoints.run_folder import OPTIMIZER, point
from nmt_cli.checkpoints.verified_files import write_description
from nmt_cli.errors import Caution
from tests.checks import refusal

Save = Callable[[int], Path]


def stated(run: Path, step: int, **state: object) -> Path:
    """Write the part of a checkpoint that the choice reads."""
    folder = run / "checkpoints" / f"step-{step:08d}"
    folder.mkdir(parents=True)
    (folder / OPTIMIZER).touch()
    write_description(folder, "state.json", {"format": 1, "step": step, **state}, covers=[OPTIMIZER])
    return folder


def steps(folders: list[Path]) -> list[int]:
    return [int(folder.name.removeprefix("step-")) for folder in folders]


@pytest.mark.parametrize(("count", "expected"), [(1, [300]), (2, [40, 300]), (3, [5, 40, 300])])
def test_the_newest_are_the_last_by_step(tmp_path: Path, count: int, expected: list[int]) -> None:
    for step in (40, 300, 5):
        stated(tmp_path, step)
    assert steps(newest(tmp_path, count)) == expected


def test_too_few_checkpoints_are_an_error_that_lists_them(tmp_path: Path) -> None:
    for step in (40, 300, 5):
        stated(tmp_path, step)
    assert refusal(newest, tmp_path, 4) == (
        f"--last 4 is too large: {tmp_path} has checkpoints of steps 5, 40, 300 only. Use --last 3, or train "
        "with a smaller --save-every and a larger checkpoints.keep_last."
    )


def judged(run: Path, saved: list[int], scores: Mapping[int, float]) -> None:
    for step in saved:
        stated(run, step, scores={str(judged): scores[judged] for judged in scores if judged <= step})


@pytest.mark.parametrize(
    ("saved", "scores", "expected"),
    [
        ([1, 2, 3], {1: 9.0, 2: 7.0, 3: 8.0}, [1, 3]),
        ([1, 2, 3], {1: 5.0, 2: 5.0, 3: 5.0}, [3, 2]),
        ([2, 3, 10], {1: 9.0, 2: 1.0, 3: 2.0, 10: -3.0}, [3, 2]),
        ([1, 2, 3, 4], {1: -9.0, 3: -8.5}, [3, 1]),
    ],
    ids=["by score", "a tie: the newer", "only existing", "only validated"],
)
def test_the_best_are_those_with_the_largest_scores(
    tmp_path: Path, saved: list[int], scores: Mapping[int, float], expected: list[int]
) -> None:
    judged(tmp_path, saved, scores)
    assert steps(best(tmp_path, 2)) == expected


def test_too_few_validated_checkpoints_are_used_with_a_warning_that_lists_them(tmp_path: Path) -> None:
    judged(tmp_path, [1, 2, 3], {3: 1.0, 1: 2.0})
    message = r"--best 5 found only 2 validated .*: 1, 3\. checkpoints.keep_best=5 keeps more"
    with pytest.warns(Caution, match=message):
        assert steps(best(tmp_path, 5)) == [1, 3]


def test_a_run_that_was_never_validated_has_no_best(tmp_path: Path) -> None:
    judged(tmp_path, [1, 2, 3], {})
    message = "--best 3 is too large: {} has no validated checkpoints. Name models instead, or train "
    assert refusal(best, tmp_path, 3).startswith(message.format(tmp_path))


def test_models_are_named_by_run_link_or_folder(save: Save, tmp_path: Path) -> None:
    first, second = save(1), save(2)
    point(tmp_path, "best", first)
    assert named([tmp_path, second]) == [first, second]
    assert named([tmp_path / "last", first]) == [second, first]


def test_a_model_that_is_named_twice_is_refused(save: Save, tmp_path: Path) -> None:
    folder = save(1)
    message = f"{folder} is named twice. Omit {tmp_path / 'last'}."
    assert refusal(named, [folder, tmp_path / "last"]) == message


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    assert refusal(named, [tmp_path]).startswith(f"{tmp_path} is not a model: ")
