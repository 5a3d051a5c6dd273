"""Opens the folder of a run: locks it, and checks and restores its newest checkpoint."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.checkpoints import finding, model_folder
from nmt_cli.checkpoints.finding import EMA, WEIGHTS, checkpoints, find_model
from nmt_cli.checkpoints.model_folder import TERMS, Identity, load_weights
from nmt_cli.checkpoints.run_folder import OPTIMIZER, STATE, read_state, sweep
from nmt_cli.checkpoints.verified_files import read_description, read_tensors
from nmt_cli.config import section_of
from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig
from nmt_cli.runtime.atomic import refuse_other_files
from nmt_cli.runtime.locks import take_lock
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.progress import Position, refuse_no_steps
from nmt_cli.training.settings import CONFIG, changes, compared, differences, stored
from nmt_cli.training.setup.agreement import refuse_other_checkpoints
from nmt_cli.training.setup.build import build_trainer
from nmt_cli.training.setup.precision import newest_checkpoint
from nmt_cli.training.setup.run import TrainingRun
from nmt_cli.training.step.ema import Ema
from nmt_cli.training.step.trainer import Trainer
from nmt_cli.training.tracking.events import Note, Warned
from nmt_cli.training.tracking.history import RunHistory
from nmt_cli.training.tracking.saver import Snapshot
from nmt_cli.training.validation.judge import Judge

TAKEN = {
    "optimizer": ("updates",),
    "schedule": ("step", "seconds", "device_seconds"),
    "data": ("epoch", "batch"),
}
"""The entries of the position that belong to each part of start.take."""

OF_BATCHES, SEED = ("batch", "mixing", "sampling", "augment"), "training.seed"
"""Sections and a setting on which the batches of a run depend."""

CHECKSUM = re.compile(r"sha256:\w+")
"""The checksum of a COMET model in its signature. Its name may change."""


@contextmanager
def claimed(run: Path) -> Iterator[None]:
    """Create the run folder if it is missing, and lock it for the block. Remove what killed saves left in it.

    Raise `UserError` if another process has the lock, if the folder cannot be written, or if it has files
    that are not of a run.
    """
    refuse_foreign(run)
    try:
        run.mkdir(parents=True, exist_ok=True)
        folder = os.open(run, os.O_RDONLY)
    except OSError as error:
        raise UserError(f"{run} can't be written: {error.strerror}. Choose another --out.") from error
    try:
        try:
            take_lock(folder, run)
        except BlockingIOError as error:
            raise UserError(
                f"another process is training in {run} now. Wait for it, or choose another --out."
            ) from error
        # Under the lock, so that no other process is writing what is removed here.
        sweep(run)
        yield
    finally:
        os.close(folder)  # releases the lock, as the death of the process does


def refuse_foreign(run: Path) -> None:
    """Raise `UserError` if `run` is a file, or has visible files but no checkpoint or `config.toml`."""
    if not checkpoints(run):
        refuse_other_files(run, "run", CONFIG, hidden=False)


def counted_characters(position: Position, history: RunHistory) -> bool:
    """Return whether BLEU counted characters in the earlier validations of the run. Then it has to go on
    counting them.

    The tokeniser of the language may be installed by now, but scores by words could not be compared with the
    earlier ones.
    """
    if position.bleu_tokenizer:
        return position.bleu_tokenizer == "char"
    # A run of an older version, which has only the signatures of its scores.
    signatures = [validation.line["signatures"].get("bleu", "") for validation in history.validations]
    return any("|tok:char|" in signature for signature in signatures)


def refuse_other_scores(run: Path, position: Position, history: RunHistory, judge: Judge) -> None:
    """Raise `UserError` if the scores of `judge` cannot be compared with the earlier ones in `position` and
    `history`.

    This is so with another first validation set, with another COMET model, and for a run validated by BLEU of
    words if the tokeniser of the language is no longer installed.
    """
    if position.judged_on not in ("", judge.first_set):
        problem = "so its scores cannot be compared with later ones"
        raise UserError(
            f"{run} was validated on another first set, {problem}. Restore the set, or choose another --out."
        )
    if history.validations and judge.config.metric == "bleu" and (reason := judge.in_characters):
        raise UserError(f"{run} was validated by words, and cannot resume by characters. {reason}")
    if not judge.comet:
        return
    signatures = [validation.line["signatures"].get("comet", "") for validation in history.validations]
    before = next(filter(None, reversed(signatures)), "")
    if before and CHECKSUM.findall(before) != CHECKSUM.findall(judge.comet.signature(1)):
        raise UserError(
            f"{run} was validated with another COMET model ({before}). Set validation.metric_model to that "
            "model, or choose another --out."
        )


def first_state(run: TrainingRun, newest: Path | None, to_take: Path | None) -> Snapshot:
    """Return the live parts of the run, equal on all ranks.

    newest: the newest checkpoint of the run, which is restored, or None for a new run.
    to_take: the checkpoint whose state a new run takes (start.take), if any.

    Raise `UserError` if a checkpoint does not fit or differs between ranks.
    """
    trainer = build_trainer(run, fresh=not newest)
    folder = "--init-from" if to_take else "run"
    refuse_other_checkpoints(run.group, newest or to_take, f"Let all of them see the same {folder} folder.")
    if newest:
        position = _restore(run, newest, trainer)
    else:
        position = take(run, to_take, trainer) if to_take else Position()
    ema = _moving_average(trainer, newest or (to_take if "optimizer" in run.config.start.take else None))
    return Snapshot(run.identity, trainer, ema, position, run.dataset.folder, resumed=bool(newest))


def step_to_resume(run: TrainingRun) -> int:
    """Return the step of the newest checkpoint, or 0 for a new run.

    Raise `UserError` if the folder has files that are not of a run, or if the run cannot resume from the
    checkpoint.
    """
    refuse_foreign(run.folder)
    newest = newest_checkpoint(run.folder)
    return int(_resumable(run, newest).state["step"]) if newest else 0


class _Resumable(NamedTuple):
    """What was compared before a run resumes from a checkpoint."""

    state: dict[str, Any]
    """The content of `state.json`."""

    changes: list[str]
    """A text for each setting that has changed."""

    has_settings: bool
    """Whether the run folder has its settings."""


def _resumable(run: TrainingRun, checkpoint: Path) -> _Resumable:
    """Compare a checkpoint with `run`, and return what a resumed run needs. Nothing is changed.

    Raise `UserError` if the checkpoint is damaged or of another dataset, if a setting has changed that
    cannot, or if the checkpoint's step is above training.max_steps.
    """
    config, has_settings = run.config, (run.folder / CONFIG).exists()
    if not run.process.first and (before := stored(run.folder)):
        # Other ranks may have another path to the same model.
        config = replace(config, start=replace(config.start, model=before.start.model))
    changed = changes(run.folder, config)
    state, description = _state_of(checkpoint, run.identity)
    if not has_settings:
        before = replace(run.config, model=section_of(ModelConfig, description["model"]))
        compared(run.folder, before, run.config, "Restore them, or choose another --out.")
    _refuse_earlier_end(state["step"], run)
    return _Resumable(state, changed, has_settings)


def _restore(run: TrainingRun, checkpoint: Path, trainer: Trainer) -> Position:
    """Restore weights, optimiser and loss scale from `checkpoint`, and return the position of the run.

    Report a note for each changed setting, and a warning if `config.toml` is missing. Raise `UserError` if
    the run cannot resume.
    """
    state, changed, has_settings = _resumable(run, checkpoint)
    for change in changed:
        run.report(Note(f"changed: {change}"))
    if not has_settings:
        consequence = "so only the settings of the model could be compared. It is written again."
        run.report(Warned(f"{run.folder / CONFIG} is missing, {consequence}"))
    load_weights(trainer.model, read_tensors(checkpoint / WEIGHTS), checkpoint / WEIGHTS)
    _restore_optimizer(checkpoint, trainer)
    # The file has more entries than the position, and newer versions may add others.
    return Position(**{f.name: state[f.name] for f in fields(Position) if f.name in state})


def checkpoint_to_take(run: TrainingRun) -> Path | None:
    """Return the checkpoint of start.model, or None if start.take is empty. Raise `UserError` for a model
    without the state of a training, such as an average or an imported model."""
    start = run.config.start
    if not start.take:
        return None
    folder = find_model(Path(start.model))
    if not (folder / STATE).is_file():
        raise UserError(
            f"{folder} is a model without the state of its training. Give a checkpoint or a run, or leave "
            "start.take out."
        )
    return folder


def take(run: TrainingRun, checkpoint: Path, trainer: Trainer) -> Position:
    """Restore the parts of `checkpoint` that start.take names, and return the position at which the new run
    begins.

    `checkpoint` is one of another run. Its weights are not restored here, since `build_trainer` copies them.
    Raise `UserError` in these cases:

    - The optimiser's state belongs to another vocabulary or another kind of optimiser.
    - The position in the data belongs to another dataset or to other settings of batches.
    - The schedule is plateau, whose rate depends on earlier validations.
    - Nothing is left to train at the position.
    """
    config, parts, identity = run.config, run.config.start.take, run.identity
    state = _read_state(checkpoint)
    description = read_description(checkpoint, finding.CONFIG, model_folder.FORMAT)
    if "optimizer" in parts:
        if description["tokenizer"] != identity.tokenizers.fingerprint:
            remedy = "Leave optimizer out of start.take."
            raise UserError(f"{checkpoint} was trained with another vocabulary. {remedy}")
        if not _restore_optimizer(checkpoint, trainer):
            problem = f"{checkpoint} has no state for optimizer.kind={config.optimizer.kind}"
            raise UserError(f"{problem}. Leave optimizer out of start.take.")
    if "data" in parts:
        if not _is_trained_on(description, identity):
            raise UserError(f"{checkpoint} was trained on another dataset. Leave data out of start.take.")
        _refuse_other_batches(checkpoint, config)
    if "schedule" in parts and config.schedule.kind == "plateau":
        raise UserError(
            "start.take has schedule, but the plateau schedule depends on earlier validations. Leave "
            "schedule out, and set schedule.peak to the last learning rate."
        )
    names = [name for part in parts for name in TAKEN[part]]
    position = Position(**{name: state[name] for name in names if name in state})
    refuse_no_steps(config, position.step, position.epoch, position.seconds)
    return position


def _moving_average(trainer: Trainer, checkpoint: Path | None) -> Ema | None:
    """Return the EMA in `checkpoint`, else a new one at the weights. Return None if optimizer.ema is 0."""
    if not trainer.config.optimizer.ema:
        return None
    ema = Ema(trainer.model, trainer.config.optimizer.ema)
    if checkpoint and (checkpoint / EMA).exists():
        ema.restore(read_tensors(checkpoint / EMA))
    return ema


def _state_of(checkpoint: Path, identity: Identity) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the contents of `state.json` and `config.json` of a checkpoint of this run.

    Raise `UserError` if the checkpoint is damaged, or if it was trained with another vocabulary, dataset or
    file of terms.
    """
    try:
        state = _read_state(checkpoint)
        description = read_description(checkpoint, finding.CONFIG, model_folder.FORMAT)
    except UserError as error:
        raise UserError(
            f"{error.message} Or remove {checkpoint} to resume from the checkpoint before it."
        ) from error
    if description["tokenizer"] != identity.tokenizers.fingerprint:
        raise UserError(f"{checkpoint} was trained with another vocabulary. Choose another --out.")
    trained_on = description["trained_on"]
    if not _is_trained_on(description, identity):
        raise UserError(f"{checkpoint} was trained on another dataset. Choose another --out.")
    if trained_on.get(TERMS) != identity.trained_on.get(TERMS):
        raise UserError(f"{checkpoint} was trained with another augment.terms_file. Choose another --out.")
    return state, description


