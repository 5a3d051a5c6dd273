"""Translation of files."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from nmt_cli.api import Model
from nmt_cli.serving import store
from nmt_cli.serving.keys import Keys
from tests.serving.conftest import Answer, Client, Serving, listening

BASIC = {"source": "en", "target": "de"}
KIND = "multipart/form-data; boundary=x"
DEEP = "".join(
    f"--{n or 'x'}\r\nContent-Type: multipart/mixed; boundary={n + 1}\r\n\r\n" for n in range(5_000)
)

TEXTS = {
    "a.txt": "One dog runs.\r\nTwo cats sleep.\n\n",
    "Über b.HTML": "<p title='x'>One <b>dog</b> runs.</p>\r\n<script>a < b</script>\n",
    "c.xml": '<?xml version="1.0"?>\n<a>One dog.</a>\n',
    "d.srt": "1\r\n00:00:01,000 --> 00:00:02,000\r\nOne dog runs.\r\n\r\n",
    "e.vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\nOne dog runs.\n",
}
"""Files that the model, which copies, translates into themselves."""


def sent(client: Client, name: str, content: bytes, fields: Mapping[str, str] = BASIC) -> Answer:
    parts = "".join(
        f'--x\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'
        for field, value in fields.items()
    )
    head = f'{parts}--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    body = head.encode() + content + b"\r\n--x--\r\n"
    return client.send("POST", "/translate_file", body, {"content-type": KIND, "host": "example.org:5000"})


def fetched(client: Client, answer: Answer) -> Answer:
    assert answer.status == 200, answer.body
    return client.get(answer.json()["translatedFileUrl"].removeprefix("http://example.org:5000"))


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_is_translated_and_fetched(client: Client, name: str) -> None:
    content = TEXTS[name].encode()
    for fields in (BASIC, {**BASIC, "source": "auto"}):
        answer = sent(client, name, content, fields)
        file = fetched(client, answer)
        assert (file.status, file.body) == (200, content)
        assert file.headers["content-disposition"].startswith("attachment")
        assert answer.json()["translatedFileUrl"].endswith(".de." + name.lower().rpartition(".")[2])


def test_po_and_xliff_get_missing_translations(client: Client) -> None:
    answer = sent(client, "a.po", b'msgid "One dog."\nmsgstr ""\n')
    assert fetched(client, answer).body == b'msgid "One dog."\nmsgstr "One dog."\n'
    answer = sent(client, "a.xlf", b"<trans-unit><source>One dog.</source></trans-unit>")
    expected = b"<trans-unit><source>One dog.</source><target>One dog.</target></trans-unit>"
    assert fetched(client, answer).body == expected


def test_a_file_declares_the_encoding_that_it_has(client: Client) -> None:
    answer = sent(client, "a.html", "<meta charset=latin1><!-- ü --><p>One</p>".encode())
    assert fetched(client, answer).body == "<meta charset=UTF-8><!-- ü --><p>One</p>".encode()


def test_a_translated_page_declares_the_target_language(client: Client) -> None:
    page = b'<!DOCTYPE html><html lang="en"><p>One dog.</p></html>'
    for name in ("a.html", "a.xhtml", "a.xml"):
        assert fetched(client, sent(client, name, page)).body == page.replace(b"en", b"de")
    answer = client.post("/translate", {**BASIC, "q": page.decode(), "format": "html"})
    assert answer.json()["translatedText"] == page.decode().replace("en", "de")


def test_the_address_of_a_file_is_that_of_the_proxy(client: Client) -> None:
    part = b'--x\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'
    fields = [(b"source", b"en"), (b"target", b"de"), (b'file"; filename="a.txt', b"a")]
    body = b"".join([part % field for field in fields]) + b"--x--\r\n"
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-Prefix": "/translate/", "Host": "example.org"}
    with listening(client.app) as (host, port):
        address = f"http://{host}:{port}/translate_file"
        with urlopen(Request(address, body, {"Content-Type": KIND, **forwarded})) as answer:
            url = json.loads(answer.read())["translatedFileUrl"]
    assert url.startswith("https://example.org/translate/download_file/")


@pytest.mark.parametrize(
    ("name", "content", "fields", "status", "message"),
    [
        ("a.docx", b"PK", BASIC, 400, "a.docx are not supported. Supported: .txt, .html"),
        ("a.txt", b"ab\xff", BASIC, 400, "The file is not UTF-8 (byte 3)"),
        ("a.xliff", b"a", BASIC, 400, "the file does not contain '<source'"),
        ("a.xml", b"<a>b", BASIC, 400, "the file ends inside <a>"),
        ("a.txt", b"a", {"source": "en"}, 400, "target is missing"),
        ("a.txt", b"a", {**BASIC, "target": "es"}, 400, "es is not supported"),
        ("a.html", b"a " * 60_000, BASIC, 413, "120,000 characters"),
        ("a.html", b"a " * 700_000, BASIC, 413, "bytes"),
    ],
)
def test_a_wrong_file_is_refused(
    client: Client, name: str, content: bytes, fields: dict[str, str], status: int, message: str
) -> None:
    answer = sent(client, name, content, fields)
    assert answer.status == status and message in answer.json()["error"]


@pytest.mark.parametrize("body", ["", "--x--\r\n", "--x\r\n\r\na\r\n--x--\r\n", "a", DEEP])
def test_a_damaged_form_is_refused(client: Client, body: str) -> None:
    answer = client.send("POST", "/translate_file", body.encode(), {"content-type": KIND})
    assert answer.status == 400 and "damaged" in answer.json()["error"]


def test_a_text_is_not_a_file(client: Client) -> None:
    answer = client.post("/translate_file", {**BASIC, "file": "One dog."})
    assert answer.status == 400 and "file must be a file" in answer.json()["error"]


def test_files_are_kept_for_a_limited_time_and_number(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_FILES", 2)
    answers = []
    for _ in range(3):
        answers.append(sent(client, "a.txt", b"a"))
        time.sleep(0.02)  # the system's clock for files has steps
    assert [fetched(client, answer).status for answer in answers] == [404, 200, 200]
    monkeypatch.setattr(store, "MAX_SECONDS", 0)
    assert fetched(client, answers[2]).status == 404


def test_processes_with_the_same_folder_share_complete_files(
    german: Model, serving: Serving, tmp_path: Path
) -> None:
    one, other = (serving({"copies": german}, folder=str(tmp_path)) for _ in range(2))
    assert fetched(other, sent(one, "a.txt", b"a b")).body == b"a b"
    (tmp_path / "files" / ".a.txt.1.unfinished").write_text("a")
    for name in ("../glossaries", "../../../etc/passwd", ".a.txt.1.unfinished", "\0"):
        assert other.service.store.file(name) is None


def test_a_file_needs_a_key_and_its_address_does_not(german: Model, serving: Serving, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("secret")
    client = serving({"copies": german}, Keys(tmp_path / "keys"))
    assert sent(client, "a.txt", b"a").status == 403
    assert fetched(client, sent(client, "a.txt", b"a", {**BASIC, "api_key": "secret"})).body == b"a"
