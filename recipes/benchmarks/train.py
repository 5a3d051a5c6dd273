"""Time training on two CPU threads: `nmt train` and other toolkits. Print tables for results.md.

python -m recipes.benchmarks.train [--fairseq BIN]     needs NMT_DATA

BIN is the bin folder of a virtual environment that has fairseq. All train the same model on Multi30k,
English to German, in the same 10,000 joint subwords, with tied embeddings, dropout 0.1, label smoothing 0.1
and Adam, and take turns. Each toolkit runs its own command with its own batches of at most 4,096 tokens. Most
count padding too. Hugging Face's Marian runs in a plain loop on our batches, padded, with fused Adam.

A window is the time between two updates in the log, after the first update, without saving and validation.
Before it, the cores must be idle for two seconds, for which the benchmark waits up to a minute. If others use
more than a tenth of the cores, the window runs again, and the quieter one counts.

The product rate is that of torch.mm on 1,024 x 1,024 matrices, with MKL or oneDNN, whichever is faster. The
share is the time of the products of real tokens, without attention, at that rate.
"""

import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from nmt_cli.cli.main import WAITING
from nmt_cli.data.dataset import TOKENIZERS, open_dataset
from nmt_cli.model.cost import training_flops
from nmt_cli.runtime.kernels.torch_private import multiplies_bf16
from nmt_cli.text.tokenizers import load_tokenizers
from recipes.benchmarks import machine
from recipes.benchmarks import training_peers as peers
from recipes.benchmarks.machine import BIN, DISTURBED, THREADS
from recipes.benchmarks.training_peers import Contestant, Workload

VOCABULARY = 10_000
POLL_SECONDS = 0.02
PATIENCE_SECONDS = 300.0
"""Longest time to the first update of a command, or between two updates."""


class Ended(Exception):
    """A command ended or printed no update for too long. The message is its last line."""


@dataclass(frozen=True)
class Window:
    """A command's measurements between two of its updates."""

    tokens_per_second: float
    tokens_per_update: float
    product_rate: float
    """Operations per second of a matrix product with the faster library, the better of before and after."""

    usual_rate: float
    """The same with the library that PyTorch uses by default."""

    rivals: float
    """Share of the cores that other processes used."""


@click.command(help=machine.method(__doc__), context_settings={"show_default": True})
@click.option("--sizes", multiple=True, type=click.Choice(list(peers.PRESETS)), default=list(peers.PRESETS))
@click.option("--rounds", default=3, help="Windows of each toolkit.")
@click.option("--seconds", default=30.0, help="Length of a window.")
@click.option("--fairseq", type=BIN)
def main(sizes: Sequence[str], rounds: int, seconds: float, fairseq: Path | None) -> None:
    """Measure target tokens per second of training, without filler."""
    machine.begin("train", ", fp32")
    os.environ |= {**WAITING, "PYTHONUNBUFFERED": "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    with machine.scratch() as folder:
        machine.make_dataset(folder / "dataset", VOCABULARY)
        peers.write_pieces(folder)
        if fairseq:
            peers.prepare_fairseq(fairseq, folder)
        for size in sizes:
            workload = Workload(folder, size)
            contestants = [peers.ours(workload), peers.marian(workload)]
            contestants += [peers.ours(workload, "bf16")] if multiplies_bf16() else []
            contestants += [peers.fairseq(workload, fairseq)] if fairseq else []
            _print_table(workload, _in_turns(workload, contestants, rounds, seconds))


def _in_turns(
    workload: Workload, contestants: Sequence[Contestant], rounds: int, seconds: float
) -> dict[str, list[Window]]:
    """Return each contestant's windows by name. Report and omit failing ones, except `nmt train`."""
    windows: dict[str, list[Window]] = {contestant.name: [] for contestant in contestants}
    for _ in range(rounds):
        for contestant in contestants:
            if contestant.name not in windows:
                continue
            try:
                window = _window(workload, contestant, seconds)
                if window.rivals > DISTURBED:
                    print("other processes were busy, measuring again", file=sys.stderr)
                    again = _window(workload, contestant, seconds)
                    window = min(window, again, key=lambda one: one.rivals)
                windows[contestant.name].append(window)
            except (Ended, OSError) as error:
                if contestant is contestants[0]:
                    raise click.ClickException(f"{contestant.name}: {error}") from error
                del windows[contestant.name]
                print(f"{workload.size}, {contestant.name} is omitted: {error}", flush=True)
    return windows


def _window(workload: Workload, contestant: Contestant, seconds: float) -> Window:
    """Run the command for about `seconds`, kill it, and return its measurements."""
    shutil.rmtree(workload.window, ignore_errors=True)
    workload.window.mkdir()
    environment = os.environ | {"PYTHONPATH": str(contestant.python_path), "TMPDIR": str(workload.window)}
    command = list(map(str, contestant.command))
    machine.wait_for_quiet()
    before, busy, began = machine.product_rates(), machine.busy_seconds(), time.perf_counter()
    with workload.printed.open("wb") as printed:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=workload.window,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
        )
    try:
        updates = list(_updates(process, contestant, workload.printed, seconds))
        rivals = machine.busy_seconds() - busy - machine.used_seconds(process.pid)
        rivals /= THREADS * (time.perf_counter() - began)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    took, tokens = (sum(column) for column in zip(*updates, strict=True))
    rate, usual = (max(both) for both in zip(before, machine.product_rates(), strict=True))
    window = Window(tokens / took, tokens / len(updates), rate, usual, max(rivals, 0.0))
    speed = f"{window.tokens_per_second:,.0f} tokens/s, {len(updates)} updates, others {window.rivals:.1%}"
    print(
        f"{workload.size}, {contestant.name}: {speed}, {window.product_rate / 1e9:.0f} GF/s", file=sys.stderr
    )
    return window


