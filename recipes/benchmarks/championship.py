"""Time nmt, CTranslate2, Marian and Bergamot in turns, with the same weights and lines. Print a table.

python -m recipes.benchmarks.championship --marian-python PYTHON --bergamot-python PYTHON       needs NMT_DATA

The student of `recipes/distillation/ssru-6-1.toml` searches with a beam of 1, a base model with a beam of 4.
By default they have random weights, a vocabulary of 8,000 entries and an end token that comes after the mean
source length, so that all write about as much. All get text and return text. They divide a hypothesis's
log-probability by its tokens, and write at most twice the tokens of a source, or of the longest source in a
batch. nmt ends a search as CTranslate2 does, and prunes nothing. All read the models that `nmt export`
writes. "-" is an engine that cannot run, with its reason below the table.

Processes that have loaded a model wait for requests. Each round gives the file to one after the other, and
then each single line. `nmt / this` is the speed of nmt divided by that of the row, in the same precision and
with the same number of threads. It compares the fastest rounds.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import PIPE
from typing import IO, Any

import click

from nmt_cli.api import TrainConfig, preset
from nmt_cli.checkpoints.finding import find_model
from nmt_cli.checkpoints.model_folder import LoadedModel, read_model
from nmt_cli.cli.main import WAITING
from nmt_cli.config import read
from nmt_cli.errors import UserError
from nmt_cli.interop.exporting import export
from nmt_cli.text.tokenizers import load_tokenizers
from recipes.benchmarks import championship_worker, machine
from recipes.benchmarks.championship_models import write_random
from recipes.benchmarks.machine import ROOT, THREADS

TEST_SET = "test_2016_flickr.en"
VOCABULARY, FITTED = 8000, 300
"""Entries of the vocabulary of random models, and lines on which the end of translations is fitted."""

BEAMS = {"student": 1, "base": 4}
PACKAGES = {"nmt": "nmt_cli", "ctranslate2": "ctranslate2", "marian": "pymarian", "bergamot": "bergamot"}

Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True)
class Entry:
    """An engine in one precision."""

    name: str
    engine: str
    precision: str


ENTRIES = (
    Entry("nmt fp32", "nmt", "fp32"),
    Entry("CTranslate2 fp32", "ctranslate2", "fp32"),
    Entry("Marian fp32", "marian", "fp32"),
    Entry("nmt int8", "nmt", "int8"),
    Entry("CTranslate2 int8", "ctranslate2", "int8"),
    Entry("Bergamot int8", "bergamot", "int8"),
)


@dataclass
class Measured:
    """The measurements of an entry with one number of threads."""

    texts: Sequence[str] = ()
    """Translations of the file."""

    file_seconds: list[float] = field(default_factory=list)
    """Of each round. So are the next."""

    file_core_seconds: list[float] = field(default_factory=list)
    line_seconds: list[list[float]] = field(default_factory=list)
    """By round, of each line."""

    line_core_seconds: list[float] = field(default_factory=list)

    @property
    def milliseconds(self) -> float:
        """The median line of all rounds."""
        return 1000 * statistics.median([seconds for seen in self.line_seconds for seconds in seen])

    @property
    def quietest_milliseconds(self) -> float:
        """The median line, each in its fastest round."""
        fastest: list[float] = [min(seen) for seen in zip(*self.line_seconds, strict=True)]
        return 1000 * statistics.median(fastest)


class Process:
    """An engine that has loaded a model and waits for lines."""

    def __init__(self, entry: Entry, command: Sequence[str], threads: int, errors: IO[str]) -> None:
        """Start `command`, and wait until it is ready. `errors` gets its messages."""
        # The folder of the worker has names that other packages use.
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
        environment |= {"OMP_NUM_THREADS": str(threads)}
        environment |= WAITING if entry.engine == "nmt" else {}
        pipes: dict[str, Any] = {"stdin": PIPE, "stdout": PIPE, "text": True, "encoding": "utf-8"}
        self._process = subprocess.Popen(
            command, env=environment, start_new_session=True, stderr=errors, **pipes
        )
        self._name, self._errors = entry.name, errors
        self._answer()

    @property
    def core_seconds(self) -> float:
        """The processor time of all its processes."""
        return machine.used_seconds(self._process.pid)

    def ask(self, lines: Sequence[str]) -> tuple[float, Sequence[str]]:
        """Return the seconds for translating `lines`, and the translations."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"lines": lines}) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        return float(answer["seconds"]), list(answer["texts"])

    def stop(self) -> None:
        """Close the input, and wait until the process ends."""
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise click.ClickException(f"{self._name} ended: {self._errors.read().strip()[-500:]}")
        return json.loads(line)


