"""What the device can do, by which all else is judged: copies, products of matrices, launches.

python -m recipes.benchmarks.gpu.ceilings OUT.json
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

import click
import torch

from recipes.benchmarks.gpu.device import the_device, wait

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
"""Rows, columns and what is summed over, in base and big at 25,000 tokens a side."""

LAUNCHES = 2000


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--scale", default=1, help="Divides every size, to try the script where there is no GPU.")
def main(out: Path, scale: int) -> None:
    """Measure, and write OUT."""
    device = the_device()
    x = torch.randn((1 << 29) // scale**2, device=device)
    y = torch.empty_like(x)
    told = {
        "copy_GBps": round(2 * x.numel() * 4 / seconds(lambda: y.copy_(x)) / 1e9),
        "TFLOPs": {name: _products(tuple(n // scale for n in shape)) for name, shape in SHAPES.items()},
        "launch_us": _launch(),
    }
    print(json.dumps(told, indent=1))
    out.write_text(json.dumps(told, indent=1))


def seconds(work: Callable[[], object], repeats: int = 20) -> float:
    """Of one call, the device's work included."""
    for _ in range(3):
        work()
    wait()
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    wait()
    return (time.perf_counter() - began) / repeats


def _products(shape: tuple[int, ...]) -> float:
    rows, columns, inner = shape
    a, b = (torch.randn(n, inner, device=the_device(), dtype=torch.bfloat16) for n in (rows, columns))
    c = torch.empty(rows, columns, device=the_device(), dtype=torch.bfloat16)
    return round(2e-12 * rows * columns * inner / seconds(lambda: torch.mm(a, b.t(), out=c)), 1)


def _launch() -> float:
    """Microseconds of the host for an operation that is next to nothing for the device."""
    one = torch.zeros(1, device=the_device())
    wait()
    began = time.perf_counter()
    for _ in range(LAUNCHES):
        one.add_(1)
    return round((time.perf_counter() - began) / LAUNCHES * 1e6, 2)


if __name__ == "__main__":
    main()
