"""Kill `nmt preprocess` repeatedly and measure its memory. The dataset must be identical to the byte.

python -m recipes.torture.preprocess --pairs 2000000 --kills 20 --workers 2 [--out FOLDER] [--seed 1]

The corpus has random words, and one pair in ten is a duplicate. The dataset is made twice: without
interruption, and with kills at random moments after which the command resumes.
"""

import hashlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

NMT = [sys.executable, "-m", "nmt_cli", "preprocess", "--quiet", "--source-lang", "en", "--target-lang", "de"]
WORDS, MIN_LENGTH, MAX_LENGTH = 50_000, 4, 24
"""Number of different words, and limits of the words per line."""

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Run:
    """The duration, CPU time and maximum memory of a command with all its processes."""

    seconds: float
    cpu_seconds: float
    peak_mb: float


@click.command()
@click.option("--pairs", default=2_000_000)
@click.option("--kills", default=20)
@click.option("--workers", default=2)
@click.option("--tokenizer", default="bpe", help="Kind of subwords.")
@click.option("--seed", default=1)
@click.option("--out", type=click.Path(path_type=Path), help="Folder that keeps the corpus and datasets.")
def main(pairs: int, kills: int, workers: int, tokenizer: str, seed: int, out: Path | None) -> None:
    """Print time and memory of `nmt preprocess`. Exit with 1 if a dataset differs."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = out or Path(scratch)
        folder.mkdir(exist_ok=True)
        for size in (pairs // 10, pairs):
            _make_corpus(folder / f"corpus-{size}", size, seed)
        print(
            "| pairs | seconds | CPU seconds | pairs/s per core | peak MB |\n|---|---|---|---|---|",
            flush=True,
        )
        for size in (pairs // 10, pairs):
            command = _command(folder, size, workers, tokenizer)
            run = _measured([*command, "--out", str(folder / "plain")])
            rate = size / run.cpu_seconds
            print(
                f"| {size:,} | {run.seconds:.0f} | {run.cpu_seconds:.0f} | {rate:,.0f} | {run.peak_mb:.0f} |",
                flush=True,
            )
            expected = digest(folder / "plain")
            shutil.rmtree(folder / "plain")
        stopped = _killed(command, folder / "killed", kills, random.Random(seed), run.seconds)
        resumed = digest(folder / "killed") == expected
        print(f"\n{stopped} kills: {'same bytes' if resumed else 'OTHER BYTES'}", flush=True)
        sys.exit(not resumed)


def _command(folder: Path, pairs: int, workers: int, tokenizer: str) -> list[str]:
    """Return `nmt preprocess` for a corpus of that many pairs in `folder`, without --out."""
    corpus = ["--train", str(folder / f"corpus-{pairs}"), "--workers", str(workers)]
    kind = ["--tokenizer", tokenizer, "--vocab-size", "8000", "--set", "text.words=raw"]
    return [*NMT, *corpus, *kind, "--set", "filter.duplicates=true", "--set", "tokenizer.sample_lines=100000"]


def _make_corpus(prefix: Path, pairs: int, seed: int) -> None:
    """Write `prefix`.en and `prefix`.de, unless they exist."""
    if prefix.with_suffix(".de").exists():
        return
    draws = random.Random(seed)
    words = ["".join(draws.choices("abcdefghijklmnoprstuvwz", k=draws.randint(2, 9))) for _ in range(WORDS)]
    # Most words are rare, as in languages.
    running = [words[int(WORDS * draws.random() ** 4)] for _ in range(1 << 20)]
    recent = [("", "")] * 1000
    with prefix.with_suffix(".en").open("w") as source, prefix.with_suffix(".part").open("w") as target:
        for number in range(pairs):
            if number > len(recent) and draws.random() < 0.1:
                pair = recent[draws.randrange(len(recent))]
            else:
                start, length = (
                    draws.randrange(len(running) - MAX_LENGTH),
                    draws.randint(MIN_LENGTH, MAX_LENGTH),
                )
                line = running[start : start + length]
                pair = " ".join(line) + f" {number % 977}.", " ".join(line[::-1]) + f" {number % 977}."
            recent[number % len(recent)] = pair
            source.write(f"{pair[0]}\n")
            target.write(f"{pair[1]}\n")
    prefix.with_suffix(".part").rename(prefix.with_suffix(".de"))


def _measured(command: Sequence[str]) -> Run:
    """Run a command, and return its measurements. Raise ClickException if the command fails."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen(command, start_new_session=True)
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, _private_mb(process.pid))
        time.sleep(POLL_SECONDS)
    if process.returncode:
        raise click.ClickException(f"nmt preprocess ended with {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(time.monotonic() - start, cpu, peak)


def _private_mb(session: int) -> float:
    """Return the memory of all processes of the session `session` in MB, without mapped files."""
    total = 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if int((entry / "stat").read_text().rpartition(") ")[2].split()[3]) == session:
                fields = (entry / "statm").read_text().split()
                total += int(fields[1]) - int(fields[2])
        except (OSError, IndexError):
            continue
    return total * os.sysconf("SC_PAGE_SIZE") / 1e6


def _killed(command: Sequence[str], out: Path, kills: int, draws: random.Random, duration: float) -> int:
    """Kill the command up to `kills` times and run it again until the dataset exists. Return the number of
    kills. `duration` is the duration of an uninterrupted run in seconds."""
    shutil.rmtree(out, ignore_errors=True)
    stopped = 0
    while not out.exists():
        process = subprocess.Popen([*command, "--out", str(out)], start_new_session=True)
        # All kills together take about one and a half times as long as a run, so that they hit every stage.
        seconds = draws.uniform(0.3, 3.0) * duration / kills + 1.5 if stopped < kills else None
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            stopped += 1
            number = signal.SIGKILL if draws.random() < 0.7 else signal.SIGTERM
            os.killpg(process.pid, number)
            process.wait()
        else:
            if process.returncode:
                raise click.ClickException(f"nmt preprocess ended with {process.returncode}")
    return stopped


def digest(folder: Path) -> str:
    """Return a checksum of the names and contents of all files in `folder`."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder)}\n".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
