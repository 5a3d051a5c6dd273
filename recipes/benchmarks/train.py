"""Times training on two threads of a CPU: `nmt train` and others. Prints tables to keep in README.md.

python -m recipes.benchmarks.train [--fairseq BIN] [--opennmt BIN] [--joeynmt BIN]     needs NMT_DATA

BIN is the bin folder of a virtual environment that has the toolkit. All train the same model on Multi30k,
English to German, in the same 10,000 joint pieces, and take turns. A window begins behind the first update.
"""

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import click
import torch

from nmt_cli.cli.main import WAITING
from nmt_cli.data.dataset import TOKENIZERS, open_dataset
from nmt_cli.model.cost import training_flops
from nmt_cli.runtime.kernels.torch_private import multiplies_bf16, products_by_onednn
from nmt_cli.text.tokenizers import load_tokenizers
from recipes.benchmarks import training_peers as peers
from recipes.benchmarks.training_peers import Contestant, Given

THREADS = 2
VOCABULARY = 10_000
POLL_SECONDS = 0.02
MEMORY_SECONDS = 2.0
PATIENCE_SECONDS = 300.0
"""That a command may take to its first update, or from one to the next."""

DISTURBED = 0.1
"""Share of the two cores taken by others from which on a window is repeated, once."""

QUIET_SECONDS, WAITS = 2.0, 30
"""Before each window the cores have to be idle for so long; how often that is tried."""

PRODUCT_SIZE, PRODUCTS = 1024, 30
BIN = click.Path(exists=True, file_okay=False, path_type=Path)


class Ended(Exception):
    """A command ended, or said nothing for long, with its last words."""


@dataclass(frozen=True)
class Window:
    """What was seen of a command between two of its updates."""

    tokens_per_second: float
    tokens_per_update: float
    product_rate: float
    """Operations a second of a matrix product, before or after, whichever was faster."""

    usual_rate: float
    """The same by the library that PyTorch takes by itself."""

    others: float
    """Share of the two cores that other processes took."""


