"""Fixtures for the tests of recipes: copy and run a recipe, toy text, and archives in place of downloads."""

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
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from nmt_cli.demo import corpus as grammar

RECIPES = Path(__file__).resolve().parents[2] / "recipes"

TINY = (
    *("--set", "model.width=16", "--set", "model.feed_forward=16", "--set", "model.heads=2"),
    *("--set", "model.encoder_layers=1", "--set", "model.decoder_layers=1"),
    *("--batch-tokens", "500", "--save-every", "1", "--device", "cpu", "--quiet"),
)
"""Options of `nmt train` with which a recipe takes seconds."""

Recipe = Callable[..., CompletedProcess[str]]
StandIns = Callable[[str, Path, Callable[[str], bytes]], Path]


def text_lines(file: Path) -> list[str]:
    """Return the lines of a file."""
    return file.read_text("utf-8").splitlines()


def averaged_steps(model: Path) -> list[int]:
    """Return the steps of the checkpoints that a model averages."""
    return [part["step"] for part in json.loads((model / "config.json").read_text())["averaged"]]


@pytest.fixture(scope="session")
def recipe(nmt_script: Path) -> Recipe:
    """Return a function that runs `run.sh` of a recipe: `recipe(name_or_folder, *arguments, KEY=value)`.
    SCRIPT names another script. FIRST is put first on the PATH. Other keywords are environment variables. The
    script runs the `nmt` under test, which the fork server starts."""

    def run(name: str | Path, *arguments: object, **variables: object) -> CompletedProcess[str]:
        script = str(variables.pop("SCRIPT", "run.sh"))
        first, python = str(variables.pop("FIRST", "")), str(Path(sys.executable).parent)
        path = [first, str(nmt_script.parent), python, os.environ["PATH"]]
        environment = {**os.environ, "PATH": ":".join(filter(None, path)), "OMP_NUM_THREADS": "1"}
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
    """Return a function that copies `recipes/NAME` without results, and the files that all recipes share."""

    def copy(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name) / "recipes"
        shutil.copytree(RECIPES / name, folder / name, ignore=shutil.ignore_patterns("run", "results.jsonl"))
        for shared in ("environment.sh", "results.py", "README.md"):
            shutil.copy(RECIPES / shared, folder)
        return folder / name

    return copy


@pytest.fixture(scope="session")
def toy_text() -> Callable[..., Path]:
    """Return `toy_text(folder, languages, train=90, ...)`, which writes pairs of the demo grammar. It writes
    FOLDER/NAME.LANGUAGE for each name, and returns the folder."""

    def write(folder: Path, languages: Sequence[str] = ("en", "de"), **sizes: int) -> Path:
        folder.mkdir(parents=True)
        for name, size in sizes.items():
            pairs = grammar.corpus(name.partition("_")[0], size, seed=1)
            for language in languages:
                lines = (f"{pair.en if language == 'en' else pair.de}\n" for pair in pairs)
                (folder / f"{name}.{language}").write_text("".join(lines), encoding="utf-8")
        return folder

    return write


@dataclass(frozen=True)
class ToyRun:
    """A finished run of a recipe on toy text."""

    recipe: Path
    text: Path
    out: Path
    printed: str

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file of the results."""
        return text_lines(self.out / name)

    def records(self, name: str) -> list[Any]:
        """Return the JSON values of a file of the results, one per line."""
        return [json.loads(line) for line in self.lines(name)]

    def fingerprint(self, system: str) -> str:
        """Return the fingerprint of the tokenizers of a system's dataset."""
        dataset = json.loads((self.out / system / "dataset" / "dataset.json").read_bytes())
        return str(dataset["tokenizer"]["fingerprint"])


@pytest.fixture(scope="session")
def toy_run(
    recipe: Recipe,
    recipe_copy: Callable[[str], Path],
    toy_text: Callable[..., Path],
    tiny_settings: str,
) -> Callable[..., ToyRun]:
    """Return a function that runs a copy of a recipe: `toy_run(name, updates, languages, train=90)`."""

    def run(name: str, updates: int, languages: Sequence[str] = ("en", "de"), **sizes: int) -> ToyRun:
        copied = recipe_copy(name)
        (copied / "train.toml").write_text(tiny_settings, encoding="utf-8")
        text = toy_text(copied.parents[1] / "text", languages, **sizes)
        out = copied.parents[1] / "out"
        done = recipe(copied, "-d", text, "-o", out, updates, NMT_DATA="", PREPROCESS="--vocab-size 120")
        assert done.returncode == 0, done.stderr
        return ToyRun(copied, text, out, done.stdout)

    return run


@pytest.fixture(scope="session")
def stand_ins() -> StandIns:
    """Return a function that writes small archives in place of the archives in a list of `recipes/`. A file's
    content is `content(name)`, by its name in the recipe. The function returns the path of a list with the
    addresses and checksums of the small archives."""

    def pack(downloads: str, folder: Path, content: Callable[[str], bytes]) -> Path:
        tables = []
        for archive in tomllib.loads((RECIPES / downloads).read_text("utf-8"))["archive"]:
            path = folder / archive["name"]
            with tarfile.open(path, "w" if path.suffix == ".tar" else "w:gz") as tar:
                for member, name in archive["members"].items():
                    add_member(tar, member, content(name))
            algorithm = next((kind for kind in ("sha256", "md5") if kind in archive), None)
            checksum = {algorithm: hashlib.new(algorithm, path.read_bytes()).hexdigest()} if algorithm else {}
            tables.append(archive | {"urls": [path.as_uri()]} | checksum)
        list_path = folder / "downloads.toml"
        list_path.write_text("\n".join(map(_toml, tables)), "utf-8")
        return list_path

    return pack


def add_member(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file with this content to an archive."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def _toml(table: dict[str, object]) -> str:
    """Return the list's entry of an archive as TOML. JSON strings and lists of strings are valid TOML."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in table.items() if key != "members"]
    members = table["members"]
    assert isinstance(members, dict)
    files = [f"{json.dumps(key)} = {json.dumps(name)}" for key, name in members.items()]
    return "\n".join(["[[archive]]", *lines, "[archive.members]", *files, ""])
