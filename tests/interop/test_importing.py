"""`nmt import` on the command line: its output, its errors, and the use of its models."""

import errno
import hashlib
import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess, Popen
from typing import Any

import pytest

from nmt_cli.checkpoints.average import average, common_search, read_parts
from nmt_cli.checkpoints.finding import own_search
from nmt_cli.checkpoints.model_folder import read_model
from nmt_cli.cli.options import printer
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.errors import Notice, UserError
from nmt_cli.interop.foreign import ImportOptions, write
from nmt_cli.interop.foreign_settings import ForeignSettings
from nmt_cli.interop.importing import read
from tests.fork_server import CHANGE
from tests.interop.conftest import (
    assert_equal_tensors,
    assert_refused,
    marian_folder,
    repository,
    sentences,
)
from tests.interop.fake_hub import FakeHub, Repository, used

Nmt = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that tests must not change."""
    folder = tmp_path_factory.mktemp("hub") / "theirs"
    marian_folder(folder)
    return folder


@pytest.fixture
def changed(theirs: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return a copy with other settings in one of its JSON files."""

    def changed(name: str, **settings: Any) -> Path:
        folder = tmp_path / "changed"
        shutil.copytree(theirs, folder)
        content = json.loads((folder / name).read_bytes())
        (folder / name).write_text(json.dumps(content | settings))
        return folder

    return changed


def test_an_imported_model_is_trained_further_on_its_own_tokeniser(
    theirs: Path, tmp_path: Path, nmt: Nmt
) -> None:
    model = tmp_path / "model"
    assert nmt("import", theirs, "--out", model, "--target-lang", "de").returncode == 0
    for side, lang in (("source", "en"), ("target", "de")):
        lines = "".join(f"{line}\n" for line in sentences(side, 40))
        (tmp_path / f"text.{lang}").write_text(lines, encoding="utf-8")
    languages = ("--source-lang", "en", "--target-lang", "de")
    made = ("--reuse-tokenizer", model, "--out", tmp_path / "dataset", "--workers", "1")
    result = nmt("preprocess", *languages, "--train", tmp_path / "text", *made)
    assert result.returncode == 0, result.stderr
    start = ("--config", model / "train.toml", "--init-from", model)
    run = ("--out", tmp_path / "run", "--device", "cpu")
    few = ("--max-steps", "2", "--batch-tokens", "200", "--set", "schedule.factor=0.01")
    result = nmt("train", tmp_path / "dataset", *start, *run, *few)
    assert result.returncode == 0, result.stderr
    assert "starting from" in result.stderr
    assert "its search settings (see nmt info) are not copied" in result.stderr
    before, after = read_model(model), read_model(tmp_path / "run" / "last")
    assert after.identity.config == before.identity.config
    assert after.identity.tokenizers.fingerprint == before.identity.tokenizers.fingerprint
    bias = [each.transformer.state_dict().get("output_bias") for each in (before, after)]
    assert bias[0] is not None and bias[1] is not None
    assert 0 < float((bias[1] - bias[0]).abs().max()) < 0.1


def test_a_run_and_an_empty_file_are_refused_by_name(tmp_path: Path) -> None:
    assert_refused(Path(__file__).parents[1] / "golden" / "run", "is a run folder of nmt already")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.bin").touch()
    assert_refused(tmp_path, r"model\.bin is empty\. Copy it again")


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("config.json", {"model_type": "bart"}, "model_type is bart"),
        ("config.json", {"scale_embedding": False}, "scale_embedding is False"),
        ("config.json", {"decoder_attention_heads": 3}, "not a multiple of the 3 decoder_heads"),
        ("config.json", {"decoder_ffn_dim": 64}, r"is \[48, 32\], not \[64, 32\]"),
        ("config.json", {"activation_function": "mish"}, "activation_function is mish"),
        ("config.json", {"d_model": "32"}, 'd_model must be a whole number .got "32"'),
        ("config.json", {"encoder_layers": 4}, "has no encoder.layers.3"),
        ("config.json", {"encoder_layers": 2}, "has encoder.layers.2"),
        ("config.json", {"encoder_ffn_dim": 40, "decoder_ffn_dim": 40}, r"is \[48, 32\], not \[40, 32\]"),
        ("config.json", {"decoder_start_token_id": 4000}, "decoder_start_token_id is 4000"),
        ("config.json", {"eos_token_id": 1}, "must have separate ids"),
        ("vocab.json", {"zzz": 10**12}, "the id 1000000000000"),
        ("vocab.json", {"</s>": 1}, "one id to two pieces"),
        ("config.json", {"scale_embedding": [[]]}, "scale_embedding is "),
        ("tokenizer_config.json", {"source_lang": "/\ud800"}, "source_lang must be a text in UTF-8"),
        ("generation_config.json", {"no_repeat_ngram_size": 3}, "no_repeat_ngram_size is 3"),
        ("tokenizer_config.json", {"source_lang": None}, "Add --source-lang"),
    ],
    ids=str,
)
def test_a_setting_that_nmt_lacks_is_named(
    changed: Callable[..., Path], name: str, settings: dict[str, Any], message: str
) -> None:
    assert_refused(changed(name, **settings), message)


