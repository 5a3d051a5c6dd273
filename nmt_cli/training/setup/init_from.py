"""Starts a run from the weights of another model, the parent, and freezes some of them."""

from collections.abc import Mapping, Sequence
from fnmatch import filter as matching
from pathlib import Path

import torch
from torch import Tensor, nn

from nmt_cli.checkpoints.entry_rows import fitted_rows
from nmt_cli.checkpoints.finding import CONFIG, WEIGHTS, find_model
from nmt_cli.checkpoints.model_folder import FORMAT, Identity, read_identity, weights, weights_path
from nmt_cli.checkpoints.verified_files import read_description, read_tensors
from nmt_cli.errors import UserError
from nmt_cli.model.config import disagreements
from nmt_cli.model.transformer import Transformer
from nmt_cli.setting_values import nearest
from nmt_cli.training.config import StartConfig
from nmt_cli.training.step.flat import trained

SHOWN = 3
"""Maximum number of differing parameters that an error names."""

SEARCH_NOT_COPIED = "; its search settings (see nmt info) are not copied: the new model uses nmt's defaults"


def start_from(model: Transformer, identity: Identity, config: StartConfig) -> str:
    """Copy the weights of the parent `config.model`, a model or run, into `model`. Return a message about the
    copy.

    With another vocabulary, rows are copied for the entries that both vocabularies have. A new entry starts
    as the mean of its old pieces. Parameters that only one of the models has, or whose shapes differ, cannot
    be copied.

    Raise `UserError` if there is such a parameter, and if settings make the two models use the same weights
    differently.
    """
    folder = find_model(Path(config.model))
    description = read_description(folder, CONFIG, FORMAT)
    parent = read_identity(folder, description)
    train_toml = folder / "train.toml"  # of an imported model
    remedy = f"Use {f'--config {train_toml}' if train_toml.is_file() else 'its [model] settings'}"
    if differences := [
        f"{key} is {getattr(parent.config, key)} there, but {getattr(identity.config, key)} here"
        for key in disagreements(parent.config, identity.config, "use")
    ]:
        raise UserError(f"{folder} is another kind of model: {'; '.join(differences)}. {remedy}.")
    # The optimiser's state belongs to the weights, not to their moving average.
    own = "optimizer" in config.take
    tensors = read_tensors(folder / WEIGHTS if own else weights_path(folder, description))
    transferred = ""
    if parent.tokenizers.fingerprint != identity.tokenizers.fingerprint:
        tensors, origins = fitted_rows(tensors, parent.tokenizers, identity.tokenizers)
        transferred = f"; it has another vocabulary: {origins}"
    if differing := _differing(weights(model), tensors):
        more = f"; and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
        raise UserError(f"{folder} is not this model: {'; '.join(differing[:SHOWN])}{more}. {remedy}.")
    with torch.no_grad():
        for name, tensor in tensors.items():
            weights(model)[name].copy_(tensor)
    summary = f"starting from {folder} ({len(tensors)} of {len(weights(model))} parameters by name)"
    search = SEARCH_NOT_COPIED if description.get("search") else ""
    taken = f", with its {' and '.join(config.take)}" if config.take else ""
    return f"{summary}{taken}{transferred}{search}"


def freeze(model: nn.Module, patterns: Sequence[str]) -> str:
    """Exclude parameters that match any of `patterns` from training. Return a message with the number of
    frozen weights. Raise `UserError` if a pattern matches no name, or if nothing is left to train."""
    # A tied matrix has several names, and a pattern may mean any of them.
    names = dict(model.named_parameters(remove_duplicate=False))
    for pattern in patterns:
        if not (matches := matching(names, pattern)):
            raise UserError(f"start.freeze: no parameter is named {pattern}: {nearest(pattern, names)}")
        for name in matches:
            names[name].requires_grad_(False)
    count, trained_count = (sum(p.numel() for p in group) for group in (model.parameters(), trained(model)))
    if not trained_count:
        raise UserError("start.freeze names all parameters, so there is nothing left to train.")
    return f"frozen: {count - trained_count:,} of {count:,} parameters ({', '.join(patterns)})"


def _differing(own: Mapping[str, Tensor], parent: Mapping[str, Tensor]) -> list[str]:
    """Return a text for each parameter that only one model has, or whose shapes differ."""
    missing = [f"{name} is missing" for name in own if name not in parent]
    surplus = [f"{name} is surplus" for name in parent if name not in own]
    return (
        missing
        + surplus
        + [
            f"{name} is {list(parent[name].shape)}, not {list(tensor.shape)}"
            for name, tensor in own.items()
            if name in parent and parent[name].shape != tensor.shape
        ]
    )
