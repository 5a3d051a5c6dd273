"""Read and write model folders: weights, architecture and tokenisers.

`config.json` describes the model and its training data, `model.safetensors` has the weights, and `tokenizer/`
the dataset's tokenisers. A checkpoint folder is a model folder with more files. If it has `ema.safetensors`,
the moving average of the weights, validation and translation use that file. `shortlist.safetensors` is the
shortlist of the model (`nmt_cli/text/shortlist.py`), if it has one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor
from torch.overrides import TorchFunctionMode

from nmt_cli import __version__
from nmt_cli.checkpoints.finding import CONFIG, EMA, TOKENIZERS, WEIGHTS
from nmt_cli.checkpoints.verified_files import (
    damaged,
    read_description,
    read_tensors,
    refuse_not_finite,
    tensor_shapes,
    write_description,
    write_tensors,
)
from nmt_cli.config import section_of
from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.atomic import file_written_whole
from nmt_cli.scoring.confidence import Calibration
from nmt_cli.text.shortlist import Shortlist
from nmt_cli.text.tokenizers import Tokenizers, load_tokenizers

FORMAT = 1
CONFIDENCE = "confidence"
"""The key of the calibration in the training record."""

GUIDED = "guided_alignment"
"""The key of the weight of training.guided_alignment in the training record, if it is not 0."""

SHORTLIST = "shortlist.safetensors"

TERMS = "terms"
"""The key of the SHA-256 of augment.terms_file in the training record, if terms were annotated."""

REAL = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
"""Accepted dtypes of weights in files."""

OMITTED = {
    "output_bias": False,
    "first_position": 0,
    "start": "mark",
    "norm_kind": "layer",
    "gated": False,
    "feed_forward_bias": True,
    "scale_embeddings": True,
    "window": 0,
}
"""Settings that are newer than the format, with the values that files without them mean."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The description of a model without its weights: settings, tokenisers and training record."""

    config: ModelConfig
    tokenizers: Tokenizers
    trained_on: Mapping[str, Any]
    """Training record: origin and limits of the training data, from the dataset."""

    @property
    def calibration(self) -> Calibration | None:
        """The map from token probabilities to confidence, if one was learnt."""
        values = self.trained_on.get(CONFIDENCE)
        return Calibration.read(values) if values else None

    def build(self) -> Transformer:
        """Return a new model with random weights, on the current default device."""
        vocabularies = (
            tokenizer.vocabulary for tokenizer in (self.tokenizers.source, self.tokenizers.target)
        )
        return Transformer(
            self.config,
            *vocabularies,
            joint=self.tokenizers.recipe.joint,
            guided=bool(self.trained_on.get(GUIDED)),
        )


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A loaded model with its description."""

    identity: Identity
    transformer: Transformer
    description: Mapping[str, Any]
    """The content of `config.json`."""

    shortlist: Shortlist | None = None


def weights(model: Transformer) -> dict[str, Tensor]:
    """Return the live parameters by name. A parameter with several names appears only under the first."""
    return dict(model.named_parameters())


def write_model(
    folder: Path,
    identity: Identity,
    tensors: Mapping[str, Tensor],
    origin: Mapping[str, Any],
    ema: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a model into `folder`, which exists.

    tensors: the weights by name.
    origin: more keys for `config.json`, such as the training step.
    ema: the moving average of the weights, if there is one.
    """
    write_tensors(folder / WEIGHTS, tensors)
    if ema:
        write_tensors(folder / EMA, ema)
    identity.tokenizers.save(folder / TOKENIZERS)
    description = {
        "format": FORMAT,
        "nmt": __version__,
        **origin,
        "languages": {
            "source": identity.tokenizers.recipe.source_lang,
            "target": identity.tokenizers.recipe.target_lang,
        },
        # New settings without effect are omitted, so that old versions can read the file.
        "model": {
            name: value for name, value in asdict(identity.config).items() if OMITTED.get(name) != value
        },
        "tokenizer": identity.tokenizers.fingerprint,
        "trained_on": identity.trained_on,
    }
    write_description(folder, CONFIG, description, covers=[WEIGHTS, EMA] if ema else [WEIGHTS])


