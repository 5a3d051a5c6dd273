"""Export our models to the formats of other toolkits. Refuse models with unsupported features."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt_cli.checkpoints.model_folder import Model
from nmt_cli.errors import UserError
from nmt_cli.interop.exporters import argos, ctranslate2
from nmt_cli.interop.exporters import huggingface as huggingface_out
from nmt_cli.interop.exporters import marian as marian_out
from nmt_cli.interop.exporters.exported import text_losses
from nmt_cli.runtime.atomic import folder_written_whole
from nmt_cli.runtime.devices import Precision
from nmt_cli.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Toolkit:
    """A toolkit that can load an export."""

    name: str
    losses: Callable[[Model], list[str]]
    """Return the features of a model that the toolkit lacks, one message each."""

    precisions: Sequence[Precision]
    """Precisions that an export may have."""

    write: Callable[[Model, Path, Precision], list[str]]
    """Write the export into a folder. Return notes for the user."""

    translate: Callable[[Path, list[str]], list[str]]
    """Translate lines with the export in a folder and the toolkit, with a beam of 4."""

    search: Mapping[str, Any]
    """Settings with which our search gives the toolkit's results."""


OVER_LENGTHS: Mapping[str, Any] = {"length_rule": "power", "length_penalty": 1.0, "reach": 1000.0}
EARLY = {**OVER_LENGTHS, "stop_early": True}
"""CTranslate2 stops when the number of finished hypotheses reaches the beam size."""

EVERY: Sequence[Precision] = ("fp32", "fp16", "int8")

TOOLKITS: dict[str, Toolkit] = {
    "huggingface": Toolkit(
        "transformers",
        huggingface_out.losses,
        ("fp32", "fp16"),
        huggingface_out.write,
        huggingface_out.translate,
        OVER_LENGTHS,
    ),
    "ctranslate2": Toolkit(
        "CTranslate2", ctranslate2.losses, EVERY, ctranslate2.write, ctranslate2.translate, EARLY
    ),
    "marian": Toolkit(
        "Marian", marian_out.losses, ("fp32",), marian_out.write, marian_out.translate, OVER_LENGTHS
    ),
    "argos": Toolkit(
        "Argos Translate",
        argos.losses,
        EVERY,
        argos.write,
        argos.translate,
        {**EARLY, "length_penalty": argos.LENGTH_PENALTY},
    ),
}


def losses(model: Model, form: str) -> list[str]:
    """Return the features that an export as `form` (a key of `TOOLKITS`) would lose, one message each."""
    return TOOLKITS[form].losses(model) + text_losses(model.identity.tokenizers)


def export(model: Model, form: str, out: Path, precision: Precision = "fp32") -> Sequence[str]:
    """Export as `form`, a key of `TOOLKITS`, into the folder `out`, completely or not at all. Return notes
    for the user. Raise `UserError` if the toolkit lacks a feature of the model or `precision`.
    """
    toolkit = TOOLKITS[form]
    if lost := losses(model, form):
        raise UserError(f"{toolkit.name} does not support this model: {', '.join(lost)}.")
    if precision not in toolkit.precisions:
        supported = " or ".join(toolkit.precisions)
        raise UserError(f"--precision for {toolkit.name} must be {supported} (got {precision}).")
    with folder_written_whole(out) as folder:
        return toolkit.write(model, folder, precision)


def made_up(source: Tokenizer, count: int = 50) -> list[str]:
    """Return `count` lines, each of 2 to 13 random pieces. The same count gives the same lines."""
    generator = random.Random(count)
    pieces = sorted(source.numbering.pieces)
    return [source.decode(generator.choices(pieces, k=2 + i % 12)) for i in range(count)]
