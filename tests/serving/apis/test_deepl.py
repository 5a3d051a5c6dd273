"""The API of DeepL."""

from tests.serving.conftest import Client


def test_weblate_gets_its_translations(client: Client) -> None:
    fields = {
        "text": ['Hello <x id="7"></x>, you.', "Two"],
        "source_lang": "EN",
        "target_lang": "DE",
        "formality": "default",
        "tag_handling": "xml",
        "ignore_tags": ["x"],
    }
    answer = client.post("/v2/translate", fields, authorization="DeepL-Auth-Key abc:fx")
    assert answer.json() == {
        "translations": [
            {"detected_source_language": "EN", "text": 'Hello <x id="7"></x>, you.', "billed_characters": 26},
            {"detected_source_language": "EN", "text": "Two", "billed_characters": 3},
        ]
    }


def test_weblate_gets_the_languages(client: Client) -> None:
    sources, targets = (client.get(f"/v2/languages?type={kind}").json() for kind in ("source", "target"))
    assert sources == [{"language": "EN", "name": "English", "supports_formality": False}]
    assert targets == [{"language": "DE", "name": "German", "supports_formality": False}]


def test_a_form_may_have_several_texts_and_no_source_language(client: Client) -> None:
    answer = client.form("/v2/translate", [("text", "One"), ("text", "Two"), ("target_lang", "de-AT")])
    assert [one["text"] for one in answer.json()["translations"]] == ["One", "Two"]


def test_ignored_elements_are_not_translated(client: Client) -> None:
    fields = {"text": "<k>A  B</k> C", "target_lang": "DE", "tag_handling": "xml", "ignore_tags": "j,k"}
    assert client.form("/v2/translate", fields).json()["translations"][0]["text"] == "<k>A  B</k> C"


def test_a_text_of_xml_need_not_be_a_whole_document(client: Client) -> None:
    texts = ["<_x>One</_x> two", "One <x>", "One"]
    answer = client.post("/v2/translate", {"text": texts, "target_lang": "DE", "tag_handling": "xml"})
    expected = ["<_x>One</_x> two", "One <x>", "One"]
    assert [one["text"] for one in answer.json()["translations"]] == expected


def test_an_unknown_kind_of_markup_is_refused(client: Client) -> None:
    answer = client.post("/v2/translate", {"text": "a", "target_lang": "DE", "tag_handling": "pdf"})
    assert (answer.status, answer.json()) == (
        400,
        {"message": 'tag_handling must be "html" or "xml" (got "pdf").'},
    )


def test_errors_have_a_message(client: Client) -> None:
    assert client.post("/v2/translate", {"text": "a"}).json() == {"message": "target_lang is missing."}


def test_a_text_without_a_source_language_is_refused_with_the_possible_languages(client: Client) -> None:
    answer = client.post("/v2/translate", {"text": "a", "target_lang": "EN-US"})
    message = "No model translates into EN-US. The server translates from en into de."
    assert (answer.status, answer.json()) == (400, {"message": message})


def test_confidence_is_on_request(client: Client) -> None:
    fields = {"text": ["A B", "C"], "target_lang": "de", "source_lang": "en"}
    assert "confidence" not in client.post("/v2/translate", fields).json()["translations"][0]
    for one in client.post("/v2/translate", {**fields, "confidence": True}).json()["translations"]:
        assert 0 < one["confidence"] <= 1
