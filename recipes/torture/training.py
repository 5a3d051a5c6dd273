"""Inject faults into `nmt train`. Each must end in a plain error or in the result of an undisturbed run.

python -m recipes.torture.training --seed 1 --minutes 20      prints a table and exits with 1 if any was wrong
"""

import itertools
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from random import Random
from typing import Any

import click

from nmt_cli import api, config
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.errors import EXIT_CODES
from recipes.torture.runs import Nmt, differing, load, rank_environments, refused_plainly, result_of
from recipes.torture.table import Outcome, Tally, print_table

STEPS, SAVE_EVERY, HALF = 18, 3, 9
LAST_EVENT = 200
"""Approximate number of file events of a run."""

TINY = (
    *("--device", "cpu", "--quiet", "--batch-tokens", 400, "--max-steps", STEPS, "--save-every", SAVE_EVERY),
    *("--validate-every", 6, "--set", "validation.sentences=2", "--set", "schedule.warmup=20"),
    *("--set", "model.width=16", "--set", "model.feed_forward=32", "--set", "model.heads=2"),
    *("--set", "model.encoder_layers=1", "--set", "model.decoder_layers=1"),
    *("--set", "training.rank_timeout=15"),
)

DAMAGES = ("one bit", "cut", "empty", "swapped", "foreign", "missing")

DIFFERENT = (
    *(("--seed", 2), ("--set", "schedule.factor=2"), ("--batch-tokens", 300)),
    *(("--max-steps", 30), ("--validate-every", 5), ("--set", "loss.smoothing=0.2")),
)
"""Arguments of one rank only, which make the ranks disagree."""

Verdict = tuple[str, Outcome, str] | None
"""A fault, its outcome, and a description. None if the fault came too late."""

Fault = Callable[["Site", Random], Verdict]
"""Injects a fault. The random draws select its details."""


