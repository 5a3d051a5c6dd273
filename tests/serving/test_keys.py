"""API keys."""

from pathlib import Path

import pytest

from nmt_cli.api import Model
from nmt_cli.errors import UserError
from nmt_cli.serving.keys import Keys
from tests.serving.conftest import Client, Serving

BASIC = {"q": "a", "source": "en", "target": "de"}


@pytest.fixture(scope="module")
def guarded(german: Model, serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Client:
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text("# Anna's\nschlüssel\n\n  other  \n")
    return serving({"copies": german}, Keys(file))


def test_a_key_is_accepted_in_the_body_and_in_headers(guarded: Client) -> None:
    assert guarded.post("/translate", {**BASIC, "api_key": "schlüssel"}).status == 200
    assert guarded.form("/translate", {**BASIC, "api_key": "other"}).status == 200
    assert guarded.post("/translate", BASIC, authorization="Bearer other").status == 200
    chat = {"model": "en-de", "messages": [{"role": "user", "content": "a"}]}
    assert guarded.post("/v1/chat/completions", chat, authorization="Bearer other").status == 200
    deepl = {"text": "a", "target_lang": "DE"}
    assert guarded.post("/v2/translate", deepl, authorization="DeepL-Auth-Key other").status == 200
    assert guarded.post("/v2/translate", deepl, authorization="DeepL-Auth-Key othe").status == 403
    assert guarded.get("/v2/languages").status == 403


@pytest.mark.parametrize("key", ["", "othe", "others", "# Anna's", "\ud800", "schlussel"], ids=ascii)
def test_requests_with_a_wrong_key_are_refused(guarded: Client, key: str) -> None:
    for path in ("/translate", "/detect", "/attention", "/v2/translate"):
        assert guarded.post(path, {**BASIC, "api_key": key}).status == 403
    assert guarded.post("/v1/chat/completions", {**BASIC, "api_key": key}).status == 401
    assert guarded.service.metrics.value("nmt_sentences_total") == 0 or guarded.service.waiting == 0


def test_languages_and_metrics_need_no_key(guarded: Client) -> None:
    for path in ("/", "/health", "/languages", "/metrics"):
        assert guarded.get(path).status == 200


def test_a_file_without_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("\n# none\n")
    with pytest.raises(UserError, match="contains no key"):
        Keys(tmp_path / "keys")