@pytest.mark.parametrize(
    ("settings", "left_out"),
    [
        ({"num_beams": 10**9}, ["beam"]),
        ({"num_beams": 0}, ["beam"]),
        ({"num_beams": -1, "length_penalty": -2.0}, ["beam", "length_penalty", "length_rule"]),
        ({"max_length": -5}, ["cap_ratio", "cap_extra"]),
        ({"max_length": 20_000}, ["cap_ratio", "cap_extra"]),
        ({"max_length": 10**400}, ["cap_ratio", "cap_extra"]),
        ({"num_beams": 100, "length_penalty": 0.0, "max_length": 2}, []),
    ],
    ids=str,
)
def test_search_settings_out_of_bounds_are_left_out_with_a_note(
    changed: Callable[..., Path], settings: dict[str, Any], left_out: list[str]
) -> None:
    every = {"beam", "length_rule", "length_penalty", "cap_ratio", "cap_extra", "unknown"}
    model = read(str(changed("generation_config.json", **settings)), ImportOptions())
    assert every - model.search.keys() == {*left_out}
    noted = [name for name in left_out if any(note.startswith(f"{name} is ") for note in model.notes)]
    assert bool(noted) == bool(left_out)
    SearchConfig(**model.search)  # it refuses values out of its own bounds


@pytest.mark.parametrize("value", ["1e999", "-1e999", "NaN", "1" + "0" * 400, "true", '"0.1"', "[]"])
def test_a_value_that_is_not_a_finite_number_is_refused_by_name(value: str) -> None:
    settings = ForeignSettings({"dropout": json.loads(value)}, "config.json")
    with pytest.raises(UserError, match=r"config\.json: dropout must be a number"):
        settings.number("dropout", 0.0)


