"""The learning rate against the paper's formula, and other schedules against their closed forms."""

import math

import pytest

from nmt_cli import config as settings
from nmt_cli.training.config import ScheduleConfig, TrainConfig
from nmt_cli.training.step.schedule import learning_rate, long_warmup

STEPS = [1, 2, 3999, 4000, 4001, 50_000, 100_000]


def rates(config: ScheduleConfig, *steps: int, width: int = 512, max_steps: int = 100_000) -> list[float]:
    return [learning_rate(config, step, width, max_steps) for step in steps]


@pytest.mark.parametrize("factor", [1.0, 2.0])
@pytest.mark.parametrize("width", [512, 1024])
def test_noam_is_the_papers_equation_3(width: int, factor: float) -> None:
    config = ScheduleConfig(kind="noam", factor=factor)
    equation = [factor * width**-0.5 * min(step**-0.5, step * 4000**-1.5) for step in STEPS]
    assert rates(config, *STEPS, width=width) == pytest.approx(equation, rel=1e-14)


@pytest.mark.parametrize(
    ("preset", "peak"), [("vaswani2017-base", "6.99e-04"), ("vaswani2017-big", "4.94e-04")]
)
def test_presets_have_the_papers_rate_and_inverse_sqrt_can_give_the_same(preset: str, peak: str) -> None:
    config = settings.read(TrainConfig, preset=settings.preset_path(preset))
    noam = rates(config.schedule, *STEPS, width=config.model.width)
    assert f"{max(noam):.2e}" == peak
    same = ScheduleConfig(kind="inverse-sqrt", peak=max(noam), warmup=4000)
    assert rates(same, *STEPS) == pytest.approx(noam, rel=1e-14)


@pytest.mark.parametrize("kind", ["inverse-sqrt", "linear", "cosine", "constant"])
@pytest.mark.parametrize("width", [16, 1024])
def test_other_schedules_rise_linearly_to_the_peak_for_any_width(kind: str, width: int) -> None:
    config = settings.read(
        TrainConfig, assignments=[f"schedule.kind={kind}", "schedule.peak=0.01", "schedule.warmup=10"]
    ).schedule
    rising = rates(config, *range(1, 11), width=width, max_steps=50)
    assert rising == pytest.approx([0.001 * step for step in range(1, 11)], rel=1e-14)


