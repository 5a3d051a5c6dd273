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
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import click

from nmt_cli import api, config
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.errors import EXIT_CODES
from recipes.torture.runs import Nmt, differing, load, rank_environments, refused_plainly, result_of
from recipes.torture.table import Outcome, Tally, print_table

STEPS, SAVED, HALF = 18, 3, 9
LAST_EVENT = 200
"""Approximate number of file events of a run."""

TINY = (
    *("--device", "cpu", "--quiet", "--batch-tokens", 400, "--max-steps", STEPS, "--save-every", SAVED),
    *("--validate-every", 6, "--set", "validation.sentences=2", "--set", "schedule.warmup=20"),
    *("--set", "model.width=16", "--set", "model.feed_forward=32", "--set", "model.heads=2"),
    *("--set", "model.encoder_layers=1", "--set", "model.decoder_layers=1"),
    *("--set", "training.rank_timeout=15"),
)

DAMAGES = ("one bit", "cut", "empty", "swapped", "foreign", "missing")

OTHERWISE = (
    *(("--seed", 2), ("--set", "schedule.factor=2"), ("--batch-tokens", 300)),
    *(("--max-steps", 30), ("--validate-every", 5), ("--set", "loss.smoothing=0.2")),
)
"""Arguments that one rank may have and the other not."""

Found = tuple[str, Outcome, str] | None
"""A fault, its outcome, and a description. None if the fault came too late."""


Fault = Callable[["Site", Random], Found]