def read_model(folder: Path, device: torch.device | str = "cpu") -> LoadedModel:
    """Return the model in `folder` on `device`, in evaluation mode.

    If there is a moving average of the weights, it is used instead of them. Raise `UserError` if a file is
    missing or damaged, or if weights and settings do not match.
    """
    description = read_description(folder, CONFIG, FORMAT)
    identity = read_identity(folder, description)
    path = weights_path(folder, description)
    _refuse_other_shapes(_shapes(identity), tensor_shapes(path), path)  # before allocating memory for them
    transformer = _without_weights(identity)
    load_weights(transformer, read_tensors(path), path)
    return LoadedModel(
        identity, transformer.to(device).eval(), description, read_shortlist(folder, identity.tokenizers)
    )


def write_shortlist(folder: Path, shortlist: Shortlist, tokenizers: Tokenizers) -> None:
    """Write the shortlist of the model in `folder`, or replace it."""
    fingerprint = np.frombuffer(tokenizers.fingerprint.encode(), np.uint8)
    arrays = {"offsets": shortlist.offsets, "targets": shortlist.targets, "tokenizer": fingerprint}
    with file_written_whole(folder / SHORTLIST) as file:
        file.write(save({name: torch.tensor(array) for name, array in arrays.items()}))


def read_shortlist(folder: Path, tokenizers: Tokenizers) -> Shortlist | None:
    """Return the shortlist of the model in `folder`, or None if it has none.

    Raise `UserError` if the file is damaged, or was made for other tokenisers.
    """
    if not (path := folder / SHORTLIST).is_file():
        return None
    tensors = read_tensors(path)
    sides = len(tokenizers.source.vocabulary), len(tokenizers.target.vocabulary)
    try:
        offsets, targets, fingerprint = (tensors[name] for name in ("offsets", "targets", "tokenizer"))
        if bytes(fingerprint.tolist()).decode() != tokenizers.fingerprint:
            raise UserError(f"{path} was made for another model. Make it again with nmt shortlist.")
        if (offsets.dtype, targets.dtype) != (torch.int64, torch.int32) or offsets.shape != (sides[0] + 1,):
            raise ValueError("its arrays have the wrong types or sizes")
        if offsets[0] or (offsets.diff() < 0).any() or targets.shape != (int(offsets[-1]),):
            raise ValueError("its offsets do not ascend to the end")
        if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < sides[1]:
            raise ValueError("it has tokens that do not exist")
    except (LookupError, ValueError, TypeError) as error:
        raise damaged(path, str(error)) from error
    return Shortlist(offsets.numpy().copy(), targets.numpy().copy())


def _without_weights(identity: Identity) -> Transformer:
    """Return the model on PyTorch's meta device, where weights have shapes, but no memory or values."""
    with torch.device("meta"), _SkipInitialization():
        return identity.build()


def _shapes(identity: Identity) -> dict[str, Sequence[int]]:
    """Return the shape of each weight of the model by name.

    Only one layer of each stack is built, since all layers have the same shapes.
    """
    config = identity.config
    layers = {"encoder": config.encoder_layers, "decoder": config.decoder_layers}
    first = replace(identity, config=replace(config, encoder_layers=1, decoder_layers=1))
    shapes: dict[str, Sequence[int]] = {}
    for name, shape in _shapes_of(weights(_without_weights(first))).items():
        stack, _, rest = name.partition(".0.")
        names = [f"{stack}.{i}.{rest}" for i in range(layers[stack])] if stack in layers else [name]
        shapes |= dict.fromkeys(names, shape)
    return shapes


