"""Import packages of Argos Translate where a command names them instead of models, once, into a cache."""

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from nmt_cli import __version__
from nmt_cli.checkpoints.foreign import foreign_kind
from nmt_cli.errors import UserError
from nmt_cli.interop.foreign import ImportOptions, write
from nmt_cli.interop.importers.ctranslate2 import METADATA, read_package


def model_folders(paths: Sequence[Path], show: Callable[[str], None]) -> list[Path]:
    """Return a model folder for each of `paths`, which are models, packages, or folders of packages. Import a
    package unless the cache has it, and `show` that. Raise `UserError` for an unsupported package."""
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
    """Return the model folder of a package in the cache. Its path contains a hash of the sizes and times of
    the package's files, so that a changed package is imported again."""
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
        write(foreign, folder)
        show(f"{path.name}: imported to {folder}")
    return folder
