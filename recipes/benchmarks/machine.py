"""Describe the machine of a benchmark: its data, speed and load, and the load of other processes.

Functions with a session as argument cover all processes of that Unix session. PyTorch is imported only when
needed, because the peak memory of a child process includes the memory of its parent.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path

import click

THREADS = 2
LANGUAGES = ("en", "de")
ROOT = Path(__file__).parents[2]
NMT = (sys.executable, "-m", "nmt_cli")
BIN = click.Path(exists=True, file_okay=False, path_type=Path)
MEMORY_SECONDS = 2.0

DISTURBED = 0.1
"""Share of the cores that other processes may use during a measurement."""

QUIET_SECONDS, WAITS = 2.0, 30
PRODUCT_SIZE, PRODUCTS = 1024, 30


def method(document: str | None) -> str:
    """Return the docstring of a script as the help of its command. click does not wrap lines after "\\b"."""
    return (document or "").replace("\n\npython ", "\n\n\b\npython ")


def data_folder() -> Path:
    """Return the folder that NMT_DATA names. Raise ClickException if NMT_DATA is not set."""
    if "NMT_DATA" not in os.environ:
        raise click.ClickException("set NMT_DATA to a folder that holds multi30k/train.en and so on.")
    return Path(os.environ["NMT_DATA"])


@contextmanager
def scratch() -> Iterator[Path]:
    """Provide a temporary folder, which is removed when the block ends."""
    with tempfile.TemporaryDirectory(prefix="nmt-benchmark-") as folder:
        yield Path(folder)


def make_dataset(out: Path, vocabulary: int, *options: object) -> None:
    """Preprocess Multi30k's training pairs, English to German, into `out` with a joint vocabulary."""
    command = [*NMT, "preprocess", "--quiet", "--source-lang", "en", "--target-lang", "de", "--out", out]
    command += ["--train", data_folder() / "multi30k" / "train", "--vocab-size", vocabulary, *options]
    subprocess.run(list(map(str, command)), check=True)


def begin(name: str, note: str = "") -> None:
    """Limit this process to `THREADS` cores, and print the date, the processor and the command."""
    import torch

    data_folder()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    torch.set_num_threads(THREADS)
    os.environ |= {"OMP_NUM_THREADS": str(THREADS)}
    print(f"{date.today()}, {_processor()}, {THREADS} threads, torch {torch.__version__}{note}")
    arguments = " ".join(_without_folders(sys.argv[1:]))
    print(f"`python -m recipes.benchmarks.{name} {arguments}`\n", flush=True)


def print_row(*cells: object) -> None:
    """Print a row of a Markdown table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def print_head(*titles: str) -> None:
    """Print the head of a Markdown table."""
    print_row(*titles)
    print("|" + "---|" * len(titles), flush=True)


def product_rates() -> tuple[float, float]:
    """Return operations per second of matrix products, by the faster library and by PyTorch's default."""
    from nmt_cli.runtime.kernels.torch_private import products_by_onednn

    usual = _product_rate()
    with products_by_onednn():
        return max(usual, _product_rate()), usual


def wait_for_quiet() -> None:
    """Wait until other processes leave the cores idle, for at most a minute."""
    for _ in range(WAITS):
        before = busy_seconds()
        time.sleep(QUIET_SECONDS)
        if busy_seconds() - before <= DISTURBED * THREADS * QUIET_SECONDS:
            return


def busy_seconds() -> float:
    """Return the processor seconds of all processes on our cores since boot, or 0 if unknown."""
    path = Path("/proc/stat")
    if not path.exists():
        return 0.0
    cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    rows = (line.split() for line in path.read_text().splitlines())
    idle, waiting = 4, 5
    columns = set(range(1, 9)) - {idle, waiting}
    ticks = sum(int(row[column]) for row in rows if row[0] in cores for column in columns)
    return ticks / os.sysconf("SC_CLK_TCK")


def used_seconds(session: int) -> float:
    """Return the processor seconds of all processes in a session, ended children included."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15])) if int(fields[3]) == session else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_bytes(session: int) -> int:
    """Return the memory of all processes in a session. A page that several share counts once."""
    kilobytes = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getsid(int(folder.name)) == session:
                rows = map(str.split, (folder / "smaps_rollup").read_text().splitlines())
                kilobytes += next(int(row[1]) for row in rows if row[0] == "Pss:")
    return 1024 * kilobytes


@contextmanager
def watched_memory(session: int) -> Iterator[list[int]]:
    """Provide a list to which a thread adds `memory_bytes` every two seconds until the block ends."""
    sizes = [memory_bytes(session)]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(MEMORY_SECONDS):
            sizes.append(memory_bytes(session))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield sizes
    finally:
        over.set()
        watching.join()


def _product_rate() -> float:
    """Return operations per second of the median product, since other load may slow some products."""
    import torch

    factor, other = torch.randn(2, PRODUCT_SIZE, PRODUCT_SIZE)
    product, times = torch.mm(factor, other), []
    for _ in range(PRODUCTS):
        began = time.perf_counter()
        torch.mm(factor, other, out=product)
        times.append(time.perf_counter() - began)
    return 2 * PRODUCT_SIZE**3 / statistics.median(times)


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "CPU")


def _without_folders(arguments: Sequence[str]) -> list[str]:
    pairs = zip(["", *arguments], arguments, strict=False)
    return ["MODEL" if flag == "--model" else "BIN" if "/" in word else word for flag, word in pairs]
