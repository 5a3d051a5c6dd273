"""Bracket F1: the rules of EVALB, a comparison with EVALB on a damaged treebank, and malformed output."""

import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from recipes.parsing.score import Comparison, Counts, compare, main, read_references
from recipes.parsing.trees import Tree, bracketed, linearised, parse

COLLINS = """\
DEBUG 0
MAX_ERROR 10
CUTOFF_LEN 40
LABELED 1
DELETE_LABEL TOP
DELETE_LABEL -NONE-
DELETE_LABEL ,
DELETE_LABEL :
DELETE_LABEL ``
DELETE_LABEL ''
DELETE_LABEL .
DELETE_LABEL_FOR_LENGTH -NONE-
EQ_LABEL ADVP PRT
"""
"""EVALB's published settings."""

RULES = {
    "the same tree": ("(TOP (S (NP (DT a)) (VP (VB b))))", "(TOP (S (NP (DT a)) (VP (VB b))))", (3, 3, 3)),
    "another label is another bracket": (
        "(TOP (S (NP (DT a)) (VP (VB b))))",
        "(TOP (S (NP (DT a)) (NP (VB b))))",
        (2, 3, 3),
    ),
    "another span is another bracket": (
        "(TOP (S (NP (DT a) (NN b)) (VP (VB c))))",
        "(TOP (S (NP (DT a)) (VP (NN b) (VB c))))",
        (1, 3, 3),
    ),
    "TOP does not count": ("(TOP (S (NN a)))", "(S (NN a))", (1, 1, 1)),
    "TOP does not count inside either": ("(TOP (S (NN a)))", "(TOP (S (TOP (NN a))))", (1, 1, 1)),
    "tags are not brackets": ("(TOP (S (NN a) (VB b)))", "(TOP (S (JJ a) (RB b)))", (1, 1, 1)),
    "traces and brackets of only traces do not count": (
        "(TOP (S (NP (DT a)) (VP (VBD b) (SBAR (-NONE- 0) (S (-NONE- *T*-1))))))",
        "(TOP (S (NP (DT a)) (VP (VBD b))))",
        (3, 3, 3),
    ),
    "the parent of a comma does not count": (
        "(TOP (S (NP (DT a) (, ,)) (VP (VB b)) (. .)))",
        "(TOP (S (NP (DT a)) (, ,) (VP (VB b) (. .))))",
        (3, 3, 3),
    ),
    "all five kinds of punctuation do not count": (
        "(TOP (S (NP (`` x) (: x) (, x) (. x) ('' x) (NN a)) (NN b)))",
        "(TOP (S (`` x) (: x) (, x) (. x) ('' x) (NP (NN a)) (NN b)))",
        (2, 2, 2),
    ),
    "other punctuation counts": (
        "(TOP (S (NP (-LRB- x) (NN a)) (NN b)))",
        "(TOP (S (-LRB- x) (NP (NN a)) (NN b)))",
        (1, 2, 2),
    ),
    "a bracket of only punctuation does not count": (
        "(TOP (S (NN a) (PRN (, ,) (: -))))",
        "(TOP (S (NN a) (, ,) (: -)))",
        (1, 1, 1),
    ),
    "a bracket named as punctuation does not count": (
        "(TOP (S (NN a)))",
        "(TOP (S (: (NN a))))",
        (1, 1, 1),
    ),
    "function labels do not count": (
        "(TOP (S-ADV (NP-SBJ-1 (NN a)) (VP=2 (VB b))))",
        "(TOP (S (NP (NN a)) (VP (VB b))))",
        (3, 3, 3),
    ),
    "ADVP and PRT are equal": (
        "(TOP (S (ADVP (RB a)) (PRT (RP b))))",
        "(TOP (S (PRT (RB a)) (ADVP (RP b))))",
        (3, 3, 3),
    ),
    "ADVP with a function label and PRT are equal": (
        "(TOP (S (ADVP-TMP (RB a)) (NN b)))",
        "(TOP (S (PRT (RB a)) (NN b)))",
        (2, 2, 2),
    ),
    "a bracket that occurs twice only in the hypothesis matches once": (
        "(TOP (S (NP (NN a)) (NN b)))",
        "(TOP (S (NP (NP (NN a))) (NN b)))",
        (2, 2, 3),
    ),
    "a bracket that occurs twice only in the reference matches once": (
        "(TOP (S (NP (NP (NN a))) (NN b)))",
        "(TOP (S (NP (NN a)) (NN b)))",
        (2, 3, 2),
    ),
    "a bracket that occurs twice on both sides matches twice": (
        "(TOP (S (NP (NP (NN a))) (NN b)))",
        "(TOP (S (NP (NP (NN a))) (NN b)))",
        (3, 3, 3),
    ),
    "the order of brackets over the same words does not count": (
        "(TOP (S (VP (VB a))))",
        "(TOP (VP (S (VB a))))",
        (2, 2, 2),
    ),
    "a tree without brackets": ("(TOP (NN a))", "(TOP (NP (NN a)))", (0, 0, 1)),
    "a sentence of only punctuation is skipped": ("(TOP (X (. .)))", "(TOP (Y (. .)))", None),
}
"""A reference, a hypothesis, and the numbers of matching, reference and hypothesis brackets."""

