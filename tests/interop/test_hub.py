"""Exports on the Hub: their card, their upload, and what stops it."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, Literal

import pytest
import torch
from huggingface_hub import ModelCard

from nmt_cli.checkpoints.card import About
from nmt_cli.checkpoints.model_folder import Identity, read_model, weights, write_model
from nmt_cli.interop.hub import push
from nmt_cli.model.config import ModelConfig
from nmt_cli.scoring.measures import Score
from nmt_cli.text.tokenizers import Tokenizers
from tests.checks import refusal
from tests.interop.conftest import repository
from tests.interop.fake_hub import LARGE, FakeHub, Repository, used

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of huggingface_hub

Nmt = Callable[..., CompletedProcess[str]]

SHAPE: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1, "width": 32, "heads": 4, "start": "zeros"}
POSITIONS: dict[str, Literal["marian"]] = {"marian": "marian"}
BLEU = Score("bleu", "BLEU", "13a", 41.5649, "nrefs:1|case:mixed|tok:13a", "")
SCORES = {"valid": [BLEU, Score("chrf", "chrF2", "", 60.25, "nrefs:1|case:mixed", "")]}
LIBRARIES = {
    "huggingface": "transformers",
    "ctranslate2": "ctranslate2",
    "marian": "marian",
    "argos": "argostranslate",
}


@pytest.fixture
def model(tmp_path: Path, toy_tokenizers: Callable[..., Tokenizers]) -> Callable[..., Path]:
    """Return a function that writes a model with scores, of which a format has all settings."""

    def model(form: str = "huggingface") -> Path:
        identity = Identity(
            ModelConfig(**SHAPE, positions=POSITIONS.get(form, "sinusoidal")),
            toy_tokenizers(),
            {"longest": 100},
        )
        (folder := tmp_path / "ours").mkdir()
        write_model(folder, identity, weights(identity.build()), About(SCORES, "CC BY 4.0").recorded)
        return folder

    return model


@pytest.fixture
def pushed(
    model: Callable[..., Path], tmp_path: Path, nmt: Nmt, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> Nmt:
    """Return a function that exports a model to `theirs`, and pushes it to a repository with a token."""

    def pushed(name: str, *options: str, token: str = "writer") -> CompletedProcess[str]:
        monkeypatch.setenv("HF_TOKEN", token)
        out = ("--format", "huggingface", "--out", tmp_path / "theirs", "--quiet")
        return nmt("export", model(), *out, "--licence", "MIT", "--push", name, *options)

    return pushed


def in_folder(folder: Path) -> dict[str, bytes]:
    return {**repository(folder).files, ".gitattributes": b""}


def test_a_pushed_export_has_the_same_bytes_and_comes_back_as_the_model_that_it_was(
    pushed: Nmt, tmp_path: Path, hub: FakeHub, nmt: Nmt
) -> None:
    result = pushed("owner/name")
    assert result.returncode == 0, result.stderr
    there = hub.repositories["owner/name"]
    assert there.files == in_folder(tmp_path / "theirs")
    assert there.messages == ["Export by nmt"]
    assert not there.private
    assert there.files["model.safetensors"] in hub.stored.values()  # by LFS
    assert there.files["README.md"] not in hub.stored.values()
    result = nmt("import", "owner/name", "--out", tmp_path / "back")
    assert result.returncode == 0, result.stderr
    ours, back = (read_model(tmp_path / name) for name in ("ours", "back"))
    assert back.identity.tokenizers.fingerprint == ours.identity.tokenizers.fingerprint
    returned = weights(back.transformer)
    assert all(torch.equal(tensor, returned[name]) for name, tensor in weights(ours.transformer).items())


@pytest.mark.parametrize("form", LIBRARIES)
def test_every_export_has_a_card_that_the_client_of_the_hub_reads(
    form: str, model: Callable[..., Path], tmp_path: Path, nmt: Nmt
) -> None:
    out = tmp_path / "theirs"
    result = nmt("export", model(form), "--format", form, "--out", out, "--licence", "CC BY-NC-ND 4.0")
    assert result.returncode == 0, result.stderr
    card = ModelCard.load(out / "README.md")
    assert card.data.language == ["en", "de"]
    assert (card.data.pipeline_tag, card.data.license) == ("translation", "cc-by-nc-nd-4.0")
    assert card.data.library_name == LIBRARIES[form]
    assert card.data.eval_results
    results = [
        (one.task_type, one.dataset_name, one.metric_type, one.metric_value, one.metric_args)
        for one in card.data.eval_results
    ]
    assert results == [
        ("translation", "valid", "bleu", 41.56, {"signature": "nrefs:1|case:mixed|tok:13a"}),
        ("translation", "valid", "chrf", 60.25, {"signature": "nrefs:1|case:mixed"}),
    ]
    assert "# A translation model" in card.text
    assert "Licence of the data: CC BY 4.0." in card.text


def test_another_licence_has_its_name_on_the_card(
    model: Callable[..., Path], tmp_path: Path, nmt: Nmt
) -> None:
    out = ("--format", "huggingface", "--out", tmp_path / "theirs")
    assert nmt("export", model(), *out, "--licence", 'mine: "#1"').returncode == 0
    data: Any = ModelCard.load(tmp_path / "theirs" / "README.md").data
    assert (data.license, data.license_name) == ("other", 'mine: "#1"')


def test_a_new_private_repository_is_created_private(pushed: Nmt, hub: FakeHub) -> None:
    assert pushed("owner/name", "--private").returncode == 0
    assert hub.repositories["owner/name"].private


@pytest.mark.parametrize(
    ("name", "token", "message"),
    [
        ("owner/name", "", "--push needs a token of the Hub. Log in with hf auth login, or set HF_TOKEN."),
        ("name", "writer", "--push must be OWNER/NAME (got name)."),
        ("owner/na--me", "writer", "--push can't be owner/na--me: "),
    ],
    ids=["no token", "no owner", "invalid name"],
)
def test_before_the_export_the_name_and_the_token_are_checked(
    pushed: Nmt, tmp_path: Path, hub: FakeHub, name: str, token: str, message: str
) -> None:
    result = pushed(name, token=token)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert message in result.stderr
    assert not (tmp_path / "theirs").exists()
    assert hub.requests == []


@pytest.fixture
def export(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder like an export, with a large and a small file. The user has a token."""
    monkeypatch.setenv("HF_TOKEN", "writer")
    (folder := tmp_path / "theirs").mkdir()
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    (folder / "model.safetensors").write_bytes(b"x" * (LARGE + 1))
    return folder


