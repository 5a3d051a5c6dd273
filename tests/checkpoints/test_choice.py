"""The choice of checkpoints to average, and its errors."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from nmt_cli.checkpoints.choice import apart, best, named, newest
from nmt_cli.checkpoints.files import write_description
from nmt_cli.checkpoints.run_folder import OPTIMIZER, point
from nmt_cli.errors import Caution, UserError

Save = Callable[[int], Path]
Minutes = list[float]


def stated(run: Path, step: int, **state: object) -> Path:
    """Write the part of a checkpoint that the choice reads."""
    place = run / "checkpoints" / f"step-{step:08d}"
    place.mkdir(parents=True)
    (place / OPTIMIZER).touch()
    write_description(place, "state.json", {"format": 1, "step": step, **state}, covers=[OPTIMIZER])
    return place


def steps(places: list[Path]) -> list[int]:
    return [int(place.name.removeprefix("step-")) for place in places]


def complaint(choice: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        choice()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("count", "expected"), [(1, [300]), (2, [40, 300]), (3, [5, 40, 300])])
def test_the_newest_are_the_last_by_step(tmp_path: Path, count: int, expected: list[int]) -> None:
    for step in (40, 300, 5):
        stated(tmp_path, step)
    assert steps(newest(tmp_path, count)) == expected


def test_fewer_than_asked_for_is_an_error_that_names_those_there_are(tmp_path: Path) -> None:
    for step in (40, 300, 5):
        stated(tmp_path, step)
    assert complaint(lambda: newest(tmp_path, 4)) == (
        f"--last 4 is too large: {tmp_path} has checkpoints of steps 5, 40, 300 only. Use --last 3, or train "
        "with a larger checkpoints.keep_last."
    )


def judged(run: Path, there: list[int], scores: Mapping[int, float]) -> None:
    for step in there:
        known = {str(judged): score for judged, score in scores.items() if judged <= step}
        stated(run, step, scores=known)


@pytest.mark.parametrize(
    ("there", "scores", "expected"),
    [
        ([1, 2, 3], {1: 9.0, 2: 7.0, 3: 8.0}, [1, 3]),
        ([1, 2, 3], {1: 5.0, 2: 5.0, 3: 5.0}, [1, 2]),
        ([2, 3, 10], {1: 9.0, 2: 1.0, 3: 2.0, 10: -3.0}, [3, 2]),
        ([1, 2, 3, 4], {1: -9.0, 3: -8.5}, [3, 1]),
    ],
    ids=["by score", "of equals the older", "only those that are kept", "only those that were judged"],
)
def test_the_best_are_those_with_the_largest_scores(
    tmp_path: Path, there: list[int], scores: Mapping[int, float], expected: list[int]
) -> None:
    judged(tmp_path, there, scores)
    assert steps(best(tmp_path, 2)) == expected


def test_fewer_validated_ones_than_asked_for_are_taken_with_a_warning_that_names_them(tmp_path: Path) -> None:
    judged(tmp_path, [1, 2, 3], {3: 1.0, 1: 2.0})
    with pytest.warns(
        Caution, match=r"--best 5 found only 2 validated .*: 1, 3\. checkpoints.keep_best=5 keeps more"
    ):
        assert steps(best(tmp_path, 5)) == [1, 3]


def test_a_run_that_was_never_validated_has_no_best(tmp_path: Path) -> None:
    judged(tmp_path, [1, 2, 3], {})
    message = "--best 3 is too large: {} has no validated checkpoints. Name models instead, or train "
    assert complaint(lambda: best(tmp_path, 3)).startswith(message.format(tmp_path))


@pytest.mark.parametrize(
    ("minutes", "expected"),
    [
        ([0, 10, 20, 30, 40, 50], [20, 30, 40, 50]),
        ([0, 10.1, 20.2, 30.3, 40.4], [10.1, 20.2, 30.3, 40.4]),
        ([0, 12, 24, 36], [0, 12, 24, 36]),
        ([float(3 * i) for i in range(21)], [33, 42, 51, 60]),
        ([0, 8, 12, 20, 30], [0, 12, 20, 30]),
        ([0, 7, 11, 15, 25], [0, 7, 15, 25]),
        ([5, 15, 25, 34, 35, 36], [5, 15, 25, 36]),
    ],
    ids=[
        "as asked",
        "a little late",
        "each late",
        "finer",
        "twelve for ten",
        "of equals the newer",
        "newest",
    ],
)
def test_checkpoints_are_minutes_apart_counted_back_from_the_newest(
    tmp_path: Path, minutes: Minutes, expected: Minutes
) -> None:
    for number, minute in enumerate(minutes):
        stated(tmp_path, number, seconds=60 * minute)
    assert [minutes[step] for step in steps(apart(tmp_path, 10, 4))] == expected


@pytest.mark.parametrize(
    ("minutes", "found"),
    [([0, 10, 20], 3), ([0, 40, 50], 2), ([46, 47, 48, 49, 50], 1), ([0, 16, 26], 2), ([], 0)],
    ids=["too few", "a gap", "too near", "more than half too far", "none"],
)
def test_no_checkpoint_near_enough_is_an_error_that_names_those_there_are(
    tmp_path: Path, minutes: Minutes, found: int
) -> None:
    for number, minute in enumerate(minutes):
        stated(tmp_path, number, seconds=60 * minute)
    there = ", ".join(f"step {number} at {minute:.1f}" for number, minute in enumerate(minutes)) or "none"
    assert complaint(lambda: apart(tmp_path, 10, 4)) == (
        f"--last 4 needs 4 checkpoints about 10 minutes apart, but {tmp_path} has {found}. Its checkpoints "
        "are "
        f"{there} (minutes of training). Use a smaller --last, or another --every-minutes."
    )


def test_a_checkpoint_that_does_not_say_when_it_was_written_is_told(tmp_path: Path) -> None:
    place = stated(tmp_path, 7)
    assert complaint(lambda: apart(tmp_path, 10, 1)).startswith(f"{place}/state.json has no training time")


def test_models_are_named_by_whatever_leads_to_them(save: Save, tmp_path: Path) -> None:
    first, second = save(1), save(2)
    point(tmp_path, "best", first)
    assert named([tmp_path, second]) == [first, second]
    assert named([tmp_path / "last", first]) == [second, first]


def test_a_model_that_is_named_twice_is_told(save: Save, tmp_path: Path) -> None:
    place = save(1)
    assert complaint(lambda: named([place, tmp_path / "last"])) == (
        f"{place} is named twice. Omit {tmp_path / 'last'}."
    )


def test_what_is_no_model_is_told(tmp_path: Path) -> None:
    assert complaint(lambda: named([tmp_path])).startswith(f"{tmp_path} is not a model: ")