@click.command(help=machine.method(__doc__), context_settings={"show_default": True})
@click.option("--student", type=click.Path(exists=True, path_type=Path), help="A trained model instead.")
@click.option("--base", type=click.Path(exists=True, path_type=Path), help="A trained model instead.")
@click.option("--marian-python", default="", help="Python with pymarian.")
@click.option("--bergamot-python", default="", help="Python 3.10 with bergamot.")
@click.option("--lines", default=1000, help="Lines of the file.")
@click.option("--singles", default=100, help="Lines that are translated one by one.")
@click.option("--rounds", default=3)
def main(
    student: Path | None,
    base: Path | None,
    marian_python: str,
    bergamot_python: str,
    lines: int,
    singles: int,
    rounds: int,
) -> None:
    """Measure files and single lines."""
    machine.begin("championship")
    pythons = {"nmt": sys.executable, "ctranslate2": sys.executable}
    pythons |= {"marian": marian_python, "bergamot": bergamot_python}
    text = (machine.data_folder() / "multi30k" / TEST_SET).read_text("utf-8").splitlines()[:lines]
    with machine.scratch() as folder:
        given = {name: find_model(path) for name, path in (("student", student), ("base", base)) if path}
        models = given if len(given) == len(BEAMS) else random_models(folder) | given
        for name, path in models.items():
            model = read_model(path)
            exports, reasons = exported(model, path, folder / name, pythons)
            print(f"\n{name}, beam {BEAMS[name]}\n")
            print_head()
            for threads in range(1, THREADS + 1):
                with started(exports, pythons, BEAMS[name], threads) as running:
                    measured = compared(running, text, singles, rounds)
                print_rows(measured, text, threads, model.identity.tokenizers.target.encode)
            print("".join(f"\n{entry}: {reason}" for entry, reason in reasons.items()))


def random_models(folder: Path) -> dict[str, Path]:
    """Return a student and a base model with random weights, written into `folder`."""
    machine.make_dataset(folder / "dataset", VOCABULARY)
    tokenizers = load_tokenizers(folder / "dataset" / "tokenizer")
    training = (machine.data_folder() / "multi30k" / "train.en").read_text("utf-8").splitlines()[:FITTED]
    student = read(TrainConfig, ROOT / "recipes" / "distillation" / "ssru-6-1.toml").model
    # Marian needs its own positions. This activation is that of the student.
    base = replace(preset("marian-base").model, positions="marian", activation="relu")
    for name, config in (("student", student), ("base", base)):
        write_random(folder / f"random-{name}", config, tokenizers, training)
    return {name: folder / f"random-{name}" for name in ("student", "base")}


def exported(
    model: LoadedModel, path: Path, folder: Path, pythons: Mapping[str, str]
) -> tuple[dict[Entry, Path], dict[str, str]]:
    """Return the folder with each entry's weights, and the reason for each entry that cannot run."""
    exports: dict[Entry, Path] = {}
    reasons = {}
    for entry in ENTRIES:
        if lack := _lack(entry.engine, pythons[entry.engine]):
            reasons[entry.name] = lack
        elif entry.engine == "nmt":
            exports[entry] = path
        else:
            out = folder / f"{entry.engine}-{entry.precision}"
            out.parent.mkdir(exist_ok=True)
            try:
                export(model, entry.engine, out, "int8" if entry.precision == "int8" else "fp32")
                exports[entry] = out
            except UserError as error:
                reasons[entry.name] = str(error)
    return exports, reasons


