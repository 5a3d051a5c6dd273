"""`nmt serve`: its settings and errors. Tests of the answers are in tests/serving."""

from pathlib import Path

import pytest

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
    assert "server.most_characters" in help and "--api-keys" in help


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


def test_several_devices_are_gpus(nmt: Nmt, made_models: Path) -> None:
    result = nmt("serve", made_models / "copies", "--device", "cpu", "--devices", "2")
    assert_one_line(result, 1, "--devices 2 needs 2 GPUs. On a CPU, use --threads instead.")
