"""The precision of matrix products in a run."""

from contextlib import suppress
from pathlib import Path

import torch

from nmt_cli.checkpoints.finding import checkpoints
from nmt_cli.checkpoints.run_folder import read_state
from nmt_cli.errors import UserError
from nmt_cli.runtime.devices import is_gpu, training_precisions, usual_training_precision
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.settings import stored
from nmt_cli.training.step.trainer import MixedPrecision


def precision_of(run: Path, config: TrainConfig, device: torch.device) -> MixedPrecision:
    """Return the precision of training in the folder `run`. Raise `UserError` if `device` does not have it.

    With training.precision=auto, a run on a CPU keeps the precision of its newest checkpoint, even if another
    one is faster on this CPU. So a resumed run continues with the same rounding.
    """
    precision = precision_for(config.training.precision, device)
    newest = newest_checkpoint(run)
    if config.training.precision == "auto" and newest and not is_gpu(device):
        with suppress(UserError):  # the same error follows, with its remedy
            state, settings = read_state(newest), stored(run)
            # Older versions recorded only settings, and auto was fp32.
            set_before = settings.training.precision if settings else "auto"
            before = state.get("precision", "fp32" if set_before == "auto" else set_before)
            if state.get("device", device.type) == device.type and before in training_precisions(device):
                precision = before
    return MixedPrecision(precision, device)


def newest_checkpoint(run: Path) -> Path | None:
    """Return the folder of the newest checkpoint of a run, or None if the run has no checkpoint."""
    return next(iter(reversed(checkpoints(run).values())), None)


def precision_for(setting: str, device: torch.device) -> str:
    """Return the precision for `setting`, the value of training.precision: "fp32", "tf32", "bf16" or "fp16".

    "auto" gives the usual precision of `device`. Raise `UserError` if `device` cannot train with the
    precision.
    """
    if setting == "auto":
        return usual_training_precision(device)
    if setting not in (available := training_precisions(device)):
        raise UserError(
            f"training.precision is {setting}, but {device.type} has only {', '.join(available)}."
        )
    return setting


def precision_in_words(setting: str, precision: MixedPrecision) -> str:
    """Return the name of `precision`, with the reason if `setting` is "auto" and the device a CPU."""
    if setting != "auto" or is_gpu(precision.device):
        return precision.name
    reason = "faster than fp32" if precision.name == "bf16" else "bf16 is not faster"
    return f"{precision.name} (auto: {reason} on this CPU)"
