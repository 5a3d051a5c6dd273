"""The events that `train` passes to `report`."""

from nmt_cli.training.tracking.events import (
    Doing,
    Event,
    Logged,
    Note,
    Progress,
    Saved,
    Spent,
    Standing,
    Validated,
    Warned,
)
from nmt_cli.training.validation.judge import Judgement

__all__ = ["Doing", "Event", "Judgement", "Logged", "Note", "Progress"]
__all__ += ["Saved", "Spent", "Standing", "Validated", "Warned"]
