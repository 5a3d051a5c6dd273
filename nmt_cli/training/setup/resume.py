"""Going on where a run stands: what its newest checkpoint holds is checked, and put back."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from nmt_cli.checkpoints import finding, model_folder
from nmt_cli.checkpoints.files import read_description, read_tensors
from nmt_cli.checkpoints.finding import EMA, WEIGHTS
from nmt_cli.checkpoints.model_folder import Identity, load_weights
from nmt_cli.checkpoints.run_folder import read_optimizer, read_state
from nmt_cli.config import section_of
from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.position import Position
from nmt_cli.training.settings import CONFIG, changes, compared
from nmt_cli.training.setup.folder import newest_checkpoint, refuse_foreign
from nmt_cli.training.step.ema import Ema
from nmt_cli.training.step.trainer import Trainer
from nmt_cli.training.tracking.events import Note, Report, Warned


def refuse_going_on(run: Path, config: TrainConfig, identity: Identity) -> int:
    """The step that `run` stands at, 0 where there is none; `UserError` where `train` would not go on."""
    refuse_foreign(run)
    newest = newest_checkpoint(run) if run.exists() else None
    if not newest:
        return 0
    changes(run, config)
    step: int = _state_of(newest, identity)[0]["step"]
    _refuse_end_behind(step, run, config)
    return step


def restore(run: Path, checkpoint: Path, trainer: Trainer, identity: Identity, report: Report) -> Position:
    """Put weights, optimiser and loss scale back, and tell which settings have changed since."""
    for change in changes(run, trainer.config):
        report(Note(f"changed: {change}"))
    state, description = _state_of(checkpoint, identity)
    if not (run / CONFIG).exists():
        told = "so that no settings but the model's could be compared; it is written anew"
        report(Warned(f"{run / CONFIG} is missing, {told}"))
        before = replace(trainer.config, model=section_of(ModelConfig, description["model"]))
        compared(run, before, trainer.config, "set them so, or choose another --out.")
    load_weights(trainer.model, read_tensors(checkpoint / WEIGHTS), checkpoint / WEIGHTS)
    tensors = read_optimizer(checkpoint)
    trainer.optimizer.restore(tensors)
    trainer.scale.restore(tensors)
    # The file says more than the position, and newer versions may say more still.
    known = {field.name for field in fields(Position)}
    position = Position(**{key: value for key, value in state.items() if key in known})
    _refuse_end_behind(position.step, run, trainer.config)  # before the log is cut and settings are kept
    report(Note(f"resuming from step {position.step} ({checkpoint})"))
    return position


def moving_average(trainer: Trainer, checkpoint: Path | None) -> Ema | None:
    """The moving average of the weights, if one is wanted; it begins where no checkpoint has one."""
    if not trainer.config.optimizer.ema:
        return None
    ema = Ema(trainer.model, trainer.config.optimizer.ema)
    if checkpoint and (checkpoint / EMA).exists():
        ema.restore(read_tensors(checkpoint / EMA))
    return ema


def _state_of(checkpoint: Path, identity: Identity) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `state.json` and `config.json` of a checkpoint say, if it belongs to this dataset."""
    try:
        state = read_state(checkpoint)
        description = read_description(checkpoint, finding.CONFIG, model_folder.FORMAT)
    except UserError as error:
        raise UserError(f"{error} Or remove {checkpoint} to go on from the checkpoint before it.") from error
    if description["tokenizer"] != identity.tokenizers.fingerprint:
        raise UserError(f"{checkpoint} was trained with another vocabulary; choose another --out.")
    told = description["trained_on"]
    if any(told.get(key) != identity.trained_on.get(key) for key in ("files", "corpora")):
        raise UserError(f"{checkpoint} was trained on another dataset; choose another --out.")
    return state, description


def _refuse_end_behind(step: int, run: Path, config: TrainConfig) -> None:
    if step > config.training.max_steps:
        raise UserError(
            f"{run} stands at step {step:,} already, behind the end at {config.training.max_steps:,}; "
            "raise --max-steps, or choose another --out."
        )
