"""Faults injected into `nmt train`: each ends in a plain refusal, or in the result of an undisturbed run.

python -m recipes.torture.training --seed 1 --minutes 20      prints a table; exits with 1 if any was wrong
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
"""A run has about so many file events."""

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
"""What a rank may be told that the other was not."""

Found = tuple[str, Outcome, str] | None
"""A fault, what came of it, and what was seen; None where it came too late to be one."""


Fault = Callable[["Site", Random], Found]


class Site:
    """A dataset, and undisturbed runs on it; each is made when it is first asked for."""

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
        """A place for a run."""
        return self._folder / f"run{next(self._numbers)}"

    def words(self, run: Path, *more: object) -> list[object]:
        """`nmt train` in `run`."""
        return ["train", self.dataset, "--out", run, *TINY, *more]

    def ranks(self, run: Path, *otherwise: object) -> list[Nmt]:
        """Two processes that train in `run`; the second may be told otherwise."""
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
        """What a run takes, once all that it needs is loaded."""
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
        """What it has come to."""
        return result_of(self.whole)

    @cached_property
    def foreign(self) -> Path:
        """The same run with another seed."""
        return self._undisturbed("--seed", 7)

    @cached_property
    def result_of_two(self) -> dict[str, Any]:
        """What a run of two processes has come to."""
        run = self.new()
        if any(code != 0 for code, _ in [rank.end() for rank in self.ranks(run)]):
            sys.exit("an undisturbed run of two processes failed")
        return result_of(run)

    @cached_property
    def other_dataset(self) -> Path:
        """A dataset of other text."""
        return self._make_dataset("other", Random("other"))

    def half(self) -> Path:
        """A copy of the undisturbed run that stands in its middle, as if it had been killed there."""
        run = Path(shutil.copytree(self.whole, self.new(), symlinks=True))
        for step in range(HALF + SAVED, STEPS + 1, SAVED):
            shutil.rmtree(run / f"checkpoints/step-{step:08d}", ignore_errors=True)
        return run

    def finished(self, fault: str, run: Path) -> Found:
        """What comes of a run when it goes on to its end."""
        code, said = Nmt(self.words(run)).end()
        return self._judged(fault, run, code, said, self.result)

    def finished_by_two(self, fault: str, run: Path) -> Found:
        """The same for two processes."""
        ended = [rank.end() for rank in self.ranks(run)]
        code, said = next((end for end in ended if end[0] != 0), ended[0])
        return self._judged(fault, run, code, said, self.result_of_two)

    def _judged(self, fault: str, run: Path, code: int | None, said: str, whole: dict[str, Any]) -> Found:
        if code != 0:
            return fault, "wrong", f"going on ended with {code}: {said}"
        other = differing(run, whole)
        return fault, "wrong" if other else "identical", f"differs in {', '.join(other)}"


def killed_at_any_moment(site: Site, chosen: Random) -> Found:
    """Killed up to three times, wherever it happens to be."""
    run = site.new()
    codes = []
    for _ in range(chosen.randint(1, 3)):
        nmt = Nmt(site.words(run))
        nmt.wait(chosen.random() * site.seconds)
        nmt.send(signal.SIGKILL)
        codes.append(nmt.end()[0])
    return site.finished("kill at a random moment", run) if codes[0] == -signal.SIGKILL else None


def killed_at_a_file_event(site: Site, chosen: Random) -> Found:
    """Killed just before a file is opened, renamed or removed."""
    code, _ = Nmt(site.words(run := site.new()), dies_at=chosen.randint(1, LAST_EVENT)).end()
    return site.finished("kill at a file event", run) if code == -signal.SIGKILL else None


def asked_to_stop(site: Site, chosen: Random) -> Found:
    """Asked by a signal, at any moment."""
    nmt, number = Nmt(site.words(run := site.new())), chosen.choice([*EXIT_CODES])
    nmt.wait(chosen.random() * site.seconds)
    nmt.send(number)
    code, said = nmt.end()
    # Until Python runs, a signal ends a process in its own way.
    if code not in (EXIT_CODES[number], -number):
        return None if code == 0 else ("signal", "wrong", f"{number} ended it with {code}: {said}")
    return site.finished("signal", run)


def rank_killed(site: Site, chosen: Random) -> Found:
    """One of two ranks is killed."""
    return _rank_lost(site, chosen, "rank killed", signal.SIGKILL)


def rank_stopped(site: Site, chosen: Random) -> Found:
    """One of two ranks stands still."""
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
        return fault, "wrong", f"the rank that is left ended with {code}: {said}"
    return site.finished_by_two(fault, run)


def ranks_disagree(site: Site, chosen: Random) -> Found:
    """One of two ranks was told something else."""
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
    """One file of a run that stands in its middle is not what was written."""
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
    told = other == ["log"] and "Warning: " in said
    return fault, "clean" if told else "wrong" if other else "identical", f"{where} differs in {other}"


def _damaged(site: Site, run: Path, path: Path, damage: str, chosen: Random) -> bytes | None:
    """What is to be in the file; None for no file."""
    content = path.read_bytes()
    match damage:
        case "one bit":
            place = chosen.randrange(len(content))
            flipped = content[place] ^ 1 << chosen.randrange(8)
            return content[:place] + bytes([flipped]) + content[place + 1 :]
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
    """A file of the dataset is written to while it is in use, and later put back."""
    fault = "dataset changed in use"
    names = [path.name for path in site.dataset.glob("train.*.npy")]
    path = site.dataset / chosen.choice(sorted(name for name in names if "lines" not in name))
    content, run = path.read_bytes(), site.new()
    nmt = Nmt(site.words(run))
    nmt.wait(chosen.random() * site.seconds)
    place = chosen.randrange(200, len(content))
    with path.open("r+b") as file:
        if chosen.random() < 0.5:
            file.truncate(place)
        else:
            file.seek(place)
            file.write(bytes([content[place] ^ 1]))
    code, said = nmt.end()
    path.write_bytes(content)
    if code == 0:  # it came too late, or never mattered
        other = differing(run, site.result)
        return (fault, "wrong", f"{path.name} at {place}: differs in {other}") if other else None
    if not refused_plainly(code, said):
        return fault, "wrong", f"{path.name} at {place} ended it with {code}: {said}"
    found = site.finished(fault, run)
    return (fault, "clean", "") if found and found[1] == "identical" else found


FAULTS: tuple[Fault, ...] = (
    *(killed_at_any_moment, killed_at_a_file_event, asked_to_stop, run_damaged, dataset_changed),
    *(rank_killed, run_damaged, ranks_disagree, run_damaged, rank_stopped),
)


def campaign(
    folder: Path, seed: int, minutes: float, faults: Sequence[Fault] = FAULTS, only: int | None = None
) -> Tally:
    """Inject these faults in turn, each kind once at least, until the time is up; or `only` one."""
    load()
    tally, site = Tally(), Site(folder, seed)
    end, number = time.monotonic() + 60 * minutes, only or 0
    while number == only or (only is None and (number < len(faults) or time.monotonic() < end)):
        if found := faults[number % len(faults)](site, Random(f"{seed} {number}")):
            fault, outcome, told = found
            tally.add(fault, outcome, f"{told.strip()} (--seed {seed} --only {number})")
        number += 1
    return tally


@click.command()
@click.option("--seed", default=1, show_default=True, help="Decides where the faults come.")
@click.option("--minutes", default=20.0, show_default=True, help="How long faults are injected.")
@click.option("--only", type=int, help="The number of one fault, to see it again.")
def main(seed: int, minutes: float, only: int | None) -> None:
    """Inject faults into training, and print a table of what came of them."""
    with tempfile.TemporaryDirectory(prefix="nmt-torture-") as folder:
        tally = campaign(Path(folder), seed, minutes, only=only)
    print_table(tally)
    sys.exit(bool(tally.wrong))


if __name__ == "__main__":
    main()
