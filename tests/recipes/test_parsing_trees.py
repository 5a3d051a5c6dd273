"""Trees: bracketed lines become words and linearised trees and back, and damaged ones are repaired."""

import os
import re
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipes.parsing.linearise import linearise, read_trees
from recipes.parsing.parse import restored
from recipes.parsing.trees import Tree, linearised, parse, repair_bracketed, repair_linearised

CAT = "(TOP (S (NP-SBJ (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)))"
CAT_LINEARISED = "(S (NP-SBJ DT NN )NP-SBJ (VP VBZ )VP . )S"

LABELS = st.sampled_from(["NP", "NP-SBJ=2", "S", "X", "TOP"])
TAGS = st.sampled_from(["NN", ".", ":", "-LRB-", "PRP$"])
SYMBOLS = st.one_of(
    TAGS, LABELS.map("({}".format), LABELS.map("){}".format), st.sampled_from(["(", ")", "NP)", "(("])
)


def subtree(children: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    return st.builds(
        lambda label, inner: [f"({label}", *chain.from_iterable(inner), f"){label}"],
        LABELS,
        st.lists(children, min_size=1, max_size=4),
    )


@st.composite
def whole_trees(draw: st.DrawFn) -> Tree:
    symbols = draw(st.lists(st.recursive(TAGS.map(lambda tag: [tag]), subtree), min_size=1, max_size=3))
    flat = tuple(chain.from_iterable(symbols))
    count = sum(symbol[0] not in "()" for symbol in flat)
    words = draw(st.lists(st.sampled_from(["the", "cat", "-LRB-", "Käse", "a\u00a0b"]), min_size=count))
    return Tree(flat, tuple(words[:count]))


def is_balanced(symbols: tuple[str, ...]) -> bool:
    open_labels = []
    for symbol in symbols:
        if symbol[0] == "(":
            open_labels.append(symbol[1:])
        elif symbol[0] == ")" and (not open_labels or open_labels.pop() != symbol[1:]):
            return False
    return not open_labels


def test_tags_are_those_of_the_words() -> None:
    assert parse(CAT).tags == ["DT", "NN", "VBZ", "."]


@pytest.mark.parametrize(
    ("line", "words", "expected"),
    [
        (CAT, "The cat sleeps .", CAT_LINEARISED),
        # The root bracket is removed.
        ("(ROOT (NN Introduction))", "Introduction", "NN"),
        ("( (S (NN a)) )", "a", "(S NN )S"),
        ("(S1 (NP (NN a)) (. .))", "a .", "(NP NN )NP ."),
        ("(S (NN a))", "a", "(S NN )S"),
        ("((NN a))", "a", "NN"),
        ("(NN a)", "a", "NN"),
        (" ( TOP\t( NP\r(NN  a )\v) ) ", "a", "(NP NN )NP"),
        ("(TOP (TOP (NN a)))", "a", "(TOP NN )TOP"),
        ("(TOP (NP (-LRB- -LRB-) (NN a-b) ($ $)))", "-LRB- a-b $", "(NP -LRB- NN $ )NP"),
        # Traces, and brackets of only traces, are left out.
        (
            "(TOP (S (NP (-NONE- *)) (VP (VBD said) (SBAR (-NONE- 0) (S (-NONE- *T*-1)))) (. .)))",
            "said .",
            "(S (VP VBD )VP . )S",
        ),
        # Other whitespace belongs to its word.
        ("(TOP (NN a\u00a0b) (NN c\u2028d))", "a\u00a0b c\u2028d", "NN NN"),
    ],
)
def test_a_bracketed_line_becomes_words_and_a_linearised_tree(line: str, words: str, expected: str) -> None:
    tree = parse(line)
    assert (" ".join(tree.words), linearised(tree)) == (words, expected)


@pytest.mark.slow
@given(whole_trees())
def test_linearising_and_restoring_are_inverse(tree: Tree) -> None:
    assert repair_linearised(linearised(tree), len(tree.words)) == (Tree(tree.symbols, ()), "")
    assert parse(restored(linearised(tree), " ".join(tree.words))[0]) == tree


@pytest.mark.parametrize("name", ["train", "valid", "test"])
def test_every_tree_of_the_treebank_comes_back_except_the_name_of_its_root(name: str) -> None:
    if "NMT_DATA" not in os.environ:
        pytest.skip("NMT_DATA does not name the folder of data sets")
    path = Path(os.environ["NMT_DATA"], "treebank", f"{name}.trees")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) > 400
    trees = [restored(linearised(tree), " ".join(tree.words))[0] for tree in read_trees(path)]
    assert [tree.replace("(TOP ", "(ROOT ", 1) for tree in trees] == lines


@pytest.mark.parametrize(
    ("line", "flaw"),
    [
        ("", "there is no word"),
        ("( )", "( ) is neither"),
        ("(TOP (NP (DT the) (NN cat))", "(TOP is not closed"),
        ("( (S (NP (NNP Pierre) (NNP Vinken))", "(S is not closed"),
        ("(TOP (NN a)))", ") closes nothing"),
        ("(NN a) (NN b)", "there are 2 trees"),
        ("(S (NN a)) (S (NN b))", "there are 2 trees"),
        ("(TOP (NP the cat))", "the is neither a bracket nor a word with its tag"),
        ("(TOP (NP (NN the cat)))", "the is neither"),
        ("(TOP (NP) (NN a))", "(NP) is neither"),
        ("(TOP (NP (NN a) b))", "b is neither"),
        ("(TOP ((NN a)))", "a bracket has no label"),
        ("the cat", "the is neither"),
    ],
)
def test_an_error_about_a_line_that_is_not_one_tree_names_the_flaw(line: str, flaw: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(flaw)}"):
        parse(line)