EVALB_COUNTS = {
    "train": (49336, 61030, 66570, 256),
    "valid": (6933, 8581, 9382, 18),
    "test": (7036, 8710, 9528, 27),
}
"""Counts that EVALB printed for `damaged`: matching, reference and hypothesis brackets, complete trees."""


def against(reference: str, hypothesis: str) -> Comparison:
    return compare([hypothesis], read_references([reference], "ref"))


def damaged(trees: Sequence[Tree], share: float = 0.1, seed: int = 7) -> list[Tree]:
    """Return trees with some brackets lost, doubled, renamed or longer by a word. Words and tags stay."""
    generator = random.Random(seed)
    return [Tree(tuple(_damaged(list(tree.symbols), share, generator)), tree.words) for tree in trees]


def _damaged(symbols: list[str], share: float, generator: random.Random) -> list[str]:
    for i in range(len(symbols) - 1):
        one, other = symbols[i : i + 2]
        if one[0] == ")" and other[0] not in "()" and generator.random() < share:
            symbols[i : i + 2] = other, one
    result, open_labels = [], []
    for symbol in symbols:
        if symbol[0] == "(":
            open_labels.append(_labels(symbol[1:], share, generator))
            result += [f"({label}" for label in open_labels[-1]]
        elif symbol[0] == ")":
            result += [f"){label}" for label in reversed(open_labels.pop())]
        else:
            result.append(symbol)
    return result


def _labels(label: str, share: float, generator: random.Random) -> list[str]:
    """Return the labels that replace `label`: usually itself, sometimes none, several or another."""
    chance = generator.random()
    others = ("NP", "VP", "ADVP", "PRT", "S-SBJ=1", "PRN-X", "TOP")
    if chance < share:
        return []
    if chance < 2 * share:
        return [others[int(generator.random() * len(others))]]
    if chance < 3 * share:
        return [label, label]
    return ["X", label] if chance < 4 * share else [label]


def treebank(name: str) -> list[Tree]:
    if "NMT_DATA" not in os.environ:
        pytest.skip("NMT_DATA does not name the folder of data sets")
    text = Path(os.environ["NMT_DATA"], "treebank", f"{name}.trees").read_text(encoding="utf-8")
    return [parse(line) for line in text.splitlines()]