def _updates(
    process: "subprocess.Popen[bytes]", contestant: Contestant, printed: Path, seconds: float
) -> Iterator[tuple[float, float]]:
    """Yield seconds and tokens of each update after the first, until the seconds sum to `seconds`."""
    read, first, last = 0, 0.0, time.perf_counter()
    while not first or last - first < seconds:
        time.sleep(POLL_SECONDS)
        now = time.perf_counter()
        if process.poll() is not None or now - last > PATIENCE_SECONDS:
            lines = printed.read_text(errors="replace").split("\n")
            raise Ended(next((line for line in reversed(lines) if line.strip()), "it printed nothing"))
        written = contestant.log.read_bytes() if contestant.log.exists() else b""
        whole = written.rfind(b"\n") + 1
        for line in written[read:whole].decode(errors="replace").splitlines():
            tokens = contestant.tokens(line)
            if tokens is None:
                continue
            if first:
                yield now - last, tokens
            first, last = first or now, now
        read = whole


def _print_table(workload: Workload, windows: dict[str, list[Window]]) -> None:
    """Print tokens per second, relative to `nmt train` and to the rate of matrix products."""
    train = open_dataset(workload.folder / "dataset").splits["train"]
    vocabulary = len(load_tokenizers(workload.folder / "dataset" / TOKENIZERS).target.vocabulary)
    sources, targets = len(train.source.tokens), len(train.target.tokens)
    per_token = training_flops(workload.model, vocabulary, sources, targets) / targets
    all_windows = [window for each in windows.values() for window in each]
    rates = [window.product_rate / 1e9 for window in all_windows]
    usual = statistics.median(window.usual_rate / 1e9 for window in all_windows)
    print(
        f"{workload.size}: {per_token / 1e6:.0f} MFLOP per target token. Products of 1024 x 1024 matrices at"
    )
    print(f"{min(rates):.0f} to {max(rates):.0f} GFLOP/s, median {statistics.median(rates):.0f}, ", end="")
    print(f"with PyTorch's default library {usual:.0f}\n")
    machine.print_head(
        *("", "target tokens/s: each window", "median", "`nmt train` / this", "share of product rate"),
        *("of PyTorch's default", "target tokens per update", "others' share of the cores"),
    )
    reference = next(iter(windows.values()))
    for name, each in windows.items():
        speeds = [window.tokens_per_second for window in each]
        pairs = zip(reference, each, strict=True)
        ratio = statistics.median(one.tokens_per_second / other.tokens_per_second for one, other in pairs)
        share = statistics.median(one.tokens_per_second * per_token / one.product_rate for one in each)
        of_usual = statistics.median(one.tokens_per_second * per_token / one.usual_rate for one in each)
        listed = ", ".join(f"{speed:,.0f}" for speed in speeds)
        tokens = statistics.median(window.tokens_per_update for window in each)
        machine.print_row(
            *(name, listed, f"{statistics.median(speeds):,.0f}", f"{ratio:.2f} x", f"{share:.0%}"),
            *(f"{of_usual:.0%}", f"{tokens:,.0f}", f"{max(window.rivals for window in each):.0%}"),
        )
    print(flush=True)


if __name__ == "__main__":
    main()
