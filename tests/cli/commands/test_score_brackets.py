"""`nmt score` on parses: output, warnings and errors."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Run = Callable[..., CompletedProcess[str]]

TREES = [
    "(TOP (S (NP-SBJ (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)))",
    "(TOP (S (NP (PRP It)) (VP (VBZ sits))))",
]
LINEARISED = ["(S (NP DT NN )NP (VP VBZ )VP . )S", "(S (NP PRP (VP VBZ"]


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    path = tmp_path / "test.trees"
    path.write_text("\n".join(TREES) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def parses(tmp_path: Path) -> Path:
    path = tmp_path / "parses"
    path.write_text("\n".join(LINEARISED) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("asked", [(), ("--metric", "brackets")], ids=["by the ending", "asked for"])
def test_parses_are_scored_by_their_brackets_and_malformed_ones_count(
    nmt: Run, trees: Path, parses: Path, asked: tuple[str, ...]
) -> None:
    result = nmt("score", "--reference", trees, parses, trees, *asked)
    assert result.returncode == 0
    rows = [line.split("│")[2:-1] for line in result.stdout.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["83.33", "83.33", "83.33", "50.00", "50.00"],
        ["100.00", "100.00", "100.00", "100.00", "0.00"],
    ]
    assert (
        "bracket F1, precision, recall, complete match, malformed: evalb:collins|roots:out|" in result.stdout
    )
    assert result.stderr == (
        f"Warning: {parses}: 1 of 2 lines are not a tree of their sentence; they were repaired and counted "
        "(line 2: (VP is not closed).\n"
    )


def test_json_contains_every_part_of_bracket_f1(nmt: Run, trees: Path, parses: Path) -> None:
    (system,) = json.loads(nmt("score", "--reference", trees, parses, "--json").stdout)["systems"]
    values = {score["name"]: score["score"] for score in system["scores"]}
    assert values == pytest.approx(
        {
            "bracket F1": 250 / 3,
            "precision": 250 / 3,
            "recall": 250 / 3,
            "complete match": 50,
            "malformed": 50,
        }
    )
    assert {score["metric"] for score in system["scores"]} == {"brackets"}
    assert system["scores"][0]["detail"] == (
        "5 brackets match, of 6 in the reference and 6 in the hypotheses; malformed and repaired: 1 lines"
    )


def test_linearised_references_and_compressed_trees_score_as_trees(
    nmt: Run, trees: Path, parses: Path, tmp_path: Path
) -> None:
    (tmp_path / "gold").write_text(
        "(S (NP-SBJ DT NN )NP-SBJ (VP VBZ )VP . )S\n(S (NP PRP )NP (VP VBZ )VP )S\n"
    )
    (tmp_path / "test.trees.gz").write_bytes(gzip.compress(trees.read_bytes()))
    expected = nmt("score", "--reference", trees, parses).stdout
    assert nmt("score", "--reference", tmp_path / "test.trees.gz", parses).stdout == expected
    assert nmt("score", "--metric", "brackets", "--reference", tmp_path / "gold", parses).stdout == expected


def test_each_parse_has_its_f1(nmt: Run, trees: Path, parses: Path) -> None:
    result = nmt("score", "--reference", trees, parses, "--sentences")
    assert result.stdout == "line\tbracket F1\n1\t100.0000\n2\t66.6667\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--metric", "brackets", "--metric", "bleu"), "use them in separate runs"),
        (("--significance", "bootstrap"), "--significance does not support brackets"),
        (("--target-lang", "de"), "--target-lang has no effect"),
        (("--set", "bleu.tokenizer=intl"), "bleu.tokenizer has no effect"),
    ],
)
def test_options_without_effect_on_brackets_are_one_line(
    nmt: Run, trees: Path, parses: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert_one_line(nmt("score", "--reference", trees, parses, *arguments), message)


def test_brackets_compare_with_one_reference(nmt: Run, trees: Path, parses: Path, tmp_path: Path) -> None:
    (tmp_path / "other.trees").write_bytes(trees.read_bytes())
    result = nmt("score", "--reference", trees, "--reference", tmp_path / "other.trees", parses)
    assert_one_line(result, "brackets takes one --reference")


def test_a_reference_without_a_tree_is_one_line(nmt: Run, trees: Path, parses: Path) -> None:
    trees.write_text(f"{TREES[0]}\n{TREES[1][:-1]}\n")
    assert_one_line(nmt("score", "--reference", trees, parses), "test.trees line 2: (TOP is not closed")


def assert_one_line(result: CompletedProcess[str], message: str) -> None:
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert message in result.stderr
