"""Export packages for Argos Translate, the engine of LibreTranslate: a zip with a CTranslate2 model."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nmt_cli.checkpoints.model_folder import Model
from nmt_cli.interop.exporters import ctranslate2
from nmt_cli.interop.exporters.exported import SPMS, sentencepiece_with_rules
from nmt_cli.language import without_region
from nmt_cli.text.tokenizers import Recipe

NAME, PRECISIONS = "Argos Translate", ctranslate2.PRECISIONS
FILE = "translate-{}_{}.argosmodel"

LENGTH_PENALTY = 0.2
"""Length penalty that Argos Translate passes to CTranslate2."""

SEARCH: Mapping[str, Any] = {**ctranslate2.SEARCH, "length_penalty": LENGTH_PENALTY}


def losses(model: Model) -> list[str]:
    """Return a message for each feature of the model that Argos Translate lacks, or []. Start with the losses
    of CTranslate2. Add a message if each side has its own SentencePiece model."""
    recipe = model.identity.tokenizers.recipe
    messages = ctranslate2.losses(model)
    separate = not recipe.joint or recipe.own_models
    return messages + (["it has only one SentencePiece model for both sides"] if separate else [])


def write(model: Model, folder: Path, precision: str) -> list[str]:
    """Write the package `translate-SOURCE_TARGET.argosmodel` into `folder`. Return an empty list of notes.
    `precision` is fp32, fp16 or int8. Raise `UserError` if CTranslate2 is not installed."""
    recipe = model.identity.tokenizers.recipe
    codes = [without_region(lang) for lang in (recipe.source_lang, recipe.target_lang)]
    name = f"{codes[0]}_{codes[1]}"
    with TemporaryDirectory() as converted:
        ctranslate2.write(model, Path(converted), precision)
        with zipfile.ZipFile(folder / FILE.format(*codes), "w", zipfile.ZIP_STORED) as package:
            package.writestr(f"{name}/metadata.json", json.dumps(_metadata(recipe, codes), indent=1))
            package.writestr(
                f"{name}/sentencepiece.model",
                sentencepiece_with_rules(model.identity.tokenizers.source, recipe),
            )
            package.writestr(f"{name}/README.md", "Written by nmt export.\n")
            for file in sorted(Path(converted).iterdir()):
                if file.suffix in (".bin", ".json"):
                    package.write(file, f"{name}/model/{file.name}")
    return []


def _metadata(recipe: Recipe, codes: list[str]) -> dict[str, str]:
    return {
        "package_version": "1.0",
        "argos_version": "1.9.0",
        "from_code": codes[0],
        "from_name": recipe.source_lang,
        "to_code": codes[1],
        "to_name": recipe.target_lang,
    }


def translate(folder: Path, lines: list[str]) -> list[str]:
    """Return each line's translation by the package in `folder`, with the settings of Argos Translate.
    Replace each "_" in a translation by a space. Raise `UserError` if CTranslate2 is not installed."""
    with TemporaryDirectory() as unpacked:
        root = Path(unpacked)
        with zipfile.ZipFile(next(folder.glob("*.argosmodel"))) as package:
            package.extractall(root)
        (inner,) = root.iterdir()
        for name in SPMS.values():
            (inner / "model" / name).write_bytes((inner / "sentencepiece.model").read_bytes())
        options = {"length_penalty": LENGTH_PENALTY, "replace_unknowns": True}
        texts = ctranslate2.translated(inner / "model", lines, "auto", **options)
        return [text.replace("_", " ") for text in texts]  # as Argos Translate does
