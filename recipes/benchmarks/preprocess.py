"""Times `nmt preprocess`, and what others have for the same work. Prints tables to keep in README.md.

python recipes/benchmarks/preprocess.py                        multi30k, scale and opening
python recipes/benchmarks/preprocess.py learning               byte-pair merges, against subword-nmt's learner
python recipes/benchmarks/preprocess.py peers --fairseq BIN    against subword-nmt and fairseq in BIN, a
                                                               virtual environment's bin folder
"""

import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import environ
from pathlib import Path

import click
import numpy as np

from nmt_cli.data.dataset import FILTER_REPORT, MANIFEST, side_path
from nmt_cli.text.languages.moses import Moses
from nmt_cli.text.subword_models.merges import learn_compiled, learn_plain

LANGUAGES = ("en", "de")
NMT = [sys.executable, "-m", "nmt_cli", "preprocess", "--quiet", "--source-lang", "en", "--target-lang", "de"]
POLL_SECONDS = 0.05
OPENED_PAIRS = 36_000_000
OPENING = """
import sys, time
from pathlib import Path
import numpy
from nmt_cli.data.dataset import open_dataset
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
before, start = resident(), time.perf_counter()
dataset = open_dataset(Path(sys.argv[1]))
assert len(dataset.splits["train"]) == int(sys.argv[2])
print(f"{time.perf_counter() - start:.4f} {resident() - before:.1f}")
"""


