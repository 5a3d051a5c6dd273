"""Another toolkit's model, in our terms, and what becomes of it: a model folder of ours."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from nmt_cli.checkpoints.model_folder import Identity, write_model
from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig
from nmt_cli.runtime.atomic import check_place, folder_written_whole, refuse_other_files
from nmt_cli.setting_values import toml_literal
from nmt_cli.text.tokenizers import Tokenizers

PositionRule = Literal["marian", "huggingface"]

POSITIONS: Mapping[PositionRule, Literal["marian", "sinusoidal"]] = {
    "marian": "marian",
    "huggingface": "sinusoidal",
}
"""Our `model.positions`, by who computes them so."""


TRAINING = "train.toml"
"""Beside the model: what `nmt train --config` wants for going on with it."""

BOUNDS: Mapping[tuple[str, ...], tuple[int, int]] = {
    ("beam",): (1, 100),
    ("length_penalty", "length_rule"): (0, 10),
    ("cap_ratio", "cap_extra"): (0, 100),
    ("cap_extra", "cap_ratio"): (0, 10_000),
}
"""The range of a search setting that comes with a model, and the settings that mean nothing without it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What whoever imports says of the model; None for what it says of itself."""

    source_lang: str | None = None
    target_lang: str | None = None
    positions: PositionRule | None = None

    def languages(self, source: str | None, target: str | None, where: Path) -> tuple[str, str]:
        """Both languages; `UserError` where nobody says which they are."""
        both = self.source_lang or source, self.target_lang or target
        if not both[0] or not both[1]:
            raise UserError(f"{where} does not say its languages; give --source-lang and --target-lang.")
        return both[0], both[1]


@dataclass(frozen=True, slots=True)
class Foreign:
    """All that a model folder of ours is made of."""

    kind: str
    """Whose it is, in words."""

    config: ModelConfig
    tokenizers: Tokenizers
    tensors: Mapping[str, Tensor]
    """By our names."""

    search: Mapping[str, Any] = field(default_factory=dict)
    """How its owner decodes: settings of our search by name."""

    longest: int | None = None
    """The most tokens of a sentence that it was made for, where that is known."""

    notes: Sequence[str] = ()
    """What whoever imports should know."""

    trained_on: Mapping[str, Any] = field(default_factory=dict)
    """What was known of its training when we exported it."""

    @property
    def identity(self) -> Identity:
        """What it is, for a model folder."""
        longest = {"longest": self.longest} if self.longest else {}
        return Identity(self.config, self.tokenizers, {**self.trained_on, **longest})


def with_sane_search(foreign: Foreign) -> Foreign:
    """Return the same model without search settings out of bounds, each with a note."""
    search, notes = dict(foreign.search), [*foreign.notes]
    for (name, *others), (low, high) in BOUNDS.items():
        if not low <= (value := foreign.search.get(name, low)) <= high:
            search = {each: search[each] for each in search if each not in (name, *others)}
            notes.append(f"{name} is {value!s:.20}, not {low} to {high}, so nmt decodes with its default")
    return replace(foreign, search=search, notes=notes)


def check_free(out: Path) -> None:
    """Raise `UserError` if `out` is not writable, or is neither missing nor an empty folder."""
    refuse_other_files(out)
    check_place(out)


def write(foreign: Foreign, out: Path) -> None:
    """Write the model folder `out`, whole or not at all."""
    origin: dict[str, Any] = {"imported": foreign.kind}
    if foreign.search:
        origin["search"] = dict(foreign.search)
    with folder_written_whole(out) as folder:
        write_model(folder, foreign.identity, foreign.tensors, origin)
        (folder / TRAINING).write_text(_for_training(foreign.config), encoding="utf-8")


def _for_training(config: ModelConfig) -> str:
    """The settings of `nmt train` that go on training a model."""
    lines = [f"{name} = {toml_literal(value)}" for name, value in asdict(config).items()]
    # Given beside other positions it would be refused, as it has no effect.
    left_out = ["longest"] if config.positions != "learned" else []
    kept = [line for line in lines if line.split(" ")[0] not in left_out]
    return "\n".join(["# nmt train DATASET --config this file --init-from this folder", "[model]", *kept, ""])
