"""Describe another toolkit's model in our terms, and write it as a model folder."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from nmt_cli.checkpoints.model_folder import Identity, write_model
from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig
from nmt_cli.runtime.atomic import check_writable, folder_written_whole, refuse_other_files
from nmt_cli.setting_values import toml_literal
from nmt_cli.text.tokenizers import Tokenizers

PositionRule = Literal["marian", "huggingface"]

POSITIONS: Mapping[PositionRule, Literal["marian", "sinusoidal"]] = {
    "marian": "marian",
    "huggingface": "sinusoidal",
}
"""Our `model.positions` for the sinusoids of each toolkit."""

ACTIVATIONS: Mapping[str, Literal["relu", "gelu", "swish"]] = {
    "relu": "relu",
    "gelu": "gelu",
    "swish": "swish",
    "silu": "swish",
}
"""Our `model.activation` for each name in Hugging Face and fairseq."""

TRAINING = "train.toml"
"""Settings file beside the model. `nmt train --config` continues training with it."""

BOUNDS: Mapping[tuple[str, ...], tuple[int, int]] = {
    ("beam",): (1, 100),
    ("length_penalty", "length_rule"): (0, 10),
    ("cap_ratio", "cap_extra"): (0, 100),
    ("cap_extra", "cap_ratio"): (0, 10_000),
}
"""Lowest and highest value of an imported search setting. Further names are settings that depend on it."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options of `nmt import`. None means that the value comes from the model."""

    source_lang: str | None = None
    target_lang: str | None = None
    positions: PositionRule | None = None

    def languages(self, source: str, target: str, where: Path) -> tuple[str, str]:
        """Return the source and target language from the options. If an option is missing, take the model's
        `source` or `target`. Raise `UserError`, which names the path `where`, for an empty language."""
        languages = self.source_lang or source, self.target_lang or target
        if not languages[0] or not languages[1]:
            raise UserError(f"{where} does not record its languages. Add --source-lang and --target-lang.")
        return languages[0], languages[1]


@dataclass(frozen=True, slots=True)
class Foreign:
    """The contents of a model folder, read from another toolkit's model."""

    kind: str
    """Name of the toolkit, shown to people."""

    config: ModelConfig
    tokenizers: Tokenizers
    tensors: Mapping[str, Tensor]
    """Tensors by our names."""

    search: Mapping[str, Any] = field(default_factory=dict)
    """The toolkit's own search settings, under our names."""

    longest: int | None = None
    """Maximum sentence length in tokens that the model was made for, if known."""

    notes: Sequence[str] = ()
    """Notes for the user."""

    trained_on: Mapping[str, Any] = field(default_factory=dict)
    """Training record of a model that nmt exported."""

    @property
    def identity(self) -> Identity:
        """Return the description for the model folder: settings, tokenisers and training record. The record
        includes `longest`, if known."""
        longest = {"longest": self.longest} if self.longest else {}
        return Identity(self.config, self.tokenizers, {**self.trained_on, **longest})


def with_sane_search(foreign: Foreign) -> Foreign:
    """Return `foreign` without each search setting that is out of `BOUNDS`. Also leave out the dependent
    settings, listed beside it in `BOUNDS`. Add a note for each setting out of bounds."""
    search, notes = dict(foreign.search), [*foreign.notes]
    for (name, *dependent), (low, high) in BOUNDS.items():
        if not low <= (value := foreign.search.get(name, low)) <= high:
            search = {key: search[key] for key in search if key not in (name, *dependent)}
            notes.append(f"{name} is {value!s:.20}, not {low} to {high}, so nmt decodes with its default")
    return replace(foreign, search=search, notes=notes)


def check_free(out: Path) -> None:
    """Raise `UserError` if `out` cannot be created, is a file, or is a folder that is not empty."""
    refuse_other_files(out)
    check_writable(out)


def write(foreign: Foreign, out: Path) -> None:
    """Write the model folder `out`, completely or not at all, with `train.toml` for further training. The
    description records the toolkit and its search settings."""
    origin: dict[str, Any] = {"imported": foreign.kind}
    if foreign.search:
        origin["search"] = dict(foreign.search)
    with folder_written_whole(out) as folder:
        write_model(folder, foreign.identity, foreign.tensors, origin)
        (folder / TRAINING).write_text(_for_training(foreign.config), encoding="utf-8")


def _for_training(config: ModelConfig) -> str:
    """Return the text of `train.toml`, with which `nmt train` continues to train the model. If positions are
    not learned, leave out `longest`."""
    settings = asdict(config)
    if config.positions != "learned":
        del settings["longest"]  # it has no effect with other positions, and would be refused
    lines = [f"{name} = {toml_literal(value)}" for name, value in settings.items()]
    header = "# nmt train DATASET --config this file --init-from this folder"
    return "\n".join([header, "[model]", *lines, ""])
