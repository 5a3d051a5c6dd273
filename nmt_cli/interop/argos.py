"""Read, write and find packages of Argos Translate, the engine of LibreTranslate.

A package is a zip or an installed folder with a model of CTranslate2. A command such as `nmt serve` may name
packages instead of models. They are imported once, into a cache.
"""

import hashlib
import json
import os
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nmt_cli import __version__
from nmt_cli.checkpoints.foreign_kinds import foreign_kind
from nmt_cli.checkpoints.model_folder import LoadedModel
from nmt_cli.errors import UserError
from nmt_cli.interop import ctranslate2
from nmt_cli.interop.conventions import SPMS
from nmt_cli.interop.foreign import Foreign, ImportOptions
from nmt_cli.interop.foreign import write as write_foreign
from nmt_cli.interop.foreign_settings import read_settings
from nmt_cli.language import without_region
from nmt_cli.runtime.devices import Precision
from nmt_cli.runtime.zips import unpacked

METADATA = "metadata.json"
PACKAGED = re.compile(
    r"[^/\\]+/(?:metadata\.json|sentencepiece\.model|bpe\.model|model/[\w.-]+\.(?:bin|json|txt))"
)
"""Names of the files to extract from a package of Argos Translate."""

PENALTY = 0.2
"""Length penalty that Argos Translate passes to CTranslate2."""

READ_SEARCH = {**ctranslate2.DEFAULTS, "beam": 4, "length_penalty": PENALTY, "unknown": False}
"""Settings of Argos Translate. It replaces unknown tokens by source tokens, so nmt avoids them."""

NAME, PRECISIONS = "Argos Translate", ctranslate2.PRECISIONS

SEARCH: Mapping[str, Any] = {**ctranslate2.SEARCH, "length_penalty": PENALTY}


def read_package(path: Path, options: ImportOptions) -> Foreign:
    """Return the model of a package of Argos Translate.

    `path` is an `.argosmodel`, a folder with one, or an installed folder. Raise `UserError` for another
    package, for a hostile or damaged file, and for a model that nmt cannot express.
    """
    packages = [] if (path / METADATA).is_file() else sorted(path.glob("*.argosmodel"))
    if len(packages) > 1:
        raise UserError(f"{path} has {len(packages)} packages. Name one of them, such as {packages[0]}.")
    path = packages[0] if packages else path
    if path.is_dir():
        metadata = read_settings(path / METADATA)
        metadata.demand("target_prefix", "")
        pair = metadata.text("from_code", ""), metadata.text("to_code", "")
        return ctranslate2.read_model(path / "model", path, pair, options, READ_SEARCH, NAME)
    with unpacked(path, PACKAGED) as folder:
        folders = [*folder.iterdir()]
        if len(folders) != 1:
            raise UserError(f"{path} has {len(folders)} folders with a model. A package has one.")
        return read_package(folders[0], options)


def model_folders(paths: Sequence[Path], show: Callable[[str], None]) -> list[Path]:
    """Return a model folder for each of `paths`: models, packages of Argos Translate, or folders of packages.

    A package is imported unless the cache has it. `show` gets a line about each import. Raise `UserError`
    for a package that nmt does not support.
    """
    folders = []
    for path in paths:
        is_folder = path.is_dir() and not _is_package(path)
        packages = [one for one in sorted(path.iterdir()) if _is_package(one)] if is_folder else []
        folders += [_imported(one, show) if _is_package(one) else one for one in packages or [path]]
    return folders


def _is_package(path: Path) -> bool:
    is_one = path.is_file() or (path / METADATA).is_file()
    return is_one and foreign_kind(path) == "Argos Translate"


def _imported(path: Path, show: Callable[[str], None]) -> Path:
    """Return the model folder of a package in the cache, and import the package if it is not there.

    The path has a hash of the sizes and times of the package's files, so that a changed package is imported
    again.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "nmt", "imported")
    path = path.resolve()
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    states = [(str(one), one.stat().st_size, one.stat().st_mtime_ns) for one in files]
    digest = hashlib.sha256(repr((__version__, states)).encode()).hexdigest()[:16]
    folder = cache / digest / (path.stem if path.is_file() else path.name)
    if not folder.is_dir():
        try:
            foreign = read_package(path, ImportOptions())
        except UserError as error:
            raise UserError(f"{error.message} Otherwise, leave {path} out.") from error
        write_foreign(foreign, folder)
        show(f"{path.name}: imported to {folder}")
    return folder


# Export


def losses(model: LoadedModel) -> list[str]:
    """Return a message for each feature of the model that Argos Translate does not support. [] means that it
    supports all.

    It supports what CTranslate2 does, but only with one SentencePiece model for both sides.
    """
    recipe = model.identity.tokenizers.recipe
    messages = ctranslate2.losses(model)
    separate = not recipe.joint or recipe.own_models
    return messages + (["it has only one SentencePiece model for both sides"] if separate else [])


def write(model: LoadedModel, folder: Path, precision: Precision) -> list[str]:
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
    """Return each line's translation by the package in `folder`, with the search of Argos Translate.

    It is computed in the precision of the package. Argos Translate itself computes in int8 by default, which
    changes some translations. Raise `UserError` if CTranslate2 is not installed.
    """
    with TemporaryDirectory() as unpacked:
        root = Path(unpacked)
        with zipfile.ZipFile(next(folder.glob("*.argosmodel"))) as package:
            # The package is an export of this process, so its names are safe.
            package.extractall(root)
        (inner,) = root.iterdir()
        # `translated` expects a model for each side, and the package has one for both.
        for name in SPMS.values():
            (inner / "model" / name).write_bytes((inner / "sentencepiece.model").read_bytes())
        options = {"length_penalty": PENALTY, "replace_unknowns": True}
        texts = ctranslate2.translated(inner / "model", lines, **options)
        return [text.replace("_", " ") for text in texts]  # as Argos Translate does
