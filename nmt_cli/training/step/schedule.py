"""The learning rate of each step, in closed form: nothing to save, nothing to restore."""

import math

from nmt_cli.training.config import ScheduleConfig


def learning_rate(config: ScheduleConfig, step: int, width: int, max_steps: int, plateaus: int = 0) -> float:
    """The learning rate of `step`, counted from 1.

    `width` is the model's; `plateaus` is how often the rate was lowered because validation got no better.
    """
    if config.kind == "noam":
        return (
            config.factor / math.sqrt(width) * min(1 / math.sqrt(step), step / math.sqrt(config.warmup) ** 3)
        )
    if step < config.warmup:
        return config.peak * step / config.warmup
    match config.kind:
        case "inverse-sqrt":
            return config.peak * math.sqrt(max(config.warmup, 1) / step)
        case "linear":
            return config.peak * (1 - _way_down(config, step, max_steps))
        case "cosine":
            return config.peak * (1 + math.cos(math.pi * _way_down(config, step, max_steps))) / 2
        case "constant" | "plateau":
            return config.peak * config.decay**plateaus


def _way_down(config: ScheduleConfig, step: int, max_steps: int) -> float:
    """Which share of the steps between the end of warm-up and the last step has been taken."""
    return min(1.0, (step - config.warmup) / max(1, max_steps - config.warmup))
