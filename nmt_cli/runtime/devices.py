"""Devices: which ones exist, their names, and their capabilities.

Only this module, `memory.py` and the modules that choose a kernel check the type of a device.
"""

import os
import platform
import re
import sys
import warnings
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import torch

from nmt_cli.errors import Caution, UserError
from nmt_cli.runtime.kernels import torch_private
from nmt_cli.setting_values import shown

OLDER_WHEEL = "pip install torch --index-url https://download.pytorch.org/whl/cu126"
"""The PyTorch that has code for GPUs down to compute capability 5.0. The default one begins at 7.5."""

Precision = Literal["fp32", "fp16", "bf16", "int8"]


def usable_devices(kind: str | torch.device) -> list[torch.device]:
    """Return the devices that `kind` names, for which this PyTorch has code.

    - "cpu": the CPU.
    - "cuda": all GPUs.
    - "cuda:1": this GPU.
    - "auto": all GPUs, or the CPU if there is none.

    GPUs without code are left out, with one warning. Raise `UserError` for a GPU that the machine does not
    have or that has no code, and for any other `kind`.
    """
    named = _named(kind)
    if named and named.type == "cpu":
        return [named]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count and "PYTORCH_CUDA_ALLOC_CONF" not in os.environ and not torch.version.hip:
        # Micro-batches have many shapes, which fragment memory. PyTorch reads this when it starts CUDA.
        os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    gpus = [torch.device("cuda", number) for number in range(count)]
    problems = {gpu: problem for gpu in gpus if (problem := _without_code(gpu))}
    usable = [gpu for gpu in gpus if gpu not in problems]
    if not usable and named:
        reason = next(iter(problems.values()), "this machine has no GPU that PyTorch can use")
        raise UserError(f"{reason}. Use --device cpu.")
    if named and named.index is not None:
        if named not in usable:
            reason = problems.get(named, f"this machine has no {named}")
            raise UserError(f"{reason}. Use --device {' or '.join(map(str, usable))}.")
        return [named]
    for problem in {*problems.values()}:
        _warn_once(problem + ("" if usable else ". The CPU is used"))
    return usable or [torch.device("cpu")]


def _named(kind: str | torch.device) -> torch.device | None:
    """Return the device that `kind` names for PyTorch. "cuda" has no number, and "auto" is None.

    Raise `UserError` for a device that neither nmt nor PyTorch knows.
    """
    if kind == "auto":
        return None
    with suppress(RuntimeError, TypeError):  # PyTorch does not know the name, or the type of the argument
        device = torch.device(kind)
        if device.type == "cpu":
            return torch.device("cpu")
        if device.type == "cuda":
            return device
    raise UserError(f"--device must be auto, cpu, cuda or cuda:N (got {shown(kind)}).")


def _without_code(gpu: torch.device) -> str:
    """Return why this PyTorch has no code for a GPU, and the remedy, or "" if it has."""
    built = [
        (kind, divmod(int(number), 10), exact)
        for name in torch.cuda.get_arch_list()
        for kind, number, exact in re.findall(r"^(sm|compute)_(\d+)(a?)", name)  # ROCm has other names
    ]
    own = torch.cuda.get_device_capability(gpu) if built else (0, 0)
    for kind, version, exact in built:
        # Code for 8.0 runs on 8.6. The driver compiles code of the kind "compute" for later GPUs.
        if version == own or (version < own and not exact and (kind == "compute" or version[0] == own[0])):
            return ""
    if not built:
        return ""
    remedy = OLDER_WHEEL if own < min(version for _, version, _ in built) else "pip install --upgrade torch"
    name = f"{torch.cuda.get_device_name(gpu)} (compute capability {own[0]}.{own[1]})"
    return f"PyTorch {torch.__version__} has no code for {name}. Install one that has: {remedy}"


@cache
def _warn_once(message: str) -> None:
    warnings.warn(message, Caution, stacklevel=3)


@cache
def shared_memory(device: torch.device) -> int:
    """Return the bytes of shared memory that a program on a GPU may use. A CPU has no limit."""
    if not is_gpu(device):
        return sys.maxsize
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block))


def compute_capability(device: torch.device) -> tuple[int, int]:
    """Return the compute capability of an NVIDIA GPU, such as (8, 6). For other devices, return (99, 0)."""
    return torch.cuda.get_device_capability(device) if is_gpu(device) and not torch.version.hip else (99, 0)


def first_devices(kind: str | torch.device, count: int) -> list[torch.device]:
    """Return the first `count` of `usable_devices(kind)`. Raise `UserError` if there are fewer."""
    devices = usable_devices(kind)
    if count > len(devices):
        if not is_gpu(devices[0]):
            raise UserError(f"--devices {count} needs {count} GPUs. On a CPU, use --threads instead.")
        if devices == [_named(kind)]:
            raise UserError(f"--device {kind} is one GPU. With --devices {count}, use --device cuda.")
        raise UserError(f"--devices must be at most {len(devices)}, the number of GPUs (got {count}).")
    return devices[:count]