def _read_state(checkpoint: Path) -> dict[str, Any]:
    """Return the contents of `state.json`. In older versions, each step was an update."""
    state = read_state(checkpoint)
    return {"updates": state["step"], **state}


def _is_trained_on(description: Mapping[str, Any], identity: Identity) -> bool:
    """Return whether the checkpoint with `description` was trained on the training data of `identity`."""
    before, now = description["trained_on"], identity.trained_on
    return all(before.get(key) == now.get(key) for key in ("files", "corpora"))


def _refuse_other_batches(checkpoint: Path, config: TrainConfig) -> None:
    """Raise `UserError` if the run of `checkpoint` has other settings of batches than `config`, because its
    position counts those batches. A checkpoint that was copied without its run has no settings to compare,
    and passes."""
    # A checkpoint is in RUN/checkpoints, also if a link such as RUN/best leads to it.
    if before := stored(checkpoint.resolve().parents[1]):
        changed = differences(before, config)
        if names := [name for name in changed if name.partition(".")[0] in OF_BATCHES or name == SEED]:
            problem = (
                f"{checkpoint} was trained on other batches ({'; '.join(changed[name] for name in names)})"
            )
            raise UserError(f"{problem}. Restore these settings, or leave data out of start.take.")


def _restore_optimizer(checkpoint: Path, trainer: Trainer) -> int:
    """Restore the state of the optimiser and the loss scale. Return the number of parameters with state."""
    tensors = read_tensors(checkpoint / OPTIMIZER)
    trainer.scale.restore(tensors)
    return trainer.optimizer.restore(tensors)


def _refuse_earlier_end(step: int, run: TrainingRun) -> None:
    """Raise `UserError` if `step`, the last step of the run, is above training.max_steps."""
    most = run.config.training.max_steps
    if step > most:
        raise UserError(
            f"{run.folder} has {step:,} steps already, more than --max-steps={most}. "
            "Raise it, or choose another --out."
        )
