"""The PyTorch module of a model: `read_model` and `write_model`, for training loops of other programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt_cli.translation.arguments import Anywhere, Device, Pair, checked_pairs

if TYPE_CHECKING:  # PyTorch takes seconds to load
    from nmt_cli.checkpoints.model_folder import Identity
    from nmt_cli.model.transformer import Transformer
    from nmt_cli.text.tokenizers import Tokenizers
    from nmt_cli.translation.pairs import Batch


@dataclass(frozen=True, slots=True, repr=False)
class TrainableModel:
    """A model as a PyTorch module with all of its weights in fp32, as returned by `read_model`."""

    transformer: Transformer
    """The module. It is in evaluation mode, so call `train` on it before training with dropout."""

    identity: Identity
    """Settings, tokenizers and training record, which `write_model` stores."""

    search: Mapping[str, Any]
    """The own search settings of an imported model, by name."""

    def __repr__(self) -> str:
        recipe = self.tokenizers.recipe
        count = sum(parameter.numel() for parameter in self.transformer.parameters())
        return f"<TrainableModel {recipe.source_lang}-{recipe.target_lang}, {count:,} parameters>"

    @property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers of source and target."""
        return self.identity.tokenizers

    def batch(self, pairs: Iterable[Pair]) -> Batch:
        """Return pairs of raw texts as the arguments of the module, on its device. `batch.target_tokens` are
        also the labels. Raises `UserError` for a text with more tokens than the model has positions.

        >>> trainable = read_model(folder, device="cpu")
        >>> batch = trainable.batch([("abc", "abc"), ("d", "d")])
        >>> logits = trainable.transformer.logits(trainable.transformer(*batch))
        >>> len(logits) == len(batch.target_tokens) == len("abc") + len("d") + 2  # with end tokens
        True
        """
        from nmt_cli.translation.pairs import batch_of_pairs

        return batch_of_pairs(self.transformer, self.tokenizers, checked_pairs(pairs))


def read_model(path: Anywhere, device: Device = "auto") -> TrainableModel:
    """Return the model in a model, checkpoint or run folder as a PyTorch module. `load` packs weights for
    translation instead. If there is a moving average, it is used as weights. `device` is as for `load`.
    Raises `UserError` for an invalid folder or device.

    >>> read_model(folder, device="cpu").transformer.output_matrix.requires_grad
    True
    """
    import torch

    from nmt_cli.checkpoints import model_folder
    from nmt_cli.checkpoints.finding import find_model, own_search
    from nmt_cli.runtime.devices import usable_devices

    folder = find_model(Path(path))
    model = model_folder.read_model(folder, usable_devices(device)[0])
    with torch.no_grad():
        for parameter in model.transformer.parameters():
            parameter.data = parameter.data.clone()  # not mapped from the file, which may change
    return TrainableModel(model.transformer, model.identity, own_search(folder))


def write_model(model: TrainableModel, out: Anywhere) -> Path:
    """Write the module of `model` as the model folder `out` in fp32, and return `out`. Confidence is not
    calibrated any more. Raises `UserError` for files at `out`, and for weights that are not finite.

    >>> trainable = read_model(folder, device="cpu")
    >>> load(write_model(trainable, run), device="cpu", threads=1).translate(["abc"])
    ['abc']
    """
    from nmt_cli.checkpoints import model_folder
    from nmt_cli.checkpoints.finding import WEIGHTS
    from nmt_cli.checkpoints.verified_files import refuse_not_finite
    from nmt_cli.runtime.atomic import folder_written_whole, refuse_other_files

    target = Path(out)
    refuse_other_files(target)
    tensors = {
        name: parameter.detach().float()
        for name, parameter in model_folder.weights(model.transformer).items()
    }
    for name, tensor in tensors.items():
        refuse_not_finite(target / WEIGHTS, name, tensor)
    trained_on = {
        name: value for name, value in model.identity.trained_on.items() if name != model_folder.CONFIDENCE
    }
    identity = replace(model.identity, trained_on=trained_on)
    with folder_written_whole(target) as folder:
        model_folder.write_model(folder, identity, tensors, {"search": model.search} if model.search else {})
    return target
