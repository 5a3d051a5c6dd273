"""`nmt train`: a dataset folder in, a run folder out."""

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import click

from nmt_cli import api
from nmt_cli.checkpoints.finding import checkpoints
from nmt_cli.cli.options import (
    COUNT,
    DEVICE,
    DEVICES,
    OUT,
    PATH,
    Choice,
    CommandWithSettings,
    chosen,
    common,
    must_exist,
    printer,
    setting_option,
    with_settings,
)
from nmt_cli.config import preset_names, preset_path
from nmt_cli.errors import EXIT_CODES, printable
from nmt_cli.runtime.atomic import resolved
from nmt_cli.setting_values import Entry
from nmt_cli.training.config import TrainConfig

SECONDS_OF_ECHO = 3.0
"""A Ctrl-C within this time of the first signal counts as its echo: launchers may repeat a signal."""


@dataclass(frozen=True, slots=True)
class Where:
    """The hardware of a run, as the user gave it."""

    device: api.Device
    devices: int
    """Number of devices on this machine."""

    threads: int | None
    """CPU threads, None for the default."""


class Stop:
    """Handles signals that end a run. `signal` is the first, or 0. A Ctrl-C over `SECONDS_OF_ECHO` later
    raises `KeyboardInterrupt`. Signals that the process was started to ignore, as by nohup, stay ignored."""

    def __init__(self) -> None:
        """Install handlers for the signals in `EXIT_CODES`, except for those that are ignored."""
        self.signal = 0
        self._since = 0.0
        for number in EXIT_CODES:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def _handle(self, number: int, _: FrameType | None) -> None:
        """Store the first signal. Raise `KeyboardInterrupt` for a Ctrl-C over `SECONDS_OF_ECHO` later."""
        now = time.monotonic()
        if not self.signal:
            self.signal, self._since = number, now
        elif number == signal.SIGINT and now - self._since > SECONDS_OF_ECHO:
            raise KeyboardInterrupt


def _tokens(text: str) -> int:
    """Return --max-tokens-per-device as a number, 0 for "auto". Raise `UsageError` for 0 or other texts."""
    if text != "auto" and not (text.isdecimal() and int(text)):
        raise click.UsageError(f"--max-tokens-per-device must be a number or auto (got {text})")
    return 0 if text == "auto" else int(text)


def _of_other_toolkits(file: Path) -> list[Entry] | None:
    """Return the settings in a training file of Marian or OpusTrainer, and print what has no counterpart.
    Return None for another file."""
    if file.suffix not in (".yml", ".yaml"):
        return None
    from nmt_cli.training.foreign_recipes import is_foreign, translated

    if not is_foreign(file):
        return None
    recipe = translated(file)
    for line in recipe.notes(file):
        printer(click.get_current_context().params["quiet"])(line)
    return [Entry(name, value, str(file)) for name, value in recipe.settings.items()]


@click.command(
    cls=CommandWithSettings,
    settings=TrainConfig,
    other_files=_of_other_toolkits,
    epilog="nmt train dataset --preset vaswani2017-base \\\n    --set model.residual_dropout=0.2 --out run",
)
@click.argument("dataset", type=PATH)
@click.option("--out", required=True, type=OUT, help="Run folder to write, or to resume.")
@click.option(
    "--preset",
    "name",
    metavar="NAME",
    type=Choice(preset_names()),
    help="Model and training settings to start from.",
)
@setting_option("training.max_steps", "--max-steps", type=int, metavar="N")
@setting_option("batch.tokens", "--batch-tokens", type=int, metavar="N")
@setting_option(
    "training.max_tokens_per_device",
    "--max-tokens-per-device",
    type=_tokens,
    metavar="N|auto",
    default_text="auto",
)
@setting_option("training.seed", "--seed", type=int, metavar="N")
@click.option(
    "--device", type=DEVICE, metavar=DEVICES, default="auto", help="Device to train on.  [default: auto]"
)
@click.option("--devices", type=COUNT, default=1, help="Number of devices on this machine.  [default: 1]")
@click.option("--threads", type=COUNT, help="CPU threads.  [default: OMP_NUM_THREADS, or all cores]")
@setting_option("validation.every_steps", "--validate-every", type=int, metavar="N")
@setting_option("checkpoints.every_steps", "--save-every", type=int, metavar="N")
@setting_option(
    "start.model",
    "--init-from",
    type=lambda path: str(resolved(Path(path))),  # a run may be resumed from another folder
    metavar="MODEL",
    shell_complete=PATH.shell_complete,
)
@setting_option("training.deterministic", "--deterministic", is_flag=True)
@click.option("--dry-run", is_flag=True, help="Print time, memory and disk needed. Train nothing.")
@with_settings
@common
def train(
    dataset: Path,
    out: Path,
    name: str | None,
    device: api.Device,
    devices: int,
    threads: int | None,
    dry_run: bool,
    quiet: bool,
) -> None:
    """Train a Transformer on a dataset.

    DATASET is a folder that nmt preprocess wrote. Run the same command again
    to resume an interrupted run. Ctrl-C saves a checkpoint first. torchrun and
    Slurm may start the command, too.

    Presets. Settings in --config, --set and options override them:

    \b
    vaswani2017-base, vaswani2017-big  "Attention Is All You Need"
    t2t-base, t2t-big                  the same in Tensor2Tensor: norm first
    iwslt14, tiny, small               small data, Multi30k, benchmarks
    deep-12-1, deep-12-2               12 encoder layers, 1 or 2 decoder layers
    marian-base                        the shape of OPUS-MT, for nmt export
    parsing                            constituency parsing, section 6.3
    """
    config = chosen(TrainConfig, preset_path(name) if name else None)
    must_exist(dataset)
    if config.start.model and not checkpoints(out):  # a resumed run has its own weights
        must_exist(config.start.model)
    # PyTorch, not loaded yet, would print a stack of C++ when the first rank ends. We report the end instead.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if dry_run:
        _forecast(dataset, out, config, Where(device, devices, threads), quiet)
    else:
        sys.exit(_run(dataset, out, config, Where(device, devices, threads), quiet))


