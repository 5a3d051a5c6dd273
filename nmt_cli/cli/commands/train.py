"""`nmt train`: a dataset folder in, a run folder out."""

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import click

from nmt_cli import api
from nmt_cli import config as settings
from nmt_cli.cli.options import FOLDER, CommandWithSettings, chosen, common, with_settings
from nmt_cli.errors import EXIT_CODES, printable
from nmt_cli.runtime.atomic import resolved
from nmt_cli.training.config import TrainConfig

SECONDS_OF_ECHO = 3.0
"""A launcher may pass on what reached the process already."""


class Stop:
    """Remembers the first signal that asks for an end; a second Ctrl-C, if it is no echo, ends at once.

    A signal that whoever started us had us ignore, as nohup does, stays ignored.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._since = 0.0
        for number in EXIT_CODES:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._wanted)

    def _wanted(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if not self.signal:
            self.signal, self._since = number, now
        elif number == signal.SIGINT and now - self._since > SECONDS_OF_ECHO:
            raise KeyboardInterrupt


@click.command(
    cls=CommandWithSettings,
    settings=TrainConfig,
    epilog="nmt train dataset --preset vaswani2017-base --set model.residual_dropout=0.2 --out run",
)
@click.argument("dataset", type=FOLDER)
@click.option("--out", required=True, type=FOLDER, help="Run folder to make, or to go on with.")
@click.option(
    "--preset",
    metavar="NAME",
    type=click.Choice(settings.preset_names()),
    help="A model and how to train it: vaswani2017-base, vaswani2017-big (the paper's two), t2t-base, "
    "t2t-big (Tensor2Tensor's: norm first), iwslt14 (small data), tiny (Multi30k), small (benchmarks), "
    "marian-base (exports), parsing (section 6.3). Settings win over it.",
)
@click.option("--max-steps", type=int, help="Steps of the whole run.")
@click.option("--batch-tokens", type=int, help="Tokens of a step on each side, over all devices.")
@click.option(
    "--max-tokens-per-device",
    metavar="N|auto",
    help="Tokens of both sides that are worked on at a time; batches stay the same, dropout masks do not.",
)
@click.option("--seed", type=int, help="Decides weights, batches and dropout.")
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", help="What to train on."
)
@click.option("--devices", type=click.IntRange(min=1), default=1, help="How many of them, on this machine.")
@click.option(
    "--threads", type=click.IntRange(min=1), help="Processors to use.  [default: OMP_NUM_THREADS, or all]"
)
@click.option("--validate-every", type=int, help="Steps between validations; 0 for none.")
@click.option("--save-every", type=int, help="Steps between checkpoints, instead of minutes.")
@click.option("--init-from", metavar="MODEL", type=FOLDER, help="Start from a model's weights; see [start].")
@click.option("--deterministic", is_flag=True, help="The same bits each time, or an error.")
@click.option("--dry-run", is_flag=True, help="Print the plan, and on stdout the settings; train nothing.")
@with_settings
@common
def train(
    dataset: Path,
    out: Path,
    preset: str | None,
    max_steps: int | None,
    batch_tokens: int | None,
    max_tokens_per_device: str | None,
    seed: int | None,
    device: api.Device,
    devices: int,
    threads: int | None,
    validate_every: int | None,
    save_every: int | None,
    init_from: Path | None,
    deterministic: bool,
    dry_run: bool,
    file: Path | None,
    assignments: tuple[str, ...],
    quiet: bool,
) -> None:
    """Train a Transformer on DATASET, a folder that nmt preprocess made.

    The same command again goes on where the run stands. Ctrl-C saves first. Runs under torchrun and Slurm.
    """
    flags = {
        "training.max_steps": max_steps,
        "batch.tokens": batch_tokens,
        "training.max_tokens_per_device": _tokens(max_tokens_per_device),
        "training.seed": seed,
        "validation.every_steps": validate_every,
        "checkpoints.every_steps": save_every,
        # Absolute: the run folder keeps the settings, and may be gone on with from elsewhere.
        "start.model": str(resolved(init_from)) if init_from else None,
        "training.deterministic": deterministic or None,
    }
    config = chosen(TrainConfig, file, assignments, flags, settings.preset_path(preset) if preset else None)
    work = _forecast if dry_run else _run
    sys.exit(work(dataset, out, config, device, devices, threads, quiet))


def _forecast(
    dataset: Path,
    out: Path,
    config: TrainConfig,
    device: str,
    devices: int,
    threads: int | None,
    quiet: bool,
) -> int:
    """Say what training would do; the settings, which --config takes back, are all of stdout."""
    from nmt_cli.cli.reports.dry_run import show
    from nmt_cli.cli.reports.train import Reporter
    from nmt_cli.runtime.devices import device_of_rank
    from nmt_cli.runtime.threads import set_own_threads
    from nmt_cli.training.setup.dry_run import forecast
    from nmt_cli.training.step.distributed import process_from_environment

    process = process_from_environment()
    if threads:
        set_own_threads(threads)
    # Under torchrun all processes come here, and one forecast is enough.
    if process.first:
        where, world = device_of_rank(device, process.local_rank), max(devices, process.world)
        found = forecast(dataset, out, config, world, where, Reporter(quiet))
        click.echo(settings.as_toml(config).encode(errors="surrogateescape"), nl=False)
        if not quiet:
            show(found, world, where.type)
    return 0


def _run(
    dataset: Path,
    out: Path,
    config: TrainConfig,
    device: api.Device,
    devices: int,
    threads: int | None,
    quiet: bool,
) -> int:
    """Train here, or in a process for each device; returns the exit code."""
    from nmt_cli.cli.reports.train_live import shown_run
    from nmt_cli.data.dataset import open_dataset
    from nmt_cli.training.setup.launch import LAUNCHER, run_on_devices
    from nmt_cli.training.step.distributed import process_from_environment

    process = process_from_environment()
    stop = Stop()
    launcher = int(os.environ.get(LAUNCHER, 0))
    if devices > 1 and process.world > 1 and not launcher:
        raise click.UsageError("--devices is for one process alone; torchrun and Slurm have started several.")
    if devices > 1 and process.world == 1:
        # For its errors, which otherwise each of the processes would tell.
        open_dataset(dataset)
        return run_on_devices(
            sys.argv[1:],
            devices,
            lambda: stop.signal,
            lambda line: click.echo(f"Error: {printable(line)}", err=True),
        )

    def stop_wanted() -> bool:
        # A launcher that was killed can't stop its processes; they notice that they have another parent.
        orphaned = launcher not in (0, os.getppid())
        return bool(stop.signal) or orphaned

    with shown_run(out, quiet, silent=not process.first) as report:
        command = ["nmt", *sys.argv[1:]]
        trained = api.train(
            *(dataset, out, config),
            device=device,
            threads=threads,
            report=report,
            stop_wanted=stop_wanted,
            command=command,
        )
        report.end(out, trained.complete)
    # No signal came to who lost its launcher; it counts as terminated.
    return 0 if trained.complete else EXIT_CODES[stop.signal or signal.SIGTERM]


def _tokens(text: str | None) -> int | None:
    if text is None:
        return None
    if text == "auto":
        return 0
    if not text.isdecimal() or not int(text):
        raise click.UsageError(f"--max-tokens-per-device takes a number or auto, not {text}.")
    return int(text)
