"""The scripts that make the corpora of recipes from the archives of their authors."""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from gzip import compress
from pathlib import Path

import pytest

from recipes.download import read_list
from tests.recipes.conftest import add_member

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
SCRIPTS = {"multi30k": "multi30k", "gum": "parsing/gum"}
TREE = "(ROOT\n  (NP\n    (DT the)   (NN cat)))\n\n(ROOT (NP (NN dogs)))\n"
FLAT = "(ROOT (NP (DT the) (NN cat)))\n(ROOT (NP (NN dogs)))\n"


def made(name: str, folder: Path, checksums: str) -> subprocess.CompletedProcess[str]:
    """Run the script with an archive in its folder that has all members that it lists."""
    (archive,) = read_list(RECIPES / SCRIPTS[name] / "downloads.toml")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for member in archive.members:
            text = TREE if name == "gum" else f"{member}\n"
            add_member(tar, member, compress(text.encode()) if member.endswith(".gz") else text.encode())
    (folder / "archives").mkdir(parents=True)
    (folder / "archives" / archive.name).write_bytes(out.getvalue())
    (folder.parent / "checksums.txt").write_text(checksums, encoding="utf-8")
    bin_folder = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"CHECKSUMS": str(folder.parent / "checksums.txt"), "PATH": bin_folder}
    command = [RECIPES / SCRIPTS[name] / "corpus.sh", folder]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


def line(text: str, name: str) -> str:
    return f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n"


def test_the_documents_of_gum_become_one_tree_per_line_in_the_split_of_the_corpus(tmp_path: Path) -> None:
    counts = {"train": 84, "valid": 12, "test": 12}
    sums = "".join(line(FLAT * count, f"{name}.trees") for name, count in counts.items())
    done = made("gum", tmp_path / "gum", sums)
    assert done.returncode == 0, done.stderr
    for name, count in counts.items():
        assert (tmp_path / "gum" / f"{name}.trees").read_text(encoding="utf-8") == FLAT * count


def test_multi30k_is_unpacked_and_val_is_named_valid(tmp_path: Path) -> None:
    prefix = "dataset-a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1"
    raw = f"{prefix}/raw/val.de.gz\n"
    done = made("multi30k", tmp_path / "text", line(raw, "valid.de"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "text" / "valid.de").read_text(encoding="utf-8") == raw
    tokenised = tmp_path / "text" / "tok" / "valid.lc.norm.tok.fr"
    assert tokenised.read_text(encoding="utf-8") == f"{prefix}/tok/val.lc.norm.tok.fr\n"


@pytest.mark.parametrize("name", SCRIPTS)
def test_another_text_than_the_listed_one_is_an_error(name: str, tmp_path: Path) -> None:
    file = {"multi30k": "train.en", "gum": "test.trees"}[name]
    done = made(name, tmp_path / "text", line("another", file))
    assert done.returncode != 0
    assert f"{file}: FAILED" in done.stdout


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_file_of_a_corpus_has_a_checksum(name: str) -> None:
    sums = (RECIPES / SCRIPTS[name] / "checksums.txt").read_text(encoding="utf-8").splitlines()
    files = {row.split("  ")[1] for row in sums}
    (archive,) = read_list(RECIPES / SCRIPTS[name] / "downloads.toml")
    if name == "gum":
        assert files == {"train.trees", "valid.trees", "test.trees"}
    else:
        members = archive.members.values()
        assert files == {member.removeprefix("compressed/").removesuffix(".gz") for member in members}
