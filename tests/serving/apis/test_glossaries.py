"""Glossaries in the APIs of LibreTranslate and DeepL."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.api import Model
from nmt_cli.serving import store
from nmt_cli.serving.apis import glossaries
from tests.serving.conftest import JSON, Answer, Client, Serving, ask

BASIC = {"q": "ab c", "source": "en", "target": "de"}
NEW = {"name": "mine", "source_lang": "EN", "target_lang": "DE", "entries": "ab\txy", "entries_format": "tsv"}


@pytest.fixture(autouse=True)
def without_glossaries(client: Client) -> None:
    """Delete the glossaries of other tests."""
    for stored in client.service.store.glossaries():
        client.service.store.remove_glossary(stored.key)


@pytest.mark.parametrize(
    "glossary",
    [{"ab": "xy"}, {"ab": ["xy", "yx"]}, [["ab", "xy"]], [["ab", "xy", "yx"]], '{"ab": "xy"}'],
    ids=str,
)
def test_libretranslate_takes_a_glossary(client: Client, glossary: object) -> None:
    text = client.post("/translate", {**BASIC, "glossary": glossary}).json()["translatedText"]
    assert "xy" in text or "yx" in text
    other = client.post("/translate", {**BASIC, "q": "abc", "glossary": glossary}).json()
    assert other == {"translatedText": "abc"}


@pytest.mark.parametrize(
    ("glossary", "message"),
    [
        ("{", "glossary must be a JSON object"),
        (7, "must be a JSON object or a list of lists"),
        (["ab", "xy"], "must be a JSON object or a list of lists"),
        ({"ab": 7}, "Entry 1 must have texts of up to 200 characters"),
        ({"ab": []}, "entry 1 needs a source and a translation"),
        ({"ab": "xy", "": "z"}, "entry 2 needs a source and a translation"),
        ([["ab", "xy"], ["ab", "z"]], "entry 2 repeats the term 'ab' of entry 1"),
        ({"ab": "x" * 201}, "Entry 1 must have texts of up to 200 characters"),
        ({str(number): "x" for number in range(1001)}, "more than 1,000 entries"),
        ({"c": "d", "ab": ["x"] * 51}, "Entry 2 has more than 50 translations"),
        ({}, "the glossary is empty"),
        ({"c": "d", "ab": "é"}, "entry 2: the model cannot write 'é'"),
        ([["c", "d"], [], ["C", "e"]], "entry 3: the glossary has 'C' twice"),
    ],
)
def test_a_glossary_that_cannot_be_used_is_refused(client: Client, glossary: object, message: str) -> None:
    answer = client.post("/translate", {**BASIC, "glossary": glossary})
    assert (answer.status, message in answer.json()["error"]) == (400, True), answer.json()


def deepl(client: Client, **fields: Any) -> Answer:
    return client.post("/v2/glossaries", NEW | fields)


def test_deepl_glossaries_are_created_listed_used_and_deleted(client: Client) -> None:
    created = deepl(client, entries="ab\txy\tyx\n\nde\tz")
    info = created.json()
    assert created.status == 201
    expected = {"name": "mine", "ready": True, "source_lang": "en", "target_lang": "de", "entry_count": 2}
    assert expected.items() <= info.items()
    path = f"/v2/glossaries/{info['glossary_id']}"
    assert client.get(path).json() == info
    assert client.get("/v2/glossaries").json() == {"glossaries": [info]}
    entries = client.get(f"{path}/entries")
    assert entries.headers["content-type"].startswith("text/tab-separated-values")
    assert entries.body == b"ab\txy\tyx\nde\tz"
    fields = {"text": "ab c", "source_lang": "EN", "target_lang": "DE", "glossary_id": info["glossary_id"]}
    text = client.post("/v2/translate", fields).json()["translations"][0]["text"]
    assert "xy" in text or "yx" in text
    assert client.send("DELETE", path, b"", {}).status == 204
    assert client.get(path).status == client.post("/v2/translate", fields).status == 404
    assert client.get("/v2/glossaries").json() == {"glossaries": []}


def test_deepl_entries_may_be_csv(client: Client) -> None:
    info = deepl(client, entries='"a, b","x",en,de\r\nc,"d, e"', entries_format="csv").json()
    entries = client.get(f"/v2/glossaries/{info['glossary_id']}/entries")
    assert entries.body == b"a, b\tx\nc\td, e"


def test_deepl_lists_the_pairs_that_may_have_a_glossary(client: Client) -> None:
    pairs = client.get("/v2/glossary-language-pairs").json()
    assert pairs == {"supported_languages": [{"source_lang": "en", "target_lang": "de"}]}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"entries": "ab"}, "entry 1 needs a source and a translation"),
        ({"entries": 'a,b\nc,"d', "entries_format": "csv"}, "Line 2 of the entries is not valid CSV"),
        ({"entries": "c,d\nab,é", "entries_format": "csv"}, "entry 2: the model cannot write 'é'"),
        ({"entries_format": "xlsx"}, 'entries_format must be "tsv" or "csv" (got "xlsx")'),
        ({"source_lang": "FR"}, "No model translates FR into DE"),
        ({"entries": "c\td\n\nab\té"}, "entry 3: the model cannot write 'é'"),
        ({"name": ""}, "name is missing"),
    ],
)
def test_deepl_glossaries_that_cannot_be_used_are_refused(
    client: Client, fields: dict[str, str], message: str
) -> None:
    answer = deepl(client, **fields)
    assert (answer.status, message in answer.json()["message"]) == (400, True), answer.json()


def test_the_server_stores_a_limited_number(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_GLOSSARIES", 1)
    monkeypatch.setattr(glossaries, "MAX_TERMS", 1)
    answers = [deepl(client, entries="a\tb\nc\td"), deepl(client), deepl(client)]
    assert [answer.status for answer in answers] == [400, 201, 400]
    assert "has 1 glossaries, its limit" in answers[2].json()["message"]


def test_concurrent_requests_do_not_pass_the_limit(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_GLOSSARIES", 3)
    body = json.dumps(NEW).encode()

    async def together() -> list[int]:
        requests = (
            ask(client.app, "POST", "/v2/glossaries", body, {"content-type": JSON}) for _ in range(20)
        )
        return [answer.status for answer in await asyncio.gather(*requests)]

    assert Counter(client.runner.run(together())) == {201: 3, 400: 17}
    assert len(client.get("/v2/glossaries").json()["glossaries"]) == 3


def test_processes_with_the_same_folder_share_glossaries(
    german: Model, serving: Serving, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one, other = (serving({"copies": german}, folder=str(tmp_path)) for _ in range(2))
    info = deepl(one).json()
    path = f"/v2/glossaries/{info['glossary_id']}"
    assert other.get(path).json() == info
    assert other.get("/v2/glossaries").json() == {"glossaries": [info]}
    assert other.get(f"{path}/entries").body == b"ab\txy"
    fields = {"text": "ab c", "source_lang": "EN", "target_lang": "DE", "glossary_id": info["glossary_id"]}
    assert "xy" in other.post("/v2/translate", fields).json()["translations"][0]["text"]
    assert other.send("DELETE", path, b"", {}).status == 204
    assert one.get(path).status == one.post("/v2/translate", fields).status == 404
    (tmp_path / "glossaries" / "a.json").write_text("{}")
    assert one.get("/v2/glossaries").json() == {"glossaries": []}
    assert capfd.readouterr().err == f"Error: {tmp_path}/glossaries/a.json is damaged. Remove it.\n"


def test_requests_that_do_not_fit_the_glossary_are_refused(client: Client) -> None:
    key = deepl(client).json()["glossary_id"]
    fields = {"text": "ab", "target_lang": "DE", "glossary_id": key}
    assert client.post("/v2/translate", fields).json() == {"message": "glossary_id needs source_lang."}
    several = {"text": "ab", "target_lang": "DE", "glossary_ids": [key]}
    assert client.post("/v2/translate", several).status == 400
