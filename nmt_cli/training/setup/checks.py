"""The checks of a run before its first step. A start and a dry run make the same ones, in the same order.

The order matters: the first check that fails gives the message. Cheap checks of this process come first, so
that a wrong setting is reported in a second. What needs a model or a try is in `resume` and `preflight`.
"""

from collections.abc import Callable, Sequence
from importlib import import_module

import numpy as np

from nmt_cli.data.batching.resegment import refuse_no_effect, samplers
from nmt_cli.errors import UserError
from nmt_cli.runtime.memory import has_own_memory
from nmt_cli.training.setup.agreement import refuse_other_orders
from nmt_cli.training.setup.run import TrainingRun
from nmt_cli.training.validation.judge import refuse_uncomputable

Check = Callable[[TrainingRun], None]
"""A function that raises `UserError` if the run cannot start."""


def precision_exists(run: TrainingRun) -> None:
    """Refuse a training.precision that the device does not have."""
    _ = run.precision


def positions_suffice(run: TrainingRun) -> None:
    """Refuse a validation sentence with more tokens than the model has learned positions."""
    for split in run.dataset.valid_sets:
        longest = max(int(np.diff(side.offsets).max(initial=0)) for side in (split.source, split.target))
        if run.config.model.positions == "learned" and longest > run.config.model.longest:
            raise UserError(
                f"{split.name} has a sentence of {longest} tokens, but model.longest has only "
                f"{run.config.model.longest} positions. Raise it."
            )


def validation_can_be_watched(run: TrainingRun) -> None:
    """Refuse early stopping and the plateau schedule without a validation set."""
    if run.config.watches and not run.dataset.valid_sets:
        raise UserError(
            f"{run.dataset.folder} has no validation set, so validation.patience and the plateau schedule "
            "have nothing to watch. Make the dataset with --valid."
        )


def alignments_exist(run: TrainingRun) -> None:
    """Refuse guided alignment on a dataset without alignments, or whose alignments can't follow [sampling]
    and [augment]."""
    config = run.config
    if not config.training.guided_alignment:
        return
    if run.train_set.links is None:
        raise UserError(
            f"{run.dataset.folder} has no alignments for training.guided_alignment. Make it again with "
            "--set corpus.align=true."
        )
    if (config.sampling.enabled or config.augment.enabled) and run.train_set.word_links is None:
        raise UserError(
            f"{run.dataset.folder} was made by an older version, without the links between words that "
            "training.guided_alignment needs if [sampling] or [augment] changes the text. Make it again."
        )


def mixture_fits(run: TrainingRun) -> None:
    """Refuse settings in [mixing] that do not fit the corpora of the dataset."""
    _ = run.plan


def segmentation_changes(run: TrainingRun) -> None:
    """Refuse subword sampling and augmentation that would have no effect."""
    if run.config.sampling.enabled or run.config.augment.enabled:
        samplers(run.tokenizers, run.config.sampling)
        refuse_no_effect(run.tokenizers, run.config.augment)


def trackers_are_installed(run: TrainingRun) -> None:
    """Refuse TensorBoard or W&B if its library is missing."""
    # Imported to find out, because a library can be installed and broken.
    for module, name in {"tensorboard": "TensorBoard", "wandb": "Weights & Biases' client"}.items():
        try:
            if getattr(run.config.training, module):
                import_module(module)
        except ImportError as error:
            raise UserError(
                f"training.{module} needs {name}, which is not installed: pip install '.[{module}]', or "
                "leave the setting out."
            ) from error


def metric_fits_the_language(run: TrainingRun) -> None:
    """Refuse a validation.metric that cannot be computed for the target language."""
    refuse_uncomputable(run.config.validation.metric, run.tokenizers.recipe.target_lang)


def deterministic_size(run: TrainingRun) -> None:
    """Refuse training.deterministic on a GPU if the number of tokens that fit it has to be searched."""
    config = run.config.training
    if config.deterministic and has_own_memory(run.device) and not config.max_tokens_per_device:
        raise UserError(
            "--deterministic needs --max-tokens-per-device on a GPU, because the number of tokens that fit "
            "depends on other programs on the GPU."
        )


def ranks_agree(run: TrainingRun) -> None:
    """Refuse ranks that differ in settings, datasets, kinds of device, or versions."""
    refuse_other_orders(run.group, run.dataset, run.config, run.precision)


def metric_model_loads(run: TrainingRun) -> None:
    """Refuse a validation.metric_model that cannot be read."""
    # The last check, because reading gigabytes takes longer than all others.
    _ = run.comet


ALONE: Sequence[Check] = (
    precision_exists,
    positions_suffice,
    validation_can_be_watched,
    alignments_exist,
    mixture_fits,
    segmentation_changes,
    trackers_are_installed,
    metric_fits_the_language,
    deterministic_size,
)
"""Checks that need no other process."""

TOGETHER: Sequence[Check] = (ranks_agree, metric_model_loads)
"""Checks that all ranks make together. The first one joins the group."""


def check(run: TrainingRun, checks: Sequence[Check]) -> None:
    """Make `checks` in order. Raise the `UserError` of the first one that fails."""
    for one in checks:
        one(run)
