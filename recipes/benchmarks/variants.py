"""Compare ways of training at equal updates and at equal processor time, and with fairseq.

python -m recipes.benchmarks.variants --out FOLDER [--fairseq BIN] [--more TEXT] [--jobs 2]     needs NMT_DATA

Each run trains the same model on Multi30k, English to German, with one thread, and differs in a few settings.
The measure is the perplexity of the validation set. Processor time includes start-up and compilation.
Each run adds a line to FOLDER/results.jsonl. The same command skips runs that have a line, then prints the
table of all lines and writes FOLDER/variants.svg.
"""

import json
import math
import os
import shutil
import statistics
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np

from nmt_cli.training.tracking.log import read_history
from recipes.benchmarks import machine
from recipes.benchmarks import training_peers as peers
from recipes.benchmarks.charts import charts
from recipes.results import mean_of_seeds

VOCABULARY = 4000
PEAK, WARMUP = 2e-3, 400
COMMON = (f"schedule.peak={PEAK}", f"schedule.warmup={WARMUP}", "schedule.kind=inverse-sqrt")
FAIRSEQ = "fairseq"
FIRST = "nmt"
VARIANTS: dict[str, Sequence[str]] = {
    FIRST: (),
    "fp32": ("training.precision=fp32",),
    "Muon": ("optimizer.kind=muon",),
    "depth-scaled init": ("model.init=depth-scaled",),
    "Muon and depth-scaled init": ("optimizer.kind=muon", "model.init=depth-scaled"),
    "R-Drop 3": ("loss.r_drop=3",),
}
"""Settings of each variant, in addition to those of the preset tiny and `COMMON`."""

PADDING = 1.12
"""fairseq's --max-tokens counts padding. With this factor, its updates have about as many real tokens."""

Result = dict[str, Any]


@click.command(help=machine.method(__doc__), context_settings={"show_default": True})
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option("--fairseq", type=machine.BIN, help="Folder `bin` of fairseq's virtual environment.")
@click.option(
    "--more", multiple=True, help="Training text besides Multi30k: FOLDER/train for FOLDER/train.en."
)
@click.option(
    "--variants",
    multiple=True,
    type=click.Choice(list(VARIANTS)),
    default=list(VARIANTS),
    help=f"{FIRST}, which all others are compared with, is always among them.",
)
@click.option("--seeds", multiple=True, type=int, default=[1, 2, 3])
@click.option("--updates", default=1200)
@click.option("--tokens", default=1000, help="Maximum of a batch on either side.")
@click.option("--every", default=100, help="Updates between two validations.")
@click.option("--jobs", default=1, help="Runs at the same time, with one thread each.")
def main(
    out: Path,
    fairseq: Path | None,
    more: Sequence[str],
    variants: Sequence[str],
    seeds: Sequence[int],
    updates: int,
    tokens: int,
    every: int,
    jobs: int,
) -> None:
    """Train the missing runs, then print the table and write the picture."""
    os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    if not (out / "complete").exists():
        text = [part for prefix in more for part in ("--train", prefix)]
        text += ["--valid", str(machine.data_folder() / "multi30k/valid")]
        machine.make_dataset(out / "dataset", VOCABULARY, *text)
        peers.write_pieces(out)
        (out / "complete").touch()
    if fairseq and not (out / FAIRSEQ).exists():
        peers.prepare_fairseq(fairseq, out, "--validpref", out / "valid")
    done, size = results(out), {"updates": updates, "tokens": tokens, "more": list(more)}
    if any(result[key] != value for result in done for key, value in size.items()):
        options = "--updates, --tokens or --more"
        raise click.ClickException(f"{out} has runs with other {options}. Choose another --out.")
    names = [FIRST, *(name for name in variants if name != FIRST), *([FAIRSEQ] if fairseq else [])]

    def add(run: tuple[int, str]) -> None:
        seed, name = run
        folder = out / "runs" / f"{name}-{seed}".replace(" ", "-").replace(",", "")
        shutil.rmtree(folder, ignore_errors=True)  # the time of a resumed run would be too short
        common = folder, seed, updates, tokens, every
        command = _fairseq(out, fairseq, *common) if fairseq and name == FAIRSEQ else _nmt(out, name, *common)
        seconds = _processor_seconds(command, folder, out / "stubs" if name == FAIRSEQ else machine.ROOT)
        valid = read_fairseq(folder / "printed") if name == FAIRSEQ else read_nmt(folder / "run/log.jsonl")
        result = {
            "variant": name,
            "seed": seed,
            **size,
            "seconds": round(seconds, 1),
            "nll": valid,
        }
        with (out / "results.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")

    pairs = [(result["seed"], result["variant"]) for result in done]
    missing = [run for run in product(seeds, names) if run not in pairs]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(add, missing))
    print_table(results(out))
    (out / "variants.svg").write_text(picture(results(out)), encoding="utf-8")


def results(out: Path) -> list[Result]:
    """Return all results so far, in the order of the runs."""
    path = out / "results.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def _nmt(
    out: Path, name: str, folder: Path, seed: int, updates: int, tokens: int, every: int
) -> Sequence[object]:
    command = [*machine.NMT, "train", out / "dataset", "--out", folder / "run", "--quiet"]
    command += ["--preset", "tiny", "--max-steps", updates, "--batch-tokens", tokens, "--seed", seed]
    command += ["--validate-every", every, "--set", "validation.sentences=1"]
    return [*command, *(part for setting in (*COMMON, *VARIANTS[name]) for part in ("--set", setting))]


