"""The chat API of OpenAI."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from nmt_cli.api import Model
from tests.serving.conftest import Client, Serving

TEXT = "One dog runs.  Two cats sleep.\n\nThree birds sing.\n"


def chat(text: object = TEXT, **more: object) -> Mapping[str, Any]:
    messages = [{"role": "system", "content": "Translate."}, {"role": "user", "content": text}]
    return {"model": "en-de", "messages": messages, **more}


def test_the_last_message_is_translated(client: Client) -> None:
    answer = client.post("/v1/chat/completions", chat()).json()
    assert answer["object"] == "chat.completion" and answer["model"] == "en-de"
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": TEXT}
    assert choice["finish_reason"] == "stop"
    assert "confidence" not in choice
    (choice,) = client.post("/v1/chat/completions", chat(confidence=True)).json()["choices"]
    assert 0 < choice["confidence"] <= 1
    parts = [{"type": "text", "text": "One "}, {"type": "image_url"}, {"type": "text", "text": "dog."}]
    answer = client.post("/v1/chat/completions", chat(parts, model="copies")).json()
    assert answer["choices"][0]["message"]["content"] == "One dog."


@pytest.mark.parametrize("text", [TEXT, "", "\n\nOne", "One.\n"], ids=repr)
def test_the_chunks_joined_are_the_complete_translation(client: Client, text: str) -> None:
    answer = client.post("/v1/chat/completions", chat(text, stream=True))
    *chunks, done = answer.events()
    choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
    assert done == "[DONE]"
    assert choices[0]["delta"]["role"] == "assistant"
    assert choices[-1] == {"index": 0, "delta": {}, "finish_reason": "stop"}
    complete = client.post("/v1/chat/completions", chat(text)).json()["choices"][0]["message"]["content"]
    assert "".join(one["delta"].get("content", "") for one in choices) == complete


@pytest.mark.parametrize(("characters", "status"), [(9, 413), (100, 429)])
def test_a_refused_stream_has_the_status_of_the_refusal(
    german: Model, serving: Serving, monkeypatch: pytest.MonkeyPatch, characters: int, status: int
) -> None:
    monkeypatch.setattr("nmt_cli.serving.service.MAX_CHARACTERS", characters)
    client = serving({"copies": german}, most_waiting=2)
    client.service.waiting = 1
    answer = client.post("/v1/chat/completions", chat("One dog. Two cats.", stream=True))
    assert answer.status == status
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_models_are_listed_by_name(client: Client) -> None:
    assert [one["id"] for one in client.get("/v1/models").json()["data"]] == ["copies", "en-de"]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (chat(model="en-fr"), 404),
        (chat(model=None), 400),
        (chat(n=2), 400),
        (chat(glossary={"a": "b"}), 400),
        (chat(7), 400),
        ({"model": "en-de"}, 400),
        ({"model": "en-de", "messages": [{"role": "system", "content": "a"}]}, 400),
        ({"model": "en-de", "messages": ["a"]}, 400),
    ],
    ids=str,
)
def test_errors_have_the_format_of_openai(client: Client, fields: Mapping[str, Any], status: int) -> None:
    answer = client.post("/v1/chat/completions", fields)
    assert answer.status == status
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert answer.json()["error"]["message"].endswith(".")
