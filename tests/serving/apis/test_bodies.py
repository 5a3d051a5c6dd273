"""Request bodies: any body gets a response, and large ones are refused."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.serving.conftest import FORM, JSON, Client

PATHS = ("/translate", "/detect", "/v2/translate", "/v1/chat/completions", "/attention")
KINDS = (JSON, FORM, "multipart/form-data; boundary=x", "text/plain", "\xff", "")

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(
    "q source target format alternatives stream alignment text target_lang tag_handling ignore_tags messages "
    "model n api_key".split()
)
LIKELY = {
    "q": "a dog",
    "source": "en",
    "target": "de",
    "text": "a",
    "target_lang": "de",
    "model": "en-de",
    "messages": [{"role": "user", "content": "a"}],
}
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=2).map(lambda some: json.dumps(LIKELY | some).encode())
FORMS = st.lists(st.sampled_from([b"q=", b"&", b"=", b"%", b"%ff", b"a", b"\xff"]), max_size=6).map(b"".join)


@settings(max_examples=100)
@given(
    path=st.sampled_from(PATHS),
    kind=st.sampled_from(KINDS),
    body=st.binary(max_size=40) | OBJECTS | VALUES.map(lambda value: json.dumps(value).encode()) | FORMS,
)
@example(path="/translate", kind=JSON, body=b"[" * 100_000)
@example(path="/translate", kind=JSON, body=b'{"q": %s}' % (b"1" * 5000))
@example(path="/translate", kind=JSON, body=json.dumps({**LIKELY, "q": "\ud800\x00\udfff"}).encode())
@example(path="/attention", kind=JSON, body=json.dumps({**LIKELY, "q": "\n"}).encode())
def test_every_body_gets_a_response_without_a_fault(
    client: Client, path: str, kind: str, body: bytes
) -> None:
    headers = {"content-type": kind} if kind else {}
    answer = client.send("POST", path, body, headers)
    assert answer.status in (200, 400, 404, 413), answer.body
    if answer.status != 200:
        (message,) = answer.json().values()
        sentence = message if isinstance(message, str) else message["message"]
        assert sentence.endswith(".") and "\n" not in sentence


def test_a_too_large_body_is_refused_by_its_bytes(client: Client) -> None:
    answer = client.post("/translate", {"q": "a" * 2_000_000, "source": "en", "target": "de"})
    assert answer.status == 413 and "bytes" in answer.json()["error"]


@pytest.mark.parametrize("q", ["a" * 100_001, ["a"] * 1001, ["a" * 60_000] * 2], ids=lambda q: f"{len(q)}")
def test_too_much_text_is_refused_with_the_limit(client: Client, q: object) -> None:
    for path in ("/translate", "/detect"):
        answer = client.post(path, {"q": q, "source": "auto", "target": "de"})
        assert answer.status == 413 and "Send at most" in answer.json()["error"]
