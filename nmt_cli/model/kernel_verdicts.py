"""Decides which Triton kernels a model uses on a GPU: those that passed a trial there.

Verdicts are kept in the user's cache, so that each trial runs once for a device, its driver, the versions of
libraries, our sources, and the model's shapes.
"""

import json
import os
import shutil
import sysconfig
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import torch

from nmt_cli.attention.attention import WIDEST, fits
from nmt_cli.errors import UserError, printable
from nmt_cli.model.kernel_trials import TRIALS, Use, disagreement
from nmt_cli.runtime.atomic import file_written_whole
from nmt_cli.runtime.devices import compute_capability, gpu_name, synchronize
from nmt_cli.runtime.kernels.families import FAMILIES, has_kernels
from nmt_cli.runtime.kernels.loading import digest_of_sources, user_cache
from nmt_cli.runtime.memory import out_of_memory

SOURCES = ("**/gpu_*.py", "attention/groups.py", "attention/dropout_hash.py", "attention/dropout_masks.py")
DRIVERS = ("/proc/driver/nvidia/version", "/sys/module/amdgpu/version")
REASON_LENGTH = 160

Reasons = dict[str, str]
"""Why a family of kernels must not be used, by family or for "torch.compile"."""


def failures(use: Use, device: torch.device) -> Reasons:
    """Return the kernel families that a model cannot use on a device, each with the reason. Without kernels,
    as on a CPU, return {}.

    Some families are impossible for this `use` and are not tried. Each other family is tried once, and its
    verdict is stored for later starts. A lack of memory is not a verdict, and raises its own error.

    If a kernel breaks the GPU for this process, raise `UserError`. Its verdict is stored before, so that the
    next start avoids the kernel.
    """
    if not has_kernels(device):
        return {}
    reasons = impossible(use, device)
    families = ["attention"] if use.smoothing is None else [*FAMILIES]
    path = Path(user_cache() or os.devnull, "nmt", f"kernels-{_digest(use, device)}.json")
    verdicts = _read(path)
    for family in [each for each in families if each not in reasons]:
        if family not in verdicts:
            verdicts[family] = _tried(family, use, device)
            _keep(path, verdicts)
            if verdicts[family]:
                _refuse_dead(device, family, verdicts[family])
        if verdicts[family]:
            reasons[family] = verdicts[family]
    return reasons


def impossible(use: Use, device: torch.device) -> Reasons:
    """Return the families that cannot work, with the reason and without a trial: for lack of a compiler or of
    a capability of the GPU, or for the widths of heads."""
    if reason := _without_triton(device):
        return dict.fromkeys((*FAMILIES, "torch.compile"), reason)
    if compute_capability(device) < (8, 0):
        return {"attention": "Triton uses tensor cores from compute capability 8.0 on"}
    for d_k, d_v in ((stack.d_k, stack.d_v) for stack in (use.model, use.model.of_decoder)):
        if not fits(d_k, d_v, use.dtype):
            limit = f"multiples of 8 up to {WIDEST[2]} (fp32: {WIDEST[4]})"
            return {"attention": f"heads have {d_k} and {d_v} channels, but the kernel takes {limit}"}
    return {}


def line(reasons: Mapping[str, str], device: torch.device) -> str:
    """Return a warning of one line that names the kernels that are not used, and why."""
    causes: dict[str, list[str]] = {}
    for family, reason in reasons.items():
        causes.setdefault(reason, []).append(family)
    named = "; ".join(f"{', '.join(families)} ({reason})" for reason, families in causes.items())
    return f"on {gpu_name(device) or device}, PyTorch's own operations are used, which is slower, for {named}"


def _without_triton(device: torch.device) -> str:
    """Return why Triton cannot compile for a device, and the remedy if there is one, or "" if it can."""
    if find_spec("triton") is None:
        return "Triton is missing: pip install triton"
    header = Path(sysconfig.get_path("include", "posix_prefix"), "Python.h")  # Triton's scheme too
    if not (_compiler() and header.exists()):
        missing = header if _compiler() else "a C compiler"
        return f"{missing} is missing: apt install gcc python3-dev"
    return "" if compute_capability(device) >= (7, 0) else "Triton needs compute capability 7.0 or more"


def _compiler() -> str | None:
    """Return the C compiler that Triton calls, or None if there is none."""
    return os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")


def _tried(family: str, use: Use, device: torch.device) -> str:
    """Return why a family failed its trial, or "". Raise errors of memory."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)  # references need more operations than training
    try:
        uses = dict.fromkeys((use, replace(use, model=use.model.of_decoder)))  # usually equal
        trials = chain.from_iterable(TRIALS[family](one, device) for one in uses)
        problems = (disagreement(*computed, use.dtype) for computed in trials)
        return next(filter(None, problems), "")
    except Exception as error:
        if out_of_memory(error):
            raise
        return printable(f"{type(error).__name__}: {error}")[:REASON_LENGTH]
    finally:
        torch.use_deterministic_algorithms(deterministic)


def _refuse_dead(device: torch.device, family: str, reason: str) -> None:
    """Raise `UserError` if a GPU does not work any more after a failed trial."""
    try:
        synchronize(device)
    except RuntimeError as error:
        raise UserError(
            f"the {family} kernel made {gpu_name(device)} fail ({reason}). Start again: PyTorch's own "
            "operations will be used instead."
        ) from error


def _digest(use: Use, device: torch.device) -> str:
    """Return a hash of all that a verdict depends on."""
    drivers = [Path(path).read_text() for path in DRIVERS if Path(path).exists()]
    triton = find_spec("triton")
    libraries = torch.__version__, triton and Path(str(triton.origin)).read_text()  # it names the version
    shape = {**asdict(use), "dtype": str(use.dtype)}
    gpu = gpu_name(device), compute_capability(device)
    return digest_of_sources((gpu, drivers, libraries, _compiler(), shape), SOURCES)


def _read(path: Path) -> Reasons:
    """Return the kept verdicts, or {} if there are none or the file is damaged."""
    with suppress(OSError, ValueError, TypeError):
        return {str(family): str(reason) for family, reason in dict(json.loads(path.read_text())).items()}
    return {}


def _keep(path: Path, verdicts: Reasons) -> None:
    """Write verdicts to a file. Without a writable cache, do nothing."""
    with suppress(OSError, UserError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with file_written_whole(path) as file:
            file.write(json.dumps(verdicts).encode())
