"""The attention page: its data, its safety, and its drawing in a browser."""

import base64
import html
import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from nmt_cli.decoding.attention_maps import attention_maps
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.text.config import TextConfig, TokenizerConfig
from nmt_cli.text.tokenizers import Recipe, Tokenizers, learn_tokenizers
from nmt_cli.translation.attention_page import write_attention_page
from tests.conftest import vocabulary_of

SCRIPT = "</script><script>alert(1)</script>"
HOSTILE = [SCRIPT, *"<!--<script> ]]> $data \\u003c \"&quot;' \u202eabc \u2066 字 😀".split()]
LINES = ["the dog sees the cat", " ".join(HOSTILE)]
RAW = "first line\u2028second </script> line \u202e\x00 "

Pair = tuple[str, list[int], list[int]]


class Reader(HTMLParser):
    """Parses a page as a browser does: its elements, and the text of the one with the id `data`."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.data, self._inside = "", False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = dict(attrs).get("id") == "data"

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        self.data += data if self._inside else ""


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    recipe = Recipe("word", True, "en", "de", TextConfig(unicode="none", words="raw"))
    config = TokenizerConfig(kind="word", vocab_size=64)
    return learn_tokenizers(recipe, config, {"source": LINES, "target": LINES})


@pytest.fixture(scope="module")
def model(tokenizers: Tokenizers) -> Transformer:
    torch.manual_seed(1)
    config = ModelConfig(encoder_layers=2, decoder_layers=3, width=16, heads=4, feed_forward=16)
    size = len(tokenizers.source.vocabulary.entries)
    return Transformer(config, vocabulary_of(size), vocabulary_of(size), joint=True).eval()


@pytest.fixture(scope="module")
def pairs(tokenizers: Tokenizers) -> list[Pair]:
    ids = [tokenizers.source.encode(line) for line in LINES]
    return [(LINES[0], ids[0], ids[0][::-1]), (RAW, ids[1], ids[1]), ("", [], [])]


def written(model: Transformer, tokenizers: Tokenizers, pairs: list[Pair]) -> str:
    file = io.BytesIO()
    write_attention_page(file, model, tokenizers, pairs)
    return file.getvalue().decode()


@pytest.fixture(scope="module")
def page(model: Transformer, tokenizers: Tokenizers, pairs: list[Pair]) -> str:
    return written(model, tokenizers, pairs)


@pytest.fixture(scope="module")
def data(page: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(Reader(page).data)
    return parsed


def test_the_page_contains_the_weights_of_all_heads(
    data: dict[str, Any], model: Transformer, pairs: list[Pair]
) -> None:
    expected = attention_maps(model, [(source, target) for _, source, target in pairs])
    for shown, maps in zip(data["pairs"], expected, strict=True):
        assert list(shown["maps"]) == ["encoder", "decoder", "cross"]
        for kind, stored in shown["maps"].items():
            bytes_of_it = np.frombuffer(base64.b64decode(stored["weights"]), np.uint8)
            weights = torch.from_numpy(bytes_of_it.reshape(stored["shape"]) / 255)
            torch.testing.assert_close(weights, getattr(maps, kind).double(), rtol=0, atol=0.5 / 255 + 1e-6)
        assert shown["alignment"] == maps.alignment()
        assert shown["ended"] == maps.ended


def test_the_page_contains_tokens_and_text_unchanged(data: dict[str, Any]) -> None:
    first = LINES[0].split()
    assert data["languages"] == ["en", "de"]
    assert [pair["text"] for pair in data["pairs"]] == [LINES[0], RAW, ""]
    assert [pair["source"] for pair in data["pairs"]] == [[*first, "</s>"], [*HOSTILE, "</s>"], ["</s>"]]
    backward = [*first[::-1], "</s>"]
    assert [pair["target"] for pair in data["pairs"]] == [backward, [*HOSTILE, "</s>"], ["</s>"]]


def test_text_cannot_become_markup_in_the_page(
    page: str, tmp_path: Path, model: Transformer, tokenizers: Tokenizers
) -> None:
    harmless = written(model, tokenizers, [])
    assert Reader(page).elements == Reader(harmless).elements
    start = page.index('<script type="application/json" id="data"')
    shown = page[start : page.index("</script>", start)]
    assert shown.isascii()
    assert not any(mark in shown.split(">", 1)[1] for mark in "<>&")


def test_the_page_needs_no_network(page: str) -> None:
    reader = Reader(page)
    addresses = [attributes.get(name) for _, attributes in reader.elements for name in ("src", "href")]
    assert {*addresses} == {None, "data:,"}  # the icon, so that no browser asks for one
    policy = next(a["content"] for _, a in reader.elements if "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert not any(word in page for word in ("http:", "https:", "url(", "@import", "fetch("))


@pytest.mark.slow
def test_a_browser_draws_the_page(page: str, tmp_path: Path, shown_by_browser: Callable[[Path], str]) -> None:
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    shown = shown_by_browser(tmp_path / "page.html").split("<script")[0]
    assert "en to de, 2 + 3 layers, 4 heads" in shown
    assert "Cross-attention, layer 3, all heads" in shown
    assert len(re.findall(r'<button[^>]* class="head"', shown)) == 3 * 4
    assert re.search(r'<option value="1">2\. first lineU\+2028second &lt;/script&gt;', shown)
    for piece in LINES[0].split():
        assert f'title="{piece}"' in shown


SAVED = """(document.readyState === "complete") && (() => {
  document.body.dataset.svg = asSvg(shapes());
  document.body.dataset.png = asCanvas(shapes()).toDataURL().slice(0, 22);
  document.body.dataset.address = location.hash;
  return true;
})()"""


@pytest.mark.slow
@pytest.mark.parametrize(("view", "marks"), [("lines", "line"), ("heat", "rect")])
def test_a_browser_saves_the_drawing_and_keeps_the_chosen_token_in_the_address(
    view: str, marks: str, page: str, tmp_path: Path, shown_by_browser: Callable[..., str]
) -> None:
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    chosen = f"#sentence=2&kind=encoder&view={view}&layer=2&heads=1-3&query=3"
    shown = shown_by_browser(f"{(tmp_path / 'page.html').as_uri()}{chosen}", SAVED)
    saved = {
        name: html.unescape(value) for name, value in re.findall(r'data-(svg|png|address)="([^"]*)"', shown)
    }
    assert saved["address"] == chosen
    assert saved["png"] == "data:image/png;base64,"
    svg = ElementTree.fromstring(saved["svg"])
    names = [one.tag.rpartition("}")[2] for one in svg.iter()]
    assert names.count(marks) > len(HOSTILE)
    texts = ["".join(one.itertext()) for one in svg.iter() if one.tag.endswith("text")]
    assert len(texts) == 2 * (len(HOSTILE) + 1)
    assert SCRIPT in texts
    assert "attends to" in shown
