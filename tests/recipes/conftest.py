"""What the tests of recipes share: copying and running a recipe, and archives that stand in for downloads."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from nmt_cli.demo import corpus as grammar

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@pytest.fixture(scope="session")
def recipe(nmt_script: Path) -> Callable[..., CompletedProcess[str]]:
    """Runs `run.sh`, or another SCRIPT, of `recipes/NAME`, or of the folder given, with these arguments and
    variables, and the `nmt` under test, started by the fork server."""

    def run(name: str | Path, *arguments: object, **variables: object) -> CompletedProcess[str]:
        script = str(variables.pop("SCRIPT", "run.sh"))
        first, python = str(variables.pop("FIRST", "")), str(Path(sys.executable).parent)
        places = [first, str(nmt_script.parent), python, os.environ["PATH"]]
        environment = {**os.environ, "PATH": ":".join(filter(None, places)), "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            ["bash", str(RECIPES / name / script), *map(str, arguments)],
            env=environment | {key: str(value) for key, value in variables.items()},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def recipe_copy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Copies `recipes/NAME`, without what was run or kept there, and what all recipes share beside it."""

    def copy(name: str) -> Path:
        place = tmp_path_factory.mktemp(name) / "recipes"
        shutil.copytree(RECIPES / name, place / name, ignore=shutil.ignore_patterns("run", "results.jsonl"))
        for shared in ("environment.sh", "results.py", "README.md"):
            shutil.copy(RECIPES / shared, place)
        return place / name

    return copy


@pytest.fixture(scope="session")
def toy_text() -> Callable[..., Path]:
    """Write pairs of the demo grammar to FOLDER/NAME.LANGUAGE, for each name and size.."""

    def write(folder: Path, languages: Sequence[str] = ("en", "de"), **sizes: int) -> Path:
        folder.mkdir(parents=True)
        for name, size in sizes.items():
            pairs = grammar.corpus(name.partition("_")[0], size, seed=1)
            for language in languages:
                lines = (f"{pair.en if language == 'en' else pair.de}\n" for pair in pairs)
                (folder / f"{name}.{language}").write_text("".join(lines), encoding="utf-8")
        return folder

    return write


@pytest.fixture(scope="session")
def stand_ins() -> Callable[[str, Path, Callable[[str], bytes]], Path]:
    """Packs archives like those of a list in `recipes/`; returns the list with their addresses and checksums.

    `content` says what is in each file, by the name that the recipe gives it.
    """

    def pack(downloads: str, folder: Path, content: Callable[[str], bytes]) -> Path:
        tables = []
        for archive in tomllib.loads((RECIPES / downloads).read_text("utf-8"))["archive"]:
            place = folder / archive["name"]
            with tarfile.open(place, "w" if place.suffix == ".tar" else "w:gz") as tar:
                for member, name in archive["members"].items():
                    _add(tar, member, content(name))
            algorithm = next((kind for kind in ("sha256", "md5") if kind in archive), None)
            checksum = (
                {algorithm: hashlib.new(algorithm, place.read_bytes()).hexdigest()} if algorithm else {}
            )
            tables.append(archive | {"urls": [place.as_uri()]} | checksum)
        made = folder / "downloads.toml"
        made.write_text("\n".join(map(_toml, tables)), "utf-8")
        return made

    return pack


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def _toml(table: dict[str, object]) -> str:
    """A table of the list; strings and lists of them are written alike in JSON and TOML."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in table.items() if key != "members"]
    members = table["members"]
    assert isinstance(members, dict)
    lines += [
        "[archive.members]",
        *(f"{json.dumps(key)} = {json.dumps(name)}" for key, name in members.items()),
    ]
    return "\n".join(["[[archive]]", *lines, ""])
