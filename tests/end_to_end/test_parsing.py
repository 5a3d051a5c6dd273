"""Trees through the commands: from a treebank to a dataset, and its own raw lines to a score."""

import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from nmt_cli.corpus.trees import linearised, parse
from nmt_cli.data.dataset import open_dataset
from nmt_cli.text.tokenizers import load_tokenizers
from recipes.parsing.score import compare

Run = Callable[..., CompletedProcess[str]]

TREES = (
    "(TOP (S (NP-SBJ (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)))",
    "(TOP (S (NP (PRP It)) (VP (VBZ sits) (PP (IN on) (NP (DT the) (NN mat)))) (. .)))",
    "( (SQ (VBZ Is) (NP (PRP it)) (ADJP (JJ big)) (. ?)) )",
)
PARSING = ("preprocess", "--source-lang", "en", "--target-lang", "trees", "--workers", "1")


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    path = tmp_path / "toy.trees"
    path.write_text("".join(f"{line}\n" for line in TREES))
    return path


@pytest.mark.parametrize(
    "tokenizer",
    [
        ("--tokenizer", "char"),
        ("--tokenizer", "word", "--set", "text.words=raw"),
        ("--tokenizer", "bpe", "--set", "text.words=raw", "--set", "tokenizer.merges=2"),
        ("--tokenizer", "sentencepiece", "--vocab-size", "45"),
    ],
    ids=lambda flags: str(flags[1]),
)
def test_trees_become_words_and_whole_symbols_and_come_back(
    tmp_path: Path, nmt: Run, trees: Path, tokenizer: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    shutil.copy(trees, tmp_path / "dev.trees")
    sets = ("--train", trees, "--valid", tmp_path / "dev.trees", "--set", "filter.decontaminate=false")
    arguments = (*PARSING, *tokenizer, *sets, "--out", out)
    assert (result := nmt(*arguments)).returncode == 0, result.stderr
    assert (out / "dev.source.raw.txt").read_text().splitlines()[0] == "The cat sleeps ."
    raw = (out / "dev.target.raw.txt").read_text().splitlines()
    assert raw == [linearised(parse(line)) for line in TREES]
    split = open_dataset(out).splits["train"].target
    target = load_tokenizers(out / "tokenizer").target
    sentences = [
        split.tokens[start : end - 1].tolist() for start, end in itertools.pairwise(split.offsets.tolist())
    ]
    assert [target.decode(sentence) for sentence in sentences] == raw
    long_symbols = [symbol for line in raw for symbol in line.split() if len(symbol) > 1]
    pieces = [target.decode([i]) for sentence in sentences for i in sentence]
    assert [piece for piece in pieces if len(piece) > 1] == long_symbols
    result = nmt(*arguments)
    assert (result.returncode, "is up to date" in result.stderr) == (0, True), result.stderr


def test_trees_and_the_moses_tokeniser_do_not_go_together(tmp_path: Path, nmt: Run, trees: Path) -> None:
    result = nmt(*PARSING, "--tokenizer", "bpe", "--train", trees, "--out", tmp_path / "out")
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "Give --set text.words=raw" in result.stderr


def test_a_tree_that_is_none_is_one_line(tmp_path: Path, nmt: Run, trees: Path) -> None:
    trees.write_text(f"{TREES[0]}\n(TOP (S (NP (DT The)\n")
    result = nmt(*PARSING, "--tokenizer", "char", "--train", trees, "--out", tmp_path / "out")
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert f"{trees} line 2: (NP is not closed; a line must be one bracketed tree" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_treebank_becomes_a_dataset_whose_own_trees_score_100(tmp_path: Path, nmt: Run) -> None:
    if "NMT_DATA" not in os.environ:
        pytest.skip("NMT_DATA does not name the folder of data sets")
    folder, out = Path(os.environ["NMT_DATA"], "treebank"), tmp_path / "out"
    sets = ("--train", folder / "train.trees", "--test", folder / "test.trees")
    assert nmt(*PARSING, *sets, "--vocab-size", "2000", "--out", out).returncode == 0
    counts = json.loads((out / "dataset.json").read_text())["splits"]["test"]
    trees = [parse(line) for line in (folder / "test.trees").read_text(encoding="utf-8").splitlines()]
    assert counts["pairs"] == len(trees)
    assert counts["target_tokens"] <= 1.001 * sum(len(tree.symbols) + 1 for tree in trees)
    linearised_lines = (out / "test.target.raw.txt").read_text(encoding="utf-8").splitlines()
    scores = compare(linearised_lines, trees).scores()
    assert (scores["bracket F1"], scores["complete match"], scores["malformed"]) == (100, 100, 0)