def evalb(references: Sequence[str], hypotheses: Sequence[str], folder: Path) -> list[Counts | None]:
    """Return the counts of EVALB for each line. None for a line that it skips."""
    if not (program := shutil.which("evalb")):
        pytest.skip(
            "evalb is not on the PATH (the wheel of allennlp 0.9.0 has its source, in the public domain)"
        )
    for name, text in {"ref": references, "hyp": hypotheses, "prm": [COLLINS]}.items():
        (folder / name).write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    command = [program, "-p", *(str(folder / name) for name in ("prm", "ref", "hyp"))]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [row for line in printed.splitlines() if len(row := line.split()) == 12 and row[0].isdigit()]
    assert {row[2] for row in rows} <= {"0", "2"}, "EVALB must not report errors"
    return [Counts(*map(int, row[5:8])) if row[2] == "0" else None for row in rows]


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_of_evalb_holds(rule: str) -> None:
    reference, hypothesis, expected = RULES[rule]
    result = against(reference, hypothesis)
    assert result.lines == [Counts(*expected) if expected else None]
    assert not result.flaws


def test_evalb_itself_follows_the_rules(tmp_path: Path) -> None:
    references, hypotheses, expected = zip(*RULES.values(), strict=True)
    result = evalb(references, hypotheses, tmp_path)
    assert result == [Counts(*counts) if counts else None for counts in expected]


@pytest.mark.parametrize("name", EVALB_COUNTS)
def test_a_damaged_treebank_has_the_counts_that_evalb_printed(name: str) -> None:
    references = treebank(name)
    result = compare([linearised(tree) for tree in damaged(references)], references)
    complete = sum(line.complete for line in result.lines if line)
    assert (*_numbers(result.total), complete) == EVALB_COUNTS[name]
    assert not result.flaws


def _numbers(counts: Counts) -> tuple[int, int, int]:
    return counts.matched, counts.reference, counts.hypothesis


@pytest.mark.parametrize("share", [0.03, 0.1])
def test_each_tree_of_a_damaged_treebank_has_the_counts_of_evalb(share: float, tmp_path: Path) -> None:
    references = treebank("test")
    hypotheses = [bracketed(tree) for tree in damaged(references, share)]
    expected = evalb([bracketed(tree) for tree in references], hypotheses, tmp_path)
    assert compare(hypotheses, references).lines == expected


@pytest.mark.parametrize("write_reference", [bracketed, linearised], ids=lambda form: form.__name__)
@pytest.mark.parametrize("write_hypothesis", [bracketed, linearised], ids=lambda form: form.__name__)
def test_bracketed_and_linearised_trees_score_the_same(
    write_reference: Callable[[Tree], str], write_hypothesis: Callable[[Tree], str]
) -> None:
    references = [parse(reference) for reference, _, _ in RULES.values()]
    hypotheses = [parse(hypothesis) for _, hypothesis, _ in RULES.values()]
    result = compare(
        [write_hypothesis(tree) for tree in hypotheses],
        read_references([write_reference(tree) for tree in references], "ref"),
    )
    assert result.lines == [Counts(*counts) if counts else None for _, _, counts in RULES.values()]
    assert not result.flaws


def test_precision_recall_f1_and_complete_match_are_over_all_sentences() -> None:
    perfect, skipped = "(S (NP NN )NP (VP VB )VP )S", "(X . )X"
    references = read_references([perfect, "(S (NP NN NN )NP )S", skipped, "NN"], "ref")
    result = compare([perfect, "(S (VP (X NN )X NN )VP )S", skipped, "NN"], references)
    assert result.total == Counts(4, 5, 6)
    assert result.scores() == pytest.approx(
        {
            "bracket F1": 100 * 8 / 11,
            "precision": 100 * 4 / 6,
            "recall": 100 * 4 / 5,
            "complete match": 100 * 2 / 3,
            "malformed": 0,
        }
    )


def test_scores_without_any_bracket_are_zero() -> None:
    result = compare([". ."], read_references([". ."], "ref"))
    assert [*result.scores().values()] == [0] * 5


