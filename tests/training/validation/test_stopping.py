"""Early stopping and the plateau schedule: improvements, and runs without any."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nmt_cli.checkpoints.run_folder import read_state
from nmt_cli.data.preprocessing.pipeline import Outcome
from nmt_cli.errors import UserError
from nmt_cli.training.validation import validator
from nmt_cli.training.validation.validator import Judged, improvements, patience_ended, plateaus
from tests.training.runs import Go, Tiny, lines_of, notes


def rates_of(run: Path) -> list[float]:
    return [line["learning_rate"] for line in lines_of(run) if "valid" not in line]


def history(metric: str, *values: float) -> Judged:
    return {str(10 * number): {metric: value} for number, value in enumerate(values, start=1)}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], ""),
        ([1.0, 2.0, 3.0], "+++"),
        ([1.0, 1.0, 0.5], "+--"),
        ([-3.0, -4.0, -2.0], "+-+"),
        ([1.0, 0.5, 0.75, 2.0], "+--+"),
        ([float("nan"), 1.0, float("nan"), 2.0], "-+-+"),
    ],
    ids=str,
)
def test_an_improvement_is_larger_than_all_values_before(
    tiny: Tiny, values: list[float], expected: str
) -> None:
    better = improvements(tiny(), history("bleu", *values), after=0)
    assert ["-+"[improved] for improved in better] == list(expected)


@pytest.mark.parametrize(
    ("metric", "values", "ended"),
    [
        ("bleu", [5, 4, 4], True),
        ("bleu", [5, 4], False),
        ("bleu", [5, 4, 6], False),
        ("bleu", [5, 6, 4, 5.5], True),
        ("chrf", [1, 2, 3], False),
        ("nll", [1, 2, 3], True),
        ("ter", [1, 2, 3], True),
        ("ter", [3, 2, 1], False),
        ("nll", [3, 2, 1], False),
    ],
    ids=str,
)
def test_patience_ends_after_n_validations_without_improvement(
    tiny: Tiny, metric: str, values: list[float], ended: bool
) -> None:
    config = tiny("validation.every_steps=10", "validation.patience=2", f'validation.metric="{metric}"')
    assert patience_ended(config, history(metric, *values)) is ended
    without = tiny("validation.every_steps=10", f'validation.metric="{metric}"')
    assert not patience_ended(without, history(metric, *values))


PLATEAU = ("schedule.kind=plateau", "schedule.warmup=15", "validation.every_steps=10")


@pytest.mark.parametrize(
    ("values", "count"),
    [
        ([], 0),
        ([9, 1, 1, 1], 0),
        ([9, 1, 1, 1, 1], 1),
        ([1, 9, 9, 9, 9, 9, 9, 9], 2),
        ([1, 9, 9, 9, 10, 9, 9, 9], 1),
        ([1, 9, 10, 11, 12, 13], 0),
    ],
    ids=str,
)
def test_plateaus_are_counted_after_warmup_and_patience_starts_again(
    tiny: Tiny, values: list[float], count: int
) -> None:
    assert plateaus(tiny(*PLATEAU), history("bleu", *values)) == count


HOPELESS = ("validation.every_steps=1", "validation.metric=nll")


@pytest.fixture
def _no_improvement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat a falling validation loss as worse, so that no validation after the first is better."""
    monkeypatch.setattr(validator, "SMALLER_IS_BETTER", ())


@pytest.mark.usefixtures("_no_improvement")
def test_a_run_ends_by_patience_and_resumes_only_with_more_of_it(go: Go, run: Path) -> None:
    settings = (*HOPELESS, "training.max_steps=9")
    complete, events = go(*settings, "validation.patience=2")
    assert complete
    message = "nll has not improved in 2 validations; the run ends at step 3 (validation.patience)"
    assert notes(events)[-1] == message
    assert (run / "last").resolve().name == "step-00000003"
    assert notes(go(*settings, "validation.patience=2")[1])[-1] == message
    assert len(rates_of(run)) == 3
    go(*settings, "validation.patience=4")
    assert len(rates_of(run)) == 5
    go(*settings)
    assert len(rates_of(run)) == 9


@pytest.mark.usefixtures("_no_improvement")
def test_patience_outlives_a_stop(go: Go, run: Path) -> None:
    settings = (*HOPELESS, "validation.patience=3", "training.max_steps=9", "training.log_every=1")
    assert not go(*settings, stop_at=3)[0]
    assert go(*settings)[0]
    assert len(rates_of(run)) == 4


LOWERING = (
    *HOPELESS,
    *("schedule.kind=plateau", "schedule.warmup=2", "schedule.peak=0.01"),
    *("training.max_steps=12", "training.log_every=1"),
)


@pytest.mark.usefixtures("_no_improvement")
def test_the_plateau_schedule_lowers_the_rate_each_time_validation_stops_improving(go: Go, run: Path) -> None:
    _, events = go(*LOWERING)
    expected = [0.005, *[0.01] * 5, *[0.005] * 3, *[0.0025] * 3]
    assert rates_of(run) == pytest.approx(expected, rel=1e-12)
    message = [text for text in notes(events) if text.startswith("a plateau: ")]
    assert message == [
        f"a plateau: the learning rate is {rate} from here on"
        for rate in ("5.00e-03", "2.50e-03", "1.25e-03")
    ]


@pytest.mark.usefixtures("_no_improvement")
@pytest.mark.parametrize("step", [4, 5])
def test_the_plateau_schedule_outlives_a_stop_bit_by_bit(go: Go, tmp_path: Path, step: int) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    go(*LOWERING, out=whole)
    assert not go(*LOWERING, out=parts, stop_at=step)[0]
    assert go(*LOWERING, out=parts)[0]
    assert rates_of(parts) == rates_of(whole)
    states = [read_state(folder / "last") for folder in (whole, parts)]
    assert states[0]["judged"] == states[1]["judged"]
    losses = [[line["nll"] for line in lines_of(folder)] for folder in (whole, parts)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("setting", ["validation.patience=2", "schedule.kind=plateau"])
def test_a_run_with_nothing_to_watch_is_refused_before_it_writes_files(
    go: Go, run: Path, tmp_path: Path, make: Callable[..., Outcome], toy: str, setting: str
) -> None:
    with pytest.raises(UserError, match=r"nothing to watch without validation. Set validation\.every_steps"):
        go(setting)
    make(tmp_path / "data", [toy])
    with pytest.raises(UserError, match=r"data has no validation set, so validation\.patience and "):
        go(setting, "validation.every_steps=1", dataset=tmp_path / "data")
    assert not run.exists()