@dataclass(frozen=True)
class Run:
    """One command: how long it took, and the most memory that any one of its processes held."""

    seconds: float
    peak_mb: float


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Measure `nmt preprocess`."""
    if context.invoked_subcommand is None:
        for command in (multi30k, scale, opening):
            context.invoke(command)


@main.command()
@click.option("--repeats", default=3)
def multi30k(repeats: int) -> None:
    """The whole command on Multi30k, joint vocabulary of 10,000, and what Moses detokenising gives back."""
    data = _data() / "multi30k"
    print("\n| Multi30k, 10k joint | seconds (median) | peak MB of a process | read = kept + dropped |")
    print("|---|---|---|---|")
    for tokenizer in ("sentencepiece", "bpe"):
        with _scratch() as folder:
            out = folder / "dataset"
            sets = ["--train", data / "train", "--valid", data / "valid", "--test", data / "test_2016_flickr"]
            command = [*NMT, *sets, "--tokenizer", tokenizer, "--vocab-size", 10_000, "--out", out]
            runs = []
            for _ in range(repeats):
                shutil.rmtree(out, ignore_errors=True)
                runs.append(_measured(command))
            account = _account(out)
        peak = max(run.peak_mb for run in runs)
        print(f"| {tokenizer} | {statistics.median(r.seconds for r in runs):.1f} | {peak:.0f} | {account} |")
    for lang in LANGUAGES:
        lines = [" ".join(line.split()) for line in _lines(data / f"train.{lang}")]
        moses = Moses(lang)
        same = sum(moses.detokenize(moses.tokenize(line)) == line for line in lines)
        print(
            f"\nMoses words of train.{lang}, detokenised: {same:,} of {len(lines):,} lines come back", end=""
        )
        print(f" ({100 * same / len(lines):.2f} %)")


@main.command()
@click.option("--merges", default=10_000)
@click.option("--repeats", default=3)
def learning(merges: int, repeats: int) -> None:
    """Learning merges from both sides of Multi30k: seconds of the processor, in turns, and whether codes are
    the same."""
    from nmt_cli.text.subword_models import compiled

    data = _data() / "multi30k"
    texts = [(data / f"train.{language}").read_text() for language in LANGUAGES]
    words = Counter(word for text in texts for word in text.split())
    learn_compiled(compiled, {"ab": 2}, 1)  # compiles
    spent: dict[str, list[float]] = {"subword-nmt": [], "nmt": []}
    for _ in range(repeats):
        start = time.process_time()
        theirs = learn_plain(words, merges)
        middle = time.process_time()
        ours = learn_compiled(compiled, words, merges)
        spent["subword-nmt"].append(middle - start)
        spent["nmt"].append(time.process_time() - middle)
        assert ours == theirs
    print(f"\n| {merges:,} merges of {len(words):,} words | CPU seconds (median of {repeats}) |\n|---|---|")
    for learner, seconds in spent.items():
        print(f"| {learner} | {statistics.median(seconds):.2f} |")
    print(
        f"\nThe same codes; {statistics.median(spent['subword-nmt']) / statistics.median(spent['nmt']):.1f}x"
    )


@main.command()
@click.option("--pairs", default=4_500_000)
def scale(pairs: int) -> None:
    """A tenth of the pairs, then all: memory must stay, time must grow in proportion."""
    print("\n| pairs (Multi30k with 2 words a line changed) | seconds | pairs/s | peak MB of a process |")
    print("|---|---|---|---|")
    for number in (pairs // 10, pairs):
        with _scratch() as folder:
            _vary(_data() / "multi30k" / "train", folder / "corpus", number)
            command = [
                *NMT,
                "--train",
                folder / "corpus",
                "--vocab-size",
                10_000,
                "--out",
                folder / "dataset",
            ]
            run = _measured(command)
        print(f"| {number:,} | {run.seconds:.1f} | {number / run.seconds:,.0f} | {run.peak_mb:.0f} |")


@main.command()
@click.option(
    "--fairseq", type=click.Path(exists=True, path_type=Path), help="bin folder with fairseq-preprocess."
)
@click.option("--pairs", default=580_000)
@click.option("--repeats", default=3)
def peers(fairseq: Path | None, pairs: int, repeats: int) -> None:
    """Tokenised text and codes given: who binarises faster, in turns on the same cores."""
    with _scratch() as folder:
        _vary(_data() / "multi30k" / "tok" / "train.lc.norm.tok", folder / "corpus", pairs, packed=True)
        _learn_codes(folder)
        commands = {
            "`nmt preprocess`, the whole command": _ours(folder),
            "`subword-nmt apply-bpe`, a side a core": _apply_bpe(folder),
        }
        if fairseq:
            usual = _fairseq(fairseq, folder, workers=2)
            commands["`fairseq-preprocess --workers 2`, making its dictionary"] = usual
            _measured(_apply_bpe(folder))
            _measured(usual)
            shutil.move(folder / "fairseq" / "dict.en.txt", folder / "dict.txt")
            # Of its N workers N - 1 work at a time, so 3 keep two cores busy.
            commands["`fairseq-preprocess --workers 3`, dictionary given"] = _fairseq(
                fairseq, folder, workers=3
            )
        seconds = _in_turns(commands, repeats, folder)
    print(f"\n| {pairs:,} tokenised pairs, two cores | seconds: each run | pairs/s (median) |")
    print("|---|---|---|")
    medians = {name: statistics.median(runs) for name, runs in seconds.items()}
    for name, runs in seconds.items():
        print(f"| {name} | {', '.join(f'{run:.1f}' for run in runs)} | {pairs / medians[name]:,.0f} |")
    ours, bpe, *rest = medians.values()
    for name, median in zip(list(medians)[2:], rest, strict=True):
        print(
            f"\nnmt does {(bpe + median) / ours:.1f} times the pairs a second of apply-bpe and then {name}."
        )


def _in_turns(commands: dict[str, list[object]], repeats: int, folder: Path) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(repeats):
        for name, command in commands.items():
            for made in ("dataset", "fairseq"):
                shutil.rmtree(folder / made, ignore_errors=True)
            seconds[name].append(_measured(command).seconds)
    return seconds


@main.command()
def opening() -> None:
    """Open a made dataset of 36 million pairs."""
    with _scratch() as folder:
        _make_large(folder)
        output = subprocess.run(
            [sys.executable, "-c", OPENING, folder, str(OPENED_PAIRS)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
    print(f"\nopening a dataset of {OPENED_PAIRS:,} pairs: {output[0]} s, {output[1]} MB more memory")


def _data() -> Path:
    if "NMT_DATA" not in environ:
        raise click.ClickException("set NMT_DATA to a folder that holds multi30k/train.en and so on.")
    return Path(environ["NMT_DATA"])


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="nmt-benchmark-") as folder:
        yield Path(folder)


def _measured(command: Sequence[object]) -> Run:
    """Run a command, watching the peak memory of it and of every process below it."""
    start, peaks = time.perf_counter(), {0: 0}
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=errors)
        while process.poll() is None:
            for pid in _family(process.pid):
                peaks[pid] = max(peaks.get(pid, 0), _peak_kb(pid))
            time.sleep(POLL_SECONDS)
        seconds = time.perf_counter() - start
        if process.returncode:
            errors.seek(0)
            raise click.ClickException(f"{command[0]} failed: {errors.read().decode()}")
    return Run(seconds, max(peaks.values()) / 1000)


def _family(pid: int) -> list[int]:
    """A process and all below it."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(member for child in children for member in _family(int(child)))]


