"""Computes the learning rate of each step in closed form, so that there is no state to save."""

import math

from nmt_cli.training.config import ScheduleConfig, TrainConfig

PLATEAU_FACTOR = 0.5
"""The learning rate is multiplied by this at each plateau. fairseq and Marian halve it too."""

SHORT_WARMUP = 0.1
"""Linear and cosine: warm-up as a fraction of a run that is too short for schedule.warmup."""


def learning_rate(
    config: ScheduleConfig, step: int, width: int, max_steps: int, plateaus: int = 0, time_used: float = 0.0
) -> float:
    """Return the learning rate of `step`, counted from 1.

    width: the width of the model, which only noam uses.
    max_steps: the step at which linear and cosine reach 0.
    plateaus: how often the plateau schedule has lowered the rate.
    time_used: the used fraction of training.max_hours. Linear and cosine reach 0 when it is 1, if that is
        earlier.

    All schedules but noam rise linearly to schedule.peak during warm-up. From the end of warm-up or
    schedule.decay_start on, inverse-sqrt falls with the root of `step`. After warm-up, plateau multiplies the
    peak by `PLATEAU_FACTOR` for each plateau, and constant keeps the peak. The warm-up of linear and
    cosine is shorter in a short run: see `warmup_steps`. With training.max_hours, it ends after
    `SHORT_WARMUP` of the time at the latest.
    """
    if config.kind == "noam":
        return (
            config.factor / math.sqrt(width) * min(1 / math.sqrt(step), step / math.sqrt(config.warmup) ** 3)
        )
    warmup = warmup_steps(config, max_steps)
    rising = config.peak * step / warmup if step < warmup else config.peak
    rising = max(rising, config.peak * min(1.0, time_used / SHORT_WARMUP))
    steps_used = max(0, step - warmup) / max(1, max_steps - warmup)
    # With training.max_hours, the last step is not known, and the rate would never reach 0 by steps alone.
    decayed = min(1.0, max(steps_used, time_used))
    # Both curves are continuous.
    if config.kind == "linear":
        return min(rising, config.peak * (1 - decayed))
    if config.kind == "cosine":
        return min(rising, config.peak * (1 + math.cos(math.pi * decayed)) / 2)
    if config.kind == "inverse-sqrt":
        start = config.decay_start or max(warmup, 1)
        return rising * math.sqrt(start / max(start, step))
    return rising if step < warmup else config.peak * PLATEAU_FACTOR**plateaus


def warmup_steps(config: ScheduleConfig, max_steps: int) -> int:
    """Return the number of steps of warm-up: schedule.warmup. In a run of linear or cosine that is shorter
    than twice as long, it is `SHORT_WARMUP` of `max_steps` instead."""
    # The other schedules do not depend on the length, so that a run with a later end takes the same steps.
    is_short = config.kind in ("linear", "cosine") and 2 * config.warmup > max_steps
    return int(SHORT_WARMUP * max_steps) if is_short else config.warmup


def long_warmup(config: TrainConfig, steps: int) -> str:
    """Return a warning with a remedy if warm-up takes more than half of `steps`, the estimated length of the
    run. Otherwise return "".

    Linear and cosine never get one, because their warm-up fits the run. Neither does a run of fewer than ten
    steps, which only tries something.
    """
    schedule, fitting = config.schedule, int(SHORT_WARMUP * steps)
    if schedule.kind in ("linear", "cosine") or 2 * schedule.warmup <= steps or not fitting:
        return ""
    if schedule.kind != "noam":
        remedy = f"--set schedule.warmup={fitting}"
    elif config.training.max_epochs:  # linear and cosine have to know the last step
        remedy = f"--set schedule.kind=inverse-sqrt --set schedule.warmup={fitting}"
    else:
        remedy = "--set schedule.kind=linear"
    # A factor has an effect in noam only, and presets may set it.
    reset = " --set schedule.factor=1" if schedule.kind == "noam" and schedule.factor != 1 else ""
    problem = f"the learning rate rises for {schedule.warmup:,} steps (schedule.warmup)"
    return f"{problem}, but the run has about {steps:,}. For a warm-up that fits, add {remedy}{reset}."
