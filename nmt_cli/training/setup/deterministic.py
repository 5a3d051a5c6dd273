"""Runs that give the same bits each time on one machine, or say what cannot."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from nmt_cli.errors import UserError
from nmt_cli.runtime.kernels.torch_private import no_kernels_chosen_by_speed
from nmt_cli.runtime.memory import has_own_memory
from nmt_cli.training.config import TrainConfig

NO_WAY = re.compile(r"(\S+) does not have a deterministic implementation")


@contextmanager
def repeatable(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """While it lasts, with `training.deterministic`, whatever could come out otherwise is an error."""
    if not config.training.deterministic:
        yield
        return
    if has_own_memory(device) and not config.training.max_tokens_per_device:
        raise UserError(
            "a deterministic run can't find out how many tokens fit the GPU, for that depends on what else "
            "is there; set --max-tokens-per-device."
        )
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS refuses
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        with no_kernels_chosen_by_speed():
            yield
    except RuntimeError as error:
        if not (found := NO_WAY.search(str(error))):
            raise
        raise UserError(
            f"{found[1]} gives other bits each time on {device.type}, and this run needs it; train without "
            "--deterministic, or on another device."
        ) from error
    finally:
        torch.use_deterministic_algorithms(before)