def _forecast(dataset: Path, out: Path, config: TrainConfig, where: Where, quiet: bool) -> None:
    """Print the plan of a run, measured on the device. Plan for the devices of `where`, or the number of
    torchrun's processes if larger. Only the first process prints. `quiet` omits progress."""
    from nmt_cli.cli.reports.training_output import RunReporter, show_forecast
    from nmt_cli.data.dataset import open_dataset
    from nmt_cli.runtime.devices import device_of_rank
    from nmt_cli.runtime.threads import set_own_threads
    from nmt_cli.training.setup.dry_run import forecast
    from nmt_cli.training.setup.run import TrainingRun
    from nmt_cli.training.step.distributed import Process, process_from_environment

    process = process_from_environment()
    if where.threads:
        set_own_threads(where.threads)
    # torchrun starts several processes, and one forecast is enough.
    if process.first:
        device = device_of_rank(where.device, process.local_rank)
        world = max(where.devices, process.world)
        run = TrainingRun(out, open_dataset(dataset), config, Process(), device, [RunReporter(quiet)])
        show_forecast(forecast(run, world), world, device.type)


def _run(dataset: Path, out: Path, config: TrainConfig, where: Where, quiet: bool) -> int:
    """Train in the run folder `out`, in a process per device. A signal saves a checkpoint and ends the run.
    Return 0 if complete, or an exit code. Raise `UsageError` for several devices under torchrun or Slurm."""
    from nmt_cli.cli.reports.training_output import shown_run
    from nmt_cli.data.dataset import open_dataset
    from nmt_cli.training.setup.launch import LAUNCHER, run_on_devices
    from nmt_cli.training.step.distributed import process_from_environment

    process = process_from_environment()
    stop = Stop()
    launcher = int(os.environ.get(LAUNCHER, 0))
    if where.devices > 1 and process.world > 1 and not launcher:
        raise click.UsageError("--devices has no effect under torchrun and Slurm. Remove it.")
    if where.devices > 1 and process.world == 1:
        # Report errors of the dataset once, not in each process.
        open_dataset(dataset)
        return run_on_devices(
            sys.argv[1:],
            where.devices,
            lambda: stop.signal,
            lambda line: click.echo(f"Error: {printable(line)}", err=True),
        )

    def stop_wanted() -> bool:
        # A launcher that was killed can't stop its processes. They notice that their parent has changed.
        orphaned = launcher not in (0, os.getppid())
        return bool(stop.signal) or orphaned

    with shown_run(out, quiet, silent=not process.first) as report:
        command = ["nmt", *sys.argv[1:]]
        trained = api.train(
            dataset,
            out,
            config,
            device=where.device,
            threads=where.threads,
            report=report,
            stop_wanted=stop_wanted,
            command=command,
        )
        report.end(out, trained.complete)
    # A process without its launcher received no signal. It exits as if it were terminated.
    return 0 if trained.complete else EXIT_CODES[stop.signal or signal.SIGTERM]