def _lack(engine: str, python: str) -> str:
    """Return why an engine is not installed, or ""."""
    if not python:
        return f"not measured without --{engine}-python."
    find = f"import importlib.util; raise SystemExit(not importlib.util.find_spec('{PACKAGES[engine]}'))"
    # The folder of the repository is not searched with -I, but an installed nmt is found.
    found = engine == "nmt" or subprocess.run([python, "-I", "-c", find]).returncode == 0
    return "" if found else f"{python} does not have the package {PACKAGES[engine]}."


@contextmanager
def started(
    exports: Mapping[Entry, Path], pythons: Mapping[str, str], beam: int, threads: int
) -> Iterator[dict[Entry, Process]]:
    """Start a process for each entry, and stop all at the end."""
    with ExitStack() as stack:
        running = {}
        for entry, folder in exports.items():
            command = [pythons[entry.engine], championship_worker.__file__, entry.engine, str(folder)]
            command += [entry.precision, str(beam), str(threads)]
            errors = stack.enter_context(tempfile.TemporaryFile("w+"))
            running[entry] = Process(entry, command, threads, errors)
            stack.callback(running[entry].stop)
        yield running


def compared(
    running: Mapping[Entry, Process], text: Sequence[str], singles: int, rounds: int
) -> dict[Entry, Measured]:
    """Return the measurements of all processes, which work in turns."""
    measured = {entry: Measured() for entry in running}
    for process in running.values():  # the first translation compiles kernels and starts workers
        process.ask(text[:8])
        process.ask(text[:1])
    for _ in range(rounds):
        for entry, process in running.items():
            before = process.core_seconds
            seconds, measured[entry].texts = process.ask(text)
            measured[entry].file_seconds.append(seconds)
            measured[entry].file_core_seconds.append(process.core_seconds - before)
        used = {entry: process.core_seconds for entry, process in running.items()}
        times: dict[Entry, list[float]] = {entry: [] for entry in running}
        for line in text[:singles]:
            for entry, process in running.items():
                times[entry].append(process.ask([line])[0])
        for entry, process in running.items():
            measured[entry].line_seconds.append(times[entry])
            measured[entry].line_core_seconds.append((process.core_seconds - used[entry]) / len(times[entry]))
    return measured


def print_head() -> None:
    """Print the head of a model's table."""
    machine.print_head(
        *("engine", "threads", "file, words/s: fastest", "median", "core seconds", "`nmt / this`"),
        *("line, ms: fastest round", "median", "core ms", "`nmt / this`"),
        *("same as `nmt fp32`", "output tokens"),
    )


def print_rows(measured: Mapping[Entry, Measured], text: Sequence[str], threads: int, encode: Encode) -> None:
    """Print a row for each entry, with "-" for those without measurements. `encode` gives tokens."""
    words = sum(len(line.split()) for line in text)
    ours = {entry.precision: measured[entry] for entry in measured if entry.engine == "nmt"}
    exact = ours["fp32"].texts
    for entry in ENTRIES:
        one = measured.get(entry)
        machine.print_row(
            entry.name,
            threads,
            *(_cells(one, ours[entry.precision], exact, encode, words) if one else ["-"] * 10),
        )


def _cells(one: Measured, mine: Measured, exact: Sequence[str], encode: Encode, words: int) -> list[str]:
    """Return the cells after the number of threads. `mine` is nmt's in this precision, `exact` in fp32."""
    seconds, line = min(one.file_seconds), one.quietest_milliseconds
    same = sum(text.strip() == other.strip() for text, other in zip(one.texts, exact, strict=True))
    return [
        f"{words / seconds:,.0f}",
        f"{words / statistics.median(one.file_seconds):,.0f}",
        f"{min(one.file_core_seconds):.2f}",
        f"{seconds / min(mine.file_seconds):.2f} x",
        f"{line:.1f}",
        f"{one.milliseconds:.1f}",
        f"{1000 * min(one.line_core_seconds):.1f}",
        f"{line / mine.quietest_milliseconds:.2f} x",
        f"{same / len(exact):.0%}",
        f"{sum(map(len, map(encode, one.texts))):,}",
    ]


if __name__ == "__main__":
    main()
