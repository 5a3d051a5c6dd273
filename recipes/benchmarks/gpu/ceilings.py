"""Measure the limits of the device: copies, matrix products, launches.

python -m recipes.benchmarks.gpu.ceilings OUT.json
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

import click
import torch

from recipes.benchmarks.gpu.device import seconds_of, the_device, wait

SHAPES = {
    "square": (8192, 8192, 8192),
    "queries, keys, values": (25088, 1536, 512),
    "attention output": (25088, 512, 512),
    "feed-forward, inner": (25088, 2048, 512),
    "feed-forward, outer": (25088, 512, 2048),
    "inner, gradient": (2048, 512, 25088),
    "logits": (4096, 37000, 512),
    "logits, rows of 37,056": (4096, 37056, 512),
    "logits, gradient": (37000, 512, 4096),
    "big: feed-forward, inner": (25088, 4096, 1024),
}
"""Rows, columns and inner dimension, as in base and big at 25,000 tokens per side."""

LAUNCHES = 2000


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--scale", default=1, help="Divides every size, to try the script without a GPU.")
def main(out: Path, scale: int) -> None:
    """Measure, and write OUT."""
    device = the_device()
    x = torch.randn((1 << 29) // scale**2, device=device)
    y = torch.empty_like(x)
    measured = {
        "copy_GBps": round(2 * x.numel() * 4 / _seconds(lambda: y.copy_(x)) / 1e9),
        "TFLOPs": {name: _products(tuple(n // scale for n in shape)) for name, shape in SHAPES.items()},
        "launch_us": _launch(),
    }
    print(json.dumps(measured, indent=1))
    out.write_text(json.dumps(measured, indent=1))


def _seconds(work: Callable[[], object], repeats: int = 20) -> float:
    """Return the mean seconds of one call, until the device has finished."""
    seconds_of([work] * 3)
    return seconds_of([work] * repeats) / repeats


def _products(shape: tuple[int, ...]) -> float:
    rows, columns, inner = shape
    a, b = (torch.randn(n, inner, device=the_device(), dtype=torch.bfloat16) for n in (rows, columns))
    c = torch.empty(rows, columns, device=the_device(), dtype=torch.bfloat16)
    return round(2e-12 * rows * columns * inner / _seconds(lambda: torch.mm(a, b.t(), out=c)), 1)


def _launch() -> float:
    """Return the host's microseconds for an operation with next to no work for the device."""
    one = torch.zeros(1, device=the_device())
    wait()
    began = time.perf_counter()
    for _ in range(LAUNCHES):
        one.add_(1)
    return round((time.perf_counter() - began) / LAUNCHES * 1e6, 2)


if __name__ == "__main__":
    main()
