"""Devices: which ones there are, what they are called, and what they can do.

The kind of a device is asked for only here, in `memory.py`, and where a kernel is chosen.
"""

import platform
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Literal

import torch

from nmt_cli.errors import UserError
from nmt_cli.runtime.kernels import torch_private

Precision = Literal["fp32", "fp16", "bf16", "int8"]


def usable_devices(wanted: str) -> list[torch.device]:
    """All devices of the kind that is `wanted`: cpu, cuda, or auto, which is cuda where there is one."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "cpu" or (wanted == "auto" and not gpus):
        return [torch.device("cpu")]
    if not gpus:
        raise UserError("this machine has no GPU that PyTorch can use; take --device cpu.")
    return [torch.device("cuda", number) for number in range(gpus)]


def first_devices(wanted: str, count: int) -> list[torch.device]:
    """The first `count` devices of the kind that is `wanted`; `UserError` where there are fewer."""
    there = usable_devices(wanted)
    if count > len(there):
        if not is_gpu(there[0]):
            raise UserError(f"--devices {count} needs as many GPUs; on a CPU choose --threads instead.")
        raise UserError(f"--devices is {count}, but there are {len(there)} GPUs; take at most {len(there)}.")
    return there[:count]


def device_of_rank(wanted: str, local_rank: int) -> torch.device:
    """The device of this process: a GPU of its own for each process on the machine, or the CPU for all of
    them.

    A GPU becomes this process's current device.
    """
    there = usable_devices(wanted)
    if not is_gpu(there[0]):
        return there[0]
    if local_rank >= len(there):
        raise UserError(
            f"process {local_rank + 1} on this machine needs a GPU of its own, but there are {len(there)}; "
            "take --device cpu, or fewer --devices."
        )
    torch.cuda.set_device(there[local_rank])
    return there[local_rank]


def is_gpu(device: torch.device) -> bool:
    """Whether it is a GPU; to be asked only where no other function here names the reason."""
    return device.type == "cuda"


def gpu_name(device: torch.device) -> str | None:
    """The GPU's product name; None for a CPU."""
    return torch.cuda.get_device_name(device) if is_gpu(device) else None


def processor_name() -> str:
    """The processor's product name, or its architecture where the system does not tell."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if sys.platform == "linux" and info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def training_precisions(device: torch.device) -> list[Precision]:
    """The number formats that a device can train with; on a GPU only those it has instructions for."""
    if not is_gpu(device):
        return ["fp32", "bf16"]
    bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return ["fp32", "fp16", "bf16"] if bf16 else ["fp32", "fp16"]


def usual_training_precision(device: torch.device) -> Precision:
    """What to train in unless something else is asked for."""
    # On a GPU the last is bf16, which needs no loss scale, or else fp16.
    return training_precisions(device)[-1] if is_gpu(device) else "fp32"


def translating_precisions(device: torch.device) -> list[Precision]:
    """The number formats that a device can translate with."""
    if is_gpu(device):
        return ["fp32", "fp16", "bf16"] if torch.cuda.is_bf16_supported() else ["fp32", "fp16"]
    found: list[Precision] = ["fp32"]
    if torch_private.multiplies_bf16():
        found.append("bf16")
    if torch_private.multiplies_int8():
        found.append("int8")
    return found


def usual_translating_precision(device: torch.device) -> Precision:
    """What to translate in unless something else is asked for."""
    return "fp16" if is_gpu(device) else "fp32"


def lays_out_weights(device: torch.device) -> bool:
    """Whether matrix products are faster with weights laid out beforehand for the device's instructions."""
    return not is_gpu(device) and torch_private.lays_out_weights()


def fast_products(device: torch.device) -> AbstractContextManager[None]:
    """The context for training on this kind of device, entered before its first product."""
    if is_gpu(device):
        return nullcontext()
    torch_private.keep_few_kernels()
    return torch_private.products_by_onednn()


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """The context for a forward pass whose matrix products are to be of `dtype`."""
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype=dtype)


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """What `autocast` converts the factors of matrix products to, where it is at work."""
    kind = device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def current(device: torch.device) -> AbstractContextManager[object]:
    """A context in which operations that name no device run on this one."""
    return torch.cuda.device(device) if is_gpu(device) else nullcontext()


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that it was given, for timing."""
    if is_gpu(device):
        torch.cuda.synchronize(device)


def compiling_pays(device: torch.device) -> bool:
    """Whether `torch.compile` saves more time on this kind of device than compiling takes."""
    return is_gpu(device)


def can_be_forked(device: torch.device) -> bool:
    """Whether a process that has computed on it can be forked, and the child compute too: only a CPU on
    Linux."""
    return not is_gpu(device) and sys.platform == "linux"
