"""`nmt serve` says what it needs; what it answers is tested where it is made."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Nmt = Callable[..., CompletedProcess[str]]


def test_what_is_not_installed_is_named_with_its_cure(
    nmt: Nmt, made_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "nmt_cli.cli.commands.serve.find_spec", lambda name: None if name == "uvicorn" else name
    )
    result = nmt("serve", made_models / "copies")
    assert result.returncode == 1
    told = "nmt serve needs uvicorn, which is not installed: pip install '.[serve]'."
    assert result.stderr == f"Error: {told}\n"


def test_settings_of_search_input_and_server_are_offered(nmt: Nmt) -> None:
    told = nmt("serve", "--settings", "--set", "server.most_waiting=7").stdout
    assert "most_waiting = 7" in told and "[search]" in told and 'sentences = "split"' in told
    help = nmt("serve", "--help").stdout
    assert "server.most_characters" in help and "--api-keys" in help


@pytest.mark.slow
def test_two_models_for_one_pair_are_a_mistake(nmt: Nmt, made_models: Path) -> None:
    folders = made_models / "copies", made_models / "silent"
    result = nmt("serve", *folders, "--device", "cpu", "--threads", "1", "--port", "0")
    assert result.returncode == 1
    assert "silent translates from en to de, and so does another model. Use only one." in result.stderr