def test_an_export_replaces_the_files_of_an_earlier_one(export: Path, hub: FakeHub) -> None:
    hub.repositories["owner/name"] = Repository({".gitattributes": b"", "README.md": b"old"}, private=True)
    push(export, "owner/name", private=True)
    assert hub.repositories["owner/name"].private
    assert hub.repositories["owner/name"].files == in_folder(export)


@pytest.mark.parametrize(
    ("name", "private", "token", "message"),
    [
        ("owner/name", False, "old", "the Hub does not accept the token. Log in again: hf auth login."),
        (
            "owner/name",
            False,
            "reader",
            "the token has no permission for owner/name. Change it at {}/settings/",
        ),
        ("other/name", False, "writer", "the token has no permission for other/name."),
        ("other/open", False, "writer", "the token has no permission for other/open."),
        (
            "owner/full",
            False,
            "writer",
            "{}/owner/full has other files, such as pytorch_model.bin. Name",
        ),
        ("owner/open", True, "writer", "{}/owner/open is public. Name a new repository, or omit --private."),
    ],
    ids=["old token", "token to read", "other owner", "repository of another", "other files", "public"],
)
def test_a_refused_push_changes_no_repository(
    export: Path,
    hub: FakeHub,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    private: bool,
    token: str,
    message: str,
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    hub.repositories["owner/full"] = Repository({"pytorch_model.bin": b"", "README.md": b""})
    hub.repositories["owner/open"] = hub.repositories["other/open"] = Repository({".gitattributes": b""})
    error = refusal(lambda: push(export, name, private=private))
    assert error.startswith(f"{export} is complete, but not pushed: {message.format(hub.address)}")
    assert [repository.messages for repository in hub.repositories.values()] == [[], [], []]
    assert len(hub.repositories["owner/full"].files) == 2


@pytest.mark.parametrize(
    ("request_line", "status", "content", "message"),
    [
        ("PUT /lfs", 400, {"error": "bad bytes"}, "Bad request: bad bytes."),
        ("objects/batch", 403, {}, "the token has no permission for owner/name."),
        ("/preupload/", 404, {}, "Client error '404 Not Found'"),
        ("/commit/", 412, {"error": "moved"}, "Client error '412 Precondition Failed'"),
        ("/commit/", 500, {}, "Server error '500 Internal Server Error'"),
        ("validate-yaml", 400, {"errors": [{"message": "bad licence"}]}, "README.md. - bad licence."),
    ],
)
def test_a_failed_upload_leaves_no_commit(
    export: Path, hub: FakeHub, request_line: str, status: int, content: dict[str, Any], message: str
) -> None:
    hub.failing[request_line] = (status, content, {})
    error = refusal(lambda: push(export, "owner/name", private=False))
    assert error.startswith(f"{export} is complete, but not pushed: ")
    assert message in error
    assert error.endswith(f". Then push it: hf upload owner/name {export}")
    assert "\n" not in error
    created = hub.repositories["owner/name"]
    assert (created.messages, created.files) == ([], {".gitattributes": b""})


def test_a_repository_that_changes_during_the_upload_gets_no_commit(
    export: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = hub.store

    def store_later(*arguments: Any, **options: Any) -> Any:
        hub.repositories["owner/name"].messages.append("by another user")
        return store(*arguments, **options)

    monkeypatch.setattr(hub, "store", store_later)
    assert "412 Precondition Failed" in refusal(lambda: push(export, "owner/name", private=False))
    assert hub.repositories["owner/name"].files == {".gitattributes": b""}


def test_without_the_network_the_error_names_the_remedy(export: Path, tmp_path: Path) -> None:
    with used("http://127.0.0.1:9", tmp_path / "cache", "writer"):
        error = refusal(lambda: push(export, "owner/name", private=False))
    assert "not pushed: http://127.0.0.1:9 cannot be reached. Check the network. Then push it: " in error
