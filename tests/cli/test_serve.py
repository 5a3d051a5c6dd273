"""`nmt serve` says what it needs; what it answers is tested where it is made."""

import builtins
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

Nmt = Callable[..., CompletedProcess[str]]


def test_what_is_not_installed_is_named_with_its_cure(
    nmt: Nmt, made_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *others: Any) -> Any:
        if name == "nmt_cli.serving.keys":
            raise ModuleNotFoundError(name="starlette")
        return real(name, *others)

    monkeypatch.setattr(builtins, "__import__", without)
    result = nmt("serve", made_models / "copies")
    assert result.returncode == 1
    assert result.stderr == (
        "Error: nmt serve needs starlette and uvicorn, of which starlette is not installed: "
        "pip install 'nmt-cli[serve]'.\n"
    )


def test_settings_of_search_input_and_server_are_offered(nmt: Nmt) -> None:
    told = nmt("serve", "--settings", "--set", "server.most_waiting=7").stdout
    assert "most_waiting = 7" in told and "[search]" in told and 'sentences = "split"' in told
    help = nmt("serve", "--help").stdout
    assert "server.most_characters" in help and "--api-keys" in help


def test_two_models_for_one_pair_are_a_mistake(nmt: Nmt, made_models: Path) -> None:
    folders = made_models / "copies", made_models / "silent"
    result = nmt("serve", *folders, "--device", "cpu", "--threads", "1", "--port", "0")
    assert result.returncode == 1
    assert "silent translates from en to de, as another model does; name only one." in result.stderr