@click.command(context_settings={"show_default": True})
@click.option("--sizes", multiple=True, type=click.Choice(list(peers.PRESETS)), default=list(peers.PRESETS))
@click.option("--rounds", default=3, help="Windows of each contestant.")
@click.option("--seconds", default=30.0, help="Length of a window.")
@click.option("--fairseq", type=BIN)
@click.option("--opennmt", type=BIN)
@click.option("--joeynmt", type=BIN)
def main(
    sizes: Sequence[str],
    rounds: int,
    seconds: float,
    fairseq: Path | None,
    opennmt: Path | None,
    joeynmt: Path | None,
) -> None:
    """Measure target tokens a second of training, filler not counted."""
    if "NMT_DATA" not in os.environ:
        raise click.ClickException("set NMT_DATA to a folder that holds multi30k/train.en and so on.")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    torch.set_num_threads(THREADS)
    os.environ |= {**WAITING, "OMP_NUM_THREADS": str(THREADS)}
    os.environ |= {"PYTHONUNBUFFERED": "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    print(f"{date.today()}, {_processor()}, {THREADS} threads, torch {torch.__version__}, fp32")
    print(f"`python -m recipes.benchmarks.train {' '.join(_anonymous(sys.argv[1:]))}`\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="nmt-benchmark-") as scratch:
        folder = Path(scratch)
        _prepare(folder, fairseq)
        for size in sizes:
            given = Given(folder, size)
            contestants = [peers.ours(given), peers.marian(given)]
            contestants += [peers.ours(given, "bf16")] if multiplies_bf16() else []
            contestants += [peers.fairseq(given, fairseq)] if fairseq else []
            contestants += [peers.opennmt(given, opennmt)] if opennmt else []
            contestants += [peers.joeynmt(given, joeynmt)] if joeynmt else []
            _print_table(given, _in_turns(given, contestants, rounds, seconds))


def _prepare(folder: Path, fairseq: Path | None) -> None:
    """Make the dataset and what the others want instead."""
    train = Path(os.environ["NMT_DATA"]) / "multi30k" / "train"
    command = [sys.executable, "-m", "nmt_cli", "preprocess", "--quiet", "--source-lang", "en"]
    command += ["--target-lang", "de", "--train", str(train), "--vocab-size", str(VOCABULARY)]
    subprocess.run([*command, "--out", folder / "dataset"], check=True)
    peers.write_pieces(folder)
    if fairseq:
        environment = os.environ | {"PYTHONPATH": str(folder / "stubs" / "fairseq")}
        command = list(map(str, peers.fairseq_data(fairseq, folder)))
        subprocess.run(command, check=True, capture_output=True, env=environment)


def _in_turns(
    given: Given, contestants: Sequence[Contestant], rounds: int, seconds: float
) -> dict[str, list[Window]]:
    """The windows of each; who fails is told of, and left out."""
    windows: dict[str, list[Window]] = {contestant.name: [] for contestant in contestants}
    for _ in range(rounds):
        for contestant in contestants:
            if contestant.name not in windows:
                continue
            try:
                window = _undisturbed(given, contestant, seconds)
            except (Ended, OSError) as error:
                if contestant is contestants[0]:
                    raise click.ClickException(f"{contestant.name}: {error}") from error
                del windows[contestant.name]
                print(f"{given.size}, {contestant.name} is left out: {error}", flush=True)
                continue
            windows[contestant.name].append(window)
    return windows


def _undisturbed(given: Given, contestant: Contestant, seconds: float) -> Window:
    """The less disturbed of up to two windows."""
    window = _window(given, contestant, seconds)
    if window.others <= DISTURBED:
        return window
    print("others were at work; once more", file=sys.stderr)
    return min(window, _window(given, contestant, seconds), key=lambda one: one.others)


def _window(given: Given, contestant: Contestant, seconds: float) -> Window:
    """Start the command, watch it for some seconds, and kill it."""
    shutil.rmtree(given.window, ignore_errors=True)
    given.window.mkdir()
    environment = os.environ | {"PYTHONPATH": str(contestant.python_path), "TMPDIR": str(given.window)}
    command = list(map(str, contestant.command))
    _wait_for_quiet()
    before, busy, began = _product_rates(), _busy_seconds(), time.perf_counter()
    with given.printed.open("wb") as printed:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=given.window,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
        )
    try:
        updates = list(_updates(process, contestant, given.printed, seconds))
        others = (_busy_seconds() - busy - _used_seconds(process.pid)) / (time.perf_counter() - began)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    took, tokens = (sum(column) for column in zip(*updates, strict=True))
    rate, usual = (max(both) for both in zip(before, _product_rates(), strict=True))
    window = Window(tokens / took, tokens / len(updates), rate, usual, max(others / THREADS, 0.0))
    told = f"{window.tokens_per_second:,.0f} tokens/s, {len(updates)} updates, others {window.others:.1%}"
    print(f"{given.size}, {contestant.name}: {told}, {window.product_rate / 1e9:.0f} GF/s", file=sys.stderr)
    return window


def _updates(
    process: "subprocess.Popen[bytes]", contestant: Contestant, printed: Path, seconds: float
) -> Iterator[tuple[float, float]]:
    """Seconds and tokens of each update but the first, until these are `seconds` altogether."""
    read, first, last = 0, 0.0, time.perf_counter()
    while not first or last - first < seconds:
        time.sleep(POLL_SECONDS)
        now = time.perf_counter()
        if process.poll() is not None or now - last > PATIENCE_SECONDS:
            words = printed.read_text(errors="replace").split("\n")
            raise Ended(next((line for line in reversed(words) if line.strip()), "it said nothing"))
        written = contestant.log.read_bytes() if contestant.log.exists() else b""
        whole = written.rfind(b"\n") + 1
        for line in written[read:whole].decode(errors="replace").splitlines():
            tokens = contestant.tokens(line, now - last)
            if tokens is None:
                continue
            if first:
                yield now - last, tokens
            first, last = first or now, now
        read = whole


def _product_rates() -> tuple[float, float]:
    """Operations a second by the faster of PyTorch's two libraries, and by the one it takes by itself."""
    usual = _measured_rate()
    with products_by_onednn():
        return max(usual, _measured_rate()), usual


def _measured_rate() -> float:
    """Of the median product: others may disturb some."""
    factor, other = torch.randn(2, PRODUCT_SIZE, PRODUCT_SIZE)
    product, times = torch.mm(factor, other), []
    for _ in range(PRODUCTS):
        began = time.perf_counter()
        torch.mm(factor, other, out=product)
        times.append(time.perf_counter() - began)
    return 2 * PRODUCT_SIZE**3 / statistics.median(times)


def _wait_for_quiet() -> None:
    """Until others leave the cores alone; not for ever."""
    for _ in range(WAITS):
        before = _busy_seconds()
        time.sleep(QUIET_SECONDS)
        if _busy_seconds() - before <= DISTURBED * THREADS * QUIET_SECONDS:
            return


def _busy_seconds() -> float:
    """Processor time spent on our cores, by anybody, since some moment."""
    path = Path("/proc/stat")
    if not path.exists():
        return 0.0
    mine = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    rows = (line.split() for line in path.read_text().splitlines())
    idle, waiting = 4, 5
    given = set(range(1, 9)) - {idle, waiting}
    ticks = sum(int(row[column]) for row in rows if row[0] in mine for column in given)
    return ticks / os.sysconf("SC_CLK_TCK")


def _used_seconds(session: int) -> float:
    """Processor time of all processes of a session, and of those they have seen end."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15])) if int(fields[3]) == session else 0
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def _watched_memory(session: int) -> Iterator[list[int]]:
    """The bytes that all processes of a session have, again and again; what they share counts once."""
    seen = [_memory_bytes(session)]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(MEMORY_SECONDS):
            seen.append(_memory_bytes(session))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield seen
    finally:
        over.set()
        watching.join()


def _memory_bytes(session: int) -> int:
    kilobytes = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getsid(int(folder.name)) == session:
                rows = map(str.split, (folder / "smaps_rollup").read_text().splitlines())
                kilobytes += next(int(row[1]) for row in rows if row[0] == "Pss:")
    return 1024 * kilobytes


def _print_table(given: Given, windows: dict[str, list[Window]]) -> None:
    """Tokens a second, compared with the first of the contestants, and with the products they are made of."""
    train = open_dataset(given.folder / "dataset").splits["train"]
    vocabulary = len(load_tokenizers(given.folder / "dataset" / TOKENIZERS).target.vocabulary)
    sources, targets = len(train.source.tokens), len(train.target.tokens)
    per_token = training_flops(given.model, vocabulary, sources, targets) / targets
    rates = [window.product_rate / 1e9 for each in windows.values() for window in each]
    print(f"{given.size}: {per_token / 1e6:.0f} MFLOP a target token; products of 1024 x 1024 matrices at")
    usual = statistics.median(window.usual_rate / 1e9 for each in windows.values() for window in each)
    print(f"{min(rates):.0f} to {max(rates):.0f} GFLOP/s, median {statistics.median(rates):.0f};", end=" ")
    print(f"as PyTorch has it, median {usual:.0f}\n")
    print("| | target tokens/s: each window | median | `nmt train` does | share of product rate ", end="")
    print("| of PyTorch's own ", end="")
    print("| target tokens an update | others' share of the cores |\n|---|---|---|---|---|---|---|---|")
    reference = next(iter(windows.values()))
    for name, each in windows.items():
        speeds = [window.tokens_per_second for window in each]
        pairs = zip(reference, each, strict=True)
        ratio = statistics.median(one.tokens_per_second / other.tokens_per_second for one, other in pairs)
        made = [(one.tokens_per_second * per_token, one) for one in each]
        share = statistics.median(rate / one.product_rate for rate, one in made)
        of_usual = statistics.median(rate / one.usual_rate for rate, one in made)
        listed = ", ".join(f"{speed:,.0f}" for speed in speeds)
        print(
            f"| {name} | {listed} | {statistics.median(speeds):,.0f} | {ratio:.2f} x | {share:.0%} ", end=""
        )
        print(f"| {of_usual:.0%} ", end="")
        tokens = statistics.median(window.tokens_per_update for window in each)
        print(f"| {tokens:,.0f} | {max(window.others for window in each):.0%} |")
    print(flush=True)


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "CPU")


def _anonymous(arguments: Sequence[str]) -> list[str]:
    """Folders are nobody's business."""
    named = zip(["", *arguments], arguments, strict=False)
    return ["MODEL" if flag == "--model" else "BIN" if "/" in one else one for flag, one in named]


if __name__ == "__main__":
    main()
