"""A model of three target languages in every route, in the page, and in official clients.

The model copies its source with the symbol of the target language, so each answer shows the chosen language.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import Popen
from threading import Semaphore
from typing import Any
from urllib.error import HTTPError

import deepl
import openai
import pytest
from libretranslatepy import LibreTranslateAPI

from nmt_cli.api import Model, load
from nmt_cli.decoding.search.hypotheses import Sentence
from nmt_cli.engine.search import EngineSearch
from nmt_cli.serving.models import Served
from nmt_cli.translation.workers.queue import RequestQueue
from tests.serving.conftest import SPLIT, Client, Serving, listening

TEXT = "One dog."


@pytest.fixture(scope="module")
def tagged(made_models: Path) -> Iterator[Model]:
    with load(made_models / "tagged", device="cpu", threads=1, config=SPLIT) as model:
        model.translate(["a"])
        yield model


@pytest.fixture(scope="module")
def client(tagged: Model, serving: Serving) -> Client:
    return serving({"tagged": tagged})


def translated(client: Client, target: str, text: str = TEXT, source: str = "en") -> str:
    answer = client.post("/translate", {"q": text, "source": source, "target": target}).json()
    return str(answer.get("translatedText") or answer["error"])


def test_languages_are_listed_instead_of_mul(client: Client) -> None:
    listed = {one["code"]: one["targets"] for one in client.get("/languages").json()}
    assert listed == {"en": ["de", "fr", "es"], "de": [], "fr": [], "es": []}
    targets = [one["language"] for one in client.get("/v2/languages?type=target").json()]
    assert targets == ["DE", "FR", "ES"]
    names = [one["id"] for one in client.get("/v1/models").json()["data"]]
    assert names == ["tagged", "en-de", "en-fr", "en-es"]
    page = client.get("/").body.decode()
    assert '"targets":{"en":["de","fr","es"]}' in page.replace(" ", "")


def test_every_route_translates_into_the_language_of_the_request(client: Client) -> None:
    assert [translated(client, target) for target in ("de", "FR", "es-MX", "fra")] == [
        *("<2de> One dog.", "<2fr> One dog.", "<2es> One dog.", "<2fr> One dog.")
    ]
    assert translated(client, "fr", f"{TEXT} Two cats.") == "<2fr> One dog. <2fr> Two cats."
    html = {"q": f"<p>{TEXT}</p>", "source": "en", "target": "fr", "format": "html"}
    assert client.post("/translate", html).json() == {"translatedText": "<p>&lt;2fr&gt; One dog.</p>"}
    fields = {"text": [TEXT], "source_lang": "EN", "target_lang": "ES"}
    assert client.post("/v2/translate", fields).json()["translations"][0]["text"] == "<2es> One dog."
    chat = {"model": "en-fr", "messages": [{"role": "user", "content": TEXT}]}
    answer = client.post("/v1/chat/completions", chat).json()
    assert answer["choices"][0]["message"]["content"] == "<2fr> One dog."
    stream = {"q": TEXT, "source": "en", "target": "de", "stream": True}
    assert json.loads(client.post("/translate", stream).events()[0])["translatedText"] == "<2de> One dog."
    attention = client.post("/attention", {"q": TEXT, "source": "en", "target": "es"}).body.decode()
    assert "2es" in attention
    glossary = {"name": "mine", "source_lang": "en", "target_lang": "fr", "entries": "dog\tchien"}
    stored = client.post("/v2/glossaries", {**glossary, "entries_format": "tsv"}).json()["glossary_id"]
    fields |= {"target_lang": "FR", "glossary_id": stored}
    assert "chien" in client.post("/v2/translate", fields).json()["translations"][0]["text"]
    refused = client.post("/v2/translate", fields | {"target_lang": "DE"}).json()
    assert refused["message"] == "The glossary is for en-fr, but the request is for en-de."


def test_an_unknown_language_is_refused_with_the_nearest(client: Client) -> None:
    assert translated(client, "german") == "Language german is not supported: did you mean de?"
    assert translated(client, "ja") == "Language ja is not supported. Supported: en, de, fr, es."


def test_texts_may_still_name_their_language(client: Client) -> None:
    """Clients did so before models recorded their languages."""
    assert translated(client, "mul", "<2fr> One dog.") == "<2fr> One dog."


def test_a_pivot_language_leads_to_each_target(tagged: Model, made_models: Path, serving: Serving) -> None:
    with load(made_models / "french", device="cpu", threads=1, config=SPLIT) as french:
        client = serving({"tagged": tagged, "french": french})
        assert translated(client, "de", source="fr") == "<2de> One dog."
        assert translated(client, "es", source="fr") == "<2es> One dog."


def test_requests_for_several_languages_share_batches(
    tagged: Model, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    symbols = tagged.tokenizers.source.numbering.symbols
    batches: list[set[int]] = []
    both_are_read = Semaphore(0)
    join, take, end = EngineSearch.join, RequestQueue.take, RequestQueue.end
    lines = [f"{'ab ' * (n % 7)}c{n}" for n in range(40)]

    def recorded(search: EngineSearch, sentences: Sequence[Sentence]) -> None:
        batches.append({sentence.tokens[0] for sentence in sentences})
        join(search, sentences)

    def take_late(queue: RequestQueue, *arguments: Any) -> list[Sentence]:
        # A worker that is faster than the second reader would find the sentences of one request alone.
        if not batches:
            assert both_are_read.acquire(timeout=60) and both_are_read.acquire(timeout=60)
        return take(queue, *arguments)

    def end_counted(queue: RequestQueue, *arguments: Any) -> None:
        end(queue, *arguments)
        both_are_read.release()

    monkeypatch.setattr(EngineSearch, "join", recorded)
    monkeypatch.setattr(RequestQueue, "take", take_late)
    monkeypatch.setattr(RequestQueue, "end", end_counted)

    async def both() -> list[list[str]]:
        return await asyncio.gather(*(tagged.direction(one).atranslate(lines) for one in ("fr", "de")))

    assert client.runner.run(both()) == [[f"<2{one}> {line}" for line in lines] for one in ("fr", "de")]
    assert {symbols["<2fr>"], symbols["<2de>"]} in batches


def test_a_usual_target_among_several_gets_its_symbol(tagged: Model, serving: Serving) -> None:
    """A model may have been trained with --target-lang de and tags for German and French."""
    recipe = replace(tagged.tokenizers.recipe, target_lang="de")
    client = serving({"tagged": Served(recipe, tagged.__enter__, model=tagged)})
    assert [translated(client, target) for target in ("de", "fr")] == ["<2de> One dog.", "<2fr> One dog."]


@pytest.fixture(scope="module")
def address(forked_nmt: Callable[..., Popen[bytes]], made_models: Path) -> Iterator[str]:
    options = ("--port", "0", "--threads", "1", "--device", "cpu")
    with forked_nmt("serve", made_models / "tagged", *options) as process:
        try:
            assert process.stderr
            line = process.stderr.readline().decode()
            assert line.startswith("en-de, en-fr, en-es at ")
            yield re.findall(r"http://\S+:\d+", line)[0]
        finally:
            process.kill()


@pytest.mark.slow
def test_official_clients_choose_the_language(address: str) -> None:
    libre = LibreTranslateAPI(address)
    assert {one["code"]: one["targets"] for one in libre.languages()}["en"] == ["de", "fr", "es"]
    assert libre.translate(TEXT, "en", "fr") == "<2fr> One dog."
    assert libre.translate(TEXT, "auto", "es") == "<2es> One dog."
    with pytest.raises(HTTPError, match="400"):
        libre.translate(TEXT, "en", "ja")
    client = deepl.DeepLClient("any", server_url=address)
    assert [str(one) for one in client.get_target_languages()] == ["DE", "FR", "ES"]
    assert str(client.translate_text(TEXT, source_lang="EN", target_lang="FR")) == "<2fr> One dog."
    assert str(client.translate_text(TEXT, target_lang="DE")) == "<2de> One dog."
    with pytest.raises(deepl.DeepLException, match="JA is not supported"):
        client.translate_text(TEXT, source_lang="EN", target_lang="JA")
    chat = openai.OpenAI(api_key="any", base_url=f"{address}/v1", max_retries=0)
    answer = chat.chat.completions.create(model="en-es", messages=[{"role": "user", "content": TEXT}])
    assert answer.choices[0].message.content == "<2es> One dog."


@pytest.mark.slow
def test_the_page_chooses_the_language(client: Client, shown_by_browser: Callable[..., str]) -> None:
    with listening(client.app) as (host, port):
        shown = shown_by_browser(
            f"http://{host}:{port}/#source=en&target=fr&q=One%20dog.", "!byId('copy').disabled"
        )
    (translation,) = re.findall(r'<\w+ id="translation".*?>(.*?)</output>', shown, re.S)
    assert re.sub("<.*?>", "", translation) == "&lt;2fr&gt; One dog."
    (offered,) = re.findall(r'<select id="to".*?>(.*?)</select>', shown, re.S)
    assert re.findall(r">(\w+)<", offered) == ["German", "French", "Spanish"]
