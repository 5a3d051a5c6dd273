"""The model card: it lists data, scores and settings, and escapes all names."""

from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from nmt_cli.checkpoints.average import average
from nmt_cli.checkpoints.card import About, card, facts_of
from nmt_cli.checkpoints.model_folder import Identity, LoadedModel, read_model
from nmt_cli.scoring.measures import Score
from tests.checks import refusal

GOLDEN = Path(__file__).parents[1] / "golden"
OTHER = ("TER", "", 51.0, "nrefs:1", "")

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
    assert "without a signature" not in page


def test_a_score_of_the_validation_is_not_passed_off_as_one_of_the_whole_set(identity: Identity) -> None:
    page = html(identity, About(scores={"validation": [Score("bleu", "bleu", "", 0.86, "", "")]}))
    assert "<td>none</td>" in page
    assert "may be of only a part of the set" in page


def test_scores_and_licence_of_an_average_are_read_back(made_models: Path, tmp_path: Path) -> None:
    scores = {"valid": [Score("bleu", "BLEU", "13a", 41.5649, "nrefs:1", "60/40"), Score("ter", *OTHER)]}
    about = About(scores=scores, licence="CC BY 4.0")
    average([made_models / "copies"], tmp_path / "mean", about=about)
    facts = facts_of(tmp_path / "mean", read_model(tmp_path / "mean"))
    assert {name: [*each] for name, each in facts.scores.items()} == scores
    assert facts.licence == "CC BY 4.0"


def test_scores_of_a_checkpoint_are_those_of_its_validation() -> None:
    best = GOLDEN / "run" / "best"
    (scores,) = facts_of(best, read_model(best)).scores.values()
    assert [(score.metric, round(score.value, 2)) for score in scores] == [("bleu", 1.72), ("chrf", 11.89)]


@pytest.mark.parametrize("scores", [[], {"valid": 1}, {"valid": [{"metric": "bleu"}]}, {"valid": [None]}])
def test_a_damaged_record_of_scores_is_refused(identity: Identity, tmp_path: Path, scores: object) -> None:
    model = LoadedModel(identity, identity.build(), {"scores": scores})
    assert "config.json is damaged" in refusal(facts_of, tmp_path, model)


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


def test_a_card_names_files_in_settings_without_their_folders(identity: Identity) -> None:
    settings = '[start]\nmodel = "/home/ann/secret/model"\n[bleu]\ntokenizer = "13a"\n'
    text = card(identity, 1, "", About(settings=settings))
    assert '    model = "model"\n' in text and '    tokenizer = "13a"\n' in text