class Site:
    """A dataset and undisturbed runs on it. Each run is made at its first use."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._numbers = folder, itertools.count()
        self.dataset = self._make_dataset("dataset", Random(seed))

    def _make_dataset(self, name: str, chosen: Random) -> Path:
        words = ["".join(chosen.choices("abcdefgäß", k=chosen.randint(1, 6))) for _ in range(200)]
        for part, count in (("train", 300), ("dev", 12)):
            lines = [" ".join(chosen.choices(words, k=chosen.randint(1, 8))) for _ in range(count)]
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

    def words(self, run: Path, *more: object) -> list[object]:
        """Return the arguments of `nmt train` for `run`."""
        return ["train", self.dataset, "--out", run, *TINY, *more]

    def ranks(self, run: Path, *otherwise: object) -> list[Nmt]:
        """Start two processes that train in `run`. The second has the further arguments `otherwise`."""
        more: tuple[tuple[object, ...], ...] = ((), otherwise)
        environments = rank_environments(2)
        return [Nmt(self.words(run, *theirs), env) for theirs, env in zip(more, environments, strict=True)]

    def _undisturbed(self, *more: object) -> Path:
        code, said = Nmt(self.words(run := self.new(), *more)).end()
        if code != 0:
            sys.exit(f"an undisturbed run ended with {code}: {said}")
        return run

    @cached_property
    def seconds(self) -> float:
        """The duration of a run after everything it needs is loaded."""
        assert self.whole
        began = time.monotonic()
        self._undisturbed()
        return time.monotonic() - began

    @cached_property
    def whole(self) -> Path:
        """An undisturbed run."""
        return self._undisturbed()

    @cached_property
    def result(self) -> dict[str, Any]:
        """The result of the undisturbed run."""
        return result_of(self.whole)

    @cached_property
    def foreign(self) -> Path:
        """The same run with another seed."""
        return self._undisturbed("--seed", 7)

    @cached_property
    def result_of_two(self) -> dict[str, Any]:
        """The result of a run of two processes."""
        run = self.new()
        if any(code != 0 for code, _ in [rank.end() for rank in self.ranks(run)]):
            sys.exit("an undisturbed run of two processes failed")
        return result_of(run)

    @cached_property
    def other_dataset(self) -> Path:
        """A dataset of other text."""
        return self._make_dataset("other", Random("other"))

    def half(self) -> Path:
        """Copy the undisturbed run and reset the copy to its middle, as if the run had been killed there."""
        run = Path(shutil.copytree(self.whole, self.new(), symlinks=True))
        for step in range(HALF + SAVED, STEPS + 1, SAVED):
            shutil.rmtree(run / f"checkpoints/step-{step:08d}", ignore_errors=True)
        return run

    def finished(self, fault: str, run: Path) -> Found:
        """Complete a run and compare it with the undisturbed one."""
        code, said = Nmt(self.words(run)).end()
        return self._judged(fault, run, code, said, self.result)

    def finished_by_two(self, fault: str, run: Path) -> Found:
        """Complete a run with two processes and compare it with an undisturbed one."""
        ended = [rank.end() for rank in self.ranks(run)]
        code, said = next((end for end in ended if end[0] != 0), ended[0])
        return self._judged(fault, run, code, said, self.result_of_two)

    def _judged(self, fault: str, run: Path, code: int | None, said: str, whole: dict[str, Any]) -> Found:
        if code != 0:
            return fault, "wrong", f"resuming ended with {code}: {said}"
        other = differing(run, whole)
        return fault, "wrong" if other else "identical", f"differs in {', '.join(other)}"


def killed_at_any_moment(site: Site, chosen: Random) -> Found:
    """Kill a run up to three times at random moments."""
    run = site.new()
    codes = []
    for _ in range(chosen.randint(1, 3)):
        nmt = Nmt(site.words(run))
        nmt.wait(chosen.random() * site.seconds)
        nmt.send(signal.SIGKILL)
        codes.append(nmt.end()[0])
    return site.finished("kill at a random moment", run) if codes[0] == -signal.SIGKILL else None


def killed_at_a_file_event(site: Site, chosen: Random) -> Found:
    """Kill a run just before it opens, renames or removes a file."""
    code, _ = Nmt(site.words(run := site.new()), dies_at=chosen.randint(1, LAST_EVENT)).end()
    return site.finished("kill at a file event", run) if code == -signal.SIGKILL else None


def asked_to_stop(site: Site, chosen: Random) -> Found:
    """Send a signal to a run at a random moment."""
    nmt, number = Nmt(site.words(run := site.new())), chosen.choice([*EXIT_CODES])
    nmt.wait(chosen.random() * site.seconds)
    nmt.send(number)
    code, said = nmt.end()
    # Before Python runs, a signal ends the process by default.
    if code not in (EXIT_CODES[number], -number):
        return None if code == 0 else ("signal", "wrong", f"{number} ended it with {code}: {said}")
    return site.finished("signal", run)


def rank_killed(site: Site, chosen: Random) -> Found:
    """Kill one of two ranks."""
    return _rank_lost(site, chosen, "rank killed", signal.SIGKILL)


def rank_stopped(site: Site, chosen: Random) -> Found:
    """Stop one of two ranks."""
    return _rank_lost(site, chosen, "rank stopped", signal.SIGSTOP)


def _rank_lost(site: Site, chosen: Random, fault: str, number: int) -> Found:
    ranks = site.ranks(run := site.new())
    lost = chosen.randrange(2)
    ranks[0].wait(chosen.random() * 2 * site.seconds)
    ranks[lost].send(number)
    code, said = ranks[1 - lost].end()
    ranks[lost].send(signal.SIGKILL)
    ranks[lost].end()
    if code == 0:
        return None
    if not refused_plainly(code, said):
        return fault, "wrong", f"the other rank ended with {code}: {said}"
    return site.finished_by_two(fault, run)


def ranks_disagree(site: Site, chosen: Random) -> Found:
    """Start two ranks with different settings or datasets."""
    run = site.new()
    otherwise = chosen.choice([*OTHERWISE, ()])
    ranks = site.ranks(run, *otherwise)
    if not otherwise:
        ranks[1].send(signal.SIGKILL)
        ranks[0].send(signal.SIGKILL)
        first, second = rank_environments(2)
        words = ["train", site.other_dataset, *site.words(run)[2:]]
        ranks = [Nmt(site.words(run), first), Nmt(words, second)]
    ended = [rank.end() for rank in ranks]
    clean = all(refused_plainly(*end) and "processes 0 and 1 differ" in end[1] for end in ended)
    return "ranks disagree", "clean" if clean else "wrong", f"{otherwise} ended with {ended}"


def run_damaged(site: Site, chosen: Random) -> Found:
    """Damage one file of a run in its middle."""
    run = site.half()
    files = [path for path in run.rglob("*") if path.is_file() and path.name != "report.html"]
    newest = run / f"checkpoints/step-{HALF:08d}"
    tops = [path for path in files if path.parent == run]
    path = chosen.choice([*tops, *(path for path in files if newest in path.parents)])
    damage = chosen.choice(DAMAGES)
    fault = f"file of a run: {damage}"
    content = path.read_bytes()
    if (changed := _damaged(site, run, path, damage, chosen)) == content:
        return None
    path.unlink()
    if changed is not None:
        path.write_bytes(changed)
    code, said = Nmt(site.words(run)).end()
    where = f"{path.relative_to(run)}: {said}"
    if code:
        return fault, "clean" if refused_plainly(code, said) else "wrong", f"{where} ({code})"
    other = differing(run, site.result) if code == 0 else ["never ended"]
    warned = other == ["log"] and "Warning: " in said
    return fault, "clean" if warned else "wrong" if other else "identical", f"{where} differs in {other}"


def _damaged(site: Site, run: Path, path: Path, damage: str, chosen: Random) -> bytes | None:
    """Return the damaged content of a file, or None for no file."""
    content = path.read_bytes()
    match damage:
        case "one bit":
            position = chosen.randrange(len(content))
            flipped = content[position] ^ 1 << chosen.randrange(8)
            return content[:position] + bytes([flipped]) + content[position + 1 :]
        case "cut":
            return content[: chosen.randrange(len(content))]
        case "empty":
            return b""
        case "swapped":
            before = run / f"checkpoints/step-{HALF - SAVED:08d}"
            other = run / "environment.jsonl" if path.parent == run else before / path.name
            return other.read_bytes() if other.is_file() else content
        case "foreign":
            other = site.foreign / path.relative_to(run)
            return other.read_bytes() if other.is_file() else chosen.randbytes(len(content))
        case _:
            return None


def dataset_changed(site: Site, chosen: Random) -> Found:
    """Write to a file of the dataset while it is in use, and restore it later."""
    fault = "dataset changed in use"
    names = [path.name for path in site.dataset.glob("train.*.npy")]
    path = site.dataset / chosen.choice(sorted(name for name in names if "lines" not in name))
    content, run = path.read_bytes(), site.new()
    nmt = Nmt(site.words(run))
    nmt.wait(chosen.random() * site.seconds)
    position = chosen.randrange(200, len(content))
    with path.open("r+b") as file:
        if chosen.random() < 0.5:
            file.truncate(position)
        else:
            file.seek(position)
            file.write(bytes([content[position] ^ 1]))
    code, said = nmt.end()
    path.write_bytes(content)
    if code == 0:  # the change came too late or had no effect
        other = differing(run, site.result)
        return (fault, "wrong", f"{path.name} at {position}: differs in {other}") if other else None
    if not refused_plainly(code, said):
        return fault, "wrong", f"{path.name} at {position} ended it with {code}: {said}"
    found = site.finished(fault, run)
    return (fault, "clean", "") if found and found[1] == "identical" else found


FAULTS: tuple[Fault, ...] = (
    *(killed_at_any_moment, killed_at_a_file_event, asked_to_stop, run_damaged, dataset_changed),
    *(rank_killed, run_damaged, ranks_disagree, run_damaged, rank_stopped),
)


def campaign(
    folder: Path, seed: int, minutes: float, faults: Sequence[Fault] = FAULTS, only: int | None = None
) -> Tally:
    """Inject these faults in turn until the time is over, each kind at least once, or inject only one."""
    load()
    tally, site = Tally(), Site(folder, seed)
    end, number = time.monotonic() + 60 * minutes, only or 0
    while number == only or (only is None and (number < len(faults) or time.monotonic() < end)):
        if found := faults[number % len(faults)](site, Random(f"{seed} {number}")):
            fault, outcome, message = found
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
    sys.exit(bool(tally.wrong))


if __name__ == "__main__":
    main()
