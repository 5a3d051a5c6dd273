"""`nmt serve`: its settings and errors. Tests of the answers are in tests/serving."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from nmt_cli.serving.models import Served
from tests.cli.conftest import Nmt, assert_one_line


def test_a_missing_library_is_named_with_the_remedy(
    nmt: Nmt, made_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "nmt_cli.cli.commands.serve.find_spec", lambda name: None if name == "uvicorn" else name
    )
    result = nmt("serve", made_models / "copies")
    assert_one_line(
        result, 1, "Error: nmt serve needs uvicorn, which is not installed: pip install '.[serve]'."
    )


def test_serve_has_the_settings_of_search_input_and_server(nmt: Nmt) -> None:
    message = nmt("serve", "--settings", "--set", "server.most_waiting=7").stdout
    assert "most_waiting = 7" in message and "[search]" in message and 'sentences = "split"' in message
    help = nmt("serve", "--help").stdout
    assert "server.most_waiting" in help and "--api-keys" in help


def test_serve_shows_that_it_splits_texts_by_default(nmt: Nmt) -> None:
    assert 'input.sentences = "split"' in nmt("serve", "--help").stdout
    assert '\n#sentences = "split"\n' in nmt("serve", "--settings").stdout
    assert '\nsentences = "keep"\n' in nmt("serve", "--settings", "--set", "input.sentences=keep").stdout
    assert 'input.sentences = "keep"' in nmt("translate", "--help").stdout


@pytest.mark.slow
def test_two_models_for_one_language_pair_are_refused(nmt: Nmt, made_models: Path) -> None:
    folders = made_models / "copies", made_models / "silent"
    result = nmt("serve", *folders, "--device", "cpu", "--threads", "1", "--port", "0")
    message = "silent translates from en to de, and so does another model. Use only one."
    assert_one_line(result, 1, message)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> dict[str, Served]:
    """Return a dict that gets the models by name that a command would serve. No server is started."""
    models: dict[str, Served] = {}

    def serve(served: Mapping[str, Served], *_: object) -> None:
        models.update(served)

    monkeypatch.setattr("nmt_cli.serving.server.serve", serve)
    return models


UNLOADED = ("--set", "server.memory=1", "--device", "cpu")


def test_models_in_folders_of_one_name_have_different_names(
    nmt: Nmt, made_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: dict[str, Served]
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("fr-en/model", "model"):
        shutil.copytree(made_models / "copies", folder)
    assert nmt("serve", "fr-en/model", "model", *UNLOADED).returncode == 0
    assert [*served] == ["model", str(tmp_path.resolve() / "model")]
    result = nmt("serve", "model", "model", "model", *UNLOADED)
    assert_one_line(result, 1, "model is given several times. Give each MODEL once.")


@pytest.mark.parametrize("value", ["true", "True"])
def test_sampling_replaces_the_search_of_an_imported_model(
    nmt: Nmt, made_models: Path, tmp_path: Path, served: dict[str, Served], value: str
) -> None:
    shutil.copytree(made_models / "copies", tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    own = {"search": {"beam": 6, "stop_early": True, "max_length": 7}}
    file.write_text(json.dumps(json.loads(file.read_text()) | own))
    result = nmt("serve", tmp_path / "model", "--set", f"search.sample={value}", *UNLOADED)
    assert (result.returncode, [*served]) == (0, ["model"]), result.stderr


def test_several_devices_are_gpus(nmt: Nmt, made_models: Path) -> None:
    result = nmt("serve", made_models / "copies", "--device", "cpu", "--devices", "2")
    assert_one_line(result, 1, "--devices 2 needs 2 GPUs. On a CPU, use --threads instead.")
