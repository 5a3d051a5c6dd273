"""Packages of Argos Translate, which LibreTranslate translates with: a zip around a CTranslate2 model."""

import json
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from nmt_cli.checkpoints.model_folder import Model
from nmt_cli.interop.exporters import ctranslate2
from nmt_cli.interop.exporters.exported import travelling
from nmt_cli.language import without_region
from nmt_cli.text.tokenizers import Recipe

FILE = "translate-{}_{}.argosmodel"

LENGTH_PENALTY = 0.2
"""With which it has CTranslate2 search."""


def losses(model: Model) -> list[str]:
    """What it can't do as the model does."""
    recipe = model.identity.tokenizers.recipe
    two = not recipe.joint or recipe.own_models
    found = ctranslate2.losses(model)
    return found + (["each side has a SentencePiece model of its own, and it has one"] if two else [])


def write(model: Model, folder: Path, precision: str) -> list[str]:
    """Write the package into `folder`; returns what whoever uses it should know."""
    recipe = model.identity.tokenizers.recipe
    codes = [without_region(lang) for lang in (recipe.source_lang, recipe.target_lang)]
    name = f"{codes[0]}_{codes[1]}"
    with TemporaryDirectory() as made:
        ctranslate2.write(model, Path(made), precision)
        with zipfile.ZipFile(folder / FILE.format(*codes), "w", zipfile.ZIP_STORED) as package:
            package.writestr(f"{name}/metadata.json", json.dumps(_metadata(recipe, codes), indent=1))
            package.writestr(
                f"{name}/sentencepiece.model", travelling(model.identity.tokenizers.source, recipe)
            )
            package.writestr(f"{name}/README.md", "Written by nmt export.\n")
            for file in sorted(Path(made).iterdir()):
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
    """What the model in the package makes of lines when it is called as Argos Translate calls it."""
    with TemporaryDirectory() as unpacked:
        place = Path(unpacked)
        with zipfile.ZipFile(next(folder.glob("*.argosmodel"))) as package:
            package.extractall(place)
        (inner,) = place.iterdir()
        for name in ("source.spm", "target.spm"):
            (inner / "model" / name).write_bytes((inner / "sentencepiece.model").read_bytes())
        asked = {"length_penalty": LENGTH_PENALTY, "replace_unknowns": True}
        found = ctranslate2.translated(inner / "model", lines, "auto", **asked)
        return [text.replace("_", " ") for text in found]  # as it does