@pytest.mark.parametrize(
    ("hypothesis", "expected", "flaw"),
    [
        ("(S (NP DT NN )NP (VP VB )VP", (3, 3, 3), "(S is not closed"),
        ("(S (NP DT NN )NP (VP", (3, 3, 3), "there are 2 words, not 3"),
        ("(S (NP DT", (1, 3, 2), "there are 1 words, not 3"),
        ("(S (NP DT NN )NP (VP VB VB )VP )S", (3, 3, 3), "there are 4 words, not 3"),
        ("", (0, 3, 0), "there is no word"),
    ],
)
def test_malformed_output_is_repaired_and_counts(
    hypothesis: str, expected: tuple[int, int, int], flaw: str
) -> None:
    good = "(S (NP DT NN )NP (VP VB )VP )S"
    result = compare([good, hypothesis, good], read_references([good] * 3, "ref"))
    assert result.lines == [Counts(3, 3, 3), Counts(*expected), Counts(3, 3, 3)]
    assert result.flaws == {2: flaw}
    assert result.scores()["malformed"] == pytest.approx(100 / 3)


def test_a_wrong_tag_changes_neither_counts_nor_flaws() -> None:
    result = against("(TOP (S (NP (NN a)) (, ,) (NN b)))", "(TOP (S (NP (. a)) (NN ,) (NN b)))")
    assert (result.lines, result.flaws) == ([Counts(2, 2, 2)], {})


def test_a_parse_of_other_words_is_malformed() -> None:
    result = against("(TOP (S (NN a) (NN b)))", "(TOP (S (NN a) (NN c)))")
    assert result.flaws == {1: "it has c instead of b"}


def test_a_malformed_line_does_not_change_the_format_of_the_other_lines() -> None:
    good = "(S (NN a))"
    result = compare([good, "(S NN", good, "", good], read_references([good] * 5, "ref"))
    assert list(result.flaws) == [2, 4]
    assert result.lines[::2] == [Counts(1, 1, 1)] * 3


@pytest.mark.parametrize("bad", ["(S (NN a)", "", "(TOP)"])
def test_the_error_for_a_malformed_reference_names_its_line(bad: str) -> None:
    with pytest.raises(
        SystemExit, match=r"^Error: gold\.trees line 2: .*; a line must be one tree, bracketed such as"
    ):
        read_references(["(S (NN a))", bad, "(S (NN a))"], "gold.trees")


def test_right_branching_trees_of_any_depth_are_scored() -> None:
    count = 5_000
    reference = read_references([f"(S {'NN ' * count})S"], "ref")
    branching = " ".join(["(S NN"] * count + [")S"] * count)
    assert compare([branching], reference).lines == [Counts(1, 1, count)]


def test_the_command_prints_the_scores_of_each_file_and_warns_about_malformed_parses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trees = [
        "(TOP (S (NP (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)))",
        "(TOP (S (NP (PRP It)) (VP (VBZ is))))",
    ]
    parses = ["(S (NP DT NN )NP (VP VBZ )VP . )S", "(S (NP PRP (VP VBZ"]
    for name, lines in {"gold": trees, "parses": parses, "short": parses[:1]}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    gold, hypotheses, short = (str(tmp_path / name) for name in ("gold", "parses", "short"))
    monkeypatch.setattr("sys.argv", ["score", gold, hypotheses, gold])
    main()
    printed, warning = capsys.readouterr()
    assert warning == (
        f"Warning: {hypotheses}: 1 of 2 lines are not a tree of their sentence; they were repaired and "
        "counted (line 2: (VP is not closed).\n"
    )
    first, second = json.loads(printed)["systems"]
    assert first["system"] == hypotheses
    assert {score["name"]: score["score"] for score in first["scores"]} == pytest.approx(
        {
            "bracket F1": 250 / 3,
            "precision": 250 / 3,
            "recall": 250 / 3,
            "complete match": 50,
            "malformed": 50,
        }
    )
    assert first["brackets"] == {"matched": 5, "reference": 6, "hypothesis": 6}
    assert [score["score"] for score in second["scores"]] == [100, 100, 100, 100, 0]
    monkeypatch.setattr("sys.argv", ["score", gold, short])
    with pytest.raises(
        SystemExit, match=r"short has 1 lines and the treebank 2: they must match line for line"
    ):
        main()