def _fairseq(
    out: Path, bin_folder: Path, folder: Path, seed: int, updates: int, tokens: int, every: int
) -> Sequence[object]:
    contestant = peers.fairseq(peers.Workload(out, "tiny"), bin_folder)
    command = [part for part in contestant.command if part != "--disable-validation"]
    command += ["--lr", PEAK, "--warmup-updates", WARMUP, "--adam-eps", 1e-8, "--seed", seed]
    command += ["--max-update", updates, "--max-tokens", round(tokens * PADDING), "--max-tokens-valid", 8000]
    command += ["--required-batch-size-multiple", 1, "--save-dir", folder / "saved", "--log-interval", 100]
    return [*command, "--validate-interval-updates", every, "--validate-interval", 1_000_000]


def _processor_seconds(command: Sequence[object], folder: Path, python_path: Path) -> float:
    """Run a command, whose output goes to `folder`/printed. Return the processor seconds of all its
    processes. Raise `ClickException` if it fails."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "printed").open("wb") as printed:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdout=printed,
            stderr=printed,
            env=os.environ | {"PYTHONPATH": str(python_path)},
        )
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise click.ClickException(f"a run failed, see {folder / 'printed'}")
    return usage.ru_utime + usage.ru_stime


def read_nmt(log: Path) -> dict[str, float]:
    """Return the validation loss in nats per subword, by update, from the log of `nmt train`."""
    return {str(one.at.step): one.line["nll"] for one in read_history(log).validations}


def read_fairseq(printed: Path) -> dict[str, float]:
    """Return the validation loss in nats per subword, by update, from fairseq's output."""
    lines = printed.read_text("utf-8", errors="replace").splitlines()
    entries = [json.loads(line[line.index("{") :]) for line in lines if "| valid | {" in line]
    return {one["valid_num_updates"]: float(one["valid_nll_loss"]) * math.log(2) for one in entries}


def curve(runs: Sequence[Result], updates: Sequence[float]) -> list[list[float]]:
    """Return the validation loss of each run after each number of updates, interpolated."""
    curves = ((list(map(float, run["nll"])), list(run["nll"].values())) for run in runs)
    return [np.interp(updates, xs, ys).tolist() for xs, ys in curves]


def by_variant(runs: Sequence[Result]) -> dict[str, list[Result]]:
    """Return the runs of each variant, in the order of their first runs."""
    return {
        name: [run for run in runs if run["variant"] == name]
        for name in dict.fromkeys(run["variant"] for run in runs)
    }


def print_table(runs: Sequence[Result]) -> None:
    """Print one row per variant: perplexity after a third and after all updates, processor time, perplexity
    at the time of the first variant's last update, and p of its difference from the first variant."""
    groups = by_variant(runs)
    first, updates = groups[FIRST], runs[0]["updates"]
    budget = statistics.mean(run["seconds"] for run in first)
    machine.print_head(
        "variant",
        "seeds",
        f"update {updates // 3:,}",
        f"update {updates:,}",
        "p",
        "ms per update",
        f"after {budget:.0f} s",
        "p",
    )
    for name, group in groups.items():
        seconds = statistics.mean(run["seconds"] for run in group)
        # All losses after this update are those of the last one, so a faster variant gets no credit.
        at_equal_time = updates * min(1.0, budget / seconds)
        points = (updates / 3, updates, at_equal_time)
        early, late, timed = zip(*curve(group, points), strict=True)
        _, last_of_first = zip(*curve(first, (updates / 3, updates)), strict=True)
        machine.print_row(
            name, len(group), _perplexity(early), _perplexity(late), _p(late, last_of_first),
            f"{1000 * seconds / updates:.0f}", _perplexity(timed), _p(timed, last_of_first),
        )  # fmt: skip


def _perplexity(losses: Sequence[float]) -> str:
    return mean_of_seeds(math.exp(loss) for loss in losses)


def p_value(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the two-sided p-value of Welch's t-test of two samples of at least two values."""
    errors = [statistics.variance(sample) / len(sample) for sample in (one, other)]
    t = abs(statistics.mean(one) - statistics.mean(other)) / math.sqrt(sum(errors))
    degrees = [len(sample) - 1 for sample in (one, other)]
    freedom = sum(errors) ** 2 / sum(error**2 / n for error, n in zip(errors, degrees, strict=True))
    constant = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    x = np.linspace(0, t, 100_001)
    density = np.exp(constant - (freedom + 1) / 2 * np.log1p(x * x / freedom))
    return float(1 - 2 * np.trapezoid(density, x))


def _p(one: Sequence[float], other: Sequence[float]) -> str:
    """Return the p-value of two samples for the table, or "" for equal samples or a single run."""
    if min(len(one), len(other)) < 2 or one == other:
        return ""
    p = p_value(one, other)
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def picture(runs: Sequence[Result]) -> str:
    """Return an SVG with the mean perplexity of each variant, by updates and by processor seconds."""
    by_updates, by_seconds = {}, {}
    updates = sorted({int(update) for run in runs for update in run["nll"]})
    updates = updates[len(updates) // 6 :]  # the first values would flatten all others
    for name, group in by_variant(runs).items():
        perplexities = [
            math.exp(statistics.mean(losses)) for losses in zip(*curve(group, updates), strict=True)
        ]
        seconds = statistics.mean(run["seconds"] / run["updates"] for run in group)
        by_updates[name] = list(zip(updates, perplexities, strict=True))
        by_seconds[name] = [(update * seconds, value) for update, value in by_updates[name]]
    limit = by_seconds[FIRST][-1][0]
    by_seconds = {
        name: [point for point in line if point[0] <= limit] or line[:1] for name, line in by_seconds.items()
    }
    title = "Validation perplexity by {}".format
    return charts({title("updates"): by_updates, title("processor seconds"): by_seconds})


if __name__ == "__main__":
    main()
