"""Scores of documents: sacrebleu on joined lines, and means of means for scorers."""

from pathlib import Path

import pytest
from sacrebleu import BLEU, CHRF, TER

from nmt_cli.errors import UserError
from nmt_cli.scoring.command import CommandScorer
from nmt_cli.scoring.config import Metric, ScoreConfig, Test
from nmt_cli.scoring.evaluate import Evaluation, Scores, evaluate
from tests.checks import refusal
from tests.cli.conftest import Nmt, assert_one_line
from tests.scoring.conftest import damaged

REFERENCE = [f"Satz {n} hat die Zahl {n * n} und endet . Ja ?" for n in range(9)]
SYSTEMS = [damaged(REFERENCE, seed) for seed in (5, 6)]
IDS = [*"aabbbacdd"]  # document a goes on after b
DOCUMENTS = [[0, 1, 5], [2, 3, 4], [6], [7, 8]]
LENGTHS = CommandScorer("awk -F'\"' '{print length($4)}'", 60)


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    contents = {"ref": REFERENCE, "one": SYSTEMS[0], "two": SYSTEMS[1], "ids": IDS}
    for name, lines in contents.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    segments = "".join(f'<doc docid="{i}"><seg id="1">x</seg></doc>' for i in IDS)
    (tmp_path / "src.sgm").write_text(f"<srcset>{segments}</srcset>")
    return {path.name: path for path in tmp_path.iterdir()}


def score(paths: dict[str, Path], *metrics: Metric, ids: str = "ids", test: Test | None = None) -> Scores:
    files = [paths["ref"]], [paths["one"], paths["two"]]
    scorers = () if metrics else (LENGTHS,)
    request = Evaluation(*files, "de", metrics, True, test, ScoreConfig(), frozenset(), scorers)
    return evaluate(request, paths[ids])


def joined(lines: list[str]) -> list[str]:
    return [" ".join(lines[line] for line in document) for document in DOCUMENTS]


@pytest.mark.parametrize("ids", ["ids", "src.sgm"])
def test_lines_of_a_document_are_joined_for_metrics_of_words_and_characters(
    paths: dict[str, Path], ids: str
) -> None:
    outcome = score(paths, "bleu", "chrf", "ter", ids=ids)
    assert (outcome.lines, outcome.documents) == (9, [*"abcd"])
    for system, lines in zip(outcome.systems, SYSTEMS, strict=True):
        for actual, metric in zip(system.scores, (BLEU(), CHRF(), TER()), strict=True):
            expected = metric.corpus_score(joined(lines), [joined(REFERENCE)])
            assert actual.value == pytest.approx(expected.score, abs=1e-9)
            assert actual.signature == f"{metric.get_signature()}|docs:4"
        pairs = zip(joined(lines), joined(REFERENCE), strict=True)
        of_documents = [CHRF().sentence_score(ours, [theirs]).score for ours, theirs in pairs]
        assert system.sentences[1].values == pytest.approx(of_documents)


def test_scores_of_a_scorer_are_means_over_documents_of_means_over_lines(paths: dict[str, Path]) -> None:
    for system, lines in zip(score(paths).systems, SYSTEMS, strict=True):
        means = [sum(len(lines[line]) for line in document) / len(document) for document in DOCUMENTS]
        (actual,), (by_document,) = system.scores, system.sentences
        assert by_document.values == pytest.approx(means)
        assert actual.value == pytest.approx(sum(means) / len(means))
        assert actual.signature.endswith("|docs:4")


def test_tests_resample_documents(paths: dict[str, Path], tmp_path: Path) -> None:
    tested = score(paths, "chrf", test="bootstrap").systems[1].findings[0]
    texts = {"ref": REFERENCE, "one": SYSTEMS[0], "two": SYSTEMS[1], "ids": [*"abcd"]}
    for name, lines in texts.items():
        content = lines if name == "ids" else joined(lines)
        (tmp_path / name).write_text("".join(f"{line}\n" for line in content))
    assert tested == score(paths, "chrf", test="bootstrap").systems[1].findings[0]
    assert tested.p_value is not None


def test_each_line_needs_an_id(paths: dict[str, Path]) -> None:
    paths["ids"].write_text("a\n\n" + "b\n" * 7)
    assert f"{paths['ids']} line 2 has no id of a document." in refusal(score, paths, "chrf")
    paths["ids"].write_text("a\nb\n")
    with pytest.raises(UserError, match=r"one has 9 lines, .*ids has 2: they must match"):
        score(paths, "chrf")


def test_documents_have_rows_with_their_ids(nmt: Nmt, paths: dict[str, Path]) -> None:
    arguments = ("score", "--documents", paths["ids"], paths["one"])
    result = nmt(*arguments, "--reference", paths["ref"], "--metric", "chrf", "--sentences")
    assert [row.split("\t")[0] for row in result.stdout.splitlines()] == ["document", *"abcd"]
    assert "9 lines in 4 documents" in result.stderr
    assert_one_line(nmt(*arguments, "--model", "m", "--source", paths["ref"]), 2, "--model works only")