class _SkipInitialization(TorchFunctionMode):
    """A mode in which PyTorch's `uniform_` and `normal_` change nothing, as the weights come from a file."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in (Tensor.uniform_, Tensor.normal_):
            return args[0]
        return func(*args, **(kwargs or {}))


def weights_path(folder: Path, description: Mapping[str, Any]) -> Path:
    """Return the path of the moving average if `description` lists its file, else of the weights."""
    return folder / (EMA if EMA in description["files"] else WEIGHTS)


def read_identity(folder: Path, description: Mapping[str, Any]) -> Identity:
    """Return the description of the model in `folder` without its weights.

    `description` is its verified `config.json`. Raise `UserError` if the settings, the training record or
    the tokenisers are invalid.
    """
    try:
        config = section_of(ModelConfig, description["model"])
        fingerprint, trained_on = description["tokenizer"], description["trained_on"]
        longest, ratio = trained_on.get("longest"), trained_on.get("length_ratio", 1.0)
        # `isinstance` would accept true, which is an int in Python.
        if longest is not None and (type(longest) is not int or longest < 2):
            raise ValueError(f"trained_on has no longest sentence: {longest!r}")
        if type(ratio) is not float or not 0 <= ratio < math.inf:
            raise ValueError(f"trained_on has no length_ratio: {ratio!r}")
        if CONFIDENCE in trained_on:
            Calibration.read(trained_on[CONFIDENCE])
    except (LookupError, ValueError, UserError) as error:
        raise damaged(folder / CONFIG, str(error)) from error
    tokenizers = load_tokenizers(folder / TOKENIZERS)
    if tokenizers.fingerprint != fingerprint:
        raise UserError(
            f"{folder / TOKENIZERS} is not the tokeniser that this model was trained with. "
            "Copy the complete model folder again."
        )
    return Identity(config, tokenizers, shareable(trained_on))


def shareable(trained_on: Mapping[str, Any]) -> dict[str, Any]:
    """Return a training record without what may name users, projects, files and commands: the folders of its
    files, and the filters of its corpora.

    A model folder is shared with its record. A record of another form is returned as it is.
    """
    try:
        inputs = [
            {name: value for name, value in part.items() if name != "filters"}
            | {"files": [file | {"path": file["path"].rpartition("/")[2]} for file in part["files"]]}
            for part in trained_on["inputs"]
        ]
    except (LookupError, TypeError, AttributeError):
        return dict(trained_on)
    return {**trained_on, "inputs": inputs}


@torch.no_grad()
def load_weights(model: Transformer, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy `tensors` by name into `model`, as fp32.

    For a model on PyTorch's meta device, which has no memory, `tensors` become its weights without a copy.
    Raise `UserError`, which names the file `path`, if names, shapes or dtypes do not fit, or if a value is
    not finite.
    """
    parameters = weights(model)
    _refuse_other_shapes(_shapes_of(parameters), _shapes_of(tensors), path)
    for name, parameter in parameters.items():
        if tensors[name].dtype not in REAL:
            kind = str(tensors[name].dtype).removeprefix("torch.")
            raise UserError(f"{path}: {name} is {kind}, but weights must be fp32. Use another checkpoint.")
        tensor = tensors[name].to(parameter.dtype)
        refuse_not_finite(path, name, tensor)
        # Use the tensor itself, which is mapped from the file, so that no weight is in memory twice.
        if parameter.is_meta:
            torch.utils.swap_tensors(parameter, torch.nn.Parameter(tensor))  # type: ignore[no-untyped-call]
        else:
            parameter.copy_(tensor)


def _shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, Sequence[int]]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def _refuse_other_shapes(
    expected: Mapping[str, Sequence[int]], actual: Mapping[str, Sequence[int]], path: Path
) -> None:
    """Raise `UserError` for the first weight that is missing, surplus or of another shape in `actual`."""
    if differing := sorted(expected.keys() ^ actual.keys()):
        problem = "has no" if differing[0] in expected else "has an additional"
        raise UserError(f"{path} {problem} {differing[0]}, so it belongs to another model.")
    for name, shape in expected.items():
        if list(shape) != list(actual[name]):
            raise UserError(f"{path}: {name} is {list(actual[name])}, but this model's is {list(shape)}.")