@pytest.mark.parametrize(
    ("config", "steps", "expected"),
    [
        (ScheduleConfig(kind="inverse-sqrt", peak=2.0, warmup=4), [4, 16, 64], [2.0, 1.0, 0.5]),
        (ScheduleConfig(kind="linear", peak=2.0, warmup=10), [10, 20, 35, 50, 60], [2.0, 1.5, 0.75, 0, 0]),
        (
            ScheduleConfig(kind="cosine", peak=2.0, warmup=10),
            [10, 20, 30, 40, 50, 60],
            [2.0, 1 + math.sqrt(0.5), 1.0, 1 - math.sqrt(0.5), 0, 0],
        ),
        (ScheduleConfig(kind="constant", peak=2.0, warmup=10), [10, 11, 50], [2.0, 2.0, 2.0]),
        (ScheduleConfig(kind="inverse-sqrt", peak=2.0, warmup=0), [1, 4, 16], [2.0, 1.0, 0.5]),
        (
            ScheduleConfig(kind="inverse-sqrt", peak=2.0, warmup=4, decay_start=8),
            [2, 4, 8, 32],
            [1.0, 2.0, 2.0, 1.0],
        ),
        (ScheduleConfig(kind="linear", peak=2.0, warmup=0), [1, 25, 50], [1.96, 1.0, 0]),
        (ScheduleConfig(kind="cosine", peak=2.0, warmup=0), [25, 50], [1.0, 0]),
        (ScheduleConfig(kind="constant", peak=2.0, warmup=0), [1, 50], [2.0, 2.0]),
        (ScheduleConfig(kind="plateau", peak=2.0, warmup=4), [2, 4, 50], [1.0, 2.0, 2.0]),
        (ScheduleConfig(kind="constant", peak=2.0, warmup=100), [25, 50], [0.5, 1.0]),
        (ScheduleConfig(kind="linear", peak=2.0, warmup=25), [5, 25, 40, 50], [0.4, 2.0, 0.8, 0]),
        (ScheduleConfig(kind="linear", peak=2.0, warmup=26), [1, 5, 32, 50, 51], [0.4, 2.0, 0.8, 0, 0]),
        (ScheduleConfig(kind="linear", peak=2.0, warmup=4000), [1, 5, 32, 50], [0.4, 2.0, 0.8, 0]),
        (ScheduleConfig(kind="cosine", peak=2.0, warmup=4000), [1, 5, 50], [0.4, 2.0, 0]),
    ],
    ids=lambda value: f"{value.kind} {value.warmup}" if isinstance(value, ScheduleConfig) else "",
)
def test_after_warmup_each_schedule_has_its_closed_form(
    config: ScheduleConfig, steps: list[int], expected: list[float]
) -> None:
    assert rates(config, *steps, max_steps=50) == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(
    ("kind", "step", "time_used", "expected"),
    [
        ("linear", 5, 0.01, 1.0),
        ("linear", 5, 0.25, 1.5),
        ("linear", 1, 0.05, 1.0),
        ("linear", 1, 0.1, 1.8),
        ("cosine", 1, 0.05, 1.0),
        ("linear", 5, 0.75, 0.5),
        ("linear", 20, 0.5, 1.0),
        ("linear", 40, 0.5, 0.5),
        ("linear", 20, 1.01, 0.0),
        ("cosine", 20, 0.5, 1.0),
        ("constant", 20, 0.9, 2.0),
        ("inverse-sqrt", 40, 0.9, 1.0),
    ],
)
def test_with_a_limit_of_hours_the_decay_follows_the_first_limit(
    kind: str, step: int, time_used: float, expected: float
) -> None:
    config = settings.read(
        TrainConfig, assignments=[f"schedule.kind={kind}", "schedule.peak=2.0", "schedule.warmup=10"]
    ).schedule
    rate = learning_rate(config, step, 512, max_steps=50, time_used=time_used)
    assert rate == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_a_run_by_the_hour_reaches_nine_tenths_of_the_peak_whatever_its_warmup() -> None:
    config = ScheduleConfig(kind="linear", warmup=4000)
    for steps in (400, 1900, 9000, 100_000):
        rates = [
            learning_rate(config, step, 256, max_steps=1_000_000, time_used=step / steps)
            for step in range(1, steps + 1)
        ]
        assert max(rates) > 0.9 * config.peak
        assert sum(rates) / steps > 0.44 * config.peak
        assert rates[-1] == 0


@pytest.mark.parametrize(
    ("assignments", "steps", "remedy"),
    [
        ([], 7999, "--set schedule.kind=linear"),
        (["schedule.factor=2"], 404, "--set schedule.kind=linear --set schedule.factor=1"),
        (
            ["training.max_epochs=3"],
            404,
            "--set schedule.kind=inverse-sqrt --set schedule.warmup=40",
        ),
        (["schedule.kind=plateau"], 404, "--set schedule.warmup=40"),
        ([], 8000, ""),
        ([], 9, ""),
        (["schedule.kind=linear"], 404, ""),
    ],
)
def test_a_warmup_of_over_half_of_the_run_is_reported_with_settings_that_mend_it(
    assignments: list[str], steps: int, remedy: str
) -> None:
    config = settings.read(TrainConfig, assignments=assignments)
    warning = long_warmup(config, steps)
    ending = f"the run has about {steps:,}. For a warm-up that fits, add {remedy}." if remedy else ""
    assert warning.endswith(ending) and bool(warning) == bool(remedy)
    mended = [*assignments, *remedy.replace("--set ", "").split()]
    assert long_warmup(settings.read(TrainConfig, assignments=mended), steps) == ""


def test_each_plateau_after_warmup_lowers_the_rate() -> None:
    config = ScheduleConfig(kind="plateau", peak=2.0, warmup=4)
    lowered = [learning_rate(config, step, 512, 100, plateaus) for step, plateaus in ((2, 0), (4, 1), (9, 3))]
    assert lowered == pytest.approx([1.0, 1.0, 0.25], rel=1e-12)
