"""The model folder: weights, architecture and tokenisers, all that turns raw text into translations.

`config.json` says what the model is and was trained on, `model.safetensors` holds the weights, and
`tokenizer/` is the dataset's own. A checkpoint folder is a model folder with more in it, such as a moving
average of the weights, `ema.safetensors`; where there is one, it is what was validated, and what translates.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from nmt_cli import __version__
from nmt_cli.checkpoints.files import (
    damaged,
    read_description,
    read_tensors,
    refuse_not_finite,
    tensor_shapes,
    write_description,
    write_tensors,
)
from nmt_cli.checkpoints.finding import CONFIG, EMA, WEIGHTS
from nmt_cli.config import section_of
from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.text.tokenizers import Tokenizers, load_tokenizers

FORMAT = 1
TOKENIZERS = "tokenizer"

REAL = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
"""Numbers that weights may have in files from outside."""

UNSAID = {"output_bias": False, "first_position": 0, "start": "mark"}
"""Settings that are newer than the format, and what was done without them."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a model is, its weights apart."""

    config: ModelConfig
    tokenizers: Tokenizers
    trained_on: Mapping[str, Any]
    """What the dataset says of where it comes from."""

    def build(self) -> Transformer:
        """The model with weights newly drawn."""
        both = (tokenizer.vocabulary for tokenizer in (self.tokenizers.source, self.tokenizers.target))
        return Transformer(self.config, *both, joint=self.tokenizers.recipe.joint)


@dataclass(frozen=True, slots=True)
class Model:
    """A model ready to use."""

    identity: Identity
    transformer: Transformer
    description: Mapping[str, Any]
    """The whole `config.json`."""


def weights(model: Transformer) -> dict[str, Tensor]:
    """Each parameter once, by name; one that serves twice has its first name."""
    return dict(model.named_parameters())


def write_model(
    folder: Path,
    identity: Identity,
    tensors: Mapping[str, Tensor],
    origin: Mapping[str, Any],
    ema: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a model folder's files into `folder`; `origin` says which training step, or what was averaged."""
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
        "model": _described(identity.config),
        "tokenizer": identity.tokenizers.fingerprint,
        "trained_on": identity.trained_on,
    }
    write_description(folder, CONFIG, description, covers=[WEIGHTS, EMA] if ema else [WEIGHTS])


def _described(config: ModelConfig) -> dict[str, Any]:
    """Its settings; newer ones that change nothing go unsaid, so that versions without them read it."""
    return {name: value for name, value in asdict(config).items() if UNSAID.get(name) != value}


def read_model(folder: Path, device: torch.device | str = "cpu") -> Model:
    """Load a model folder, after checking that its parts belong together."""
    description = read_description(folder, CONFIG, FORMAT)
    identity = read_identity(folder, description)
    path = weights_path(folder, description)
    _refuse_other_shapes(_shapes(identity), tensor_shapes(path), path)  # before memory is taken for them
    transformer = _undrawn(identity)
    load_weights(transformer, read_tensors(path), path)
    return Model(identity, transformer.to(device).eval(), description)


def _undrawn(identity: Identity) -> Transformer:
    """The model without memory for its weights."""
    with torch.device("meta"), _Undrawn():
        return identity.build()


def _shapes(identity: Identity) -> dict[str, Sequence[int]]:
    """The shape of each weight by name; only the first layer of each stack is built to know them."""
    config = identity.config
    layers = {"encoder": config.encoder_layers, "decoder": config.decoder_layers}
    first = replace(identity, config=replace(config, encoder_layers=1, decoder_layers=1))
    shapes: dict[str, Sequence[int]] = {}
    for name, shape in _shapes_of(weights(_undrawn(first))).items():
        stack, _, rest = name.partition(".0.")
        names = [f"{stack}.{i}.{rest}" for i in range(layers[stack])] if stack in layers else [name]
        shapes |= dict.fromkeys(names, shape)
    return shapes


class _Undrawn(TorchFunctionMode):
    """Weights that others will take the place of are not drawn: it would take longer than to read those."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in (Tensor.uniform_, Tensor.normal_):
            return args[0]
        return func(*args, **(kwargs or {}))


def weights_path(folder: Path, description: Mapping[str, Any]) -> Path:
    """The file of the weights to translate with."""
    return folder / (EMA if EMA in description["files"] else WEIGHTS)


def read_identity(folder: Path, description: Mapping[str, Any]) -> Identity:
    """What the model in `folder` is; `UserError` where its tokenisers are not its own."""
    try:
        config = section_of(ModelConfig, description["model"])
        fingerprint, trained_on = description["tokenizer"], description["trained_on"]
        _check_trained_on(trained_on)
    except (LookupError, ValueError, UserError) as error:
        raise damaged(folder / CONFIG, str(error)) from error
    tokenizers = load_tokenizers(folder / TOKENIZERS)
    if tokenizers.fingerprint != fingerprint:
        raise UserError(
            f"{folder / TOKENIZERS} is not the tokeniser that this model was trained with; "
            "copy the model folder again, whole."
        )
    return Identity(config, tokenizers, trained_on)


def _check_trained_on(told: Any) -> None:
    """Raise `ValueError` where it is not what a dataset says of itself; lines are cut by what it says."""
    told = told if isinstance(told, dict) else {"longest": 0}
    longest, ratio = told.get("longest"), told.get("length_ratio", 1.0)
    if longest is not None and (type(longest) is not int or longest < 2):
        raise ValueError(f"trained_on has no longest sentence: {longest!r}")
    if type(ratio) is not float or not 0 <= ratio < math.inf:
        raise ValueError(f"trained_on has no length_ratio: {ratio!r}")


@torch.no_grad()
def load_weights(model: Transformer, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy `tensors` into `model`, as fp32. `UserError` names `path` if they don't fit."""
    wanted = weights(model)
    _refuse_other_shapes(_shapes_of(wanted), _shapes_of(tensors), path)
    for name, parameter in wanted.items():
        if tensors[name].dtype not in REAL:
            kind = str(tensors[name].dtype).removeprefix("torch.")
            raise UserError(f"{path}: {name} is {kind}, but weights are fp32; take another checkpoint.")
        tensor = tensors[name].to(parameter.dtype)
        refuse_not_finite(path, name, tensor)
        # Takes the tensor itself, which is mapped from the file: no weight is held twice.
        if parameter.is_meta:
            torch.utils.swap_tensors(parameter, torch.nn.Parameter(tensor))  # type: ignore[no-untyped-call]
        else:
            parameter.copy_(tensor)


def _shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, Sequence[int]]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def _refuse_other_shapes(
    wanted: Mapping[str, Sequence[int]], found: Mapping[str, Sequence[int]], path: Path
) -> None:
    """Name the first weight that is not this model's."""
    if differing := sorted(wanted.keys() ^ found.keys()):
        where = "has no" if differing[0] in wanted else "has a surplus"
        raise UserError(f"{path} {where} {differing[0]}, so it belongs to another model.")
    for name, shape in wanted.items():
        if list(shape) != list(found[name]):
            raise UserError(f"{path}: {name} is {list(found[name])}, but this model's is {list(shape)}.")
