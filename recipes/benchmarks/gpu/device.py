"""The device that is measured: a GPU where there is one; the CPU only to try a script."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch


def the_device() -> torch.device:
    """Where everything is computed."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def wait() -> None:
    """Until the device has done all that it was asked for."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_of(works: Iterable[Callable[[], object]]) -> float:
    """Of all these, one after the other, the device's work included."""
    wait()
    began = time.perf_counter()
    for work in works:
        work()
    wait()
    return time.perf_counter() - began


def kernels_of(work: Callable[[], object], most: int = 40) -> dict[str, Any]:
    """How many kernels the device runs for `work`, for how long, and the longest of them."""
    if not torch.cuda.is_available():
        return {}
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        work()
        wait()
    events = [event for event in seen.key_averages() if str(event.device_type).endswith("CUDA")]
    events.sort(key=lambda event: -event.self_device_time_total)
    return {
        "kernels": sum(event.count for event in events),
        "kernel_ms": round(sum(event.self_device_time_total for event in events) / 1e3, 2),
        "longest": [
            [event.key[:90], event.count, round(event.self_device_time_total / 1e3, 3)]
            for event in events[:most]
        ],
    }