@pytest.mark.parametrize(
    ("line", "repaired", "flaw"),
    [
        ("(S NN NN NN )S", "(S NN NN NN )S", ""),
        ("(S (NP NN NN", "(S (NP NN NN XX )NP )S", "there are 2 words, not 3"),
        ("(S (NP NN NN NN )NP", "(S (NP NN NN NN )NP )S", "(S is not closed"),
        ("(S (NP NN NN NN )S", "(S (NP NN NN NN )NP )S", "(NP is not closed before )S"),
        ("(S (NP NN )VP NN NN )NP )S", "(S (NP NN NN NN )NP )S", ")VP closes nothing"),
        ("(S NN NN NN )S )S )NP", "(S NN NN NN )S", ")S closes nothing"),
        ("(S NN NN NN . )S .", "(S NN NN NN )S", "there are 5 words, not 3"),
        ("(S NN )S", "(S NN )S XX XX", "there are 1 words, not 3"),
        ("(S (NP )NP NN NN NN )S", "(S NN NN NN )S", "a bracket holds no word"),
        ("(S NN NN NN (NP (NP", "(S NN NN NN )S", "(NP is not closed"),
        ("(S NN NN NN )", "(S NN NN NN )S", "a bracket has no label"),
        ("", "XX XX XX", "there is no word"),
        ("  (S\tNN NN  NN )S ", "(S NN NN NN )S", ""),
    ],
)
def test_a_damaged_linearised_tree_is_repaired(line: str, repaired: str, flaw: str) -> None:
    tree, first_flaw = repair_linearised(line, 3)
    assert (linearised(tree), first_flaw) == (repaired, flaw)


@pytest.mark.parametrize(
    ("line", "repaired", "flaw"),
    [
        ("(TOP (S (NN a) (NN b", "(S NN (NN XX )NN )S", "b is neither a bracket nor a word with its tag"),
        ("(TOP (S (NN a) (NN b)", "(S NN NN )S", "(S is not closed"),
        ("(TOP (S (NN a)) (NN b) (NN c))", "(S NN )S NN", "there are 3 words, not 2"),
        ("(S (NN a)) (NN b)", "(S NN )S NN", "there are 2 trees"),
    ],
)
def test_a_damaged_bracketed_tree_is_repaired(line: str, repaired: str, flaw: str) -> None:
    tree, first_flaw = repair_bracketed(line, 2)
    assert (linearised(tree), first_flaw) == (repaired, flaw)


@given(st.lists(SYMBOLS, max_size=30), st.integers(1, 8))
def test_any_output_is_repaired_to_a_tree_of_the_given_number_of_words(
    symbols: list[str], count: int
) -> None:
    tree, flaw = repair_linearised(" ".join(symbols), count)
    assert is_balanced(tree.symbols)
    assert len(tree.tags) == count
    assert repair_linearised(linearised(tree), count) == (tree, "")
    if not flaw:
        assert tree.symbols == tuple(symbols)


@given(st.text("()NPa \t", max_size=30), st.integers(1, 8))
def test_any_bracketed_text_is_repaired_to_a_tree_of_the_given_number_of_words(text: str, count: int) -> None:
    tree, _ = repair_bracketed(text, count)
    assert is_balanced(tree.symbols)
    assert len(tree.tags) == count


def test_the_depth_of_a_tree_is_not_limited() -> None:
    depth = 20_000
    tree = parse("(S " * depth + "(NN a)" + ")" * depth)
    assert len(tree.symbols) == 2 * depth + 1
    assert parse(restored(linearised(tree), "a")[0]) == tree


def test_a_file_of_trees_becomes_pairs_and_symbols_that_are_not_split(tmp_path: Path) -> None:
    other = "( (NP (-NONE- *) (, ,) (PRP$ its) (NNP Käse)))"
    (tmp_path / "wsj.trees").write_text(f"{CAT}\n{other}\n", encoding="utf-8")
    brackets = {f"{bracket}{label}" for bracket in "()" for label in ("S", "NP-SBJ", "VP", "NP")}
    assert linearise(tmp_path / "wsj.trees") == {*brackets, "DT", "NN", "VBZ", "PRP$", "NNP"}
    pairs = (tmp_path / "wsj.tsv").read_text(encoding="utf-8").splitlines()
    assert pairs == [f"The cat sleeps .\t{CAT_LINEARISED}", ", its Käse\t(NP , PRP$ NNP )NP"]


def test_bytes_of_a_tree_that_are_not_utf_8_do_not_change(tmp_path: Path) -> None:
    (tmp_path / "odd.trees").write_bytes(b"(TOP (NP\xff (NN \xe9t\xe9)))\n")
    linearise(tmp_path / "odd.trees")
    assert (tmp_path / "odd.tsv").read_bytes() == b"\xe9t\xe9\t(NP\xff NN )NP\xff\n"


def test_an_error_in_a_file_of_trees_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "bad.trees").write_text(f"{CAT}\n\n")
    with pytest.raises(
        SystemExit, match=r"bad\.trees line 2: there is no word; a line must be one bracketed"
    ):
        linearise(tmp_path / "bad.trees")


@pytest.mark.parametrize(
    "line",
    ["(" + " " * 200_000, "(A " + " " * 200_000, "(A" * 100_000, "(NN " + "a" * 200_000],
    ids=["blanks", "blanks behind a tag", "brackets", "a word"],
)
def test_a_hostile_bracketed_line_takes_linear_time(line: str) -> None:
    assert repair_bracketed(line)[1]


def test_closing_unopened_brackets_takes_linear_time() -> None:
    _, flaw = repair_linearised("(A NN " * 100_000 + ")B " * 100_000)
    assert flaw == ")B closes nothing"
