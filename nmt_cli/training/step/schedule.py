"""Computes the learning rate of each step in closed form, so that there is no state to save."""

import math

from nmt_cli.training.config import ScheduleConfig


def learning_rate(
    config: ScheduleConfig, step: int, width: int, max_steps: int, plateaus: int = 0, time_used: float = 0.0
) -> float:
    """Return the learning rate of `step`, counted from 1. Noam depends on `width`, the width of the model.
    Other schedules first rise linearly to schedule.peak in warm-up. Linear and cosine reach 0 at `max_steps`,
    or when `time_used`, the used fraction of training.max_hours, is 1. Inverse-sqrt falls with the root of
    `step`. Plateau multiplies the peak by schedule.decay for each of `plateaus`. Constant keeps the peak."""
    if config.kind == "noam":
        return (
            config.factor / math.sqrt(width) * min(1 / math.sqrt(step), step / math.sqrt(config.warmup) ** 3)
        )
    rising = config.peak * step / config.warmup if step < config.warmup else config.peak
    steps_used = max(0, step - config.warmup) / max(1, max_steps - config.warmup)
    decayed = min(1.0, max(steps_used, time_used))
    # Both curves are continuous. A run whose time passes during warm-up never reaches the peak.
    if config.kind == "linear":
        return min(rising, config.peak * (1 - decayed))
    if config.kind == "cosine":
        return min(rising, config.peak * (1 + math.cos(math.pi * decayed)) / 2)
    if step < config.warmup:
        return rising
    match config.kind:
        case "inverse-sqrt":
            return config.peak * math.sqrt(max(config.warmup, 1) / step)
        case "constant" | "plateau":
            return config.peak * config.decay**plateaus