class Site:
    """A dataset, and undisturbed runs on it that are trained when they are first used."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._numbers = folder, itertools.count()
        self.dataset = self._make_dataset("dataset", Random(seed))

    def _make_dataset(self, name: str, random: Random) -> Path:
        """Write random text and return a dataset of it, in which targets are reversed sources."""
        words = ["".join(random.choices("abcdefgäß", k=random.randint(1, 6))) for _ in range(200)]
        for part, count in (("train", 300), ("dev", 12)):
            lines = [" ".join(random.choices(words, k=random.randint(1, 8))) for _ in range(count)]
            for ending in ("en", "de"):
                text = "".join(f"{line[:: 1 if ending == 'en' else -1]}\n" for line in lines)
                (self._folder / f"{name}-{part}.{ending}").write_text(text, encoding="utf-8")
        kind = config.read(PreprocessConfig, assignments=["tokenizer.kind=char"])
        texts = (str(self._folder / f"{name}-{part}") for part in ("train", "dev"))
        out = self._folder / name
        api.preprocess("en", "de", [next(texts)], out, valid=[next(texts)], config=kind, workers=1)
        return out

    def new(self) -> Path:
        """Return an unused path for a run."""
        return self._folder / f"run{next(self._numbers)}"

    def arguments(self, run: Path, *additional: object) -> list[object]:
        """Return the arguments of `nmt train` for `run`, with additional ones at the end."""
        return ["train", self.dataset, "--out", run, *TINY, *additional]

    def ranks(self, run: Path, *additional: object) -> list[Nmt]:
        """Start two processes that train in `run`. Only the second has the additional arguments."""
        first, second = rank_environments(2)
        return [Nmt(self.arguments(run), first), Nmt(self.arguments(run, *additional), second)]

    def _undisturbed(self, *additional: object) -> Path:
        """Train with additional arguments, and return the run. Exit if training fails."""
        code, stderr = Nmt(self.arguments(run := self.new(), *additional)).end()
        if code != 0:
            sys.exit(f"an undisturbed run ended with {code}: {stderr}")
        return run

    @cached_property
    def seconds(self) -> float:
        """Return the seconds of a run, measured when all modules are loaded."""
        assert self.undisturbed
        start = time.monotonic()
        self._undisturbed()
        return time.monotonic() - start

    @cached_property
    def undisturbed(self) -> Path:
        """Return an undisturbed run, trained at the first use."""
        return self._undisturbed()

    @cached_property
    def result(self) -> dict[str, Any]:
        """Return the result of the undisturbed run."""
        return result_of(self.undisturbed)

    @cached_property
    def foreign(self) -> Path:
        """Return an undisturbed run with another seed, trained at the first use."""
        return self._undisturbed("--seed", 7)

    @cached_property
    def result_of_two(self) -> dict[str, Any]:
        """Return the result of an undisturbed run of two processes."""
        run = self.new()
        if any(code != 0 for code, _ in [rank.end() for rank in self.ranks(run)]):
            sys.exit("an undisturbed run of two processes failed")
        return result_of(run)

    @cached_property
    def other_dataset(self) -> Path:
        """Return a dataset with other text, made at the first use."""
        return self._make_dataset("other", Random("other"))

    def half(self) -> Path:
        """Return a copy of the undisturbed run, reset to its middle, as if killed there."""
        run = Path(shutil.copytree(self.undisturbed, self.new(), symlinks=True))
        for step in range(HALF + SAVE_EVERY, STEPS + 1, SAVE_EVERY):
            shutil.rmtree(run / f"checkpoints/step-{step:08d}", ignore_errors=True)
        return run

    def resumed(self, fault: str, run: Path, processes: int = 1) -> Verdict:
        """Complete a run with one or two processes, and compare it with an undisturbed run."""
        started = [Nmt(self.arguments(run))] if processes == 1 else self.ranks(run)
        ends = [process.end() for process in started]
        code, stderr = next((end for end in ends if end[0] != 0), ends[0])
        if code != 0:
            return fault, "wrong", f"resuming ended with {code}: {stderr}"
        names = differing(run, self.result if processes == 1 else self.result_of_two)
        return fault, "wrong" if names else "identical", f"differs in {', '.join(names)}"


def killed_at_any_moment(site: Site, random: Random) -> Verdict:
    """Kill a run up to three times at random moments."""
    run = site.new()
    codes = []
    for _ in range(random.randint(1, 3)):
        nmt = Nmt(site.arguments(run))
        nmt.wait(random.random() * site.seconds)
        nmt.send(signal.SIGKILL)
        codes.append(nmt.end()[0])
    return site.resumed("kill at a random moment", run) if codes[0] == -signal.SIGKILL else None


def killed_at_a_file_event(site: Site, random: Random) -> Verdict:
    """Kill a run just before it opens, renames or removes a file."""
    code, _ = Nmt(site.arguments(run := site.new()), dies_at=random.randint(1, LAST_EVENT)).end()
    return site.resumed("kill at a file event", run) if code == -signal.SIGKILL else None


def asked_to_stop(site: Site, random: Random) -> Verdict:
    """Send a signal to a run at a random moment."""
    nmt, number = Nmt(site.arguments(run := site.new())), random.choice([*EXIT_CODES])
    nmt.wait(random.random() * site.seconds)
    nmt.send(number)
    code, stderr = nmt.end()
    # Before Python runs, a signal ends the process by default.
    if code not in (EXIT_CODES[number], -number):
        return None if code == 0 else ("signal", "wrong", f"{number} ended it with {code}: {stderr}")
    return site.resumed("signal", run)


def rank_lost(fault: str, number: int, site: Site, random: Random) -> Verdict:
    """Send the signal `number` to one of two ranks at a random moment, then resume the run."""
    ranks = site.ranks(run := site.new())
    lost = random.randrange(2)
    ranks[0].wait(random.random() * 2 * site.seconds)
    ranks[lost].send(number)
    code, stderr = ranks[1 - lost].end()
    ranks[lost].send(signal.SIGKILL)
    ranks[lost].end()
    if code == 0:
        return None
    if not refused_plainly(code, stderr):
        return fault, "wrong", f"the other rank ended with {code}: {stderr}"
    return site.resumed(fault, run, processes=2)


def ranks_disagree(site: Site, random: Random) -> Verdict:
    """Start two ranks with different settings or datasets."""
    run = site.new()
    additional = random.choice([*DIFFERENT, ()])
    if additional:
        ranks = site.ranks(run, *additional)
    else:
        first, second = rank_environments(2)
        arguments = ["train", site.other_dataset, *site.arguments(run)[2:]]
        ranks = [Nmt(site.arguments(run), first), Nmt(arguments, second)]
    ends = [rank.end() for rank in ranks]
    clean = all(refused_plainly(*end) and "processes 0 and 1 differ" in end[1] for end in ends)
    return "ranks disagree", "clean" if clean else "wrong", f"{additional} ended with {ends}"


def run_damaged(site: Site, random: Random) -> Verdict:
    """Damage one file of a half-finished run, and resume the run."""
    run = site.half()
    files = [path for path in run.rglob("*") if path.is_file() and path.name != "report.html"]
    newest = run / f"checkpoints/step-{HALF:08d}"
    top_files = [path for path in files if path.parent == run]
    path = random.choice([*top_files, *(path for path in files if newest in path.parents)])
    damage = random.choice(DAMAGES)
    fault = f"file of a run: {damage}"
    content = path.read_bytes()
    if (changed := _damaged(site, run, path, damage, random)) == content:
        return None
    path.unlink()
    if changed is not None:
        path.write_bytes(changed)
    code, stderr = Nmt(site.arguments(run)).end()
    message = f"{path.relative_to(run)}: {stderr}"
    if code:
        return fault, "clean" if refused_plainly(code, stderr) else "wrong", f"{message} ({code})"
    names = differing(run, site.result) if code == 0 else ["never ended"]
    warned = names == ["log"] and "Warning: " in stderr
    return fault, "clean" if warned else "wrong" if names else "identical", f"{message} differs in {names}"


def _damaged(site: Site, run: Path, path: Path, damage: str, random: Random) -> bytes | None:
    """Return the damaged content of a file, or None for no file."""
    content = path.read_bytes()
    match damage:
        case "one bit":
            position = random.randrange(len(content))
            flipped = content[position] ^ 1 << random.randrange(8)
            return content[:position] + bytes([flipped]) + content[position + 1 :]
        case "cut":
            return content[: random.randrange(len(content))]
        case "empty":
            return b""
        case "swapped":
            previous = run / f"checkpoints/step-{HALF - SAVE_EVERY:08d}"
            other = run / "environment.jsonl" if path.parent == run else previous / path.name
            return other.read_bytes() if other.is_file() else content
        case "foreign":
            other = site.foreign / path.relative_to(run)
            return other.read_bytes() if other.is_file() else random.randbytes(len(content))
        case _:
            return None


def dataset_changed(site: Site, random: Random) -> Verdict:
    """Write to a file of the dataset while it is in use, and restore it later."""
    fault = "dataset changed in use"
    names = [path.name for path in site.dataset.glob("train.*.npy")]
    path = site.dataset / random.choice(sorted(name for name in names if "lines" not in name))
    content, run = path.read_bytes(), site.new()
    nmt = Nmt(site.arguments(run))
    nmt.wait(random.random() * site.seconds)
    position = random.randrange(200, len(content))
    with path.open("r+b") as file:
        if random.random() < 0.5:
            file.truncate(position)
        else:
            file.seek(position)
            file.write(bytes([content[position] ^ 1]))
    code, stderr = nmt.end()
    path.write_bytes(content)
    if code == 0:  # the change came too late or had no effect
        names = differing(run, site.result)
        return (fault, "wrong", f"{path.name} at {position}: differs in {names}") if names else None
    if not refused_plainly(code, stderr):
        return fault, "wrong", f"{path.name} at {position} ended it with {code}: {stderr}"
    verdict = site.resumed(fault, run)
    return (fault, "clean", "") if verdict and verdict[1] == "identical" else verdict


FAULTS: tuple[Fault, ...] = (
    *(killed_at_any_moment, killed_at_a_file_event, asked_to_stop, run_damaged, dataset_changed),
    *(partial(rank_lost, "rank killed", signal.SIGKILL), run_damaged, ranks_disagree),
    *(run_damaged, partial(rank_lost, "rank stopped", signal.SIGSTOP)),
)


def campaign(
    folder: Path, seed: int, minutes: float, faults: Sequence[Fault] = FAULTS, only: int | None = None
) -> Tally:
    """Inject the faults in turn for `minutes`, each at least once. Return the outcomes.

    With `only`, inject only the fault with that number.
    """
    load()
    tally, site = Tally(), Site(folder, seed)
    end, number = time.monotonic() + 60 * minutes, only or 0
    while number == only or (only is None and (number < len(faults) or time.monotonic() < end)):
        if verdict := faults[number % len(faults)](site, Random(f"{seed} {number}")):
            fault, outcome, message = verdict
            tally.add(fault, outcome, f"{message.strip()} (--seed {seed} --only {number})")
        number += 1
    return tally


@click.command()
@click.option("--seed", default=1, show_default=True, help="Seed of the faults.")
@click.option("--minutes", default=20.0, show_default=True, help="Minutes to inject faults for.")
@click.option("--only", type=int, help="Number of one fault to reproduce.")
def main(seed: int, minutes: float, only: int | None) -> None:
    """Inject faults into training, and print a table of the outcomes."""
    with tempfile.TemporaryDirectory(prefix="nmt-torture-") as folder:
        tally = campaign(Path(folder), seed, minutes, only=only)
    print_table(tally)
    sys.exit(tally.failed)


if __name__ == "__main__":
    main()
