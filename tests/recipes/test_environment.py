"""Every recipe uses the nmt of the active environment, or the one that `make install` creates."""

import re
import subprocess
from pathlib import Path

import pytest

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
RUNS = sorted(path for path in RECIPES.glob("*/run.sh"))


def run(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", **variables}
    return subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with environment.sh, before `make install`."""
    (tmp_path / "recipes").mkdir()
    text = (RECIPES / "environment.sh").read_text("utf-8")
    (tmp_path / "recipes" / "environment.sh").write_text(text, "utf-8")
    return tmp_path


def install(folder: Path, output: str) -> Path:
    """Write an `nmt` command that prints `output`, and return its folder."""
    folder.mkdir(parents=True)
    (folder / "nmt").write_text(f"#!/bin/sh\necho {output}\n", "utf-8")
    (folder / "nmt").chmod(0o755)
    return folder


def test_the_environment_of_make_install_is_used_if_no_other_has_nmt(checkout: Path) -> None:
    script = f"source {checkout}/recipes/environment.sh; nmt"
    refused = run(script)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"Error: there is no nmt command. Run 'make install' in {checkout} first, "
        "or activate an environment with nmt.\n"
    )
    install(checkout / ".venv" / "bin", "installed")
    assert run(script).stdout == "installed\n"
    active = install(checkout / "active", "active")
    assert run(script, PATH=f"{active}:/usr/bin:/bin").stdout == "active\n"


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.parent.name)
def test_every_recipe_loads_its_environment_and_accepts_options_of_preprocess(path: Path) -> None:
    text = path.read_text("utf-8")
    assert 'source "$here/../environment.sh"' in text
    commands = re.findall(r"^ *nmt preprocess (?:.*\\\n)*.*", text, re.M)
    learning = [command for command in commands if "--reuse-tokenizer" not in command]
    assert all(command.endswith("${PREPROCESS:-}") for command in learning)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        *((f"{name}/run.sh", "run.sh [-d DATA]") for name in ("back-translation", "mixing", "multilingual")),
        ("multi30k/run.sh -d text", "SETTINGS LANGUAGE"),
        ("multi30k/run.sh -d text tok/tiny", "SETTINGS LANGUAGE"),
        ("multi30k/run.sh -d text tok/missing de", "SETTINGS LANGUAGE"),
        ("multi30k/run.sh -d text -x tok/tiny de", "illegal option"),
        ("multi30k/steps.sh -d text de", "steps.sh [-d DATA]"),
        ("table3/run.sh -d text", "CORPUS [ROW ...]"),
        ("table3/run.sh -d text wmt15", "CORPUS [ROW ...]"),
        ("table3/run.sh -d text -x multi30k", "illegal option"),
    ],
)
def test_a_wrong_command_prints_the_usage_of_the_recipe(command: str, message: str) -> None:
    refused = run(f"bash {RECIPES}/{command}", NMT_DATA="")
    assert refused.returncode == 2 and message in refused.stderr