def _peak_kb(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status if line.startswith("VmHWM")), 0)


def _account(dataset: Path) -> str:
    parts = []
    for corpus in json.loads((dataset / FILTER_REPORT).read_text()):
        dropped = {reason: found["pairs"] for reason, found in corpus["dropped"].items()}
        assert corpus["read"] == corpus["kept"] + sum(dropped.values())
        reasons = "".join(f" + {count} {reason}" for reason, count in dropped.items())
        parts.append(f"{corpus['name']} {corpus['read']:,} = {corpus['kept']:,}{reasons}")
    return "; ".join(parts)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def _vary(source: Path, target: Path, pairs: int, packed: bool = False) -> None:
    """Repeat a corpus up to `pairs` pairs, two random words of each line replaced by random words."""
    for lang in LANGUAGES:
        path = Path(f"{source}.{lang}")
        if packed:
            unpacked = Path(f"{target}.given.{lang}")
            unpacked.write_bytes(
                subprocess.run(["gzip", "-dc", f"{path}.gz"], check=True, capture_output=True).stdout
            )
            path = unpacked
        lines = [line.split() for line in _lines(path)]
        words = [word for line in lines for word in line]
        draw = random.Random(lang)
        with Path(f"{target}.{lang}").open("w", encoding="utf-8", newline="\n") as file:
            for number in range(pairs):
                line = list(lines[number % len(lines)])
                for _ in range(2):
                    line[int(draw.random() * len(line))] = words[int(draw.random() * len(words))]
                file.write(" ".join(line) + "\n")


def _learn_codes(folder: Path) -> None:
    texts = " ".join(f"{folder}/corpus.given.{lang}" for lang in LANGUAGES)
    command = f"cat {texts} | {_subword_nmt()} learn-bpe -s 10000 > {folder}/codes"
    subprocess.run(["sh", "-c", command], check=True, capture_output=True)


def _ours(folder: Path) -> list[object]:
    given = ["--train", folder / "corpus", "--reuse-tokenizer", folder / "codes", "--set", "text.words=raw"]
    return [*NMT, *given, "--workers", 2, "--out", folder / "dataset"]


def _apply_bpe(folder: Path) -> list[object]:
    """Both sides at once, since one process uses one core."""
    sides = [f"{_subword_nmt()} apply-bpe -c codes < corpus.{lang} > bpe.{lang} &" for lang in LANGUAGES]
    return ["sh", "-c", f"cd {folder}; {' '.join(sides)} wait"]


def _subword_nmt() -> str:
    return str(Path(sys.executable).parent / "subword-nmt")


def _fairseq(fairseq: Path, folder: Path, workers: int) -> list[object]:
    """fairseq's command; it takes a dictionary that is there already."""
    command = ["env", "OMP_WAIT_POLICY=PASSIVE", fairseq / "fairseq-preprocess", "--source-lang", "en"]
    command += ["--target-lang", "de", "--trainpref", folder / "bpe", "--workers", workers]
    dictionary = folder / "dict.txt"
    given = (
        ["--srcdict", dictionary, "--tgtdict", dictionary] if dictionary.exists() else ["--joined-dictionary"]
    )
    return [*command, *given, "--destdir", folder / "fairseq"]


def _make_large(folder: Path) -> None:
    """A dataset folder of the right names and sizes; its token files are holes."""
    length = 28
    offsets = np.arange(OPENED_PAIRS + 1, dtype=np.int64) * length
    written: dict[str, dict[str, int]] = {}
    for side in ("source", "target"):
        path = side_path(folder, "train", side, "offsets.npy")
        np.save(path, offsets)
        tokens = side_path(folder, "train", side, "tokens.npy")
        np.lib.format.open_memmap(tokens, "w+", np.uint16, (OPENED_PAIRS * length,)).flush()
        written |= {file.name: {"bytes": file.stat().st_size} for file in (path, tokens)}
    manifest = {"format": 1, "splits": {"train": {"role": "train"}}, "files": written}
    (folder / MANIFEST).write_text(json.dumps(manifest))


if __name__ == "__main__":
    main()
