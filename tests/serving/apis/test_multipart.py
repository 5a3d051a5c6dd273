"""Multipart forms: their fields, their limits, and the time to parse them."""

import time

import pytest

from nmt_cli.serving.apis.multipart import MAX_PARTS, File, parts
from nmt_cli.serving.refused import Refused
from tests.serving.conftest import PATIENCE, Client

KIND = "multipart/form-data; boundary=x"


def form(*heads_and_contents: tuple[str, str]) -> bytes:
    """Return a form of parts, each with the parameters of its Content-Disposition and its content."""
    written = [
        f"--x\r\nContent-Disposition: form-data{head}\r\n\r\n{content}\r\n"
        for head, content in heads_and_contents
    ]
    return "".join([*written, "--x--\r\n"]).encode()


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ('; name="a"', "b\nc"),
        ("; name=a", "b\nc"),
        ('; Name="a"; filename=""', "b\nc"),
        ('; name="a"; filename="Ü; name=z.txt"', File("Ü; name=z.txt", b"b\r\nc")),
        (r'; name="a"; filename="x\".txt"', File('x".txt', b"b\r\nc")),
        ("; name=\"a\"; filename*=UTF-8''%C3%9C%20b.txt", File("Ü b.txt", b"b\r\nc")),
    ],
)
def test_a_part_is_a_text_or_a_file(head: str, expected: object) -> None:
    assert parts(KIND, form((head, "b\r\nc"))) == {"a": [expected]}
    assert parts('multipart/form-data; boundary="x"', form((head, "b\r\nc"))) == {"a": [expected]}


@pytest.mark.parametrize(
    "body",
    [
        b"a preamble\r\n" + form(('; name="a"', "b")),
        form(('; name="a"', "b")) + b"an epilogue",
        form(('; name="a"', "b")).removesuffix(b"\r\n"),
        form(('; name="a"' + "\r\nX-Other: 1" * 50, "b")),
        form(('; name="a"', "b")).replace(b"Content-Disposition", b"X-Other: 1\r\ncontent-disposition"),
    ],
    ids=["preamble", "epilogue", "no last line end", "many headers", "later header"],
)
def test_what_the_standard_allows_is_accepted(body: bytes) -> None:
    assert parts(KIND, body) == {"a": ["b"]}


def test_a_form_may_have_as_many_parts_as_the_limit() -> None:
    assert len(parts(KIND, form(*[('; name="a"', "")] * MAX_PARTS))["a"]) == MAX_PARTS


def test_a_repeated_field_is_a_list(client: Client) -> None:
    body = form(('; name="text"', "One"), ('; name="text"', "Two"), ('; name="target_lang"', "DE"))
    answer = client.send("POST", "/v2/translate", body, {"content-type": KIND})
    assert [one["text"] for one in answer.json()["translations"]] == ["One", "Two"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (form(*[('; name="a"', "")] * 101), "more than 100 parts"),
        (form((f'; name="{"a" * 8192}"', "")), "more than 8,192 bytes"),
        (b"--x\r\n\r\n", "damaged"),
        (form(('; name="a"', "?")).replace(b"?", b"\xff"), "not UTF-8"),
        (form(('; name="a"', "")).removesuffix(b"--\r\n"), "damaged"),
        (form(("", "")), "damaged"),
        (form(), "damaged"),
        (b"", "damaged"),
        (form(('; name="a"', "")).replace(b"\r\n", b"\n"), "damaged"),
        (form(('; name="?"', "")).replace(b"?", b"\xff"), "not UTF-8"),
    ],
)
def test_a_form_beyond_the_limits_or_damaged_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(Refused) as refused:
        parts(KIND, body)
    assert refused.value.status == 400 and message in refused.value.message


@pytest.mark.parametrize(
    "body",
    [
        form((f'; name="{"=?utf-8?q?a?= " * 80_000}"', "")),
        form(*[('; name="a"', "")] * 20_000),
        b"--x\r\n" * 200_000,
        form(('; name="a"', "\r\n--" * 200_000)),
        form((';a="\\' * 2_000 + '; name="a"', "")),
    ],
    ids=lambda body: f"{body[:60]!r}",
)
def test_hostile_forms_take_linear_time(client: Client, body: bytes) -> None:
    start = time.process_time()
    client.send("POST", "/translate", body, {"content-type": KIND})
    assert time.process_time() - start < PATIENCE
