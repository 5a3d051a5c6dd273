"""The model card: it lists data, scores and settings, and escapes all names."""

from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from nmt_cli.checkpoints.card import About, card
from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.scoring.metrics import Score

HASHES = ["0a" * 32, "1b" * 32]


def trained_on(name: str = "news") -> dict[str, object]:
    corpus = {"name": name, "pairs": 12_345, "files": [{"sha256": sha256} for sha256 in HASHES]}
    return {"inputs": [{"role": role, **corpus} for role in ("train", "valid")], "longest": 256}


def html(identity: Identity, about: About = About()) -> str:  # noqa: B008  # it can't change
    text = card(identity, 1_234_567, "mean of steps 1, 2", about)
    return str(MarkdownIt("commonmark").enable("table").render(text))


def test_a_card_lists_data_size_and_licence(identity: Identity) -> None:
    page = html(replace(identity, trained_on=trained_on()), About(licence="CC BY-NC 4.0"))
    facts = ("1,234,567", "mean of steps 1, 2", "12,345", *HASHES, "CC BY-NC 4.0", "Longer lines than 256 ")
    assert [fact for fact in facts if fact not in page] == []
    assert "Not scored yet" in page


def test_a_card_lists_scores_with_their_signatures(identity: Identity) -> None:
    score = Score("bleu", "BLEU", "", 41.5649, "nrefs:1|case:mixed|tok:13a", "")
    page = html(identity, About(scores={"valid": [score]}))
    assert "41.56" in page
    assert "<code>nrefs:1|case:mixed|tok:13a</code>" in page
    assert "Not scored yet" not in page


def test_missing_facts_are_marked(identity: Identity) -> None:
    page = html(replace(identity, trained_on={}))
    assert "Unknown." in page
    assert "not stated" in page


@pytest.mark.parametrize(
    "name", ["<script>x</script>", "a|b", "**a**", "[a](http://b)", "a\nb", "`a`", "![a](b)"]
)
def test_names_do_not_become_markup(identity: Identity, name: str) -> None:
    about = About(licence=name, settings=f'model = "{name}"\n```\n<script>')
    page = html(replace(identity, trained_on=trained_on(name)), about)
    plain = html(replace(identity, trained_on=trained_on("x")), About(licence="x", settings="x"))
    for tag in ("<script", "<a ", "<img", "<strong", "<em"):
        assert tag not in page
    assert page.count("<tr") == plain.count("<tr")
    assert page.count("<td") == plain.count("<td")


def test_a_card_contains_the_settings_of_the_run(identity: Identity) -> None:
    settings = "[training]\nseed = 1\n\n[search]\nbeam = 4\n"
    text = card(identity, 1, "", About(settings=settings))
    assert all(f"    {line}\n" in text for line in settings.splitlines())