def device_of_rank(kind: str | torch.device, local_rank: int) -> torch.device:
    """Return the device of this process: a GPU of its own, or the CPU, which all processes share.

    kind: as for `usable_devices`.
    local_rank: the number of this process on its machine, from 0.

    A GPU that alone is visible is taken whatever the rank, because Slurm shows each task its own. The GPU
    becomes the current device. Raise `UserError` if there is no GPU for the process.
    """
    devices = usable_devices(kind)
    if not is_gpu(devices[0]):
        return devices[0]
    if local_rank and devices == [_named(kind)]:
        raise UserError(f"--device {kind} is one GPU, but each process needs its own. Use --device cuda.")
    local_rank = local_rank if len(devices) > 1 else 0
    if local_rank >= len(devices):
        raise UserError(
            f"process {local_rank + 1} on this machine needs its own GPU, but there are {len(devices)}. "
            "Use --device cpu, or fewer --devices."
        )
    torch.cuda.set_device(devices[local_rank])
    return devices[local_rank]


def is_gpu(device: torch.device) -> bool:
    """Return whether a device is a GPU. To ask for a capability, use another function of this module."""
    return device.type == "cuda"


def gpu_name(device: torch.device) -> str | None:
    """Return the product name of a GPU, or None for a CPU."""
    return torch.cuda.get_device_name(device) if is_gpu(device) else None


def gpu_identity(device: torch.device) -> str:
    """Return the product name and the unique identifier of a GPU, or "" for a CPU."""
    return f"{gpu_name(device)} {torch.cuda.get_device_properties(device).uuid}" if is_gpu(device) else ""


def processor_name() -> str:
    """Return the processor's product name, or its architecture if the system does not report the name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if sys.platform == "linux" and info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def training_precisions(device: torch.device) -> list[str]:
    """Return the number formats in which a device can train.

    - A CPU: fp32 and bf16.
    - A GPU with bf16: fp32, tf32, fp16 and bf16.
    - Another GPU: fp32 and fp16.
    """
    if not is_gpu(device):
        return ["fp32", "bf16"]
    bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return ["fp32", "tf32", "fp16", "bf16"] if bf16 else ["fp32", "fp16"]


def usual_training_precision(device: torch.device) -> str:
    """Return the default number format of training: bf16 on a GPU that has it, and on a CPU that trains
    faster with it. Otherwise it is fp16 on a GPU, and fp32 on a CPU."""
    # The last one is bf16 if available, which needs no loss scale.
    # With instructions for bf16, an AMD EPYC trains the presets tiny to base 1.5 to 1.7 times as fast.
    if is_gpu(device) or torch_private.trains_faster_in_bf16():
        return training_precisions(device)[-1]
    return "fp32"


def translating_precisions(device: torch.device) -> list[Precision]:
    """Return the number formats in which a device can translate: always fp32, and fp16 on a GPU.

    A GPU has bf16 if PyTorch supports it there. A CPU has bf16 if its products are fast, and int8 if Numba
    is installed.
    """
    if is_gpu(device):
        return ["fp32", "fp16", "bf16"] if torch.cuda.is_bf16_supported() else ["fp32", "fp16"]
    precisions: list[Precision] = ["fp32"]
    if torch_private.multiplies_bf16():
        precisions.append("bf16")
    if find_spec("numba"):
        precisions.append("int8")
    return precisions


def usual_translating_precision(device: torch.device) -> Precision:
    """Return the default number format of translation: fp16 on a GPU, fp32 on a CPU."""
    return "fp16" if is_gpu(device) else "fp32"


def fast_products(device: torch.device) -> AbstractContextManager[None]:
    """Return a context in which a CPU may compute fp32 products by oneDNN. For a GPU, it does nothing.

    For a CPU, environment variables then also limit the memory for kernels. So call this before the first
    product.
    """
    if is_gpu(device):
        return nullcontext()
    torch_private.keep_few_kernels()
    return torch_private.products_by_onednn()


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Return a context in which matrix products on `device` have this dtype, without effect for float32."""
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype=dtype)


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """Return the dtype of matrix products within an `autocast` context, or None outside such a context."""
    kind = device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def current(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which `device` is PyTorch's current GPU, without effect for a CPU."""
    return torch.cuda.device(device) if is_gpu(device) else nullcontext()


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has finished all its work, for timing. For a CPU, do nothing."""
    if is_gpu(device):
        torch.cuda.synchronize(device)


def compiling_pays(device: torch.device) -> bool:
    """Return whether `torch.compile` saves more time than compiling takes: True for a GPU."""
    return is_gpu(device)


def start_of_workers(device: torch.device) -> Literal["fork", "spawn"] | None:
    """Return how to start processes that compute on a device, or None to use threads instead.

    A fork of a process that used a GPU cannot use that GPU. Forks are safe under Linux only.
    """
    # A forked worker of a base model starts in 0.08 s of processor time with 5 MB more memory. One that loads
    # the model takes 3 s and 611 MB.
    return "spawn" if is_gpu(device) else "fork" if sys.platform == "linux" else None
