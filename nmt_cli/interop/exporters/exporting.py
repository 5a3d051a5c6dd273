"""Writes models of ours in other toolkits' forms, after saying what they have no place for."""

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
    """Whoever takes what we write."""

    name: str
    losses: Callable[[Model], list[str]]
    """What of a model it can't do, each in words."""

    precisions: Sequence[Precision]
    """What its files can keep."""

    write: Callable[[Model, Path, Precision], list[str]]
    """Writes a folder's files; returns what whoever uses them should know."""

    translate: Callable[[Path, list[str]], list[str]]
    """Translates lines with it, as its users do, with a beam of 4."""

    search: Mapping[str, Any]
    """Settings of our search that make it search alike."""


OVER_LENGTHS: Mapping[str, Any] = {"length_rule": "power", "length_penalty": 1.0, "reach": 1000.0}
EARLY = {**OVER_LENGTHS, "stop_early": True}
"""Where CTranslate2 searches, which ends at as many endings as the beam has hypotheses."""

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
    """What would be lost, each in words; where there is anything, the model can't be written so."""
    return TOOLKITS[form].losses(model) + text_losses(model.identity.tokenizers)


def export(model: Model, form: str, out: Path, precision: Precision = "fp32") -> Sequence[str]:
    """Write `out`, whole or not at all; returns what whoever uses it should know."""
    toolkit = TOOLKITS[form]
    if lost := losses(model, form):
        raise UserError(f"{toolkit.name} can't do what this model does: {'; '.join(lost)}.")
    if precision not in toolkit.precisions:
        kept = " or ".join(toolkit.precisions)
        raise UserError(f"nmt writes no {precision} for {toolkit.name}; take --precision {kept}.")
    with folder_written_whole(out) as folder:
        return toolkit.write(model, folder, precision)


def search_alike(form: str) -> Mapping[str, Any]:
    """Settings of our search that make it search as the other library does."""
    return TOOLKITS[form].search


def translate(form: str, out: Path, lines: list[str]) -> list[str]:
    """What the other library makes of lines; `UserError` where it is not installed."""
    return TOOLKITS[form].translate(out, lines)


def made_up(source: Tokenizer, count: int = 50) -> list[str]:
    """Lines of pieces drawn from the vocabulary, a few or many, the same each time."""
    chosen = random.Random(count)
    known = sorted(source.numbering.pieces)
    return [source.decode(chosen.choices(known, k=2 + i % 12)) for i in range(count)]
