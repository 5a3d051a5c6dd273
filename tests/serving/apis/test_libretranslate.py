"""LibreTranslate's clients find what they know: in what they send, and in what comes back."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.api import Model, load
from tests.serving.conftest import SPLIT, Client

BASIC = {"q": "A dog runs.", "source": "en", "target": "de"}


def test_libretranslatepy_gets_a_text_for_its_form(client: Client) -> None:
    assert client.form("/translate", BASIC).json() == {"translatedText": "A dog runs."}
    with_key = client.form("/translate", {**BASIC, "api_key": "whatever"})
    assert with_key.json()["translatedText"] == "A dog runs."
    (guess, *_) = client.form("/detect", {"q": "The dog and the cat"}).json()
    assert guess["language"] == "en" and 50 < guess["confidence"] <= 100
    assert [one["code"] for one in client.get("/languages?").json()] == ["en", "de"]


def test_weblate_gets_a_list_for_its_list(client: Client) -> None:
    texts = ["One dog.", "", "Two cats.\nThree.", "One dog."]
    answer = client.post("/translate", {"api_key": "", "q": texts, "source": "en", "target": "de"})
    assert answer.json() == {"translatedText": texts}
    assert [one["code"] for one in client.get("/languages").json()] == ["en", "de"]


def test_the_page_of_libretranslate_sends_its_form_in_parts(client: Client) -> None:
    parts = "".join(
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in {**BASIC, "q": "Two\r\nlines", "format": "text", "alternatives": 1}.items()
    )
    headers = {"content-type": "multipart/form-data; boundary=x"}
    answer = client.send("POST", "/translate", f"{parts}--x--\r\n".encode(), headers)
    assert answer.json()["translatedText"] == "Two\nlines"
    assert len(answer.json()["alternatives"]) <= 1


def test_languages_have_names_and_what_they_are_translated_into(client: Client) -> None:
    assert client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": []},
    ]


def test_the_language_may_be_left_to_be_guessed(client: Client) -> None:
    answer = client.post("/translate", {**BASIC, "source": "auto"}).json()
    assert answer["translatedText"] == "A dog runs."
    assert answer["detectedLanguage"]["language"] == "en"
    several = client.post("/translate", {**BASIC, "q": ["a", "b"], "source": "auto"}).json()
    assert [one["language"] for one in several["detectedLanguage"]] == ["en", "en"]


def test_alternatives_are_others_and_as_many_as_were_asked_for_at_most(client: Client) -> None:
    answer = client.post("/translate", {**BASIC, "alternatives": 3}).json()
    assert answer["translatedText"] == "A dog runs."
    assert 1 <= len(answer["alternatives"]) <= 3
    assert "A dog runs." not in answer["alternatives"]
    assert len(set(answer["alternatives"])) == len(answer["alternatives"])
    several = client.post("/translate", {**BASIC, "q": ["a", "b"], "alternatives": "1"}).json()
    assert len(several["alternatives"]) == 2


def test_of_html_only_the_text_is_translated(made_models: Path, serving: Callable[..., Client]) -> None:
    with load(made_models / "loops", device="cpu", threads=1, config=SPLIT) as model:
        page = '<p title="A dog">One &amp; two <b class=x>3</b><br>four</p><script>let five = "six"</script>'
        answer = serving({"loops": model}).post("/translate", {**BASIC, "q": page, "format": "html"})
        text = answer.json()["translatedText"]
    tags = ['<p title="A dog">', "<b class=x>", "</b><br>", '</p><script>let five = "six"</script>']
    places = [text.find(tag) for tag in tags]
    assert -1 not in places and places == sorted(places)
    assert "One" not in text and "four" not in text and "aaa" in text


def test_each_sentence_of_a_long_text_is_an_event_and_the_last_one_is_the_answer(client: Client) -> None:
    text = "One dog runs.  Two cats sleep.\n\nThree birds sing."
    answer = client.post("/translate", {**BASIC, "q": text, "stream": True})
    *sentences, last = map(json.loads, answer.events())
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [one["source"] for one in sentences] == ["One dog runs.", "Two cats sleep.", "Three birds sing."]
    assert "".join(one["translatedText"] + one["blanks"] for one in sentences) == text
    assert last == client.post("/translate", {**BASIC, "q": text}).json()


def test_what_is_served_is_what_the_library_translates(client: Client, german: Model) -> None:
    lines = ["abc def", "", "x" * 80, " y ", "One is. Two is.", "a\u2028b"]
    answer = client.post("/translate", {**BASIC, "q": lines}).json()
    assert answer["translatedText"] == [german.translate_text(line) for line in lines]


def test_settings_for_pages_say_what_there_is(client: Client) -> None:
    found = client.get("/frontend/settings").json()
    assert found["charLimit"] == 100_000 and found["apiKeys"] is False
    assert found["language"]["target"] == {"code": "de", "name": "German"}
    assert client.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"q": ""}, "q is missing."),
        ({"q": 7}, "q must be a text, or a list of texts."),
        ({"q": ["a", None]}, "q must be a text, or a list of texts."),
        ({"source": None}, "source is missing."),
        ({"target": ["de"]}, "target must be a text."),
        ({"source": "xx"}, "Language xx is not supported. Supported: en, de."),
        ({"target": "\ud800"}, "Language \ufffd is not supported. Supported: en, de."),
        ({"source": "de"}, "No model translates de into de. Its targets: none."),
        ({"alternatives": -1}, "alternatives must be from 0 to 5."),
        ({"alternatives": 6}, "alternatives must be from 0 to 5."),
        ({"alternatives": True}, "alternatives must be a whole number."),
        ({"alternatives": "1e9"}, "alternatives must be a whole number."),
        ({"format": "pdf"}, "format must be text or html."),
        ({"stream": "maybe"}, "stream must be true or false."),
    ],
    ids=str,
)
def test_what_can_not_be_meant_is_told_in_a_sentence(
    client: Client, fields: Mapping[str, Any], told: str
) -> None:
    answer = client.post("/translate", {**BASIC, **fields})
    assert (answer.status, answer.json()) == (400, {"error": told})


def test_a_pair_may_go_through_a_language_between(
    made_models: Path, german: Model, serving: Callable[..., Client]
) -> None:
    with load(made_models / "french", device="cpu", threads=1, config=SPLIT) as french:
        client = serving({"fr": french, "de": german})
        fields = {"q": "Un chien. Deux chats.", "source": "fr", "target": "de", "alternatives": 1}
        assert client.post("/translate", fields).json()["translatedText"] == "Un chien. Deux chats."
        offered = {one["code"]: one["targets"] for one in client.get("/languages").json()}
        assert offered == {"fr": ["en", "de"], "en": ["de"], "de": []}
        guessed = client.post("/translate", {**fields, "source": "auto", "q": "Le chien est dans la maison."})
        assert guessed.json()["detectedLanguage"]["language"] == "fr"
