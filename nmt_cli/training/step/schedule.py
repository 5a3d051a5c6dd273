"""The learning rate of each step, in closed form: nothing to save, nothing to restore."""

import math

from nmt_cli.training.config import ScheduleConfig


def learning_rate(
    config: ScheduleConfig, step: int, width: int, max_steps: int, plateaus: int = 0, time_used: float = 0.0
) -> float:
    """Return the learning rate of `step`, counted from 1.

    `width` is the width of the model. `plateaus` is how often validation stopped improving. `time_used` is
    the share of training.max_hours that has passed: linear and cosine follow it if it is ahead of the steps.
    """
    if config.kind == "noam":
        return (
            config.factor / math.sqrt(width) * min(1 / math.sqrt(step), step / math.sqrt(config.warmup) ** 3)
        )
    rising = config.peak * step / config.warmup if step < config.warmup else config.peak
    way_down = max(_way_down(config, step, max_steps), min(1.0, time_used))
    # Both curves are continuous: a run whose time passes during warm-up never reaches the peak.
    if config.kind == "linear":
        return min(rising, config.peak * (1 - way_down))
    if config.kind == "cosine":
        return min(rising, config.peak * (1 + math.cos(math.pi * way_down)) / 2)
    if step < config.warmup:
        return rising
    match config.kind:
        case "inverse-sqrt":
            return config.peak * math.sqrt(max(config.warmup, 1) / step)
        case "constant" | "plateau":
            return config.peak * config.decay**plateaus


def _way_down(config: ScheduleConfig, step: int, max_steps: int) -> float:
    """Return the share of the steps between the end of warm-up and the last step that was taken."""
    return min(1.0, max(0.0, (step - config.warmup) / max(1, max_steps - config.warmup)))
