"""Makes runs repeatable bit by bit on one machine, or reports the operation that prevents it."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from nmt_cli.errors import UserError
from nmt_cli.runtime.kernels.torch_private import no_kernels_chosen_by_speed
from nmt_cli.training.setup.run import TrainingRun

NOT_DETERMINISTIC = re.compile(r"(\S+) does not have a deterministic implementation")


@contextmanager
def repeatable(run: TrainingRun) -> Iterator[None]:
    """Allow only deterministic operations in the block, if training.deterministic is on. Otherwise do
    nothing.

    Raise `UserError` for an operation that has no deterministic form on this device. The environment variable
    CUBLAS_WORKSPACE_CONFIG is set, and stays set.
    """
    if not run.config.training.deterministic:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS refuses to run without it
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        with no_kernels_chosen_by_speed():
            yield
    except RuntimeError as error:
        if not (match := NOT_DETERMINISTIC.search(str(error))):
            raise
        raise UserError(
            f"{match[1]} gives other bits each time on {run.device.type}, and this run needs it. Train "
            "without --deterministic, or on another device."
        ) from error
    finally:
        torch.use_deterministic_algorithms(before)
