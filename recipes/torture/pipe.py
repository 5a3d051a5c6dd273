"""Translate lines of all kinds with one `nmt translate`: one at a time, then as fast as possible.

python -m recipes.torture.pipe --lines 200000

The number and order of lines must match, and memory must not grow. All lines differ. The growth is the
slope of a straight line through the second half: caches of shapes are full by then, and caches of words
grow to `MOST_CACHED` entries.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import linear_regression
from typing import IO

import click

from recipes.torture.lines import line_of_any_kind

MODEL = Path(__file__).resolve().parents[2] / "tests" / "golden" / "model"
COMMAND = (
    *("translate", str(MODEL), "--beam", "1", "--threads", "1", "--device", "cpu", "--quiet"),
    # Otherwise the length limit would stop most translations only after many steps.
    *("--set", "search.cap_ratio=1", "--set", "search.cap_extra=5"),
)
LENGTHS, LONG = (0, 1, 3, 3, 10, 10, 30), 0.0002
"""Lengths of usual lines in characters, and the fraction of far longer lines, which are slow."""

SAMPLES, SHOWN = 100, 10
"""Number of measurements of memory, and of printed measurements."""

PATIENCE = 120.0
"""Maximum seconds for the translation of a line."""

MAX_GROWTH = 20.0
"""Maximum growth in megabytes per 100,000 lines."""

Sample = tuple[int, float]
"""The number of translated lines, and the megabytes in use."""


@click.command()
@click.option("--lines", default=200_000, type=click.IntRange(1), show_default=True, help="Number of lines.")
@click.option("--trickle", default=300, show_default=True, help="Number of lines sent one at a time.")
@click.option("--seed", default=1, show_default=True)
def main(lines: int, trickle: int, seed: int) -> None:
    """Print the translated lines, the time and the growth of memory. Exit with 1 if any is wrong."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, "-m", "nmt_cli", *COMMAND]
    began = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as nmt:
        assert nmt.stdin
        assert nmt.stdout
        timeout = threading.Timer(PATIENCE, nmt.kill)
        timeout.start()
        translated = at_a_trickle(nmt.stdin, nmt.stdout, Random(seed), min(trickle, lines))
        timeout.cancel()
        slow = time.monotonic() - began
        samples = at_full_speed(nmt, Random(seed + 1), lines - translated)
    fast = time.monotonic() - began - slow
    translated += samples[-1][0]
    growth = slope(samples)
    print(
        f"{translated:,} of {lines:,} lines came back: {min(trickle, lines):,} one at a time in {slow:.0f} s,"
    )
    print(f"the others in {fast:.0f} s; exit code {nmt.returncode}; {samples[-1][1]:.0f} MB at the end,")
    print("MB: " + ", ".join(f"{megabytes:.0f}" for _, megabytes in samples[:: SAMPLES // SHOWN]))
    print(f"{growth:+.2f} MB per 100,000 lines in the second half")
    raise SystemExit(translated != lines or nmt.returncode != 0 or growth > MAX_GROWTH)


def at_a_trickle(stdin: IO[bytes], stdout: IO[bytes], random: Random, count: int) -> int:
    """Send `count` random lines, each after the translation of the previous line. Return the number of
    translated lines, which is smaller than `count` if the process ends."""
    for number in range(count):
        time.sleep(random.random() * 0.02)
        stdin.write(line_of_any_kind(random, LENGTHS, LONG) + b"\n")
        stdin.flush()
        if not stdout.readline().endswith(b"\n"):
            return number
    return count


def at_full_speed(nmt: subprocess.Popen[bytes], random: Random, count: int) -> list[Sample]:
    """Send `count` random lines and close stdin. Return measurements of the lines done and the memory."""
    assert nmt.stdin
    assert nmt.stdout
    feeder = threading.Thread(target=_feed, args=(nmt.stdin, random, count), daemon=True)
    feeder.start()
    samples, translated = [(0, used_megabytes(nmt.pid))], 0
    for line in nmt.stdout:
        translated += line.endswith(b"\n")
        if translated % max(count // SAMPLES, 1) == 0 and (megabytes := used_megabytes(nmt.pid)):
            samples.append((translated, megabytes))
    feeder.join()
    return [*samples, (translated, samples[-1][1])]  # the process may have ended when its last lines are read


def _feed(stdin: IO[bytes], random: Random, count: int) -> None:
    """Write `count` random lines to `stdin` and close `stdin`. Return early if the reader has ended."""
    try:
        for _ in range(count):
            stdin.write(line_of_any_kind(random, LENGTHS, LONG) + b"\n")
        stdin.close()
    except BrokenPipeError:
        return  # the process has ended, and its exit code shows why


def used_megabytes(process: int) -> float:
    """Return the proportional memory (PSS) of a process and its children in megabytes."""
    total = 0
    for pid in (process, *_children(process)):
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += int(rollup.partition("\nPss:")[2].split()[0])
    return total / 1024


def _children(process: int) -> list[int]:
    """Return the process ids of the children of a process."""
    files = Path(f"/proc/{process}/task").glob("*/children")
    return [int(pid) for path in files for pid in path.read_text().split()]


def slope(samples: Sequence[Sample]) -> float:
    """Return the growth in megabytes per 100,000 lines, by least squares over the later half of the lines."""
    half = [(lines, megabytes) for lines, megabytes in samples[:-1] if 2 * lines >= samples[-1][0]]
    if len({lines for lines, _ in half}) < 2:
        return 0.0
    lines, megabytes = zip(*half, strict=True)
    return 100_000 * linear_regression(lines, megabytes).slope


if __name__ == "__main__":
    main()
