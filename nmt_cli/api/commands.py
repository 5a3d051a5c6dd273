"""The functions for `nmt preprocess`, `nmt train` and `nmt average-checkpoints`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt_cli.config import preset_path, read
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.setting_values import check_section
from nmt_cli.training.config import TrainConfig
from nmt_cli.translation.arguments import Anywhere, Device, Pair, check_counts

if TYPE_CHECKING:  # PyTorch takes seconds to load
    from nmt_cli.data.preprocessing.pipeline import Outcome
    from nmt_cli.runtime.processes import Progress
    from nmt_cli.training.tracking.events import Report

Corpora = Iterable[Anywhere] | Iterable[Pair]
"""Names of corpora as for `nmt preprocess`, or the pairs of one corpus."""


def preprocess(
    source_lang: str,
    target_lang: str,
    train: Corpora,
    out: Anywhere,
    *,
    valid: Corpora = (),
    test: Corpora = (),
    reuse_tokenizer: str | None = None,
    config: PreprocessConfig | None = None,
    given: frozenset[str] = frozenset(),
    workers: int | None = None,
    overwrite: bool = False,
    progress: Progress = lambda stage, done, whole: None,
) -> Outcome:
    """Write the dataset folder `out` from raw parallel text. Corpora are named as for `nmt preprocess`, or
    they are pairs of texts in memory: a list, an iterator, or `zip(table["en"], table["de"])`.

    `reuse_tokenizer` is a path to take subwords from. `given` has the names of settings that the user set,
    even to the default. `workers` is the number of processes, by default one per core. `progress` gets the
    stage, the pairs done, and the total, 0 if unknown. `overwrite` replaces a dataset made with other
    settings. An up-to-date dataset stays. Raises `UserError` for invalid data or settings. The function
    starts processes, so call it below `if __name__ == "__main__":`.

    >>> outcome = preprocess("en", "de", [corpus], dataset, config=characters, workers=1)
    >>> outcome.manifest["splits"]["train"]["pairs"]
    300
    """
    from nmt_cli.data.preprocessing.job import PreprocessJob
    from nmt_cli.data.preprocessing.pipeline import preprocess as make_dataset
    from nmt_cli.runtime.threads import available_cores
    from nmt_cli.scoring.command import score_by_command

    check_counts(workers=workers)
    check_section("config", config, PreprocessConfig)
    settings = config or PreprocessConfig()
    corpora = (_corpora("train", train), _corpora("valid", valid), _corpora("test", test))
    job = PreprocessJob(
        source_lang, target_lang, *corpora, reuse_tokenizer, settings, given, score_by_command
    )
    return make_dataset(job, Path(out), workers or available_cores(), overwrite, progress)


def _corpora(name: str, given: Corpora) -> Sequence[str | Iterable[Pair]]:
    """Return the names of corpora in the argument `name`, or its pairs as one corpus. Raise `TypeError` for
    one text and for a table."""
    if isinstance(given, str | bytes | os.PathLike):
        raise TypeError(f"{name} must be a list of corpora, or pairs of texts (got one text). Use [{name}].")
    if hasattr(given, "columns"):
        raise TypeError(f"{name} must be pairs of texts. Use zip of both columns of the table.")
    items: Iterator[Any] = iter(given)
    first = next(items, None)
    if first is None:
        return []
    if isinstance(first, str | os.PathLike):
        return [os.fspath(item) for item in (first, *items)]
    # An iterator cannot go back, so the first pair is put before the others again.
    return [chain([first], items)]


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of `train`: the run folder, and whether all steps are done rather than stopped."""

    folder: Path
    complete: bool


def train(
    dataset: Anywhere,
    out: Anywhere,
    config: TrainConfig | None = None,
    *,
    device: Device = "auto",
    threads: int | None = None,
    report: Report = lambda event: None,
    stop_wanted: Callable[[], bool] = lambda: False,
    command: Sequence[str] = (),
) -> Trained:
    """Train on a dataset folder, and write the run folder `out`. The same call again resumes the run.

    Without `config`, the default settings apply. `device` is as for `load`. `threads` applies to a CPU, by
    default OMP_NUM_THREADS, or else all cores. `report` is called with each event, an object of a class in
    `nmt_cli.api.events`. When `stop_wanted` returns true, training saves a checkpoint and ends. `command` is
    recorded in the run folder. For several devices, start a process for each with torchrun or Slurm. All
    processes make the same call. Raises `UserError` for invalid data or settings.

    >>> trained = train(dataset, run, tiny, device="cpu")
    >>> trained.complete
    True
    >>> load(trained.folder, device="cpu", threads=1).translate([""])
    ['']
    """
    import torch

    from nmt_cli.data.dataset import open_dataset
    from nmt_cli.runtime.devices import device_of_rank, is_gpu
    from nmt_cli.training.setup.run import TrainingRun
    from nmt_cli.training.setup.start import start
    from nmt_cli.training.step.distributed import process_from_environment

    check_counts(threads=threads)
    check_section("config", config, TrainConfig)
    process = process_from_environment()
    where = device_of_rank(device, process.local_rank)
    opened = open_dataset(Path(dataset))
    run = TrainingRun(Path(out), opened, config or TrainConfig(), process, where, [report])
    # Training seeds PyTorch's generators, which belong to the caller.
    with torch.random.fork_rng([where] if is_gpu(where) else []):
        complete = start(run, stop_wanted, command, threads or 0)
    return Trained(run.folder, complete)


def preset(name: str, *assignments: str) -> TrainConfig:
    """Return the settings of the preset `name`, such as "tiny". Each assignment "section.key=value" changes
    one setting. Raises `UserError` for an unknown preset, setting or value.

    >>> preset("tiny", "training.max_steps=10").training.max_steps
    10
    """
    return read(TrainConfig, preset=preset_path(name), assignments=assignments)


def average(models: Sequence[Anywhere], out: Anywhere) -> Path:
    """Write the average of models, checkpoints or run folders as the model folder `out`, and return `out`.

    Of a run folder, only the best checkpoint counts, while `nmt average-checkpoints` takes the newest five.
    If all have a moving average (`optimizer.ema`), it replaces the weights.
    Replaces an earlier average at `out`. Raises `UserError` for other files at `out`, or a folder without a
    model or named twice. Settings, vocabulary and weights of the models must match.

    >>> load(average([folder], run), device="cpu", threads=1).translate(["abc"])
    ['abc']
    """
    from nmt_cli.checkpoints import choice
    from nmt_cli.checkpoints.average import average as write_average

    write_average(choice.named([Path(model) for model in models]), Path(out))
    return Path(out)
