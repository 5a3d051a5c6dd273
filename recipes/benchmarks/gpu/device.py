"""The device that is measured: a GPU, or the CPU to try a script."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch


def the_device() -> torch.device:
    """Return the first GPU, or the CPU if there is no GPU."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def device_name() -> str:
    """Return the name of the GPU, or the number of CPU threads if there is no GPU."""
    on_gpu = torch.cuda.is_available()
    return torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} threads"


def wait() -> None:
    """Wait until the GPU, if any, has finished all its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_of(works: Iterable[Callable[[], object]]) -> float:
    """Return the seconds of a sequence of calls, until the device has finished their work."""
    wait()
    began = time.perf_counter()
    for work in works:
        work()
    wait()
    return time.perf_counter() - began


def kernels_of(work: Callable[[], object], most: int = 40) -> dict[str, Any]:
    """Return the number, time and longest of the kernels that `work` runs on a GPU, or {} without a GPU."""
    if not torch.cuda.is_available():
        return {}
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        work()
        wait()
    events = [event for event in seen.key_averages() if str(event.device_type).endswith("CUDA")]
    events.sort(key=lambda event: -event.self_device_time_total)
    times = [(event.key[:90], event.count, event.self_device_time_total / 1e3) for event in events]
    return {
        "kernels": sum(event.count for event in events),
        "kernel_ms": round(sum(ms for *_, ms in times), 2),
        "longest": [[name, count, round(ms, 3)] for name, count, ms in times[:most]],
    }
