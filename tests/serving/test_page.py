"""The page of the server, and the attention page that it requests."""

import base64
import hashlib
import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest

from nmt_cli.api import Model
from tests.serving.conftest import Client, Serving, listening

FIELDS = {"source": "en", "target": "de", "q": "One dog.\n\nTwo cats."}
SIDES = ("mirror", "translation")


def test_the_policy_allows_only_the_scripts_and_styles_of_the_page(client: Client) -> None:
    answer = client.get("/")
    page = answer.body.decode()
    (policy,) = re.findall(r'Content-Security-Policy"\s+content="(.*?)"', page, re.S)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'" and "unsafe" not in policy
    for name, pattern in {
        "script-src": "<script>(.*?)</script>",
        "style-src": "<style>(.*?)</style>",
    }.items():
        (content,) = re.findall(pattern, page, re.S)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"
    assert answer.headers["Content-Security-Policy".lower()] == "frame-ancestors 'none'"
    assert not re.findall(r"""(?:src|href|action)=["']?(?:https?:)?/""", page)


def test_the_attention_page_is_returned_for_a_form_and_for_json(client: Client) -> None:
    answer = client.post("/attention", FIELDS)
    assert answer.headers["content-type"].startswith("text/html")
    assert b"<title>Attention</title>" in answer.body
    assert client.form("/attention", FIELDS).body == answer.body


def test_the_attention_page_is_limited(client: Client) -> None:
    lines = "\n".join(["a b"] * 30)
    page = client.post("/attention", {**FIELDS, "q": lines}).body.decode()
    (data,) = re.findall(r'type="application/json" id="data">(.*?)</script>', page, re.S)
    assert len(json.loads(data)["pairs"]) == 20
    refused = client.post("/attention", {**FIELDS, "source": "de", "target": "en"})
    assert (refused.status, refused.json()) == (400, {"error": "No single model translates de into en."})


@pytest.mark.slow
def test_a_browser_translates_colours_words_and_reports_refusals(
    german: Model,
    serving: Serving,
    shown_by_browser: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nmt_cli.serving.service.MAX_CHARACTERS", 200)
    monkeypatch.setattr("nmt_cli.serving.page.MAX_CHARACTERS", 200)
    client = serving({"copies": german})
    pointing = "document.querySelector('#translation .word').dispatchEvent(new Event('pointerenter'))"
    with listening(client.app) as (host, port):
        address = f"http://{host}:{port}"
        text = "source=auto&target=de&q=One%20dog%20runs.%0A%0ATwo%20cats."
        shown = shown_by_browser(f"{address}/#{text}", f"!byId('copy').disabled && {pointing}")
        refused = shown_by_browser(f"{address}/#q={'a' * 201}", "document.querySelector('#status.wrong')")
    assert "Detected English" in shown
    assert "The text has 201 characters. Send at most 200 at a time." in refused
    sides = [re.findall(rf'<\w+ id="{side}".*?>(.*?)</(?:div|output)>', shown, re.S) for side in SIDES]
    assert [re.sub("<.*?>", "", html) for (html,) in sides] == ["One dog runs.\n\nTwo cats."] * 2
    source, target = (re.findall(r'class="(.*?)" style="--hue: (\d+);">(.*?)<', html) for (html,) in sides)
    assert source == target
    assert [word for *_, word in source] == ["One", "dog", "runs", ".", "Two", "cats", "."]
    assert [word for look, _, word in source if look == "word on"] == ["One"]
    assert [hue for _, hue, _ in source[:4]] == ["0", "45", "90", "135"]


STORY = """
async () => {
  const until = async (holds) => { while (!holds()) await new Promise((go) => setTimeout(go, 10)); };
  const gone = (id) => byId(id).hidden || byId(id).disabled === true;
  const shown = () => ["alternatives", "look", "copy"].map(gone);
  const log = [];
  await until(() => !byId("copy").disabled);
  byId("more").firstChild.click();
  log.push(shown());
  await until(() => !byId("alternatives").hidden);
  log.push(shown());
  byId("text").value = "Two cats.";
  typed();
  log.push(shown());
  await until(() => !byId("copy").disabled);

  // As on a page without TLS. A script may copy only after a click of a person.
  Object.defineProperty(navigator, "clipboard", { value: undefined });
  document.execCommand = (name) => { log.push([name, document.activeElement.value]); return true; };
  byId("copy").click();
  await until(() => byId("status").textContent === "Copied.");

  const choose = (name) => {
    const files = new DataTransfer();
    files.items.add(new File(["<p>One <b>dog</b>.</p>"], name));
    byId("files").files = files.files;
    byId("files").dispatchEvent(new Event("change"));
  };
  choose("my.page.html");
  await until(() => byId("status").textContent.startsWith("Saved"));
  log.push(byId("status").textContent);
  choose("page.docx");
  await until(() => byId("status").classList.contains("wrong"));
  log.push(byId("status").textContent.slice(0, 42));
  document.title = JSON.stringify(log);
}
"""


@pytest.mark.slow
def test_a_browser_hides_what_is_old_copies_and_translates_files(
    german: Model, serving: Serving, tmp_path: Path, shown_by_browser: Callable[..., str]
) -> None:
    client = serving({"copies": german}, folder=str(tmp_path / "store"))
    with listening(client.app) as (host, port):
        loaded = "document.readyState === 'complete' && document.querySelector('#copy')"
        ready = f"{loaded} && (globalThis.story ??= ({STORY})(), document.title.startsWith('['))"
        shown = shown_by_browser(f"http://{host}:{port}/#source=en&target=de&q=One%20dog%20runs.", ready)
    (title,) = re.findall("<title>(.*?)</title>", shown)
    old, current = [True, True, True], [False, False, False]
    assert json.loads(unescape(title)) == [
        *(old, current, old),
        ["copy", "Two cats."],
        "Saved my.page.de.html.",
        "Files like page.docx are not supported. Su",
    ]
    (file,) = (tmp_path / "store" / "files").iterdir()
    assert file.read_text() == "<p>One <b>dog</b>.</p>"
