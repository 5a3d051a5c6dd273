"""Export packages for Argos Translate, the engine of LibreTranslate: a zip with a CTranslate2 model."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nmt_cli.checkpoints.model_folder import Model
from nmt_cli.interop.exporters import ctranslate2
from nmt_cli.interop.exporters.exported import SPMS
from nmt_cli.interop.importers.ctranslate2 import ARGOS_PENALTY
from nmt_cli.language import without_region
from nmt_cli.runtime.devices import Precision

NAME, PRECISIONS = "Argos Translate", ctranslate2.PRECISIONS

SEARCH: Mapping[str, Any] = {**ctranslate2.SEARCH, "length_penalty": ARGOS_PENALTY}


def losses(model: Model) -> list[str]:
    """Return a message for each feature of the model that Argos Translate lacks, or []. Start with the losses
    of CTranslate2. Add a message if each side has its own SentencePiece model."""
    recipe = model.identity.tokenizers.recipe
    messages = ctranslate2.losses(model)
    separate = not recipe.joint or recipe.own_models
    return messages + (["it has only one SentencePiece model for both sides"] if separate else [])


def write(model: Model, folder: Path, precision: Precision) -> list[str]:
    """Write `translate-SOURCE_TARGET.argosmodel` into `folder`. Raise `UserError` without CTranslate2."""
    recipe = model.identity.tokenizers.recipe
    source, target = (without_region(lang) for lang in (recipe.source_lang, recipe.target_lang))
    metadata = {
        "package_version": "1.0",
        "argos_version": "1.9.0",
        "from_code": source,
        "from_name": recipe.source_lang,
        "to_code": target,
        "to_name": recipe.target_lang,
    }
    inner, path = f"{source}_{target}", folder / f"translate-{source}_{target}.argosmodel"
    with TemporaryDirectory() as converted, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as package:
        ctranslate2.write(model, Path(converted), precision)
        package.writestr(f"{inner}/metadata.json", json.dumps(metadata, indent=1))
        package.write(Path(converted, SPMS["source"]), f"{inner}/sentencepiece.model")
        package.writestr(f"{inner}/README.md", "Written by nmt export.\n")
        for file in sorted(Path(converted).iterdir()):
            if file.suffix in (".bin", ".json"):
                package.write(file, f"{inner}/model/{file.name}")
    return []


def translate(folder: Path, lines: list[str]) -> list[str]:
    """Return each line's translation by the package in `folder`, with the search settings of Argos
    Translate, but in the precision of the package. Argos Translate computes in int8 by default, which changes
    some translations. Replace each "_" by a space. Raise `UserError` if CTranslate2 is not installed."""
    with TemporaryDirectory() as unpacked:
        root = Path(unpacked)
        with zipfile.ZipFile(next(folder.glob("*.argosmodel"))) as package:
            package.extractall(root)
        (inner,) = root.iterdir()
        for name in SPMS.values():
            (inner / "model" / name).write_bytes((inner / "sentencepiece.model").read_bytes())
        options = {"length_penalty": ARGOS_PENALTY, "replace_unknowns": True}
        texts = ctranslate2.translated(inner / "model", lines, **options)
        return [text.replace("_", " ") for text in texts]  # as Argos Translate does
