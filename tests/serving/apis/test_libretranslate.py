"""The API of LibreTranslate."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.api import Model, load
from nmt_cli.serving.models import Served
from tests.serving.conftest import SPLIT, Client, Serving

BASIC = {"q": "A dog runs.", "source": "en", "target": "de"}


def test_libretranslatepy_sends_a_form_and_gets_a_text(client: Client) -> None:
    assert client.form("/translate", BASIC).json() == {"translatedText": "A dog runs."}
    with_key = client.form("/translate", {**BASIC, "api_key": "whatever"})
    assert with_key.json()["translatedText"] == "A dog runs."
    (guess, *_) = client.form("/detect", {"q": "The dog and the cat"}).json()
    assert guess["language"] == "en" and 50 < guess["confidence"] <= 100


def test_weblate_sends_a_list_and_gets_a_list(client: Client) -> None:
    texts = ["One dog.", "", "Two cats.\nThree.", "One dog."]
    answer = client.post("/translate", {"api_key": "", "q": texts, "source": "en", "target": "de"})
    assert answer.json() == {"translatedText": texts}


def test_languages_have_names_and_targets(client: Client) -> None:
    # libretranslatepy sends an empty query.
    assert client.get("/languages?").json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": []},
    ]


def test_the_source_language_can_be_detected(client: Client) -> None:
    answer = client.post("/translate", {**BASIC, "source": "auto"}).json()
    assert answer["translatedText"] == "A dog runs."
    assert answer["detectedLanguage"]["language"] == "en"
    several = client.post("/translate", {**BASIC, "q": ["a", "b"], "source": "auto"}).json()
    assert [one["language"] for one in several["detectedLanguage"]] == ["en", "en"]


def test_alternatives_differ_and_are_at_most_as_many_as_requested(client: Client) -> None:
    answer = client.post("/translate", {**BASIC, "alternatives": 3}).json()
    assert answer["translatedText"] == "A dog runs."
    assert 1 <= len(answer["alternatives"]) <= 3
    assert "A dog runs." not in answer["alternatives"]
    assert len(set(answer["alternatives"])) == len(answer["alternatives"])
    several = client.post("/translate", {**BASIC, "q": ["a", "b"], "alternatives": "1"}).json()
    assert len(several["alternatives"]) == 2


def test_confidence_is_on_request(client: Client) -> None:
    assert "confidence" not in client.post("/translate", BASIC).json()
    single = client.post("/translate", {**BASIC, "confidence": True}).json()["confidence"]
    several = client.post("/translate", {**BASIC, "q": [BASIC["q"], ""], "confidence": True}).json()
    assert 0 < single <= 1
    assert several["confidence"] == [single, 1.0]
    (count,) = re.findall(rb"(?m)^nmt_confidence_count (\d+)\.0$", client.get("/metrics").body)
    assert int(count) >= 3


def test_only_the_text_of_html_is_translated(made_models: Path, serving: Serving) -> None:
    with load(made_models / "loops", device="cpu", threads=1, config=SPLIT) as model:
        page = '<p title="A dog">One &amp; two <b class=x>3</b><br>four</p><script>let five = "six"</script>'
        answer = serving({"loops": model}).post("/translate", {**BASIC, "q": page, "format": "html"})
        text = answer.json()["translatedText"]
    tags = ['<p title="A dog">', "<b class=x>", "</b>", "<br>", '</p><script>let five = "six"</script>']
    positions = [text.find(tag) for tag in tags]
    assert -1 not in positions and positions == sorted(positions)
    assert "One" not in text and "four" not in text and "aaa" in text


def test_a_stream_has_an_event_per_sentence_and_the_response_as_the_last_one(client: Client) -> None:
    text = "One dog runs.  Two cats sleep.\n\nThree birds sing."
    answer = client.post("/translate", {**BASIC, "q": text, "stream": True})
    *sentences, last = map(json.loads, answer.events())
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [one["source"] for one in sentences] == ["One dog runs.", "Two cats sleep.", "Three birds sing."]
    assert "".join(one["translatedText"] + one["blanks"] for one in sentences) == text
    assert last == client.post("/translate", {**BASIC, "q": text}).json()


def test_a_copied_word_is_aligned_with_itself(client: Client) -> None:
    first, second = (
        {"source": words, "target": words, "links": [[number, number] for number in range(len(words))]}
        for words in (["One", "dog", "runs", "."], ["Two", "cats", "."])
    )
    fields = {**BASIC, "q": "One dog runs.  Two cats.", "alignment": True}
    answer = client.post("/translate", fields).json()
    assert answer == {"translatedText": fields["q"], "alignment": [first, second]}
    *sentences, last = map(json.loads, client.post("/translate", {**fields, "stream": True}).events())
    assert [one["alignment"] for one in sentences] == [first, second]
    assert last == answer
    texts = ["Two cats.", "", "One dog runs."]
    assert client.post("/translate", {**fields, "q": texts}).json()["alignment"] == [[second], [], [first]]
    page = {**fields, "q": "<p>One <b>dog</b> runs.</p>Two cats.", "format": "html"}
    assert client.post("/translate", page).json() == {
        "translatedText": page["q"],
        "alignment": [first, second],
    }


def test_the_server_returns_the_translations_of_the_library(client: Client, german: Model) -> None:
    lines = ["abc def", "", "x" * 80, " y ", "One is. Two is.", "a\u2028b"]
    answer = client.post("/translate", {**BASIC, "q": lines}).json()
    assert answer["translatedText"] == [german.translate_text(line) for line in lines]


NO_MODEL = [{"source": "en", "target": "fr"}, {"source": "auto", "target": "fr"}]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"q": ""}, "q is missing."),
        ({"q": 7}, "q must be a text, or a list of texts (got 7)."),
        ({"q": ["a", None]}, "q must be a text, or a list of texts (got ['a', None])."),
        ({"source": None}, "source is missing."),
        ({"target": ["de"]}, 'target must be a text in UTF-8 (got ["de"]).'),
        ({"source": "xx"}, "Language xx is not supported. Supported: en, de."),
        ({"target": "\ud800"}, "Language \ufffd is not supported. Supported: en, de."),
        ({"source": "de"}, "No model translates de into de. The server translates from en into de."),
        ({"target": "en"}, "No model translates en into en. The server translates from en into de."),
        (
            {"source": "auto", "target": "en"},
            "No model translates into en. The server translates from en into de.",
        ),
        ({"target": "auto"}, "Language auto is not supported. Supported: en, de."),
        ({"alternatives": -1}, "alternatives must be 0 to 5 (got -1)."),
        ({"alternatives": 6}, "alternatives must be 0 to 5 (got 6)."),
        ({"alternatives": True}, "alternatives must be a whole number (got true)."),
        ({"alternatives": "1e9"}, 'alternatives must be a whole number (got "1e9").'),
        ({"format": "pdf"}, 'format must be "text" or "html" (got "pdf").'),
        ({"stream": "maybe"}, 'stream must be true or false (got "maybe").'),
        ({"alignment": 2}, "alignment must be true or false (got 2)."),
    ],
    ids=str,
)
def test_invalid_fields_are_refused_in_one_sentence(
    client: Client, fields: Mapping[str, Any], message: str
) -> None:
    answer = client.post("/translate", {**BASIC, **fields})
    assert (answer.status, answer.json()) == (400, {"error": message})


def test_a_pair_can_use_a_pivot_language(made_models: Path, german: Model, serving: Serving) -> None:
    with load(made_models / "french", device="cpu", threads=1, config=SPLIT) as french:
        client = serving({"fr": french, "de": german})
        fields = {"q": "Un chien. Deux chats.", "source": "fr", "target": "de", "alternatives": 1}
        answer = client.post("/translate", {**fields, "alignment": True}).json()
        assert answer["translatedText"] == "Un chien. Deux chats."
        assert [one["links"] for one in answer["alignment"]] == [[[0, 0], [1, 1], [2, 2]]] * 2
        offered = {one["code"]: one["targets"] for one in client.get("/languages").json()}
        assert offered == {"fr": ["en", "de"], "en": ["de"], "de": []}
        refused = [client.post("/translate", {**fields, **one}).json() for one in NO_MODEL]
        assert [one["error"] for one in refused] == [
            "No model translates en into fr. The server translates from en into de.",
            "No model translates into fr. The server translates from fr, en into en, de.",
        ]
        guessed = client.post("/translate", {**fields, "source": "auto", "q": "Le chien est dans la maison."})
        assert guessed.json()["detectedLanguage"]["language"] == "fr"


def test_placeholders_pass_through_a_pivot_language(
    made_models: Path, german: Model, serving: Serving
) -> None:
    """Only the first model has symbols for placeholders."""
    with load(made_models / "masks", device="cpu", threads=1, config=SPLIT) as masking:
        recipe = replace(masking.tokenizers.recipe, source_lang="fr", target_lang="en")
        first = Served(recipe, masking.__enter__, model=masking)
        client = serving({"fr": first, "de": german})
        answer = client.post("/translate", {"q": "Hi {{name}}", "source": "fr", "target": "de"})
    assert (answer.status, answer.json()) == (200, {"translatedText": "Hi {{name}}"})
