"""The model card: it lists data, scores and settings, and escapes all names."""

from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from nmt_cli.checkpoints.card import About, card
from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.scoring.metrics import Score

HASHES = ["0a" * 32, "1b" * 32]


def trained_on(name: str = "news") -> dict[str, object]:
    files = [
        {"path": f"/data/{name}.{lang}", "sha256": sha256} for lang, sha256 in zip("ab", HASHES, strict=True)
    ]
    return {
        "inputs": [
            {"role": role, "name": name, "pairs": 12_345, "files": files} for role in ("train", "valid")
        ],
        "longest": 256,
    }


def html(identity: Identity, about: About = About()) -> str:  # noqa: B008  # it can't change
    text = card(identity, 1_234_567, "mean of steps 1, 2", about)
    return str(MarkdownIt("commonmark").enable("table").render(text))


def test_it_tells_data_size_and_licence(identity: Identity) -> None:
    page = html(replace(identity, trained_on=trained_on()), About(licence="CC BY-NC 4.0"))
    for told in (
        "1,234,567",
        "mean of steps 1, 2",
        "12,345",
        *HASHES,
        "CC BY-NC 4.0",
        "Longer lines than 256 subwords",
    ):
        assert told in page
    assert "Not scored yet" in page


def test_it_tells_scores_with_their_signatures(identity: Identity) -> None:
    score = Score("bleu", "BLEU", "", 41.5649, "nrefs:1|case:mixed|tok:13a", "")
    page = html(identity, About(scores={"valid": [score]}))
    assert "41.56" in page
    assert "<code>nrefs:1|case:mixed|tok:13a</code>" in page
    assert "Not scored yet" not in page


def test_what_is_not_known_is_said(identity: Identity) -> None:
    page = html(replace(identity, trained_on={}))
    assert "Unknown." in page
    assert "not stated" in page


@pytest.mark.parametrize(
    "name", ["<script>x</script>", "a|b", "**a**", "[a](http://b)", "a\nb", "`a`", "![a](b)"]
)
def test_no_name_becomes_markup(identity: Identity, name: str) -> None:
    about = About(licence=name, settings=f'model = "{name}"\n```\n<script>')
    page = html(replace(identity, trained_on=trained_on(name)), about)
    plain = html(replace(identity, trained_on=trained_on("x")), About(licence="x", settings="x"))
    for tag in ("<script", "<a ", "<img", "<strong", "<em"):
        assert tag not in page
    assert page.count("<tr") == plain.count("<tr")
    assert page.count("<td") == plain.count("<td")


def test_the_settings_of_the_run_are_in_it_as_they_stand(identity: Identity, tmp_path: Path) -> None:
    settings = "[training]\nseed = 1\n\n[search]\nbeam = 4\n"
    assert all(
        f"    {line}\n" in card(identity, 1, "", About(settings=settings)) for line in settings.splitlines()
    )