def test_control_characters_of_a_language_are_printed_escaped(
    changed: Callable[..., Path], tmp_path: Path, nmt: Nmt, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands that use the model escape it, too."""
    folder = changed("tokenizer_config.json", source_lang="en\x1b]0;owned\x07")
    model = tmp_path / "model"
    for command in (("import", folder, "--out", model), ("info", model)):
        result = nmt(*command)
        assert result.returncode == 0
        assert r"en\x1b]0;owned\x07" in result.stdout + result.stderr
        assert "\x1b" not in result.stdout + result.stderr
    printer(quiet=False)("en\x1b]0;owned\x07-fr at http://127.0.0.1:1/")
    assert capsys.readouterr().err == "en\\x1b]0;owned\\x07-fr at http://127.0.0.1:1/\n"


def test_a_refused_import_prints_a_line_and_writes_nothing(
    changed: Callable[..., Path], tmp_path: Path, nmt: Nmt
) -> None:
    result = nmt("import", changed("config.json", scale_embedding=False), "--out", tmp_path / "out")
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["changed"]


@pytest.mark.parametrize(
    "command",
    [
        ("translate",),
        ("average-checkpoints", "--out", "out"),
        ("export", "--format", "argos", "--out", "out"),
        ("serve", "--port", "0"),
        ("train", "DATASET", "--out", "out", "--preset", "tiny", "--init-from"),
        (*"preprocess --source-lang en --target-lang fr --train text --out out --reuse-tokenizer".split(),),
    ],
    ids=lambda command: command[0],
)
def test_every_command_names_the_toolkit_of_a_model_and_how_to_convert_it(
    theirs: Path,
    nmt: Nmt,
    command: tuple[str, ...],
    toy_dataset: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    at = 1 if command[0] not in ("preprocess", "train") else len(command)
    command = tuple(str(toy_dataset) if word == "DATASET" else word for word in command)
    result = nmt(*command[:at], theirs, *command[at:])
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    message = f"is a model of Hugging Face, not of nmt. Convert it: nmt import {theirs} --out MODEL"
    assert message in result.stderr


def test_an_average_of_imported_models_has_their_search_settings(theirs: Path, tmp_path: Path) -> None:
    for name in "ab":
        write(read(str(theirs), ImportOptions()), tmp_path / name)
    average([tmp_path / "a", tmp_path / "b"], tmp_path / "mean")
    assert own_search(tmp_path / "mean") == own_search(tmp_path / "a") != {}
    described = json.loads((tmp_path / "b" / "config.json").read_text())
    for other in ({**described["search"], "beam": 2}, {}):
        searches = {"a": described["search"], "b": other}
        parts = [
            replace(part, description={"search": searches[part.folder.name]})
            for part in (read_parts([tmp_path / "a", tmp_path / "b"], "model.safetensors"))
        ]
        assert common_search(parts) == {}


@pytest.mark.parametrize("pickled", [False, True], ids=["safetensors", "pickled"])
def test_a_name_on_the_hub_gives_the_model_of_the_folder(pickled: bool, tmp_path: Path, hub: FakeHub) -> None:
    """Pickled weights are downloaded only if there are no others."""
    marian_folder(tmp_path / "theirs", pickled=pickled)
    hub.repositories["Helsinki-NLP/opus-mt-en-fr"] = repository(tmp_path / "theirs")
    if not pickled:
        hub.repositories["Helsinki-NLP/opus-mt-en-fr"].files["pytorch_model.bin"] = b"not needed"
    model = read("Helsinki-NLP/opus-mt-en-fr", ImportOptions())
    expected = read(str(tmp_path / "theirs"), ImportOptions())
    assert model.tokenizers.fingerprint == expected.tokenizers.fingerprint
    downloaded = {line.rsplit("/", 1)[1] for line in hub.requests if line.startswith("GET /Helsinki")}
    assert ("pytorch_model.bin" in downloaded) == pickled
    assert {"config.json", "source.spm", "target.spm"} <= downloaded


@pytest.mark.parametrize(
    ("name", "token", "message"),
    [
        (
            "owner/none",
            "",
            "there is no {}/owner/none. Check the name. If it is private, log in: hf auth login.",
        ),
        ("owner/private", "", "there is no {}/owner/private. "),
        (
            "owner/gated",
            "",
            "it is gated. Accept its conditions at {}/owner/gated, then log in: hf auth login.",
        ),
        ("owner/none", "old", "the Hub does not accept the token. Log in again: hf auth login."),
        ("owner/down", "", "{} cannot be reached. Check the network."),
    ],
    ids=["missing", "private", "gated", "old token", "down"],
)
def test_a_model_that_the_hub_does_not_give_is_refused_with_the_remedy(
    name: str, token: str, message: str, tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories["owner/gated"] = Repository({"config.json": b"{}"}, gated=True)
    hub.repositories["owner/private"] = Repository({"config.json": b"{}"}, private=True)
    hub.failing["/api/models/owner/down"] = (503, {}, {})
    monkeypatch.setenv("HF_TOKEN", token)
    start = f"{name} does not exist here, and cannot be downloaded: "
    assert_refused(name, re.escape(start + message.format(hub.address)))


def test_without_the_network_or_the_client_the_error_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as bound:  # and not listening
        bound.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with used(address, tmp_path):
            message = (
                f"owner/model does not exist here, and cannot be downloaded: {address} cannot be reached"
            )
            assert_refused("owner/model", message)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert_refused("owner/model", r"To download it from the Hub: pip install huggingface_hub\.")


@pytest.mark.slow
def test_quiet_commands_print_neither_progress_nor_retries_of_a_download(
    hub: FakeHub, tmp_path: Path, start_nmt: Callable[..., Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories["owner/model"] = Repository({"config.json": b"{}"})
    hub.failing["/tree/"] = (503, {}, {})
    variables = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
    # Otherwise the retries would wait for over 15 s.
    variables[CHANGE] = "import time; time.sleep = lambda seconds: None"
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    process = start_nmt("import", "owner/model", "--out", tmp_path / "m", "--quiet")
    _, errors = process.communicate(timeout=300)
    assert (process.returncode, errors.count("\n")) == (1, 1), errors


@pytest.mark.parametrize(
    ("name", "kind"), [("model.safetensors", "SHA-256"), ("vocab.json", "hash")], ids=["LFS", "Git"]
)
def test_a_download_of_another_content_is_refused_and_not_kept(
    name: str, kind: str, theirs: Path, tmp_path: Path, hub: FakeHub
) -> None:
    stored = repository(theirs)
    hub.repositories["owner/model"] = stored
    content = stored.files[name]
    other = content[:-1] + bytes([content[-1] ^ 1])
    etag = hashlib.sha256(content).hexdigest()
    headers = {"ETag": f'"{etag}"', "X-Repo-Commit": stored.sha}
    hub.failing[f"resolve/{stored.sha}/{name}"] = (200, other, headers)
    message = f"cannot be downloaded: {name} is damaged .its {kind} is not that of the Hub.. Try again"
    assert_refused("owner/model", message)
    hub.failing.clear()
    model = read("owner/model", ImportOptions())
    assert_equal_tensors(model.tensors, read(str(theirs), ImportOptions()).tensors)


def test_a_commit_that_is_a_path_is_refused_before_use(tmp_path: Path, hub: FakeHub) -> None:
    described = {"id": "owner/model", "sha": "../../../../x", "siblings": [{"rfilename": "config.json"}]}
    hub.failing["/api/models/owner/model"] = (200, described, {})
    assert_refused("owner/model", r"names an invalid commit, \.\./\.\./\.\./\.\./x")
    assert not any("tree" in line or "resolve" in line for line in hub.requests)
    assert [*tmp_path.rglob("x")] == []


def test_a_hub_that_does_not_answer_is_given_up_and_an_earlier_download_used(
    theirs: Path, tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt_cli.interop.hub.PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        news = pytest.warns(Notice, match=f"Downloading owner/model from {address}")
        with used(address, tmp_path / "cache"), news:
            assert_refused("owner/model", f"{address} cannot be reached. Check the network")
        with used(hub.address, tmp_path / "cache"):
            hub.repositories["owner/model"] = repository(theirs)
            read("owner/model", ImportOptions())
        with used(address, tmp_path / "cache"):
            model = read("owner/model", ImportOptions())
    assert_equal_tensors(model.tensors, read(str(theirs), ImportOptions()).tensors)


def test_a_full_disk_is_reported(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories["owner/model"] = Repository({"config.json": b"{}"})

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "model")

    monkeypatch.setattr("huggingface_hub.HfApi.snapshot_download", full)
    assert_refused("owner/model", r"cannot be downloaded: \[Errno 28\] No space left on device: 'model'\.")


NAMES = {
    "opus-mt-en-de": ("en", "de"),
    "gmq-eng": ("gmq", "eng"),
    "models--quickmt--quickmt-zh-en/snapshots/1f": ("zh", "en"),
    "model-en-de/step_10": ("en", "de"),
    "my-old/model": None,
    "opus-mt": None,
}


@pytest.mark.parametrize(("name", "pair"), NAMES.items(), ids=NAMES)
def test_languages_may_be_in_the_name_of_the_folder(
    name: str, pair: tuple[str, str] | None, tmp_path: Path
) -> None:
    if pair:
        assert ImportOptions().languages("", "", tmp_path / name) == pair
        assert ImportOptions(target_lang="fr").languages("", "", tmp_path / name) == (pair[0], "fr")
    else:
        with pytest.raises(UserError, match="Add source_lang"):
            ImportOptions().languages("", "", tmp_path / name)


def test_a_folder_without_a_supported_model_and_a_missing_one_are_refused(tmp_path: Path) -> None:
    assert_refused(tmp_path / "none", "does not exist")
    assert_refused(tmp_path, "is not a model that nmt import supports")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert_refused(tmp_path, r"is a model in GGUF format\. .* nmt import takes")
