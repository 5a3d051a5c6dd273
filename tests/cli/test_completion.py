"""Shell completion of commands, flags and presets."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt_cli.cli.main import nmt as group
from nmt_cli.config import preset_names
from tests.cli.conftest import Nmt

Complete = Callable[[str], list[tuple[str, str]]]


@pytest.fixture
def complete(nmt: Nmt, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """Return a function that completes the last word of a line as bash does, to kinds and values."""

    def complete(line: str) -> list[tuple[str, str]]:
        monkeypatch.setenv("_NMT_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        result = nmt()
        assert (result.returncode, result.stderr) == (0, "")
        rows = [row.partition(",") for row in result.stdout.splitlines()]
        return [(kind, value) for kind, _, value in rows if value or kind]

    return complete


def values(rows: list[tuple[str, str]]) -> list[str]:
    return [value for _, value in rows]


def test_commands_are_completed(complete: Complete) -> None:
    assert values(complete("nmt ")) == sorted(group.commands)
    assert values(complete("nmt tra")) == ["train", "translate"]


def test_flags_and_presets_are_completed(complete: Complete) -> None:
    assert "--init-from" in values(complete("nmt train --in"))
    assert values(complete("nmt train --preset ")) == preset_names()


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_itself_completes(nmt_script: Path) -> None:
    script = (
        f'PATH="{nmt_script.parent}:$PATH"; eval "$(_NMT_COMPLETE=bash_source nmt)"; '
        'COMP_WORDS=(nmt train --preset vas); COMP_CWORD=3; _nmt_completion nmt; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["vaswani2017-base", "vaswani2017-big"]
