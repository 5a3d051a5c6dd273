"""The official clients of the three APIs, with a real server."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import deepl
import openai
import pytest
from libretranslatepy import LibreTranslateAPI

pytestmark = pytest.mark.slow
KEY = "secret"
TEXT = "One dog runs.  Two cats sleep.\n\nThree birds sing.\n"


@pytest.fixture(scope="module")
def address(
    forked_nmt: Callable[..., Popen[bytes]], made_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Yield the address of a server with a key, for English-German and French-English."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"{KEY}\n")
    models = (made_models / "copies", made_models / "french")
    options = ("--port", "0", "--threads", "1", "--device", "cpu", "--api-keys", keys)
    with forked_nmt("serve", *models, *options) as process:
        try:
            assert process.stderr
            (address,) = re.findall(r"http://\S+:\d+", process.stderr.readline().decode())
            yield address
        finally:
            process.kill()


@pytest.fixture
def translator(address: str) -> deepl.DeepLClient:
    return deepl.DeepLClient(KEY, server_url=address)


@pytest.fixture
def chat(address: str) -> openai.OpenAI:
    return openai.OpenAI(api_key=KEY, base_url=f"{address}/v1", max_retries=0)


@pytest.fixture
def libre(address: str) -> LibreTranslateAPI:
    return LibreTranslateAPI(address, KEY)


def test_deepl_translates_texts(translator: deepl.DeepLClient) -> None:
    one = translator.translate_text(TEXT, source_lang="EN", target_lang="DE")
    assert isinstance(one, deepl.TextResult)
    assert (one.text, one.detected_source_lang, one.billed_characters) == (TEXT, "EN", len(TEXT))
    several = translator.translate_text(["A dog.", "", "Two cats."], target_lang="DE", context="Animals.")
    assert [str(text) for text in several] == ["A dog.", "", "Two cats."]  # type: ignore[union-attr]
    through = translator.translate_text("Un chien.", source_lang="FR", target_lang="DE")
    assert str(through) == "Un chien."


@pytest.mark.parametrize(
    "options",
    [
        {"formality": "prefer_more"},
        {"formality": deepl.Formality.DEFAULT, "split_sentences": "nonewlines", "preserve_formatting": True},
        {"tag_handling": "html"},
        {"tag_handling": "xml", "ignore_tags": ["x"], "outline_detection": False},
        {"model_type": "prefer_quality_optimized"},
    ],
    ids=str,
)
def test_deepl_translates_with_options(translator: deepl.DeepLClient, options: dict[str, object]) -> None:
    text = "A dog <x>runs</x>." if "tag_handling" in options else "A dog runs."
    result = translator.translate_text(text, source_lang="EN", target_lang="DE", **options)  # type: ignore[arg-type]
    assert str(result) == text


def test_deepl_lists_languages(translator: deepl.DeepLClient) -> None:
    assert [str(one) for one in translator.get_source_languages()] == ["EN", "FR"]
    targets = translator.get_target_languages()
    assert [(str(one), one.name, one.supports_formality) for one in targets] == [
        ("DE", "German", False),
        ("EN", "English", False),
    ]


def test_deepl_counts_characters(translator: deepl.DeepLClient) -> None:
    before = translator.get_usage().character.count
    translator.translate_text("A dog.", target_lang="DE")
    usage = translator.get_usage()
    assert before is not None and usage.character.count == before + len("A dog.")
    assert not usage.any_limit_reached


def test_deepl_reports_errors(address: str, translator: deepl.DeepLClient) -> None:
    with pytest.raises(deepl.AuthorizationException):
        deepl.DeepLClient("other", server_url=address).get_usage()
    with pytest.raises(deepl.DeepLException, match="ES is not supported"):
        translator.translate_text("A dog.", target_lang="ES")
    with pytest.raises(deepl.DeepLException, match="formality is not supported"):
        translator.translate_text("A dog.", target_lang="DE", formality="more")
    with pytest.raises(deepl.DeepLException, match="no glossary abc"):
        translator.translate_text("A dog.", source_lang="EN", target_lang="DE", glossary="abc")
    with pytest.raises(deepl.DeepLException, match="Unknown path"):
        translator.rephrase_text("A dog.")


def test_deepl_manages_and_uses_glossaries(translator: deepl.DeepLClient) -> None:
    entries = {"ab": "xy", "de": "z"}
    glossary = translator.create_glossary("mine", "EN", "DE", entries)
    from_csv = translator.create_glossary_from_csv("csv", "EN", "DE", "ab,yx,en,de\n")
    assert (glossary.name, glossary.ready, glossary.entry_count) == ("mine", True, 2)
    assert (glossary.source_lang, glossary.target_lang) == ("EN", "DE")
    assert translator.get_glossary(glossary.glossary_id).creation_time == glossary.creation_time
    assert translator.get_glossary_entries(glossary) == entries
    listed = [one.glossary_id for one in translator.list_glossaries()]
    assert listed == [glossary.glossary_id, from_csv.glossary_id]
    pairs = [(one.source_lang, one.target_lang) for one in translator.get_glossary_languages()]
    assert pairs == [("en", "de"), ("fr", "en")]
    assert "xy" in str(translator.translate_text_with_glossary("ab c", glossary))
    assert "yx" in str(
        translator.translate_text("ab c", source_lang="EN", target_lang="DE", glossary=from_csv)
    )
    for one in (glossary, from_csv):
        translator.delete_glossary(one)
    with pytest.raises(deepl.GlossaryNotFoundException, match="There is no glossary"):
        translator.get_glossary(glossary.glossary_id)
    with pytest.raises(deepl.DeepLException, match="No single model translates fr-de"):
        translator.create_glossary("pivot", "FR", "DE", entries)


def test_openai_completes_a_chat(chat: openai.OpenAI) -> None:
    answer = chat.chat.completions.create(model="en-de", messages=[{"role": "user", "content": TEXT}])
    assert answer.choices[0].message.content == TEXT
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage and answer.usage.prompt_tokens > 0
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


@pytest.mark.parametrize("model", ["en-de", "fr-de"])
def test_openai_streams_a_chat(chat: openai.OpenAI, model: str) -> None:
    plain = chat.chat.completions.create(model=model, messages=[{"role": "user", "content": TEXT}])
    stream = chat.chat.completions.create(
        model=model,
        messages=[{"role": "system", "content": "Translate."}, {"role": "user", "content": TEXT}],
        stream=True,
        stream_options={"include_usage": True},
    )
    *chunks, last = stream
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT
    assert not last.choices and last.usage == plain.usage


def test_openai_lists_models(chat: openai.OpenAI) -> None:
    assert [one.id for one in chat.models.list()] == ["copies", "french", "en-de", "fr-en", "fr-de"]
    assert chat.models.retrieve("en-de").id == "en-de"


def test_openai_reports_errors(address: str, chat: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="There is no model en-fr"):
        chat.models.retrieve("en-fr")
    with pytest.raises(openai.NotFoundError, match="There is no model gpt"):
        chat.chat.completions.create(model="gpt", messages=[{"role": "user", "content": "A"}])
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(api_key="other", base_url=f"{address}/v1", max_retries=0).models.list()
    with pytest.raises(openai.NotFoundError, match="Unknown path"):
        chat.embeddings.create(model="en-de", input="A")


def test_a_translated_file_is_fetched_from_its_address(address: str) -> None:
    fields = {
        "source": "en",
        "target": "de",
        "api_key": KEY,
        'file"; filename="a.html': "<p>A <b>dog</b>.</p>",
    }
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{fields[name]}\r\n' for name in fields
    ]
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    body = "".join([*parts, "--x--\r\n"]).encode()
    with urlopen(Request(f"{address}/translate_file", body, headers)) as answer:
        url = json.loads(answer.read())["translatedFileUrl"]
    with urlopen(url) as file:
        assert file.read() == b"<p>A <b>dog</b>.</p>"


def test_libretranslate_translates(address: str, libre: LibreTranslateAPI) -> None:
    assert libre.translate(TEXT, "en", "de") == TEXT
    assert libre.translate("Un chien.", "fr", "de") == "Un chien."
    assert libre.translate("The dog and the cat are here.", "auto", "de") == "The dog and the cat are here."
    assert libre.detect("The dog and the cat are here.")[0]["language"] == "en"
    assert {one["code"]: one["targets"] for one in libre.languages()} == {
        "en": ["de"],
        "fr": ["en", "de"],
        "de": [],
    }
    for bad in (LibreTranslateAPI(address, "other"), LibreTranslateAPI(address)):
        with pytest.raises(HTTPError, match="403"):
            bad.translate("A", "en", "de")
