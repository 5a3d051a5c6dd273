"""The parsing recipe as a user runs it, on a few made-up trees and with a very small model."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

from nmt_cli.config import preset_path, read
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.training.config import TrainConfig
from recipes.parsing import trees
from recipes.parsing.parse import restored
from recipes.parsing.phrases import phrases
from recipes.parsing.right_branching import right_branching
from recipes.parsing.score import compare, read_references

Recipe = Callable[..., CompletedProcess[str]]

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
SUBJECTS = ("(NP-SBJ (DT The) (NN cat))", "(NP-SBJ (PRP She))", "(NP-SBJ (DT A) (JJ black) (NN dog))")
PREDICATES = (
    "(VP (VBZ sleeps))",
    "(VP (VBZ sees) (NP (DT a) (NN m@n.org)))",
    "(VP (VBZ waits) (PP-LOC (RB here)))",
)
TREES = [f"(ROOT (S {subject} {predicate} (. .)))" for subject in SUBJECTS for predicate in PREDICATES]
TINY = """
model.width = 16
model.feed_forward = 32
model.encoder_layers = 1
model.decoder_layers = 1
model.heads = 2
model.norm = "pre"
model.residual_dropout = 0.0
batch.tokens = 200
schedule.kind = "constant"
schedule.peak = 0.02
schedule.warmup = 1
training.max_steps = 40
checkpoints.every_steps = 4
checkpoints.keep_last = 10
validation.every_steps = 0
"""
"""Settings for memorising few trees. The average over all of the training is worse than its end."""


@pytest.fixture(scope="module")
def copied(recipe_copy: Callable[[str], Path]) -> Path:
    """A copy of the recipe with settings for little text, and trees in a folder beside it."""
    recipe = recipe_copy("parsing")
    folder = recipe.parents[1]
    (recipe / "gum" / "train.toml").write_text(TINY, encoding="utf-8")
    (recipe / "gum" / "preprocess.toml").write_text(
        "text.words = 'raw'\ntokenizer.kind = 'bpe'\ntokenizer.merges = 20\n", encoding="utf-8"
    )
    with (recipe / "translate.toml").open("a", encoding="utf-8") as translate:
        translate.write("max_length = 20\n")
    (folder / "trees").mkdir()
    for name, lines in (("train", TREES), ("valid", TREES[::4]), ("test", TREES[1::4])):
        (folder / "trees" / f"{name}.trees").write_text(
            "".join(f"{line}\n" for line in lines), encoding="utf-8"
        )
    return recipe


@pytest.fixture(scope="module")
def finished(recipe: Recipe, copied: Path) -> tuple[Path, str]:
    """The folder of a run that was interrupted once and resumed, and the stdout of the recipe."""
    out = copied.parents[1] / "out"
    command = (copied, "-d", copied.parents[1] / "trees", "-o", out, "gum")
    stopped = recipe(*command, "--max-steps", 2, NMT_DATA="")
    assert "--last 10 is too large" in stopped.stderr
    assert not (out / "gum-1" / "result.json").exists()
    done = recipe(*command, NMT_DATA="")
    assert done.returncode == 0, done.stderr
    assert "resuming from step 2" in done.stderr
    assert "malformed: 0 of 3 (0.00 %)" in done.stderr
    return out / "gum-1", done.stdout


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_the_recipe_goes_from_trees_to_the_scores_of_a_model_and_of_right_branching_trees(
    finished: tuple[Path, str],
) -> None:
    folder, printed = finished
    scores = json.loads((folder / "test.json").read_bytes())["systems"]
    assert len({score["signature"] for system in scores for score in system["scores"]}) == 1
    for name, system in zip(("right-branching", "the model"), scores, strict=True):
        cells = " \\| ".join(re.escape(f"{score['score']:.2f}") for score in system["scores"][:4])
        assert re.search(rf"^\| gum \| {name}[^|]* \| {cells} \|", printed, re.MULTILINE)
    assert 0 < scores[0]["scores"][0]["score"] < scores[1]["scores"][0]["score"]
    result = json.loads((folder / "result.json").read_bytes())
    assert result["updates"] == 40
    assert result["config"]["model"]["width"] == 16


def test_each_parse_of_the_test_set_becomes_a_tree_over_the_words_of_its_sentence(
    finished: tuple[Path, str],
) -> None:
    folder, _ = finished
    sentences = [" ".join(trees.parse(tree).words) for tree in TREES[1::4]]
    parses = lines(folder / "test.trees")
    assert [" ".join(trees.parse(parse).words) for parse in parses] == sentences


@pytest.mark.parametrize(
    ("parse", "sentence", "tree", "flaw"),
    [
        ("(S (NP DT NN )NP . )S", "The cat (", "(TOP (S (NP (DT The) (NN cat)) (. -LRB-)))", ""),
        ("(S NN", "a\u00a0b c", "(TOP (S (NN a\u00a0b) (XX c)))", "there are 1 words, not 2"),
        ("(S NN NN )S )S", "a", "(TOP (S (NN a)))", ")S closes nothing"),
        ("(X NN )X", " a ", "(TOP (X (NN a)))", ""),
        ("", "a b", "(TOP (XX a) (XX b))", "there is no word"),
        ("(S NN )S", "", "", ""),
    ],
)
def test_a_parse_becomes_a_tree_over_the_words_repaired_if_it_is_malformed(
    parse: str, sentence: str, tree: str, flaw: str
) -> None:
    assert restored(parse, sentence) == (tree, flaw)


def test_the_average_that_parses_the_validation_set_best_parses_the_test_set(
    finished: tuple[Path, str],
) -> None:
    folder, _ = finished
    result = json.loads((folder / "result.json").read_bytes())
    f1_by_set = {name: scores["bracket F1"] for name, scores in result["valid"].items()}
    assert f1_by_set.keys() == {"valid-1", "valid-5", "valid-10"}
    assert len(set(f1_by_set.values())) > 1
    assert f"valid-{len(result['averaged'])}" == max(f1_by_set, key=lambda name: f1_by_set[name])


def test_function_labels_are_not_learnt_and_phrases_are(finished: tuple[Path, str]) -> None:
    out = finished[0].parent / "gum"
    assert "(ROOT (S (NP (PRP She)) (VP (VBZ waits) (PP (RB here))) (. .)))" in lines(
        out / "corpus" / "train.trees"
    )
    assert "(NP (DT A) (JJ black) (NN dog))" in lines(out / "corpus" / "train-phrases.trees")
    assert "(NP DT JJ NN )NP" in lines(out / "dataset" / "train.target.txt")


def test_each_symbol_of_a_target_is_one_token(finished: tuple[Path, str]) -> None:
    dataset = finished[0].parent / "gum" / "dataset"
    offsets = np.load(dataset / "test.target.offsets.npy")
    symbols = [len(line.split()) for line in lines(dataset / "test.target.raw.txt")]
    assert np.diff(offsets).tolist() == [count + 1 for count in symbols]  # with the end token


def test_the_same_command_again_shows_the_same_table_and_writes_nothing(
    recipe: Recipe, copied: Path, finished: tuple[Path, str]
) -> None:
    folder, printed = finished
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    again = recipe(copied, "-d", copied.parents[1] / "trees", "-o", folder.parent, "gum", NMT_DATA="")
    assert (again.returncode, again.stdout) == (0, printed)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_repeated_keep_writes_the_results_into_the_readme_once(
    copied: Path, finished: tuple[Path, str]
) -> None:
    folder, printed = finished
    for _ in range(2):
        subprocess.run([sys.executable, str(copied / "results.py"), "keep", str(folder)], check=True)
    assert (copied / "README.md").read_text(encoding="utf-8").count(printed) == 1
    assert len(lines(copied / "results.jsonl")) == 1


@pytest.mark.parametrize(("settings", "entries"), [("wsj", 16_000), ("wsj-semi", 32_000)])
def test_wsj_gets_the_papers_model_and_all_training_trees(
    tmp_path: Path, recipe: Recipe, settings: str, entries: int
) -> None:
    fake = tmp_path / "bin" / "nmt"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho "$@"\n[ "$1" != train ]\n', encoding="utf-8")
    fake.chmod(0o755)
    for name in ("train", "train-more", "valid", "test"):
        (tmp_path / f"{name}.trees").write_text(f"{TREES[0]}\n", encoding="utf-8")
    done = recipe(
        "parsing", "-d", tmp_path, "-o", tmp_path / "out", settings, "--devices", 8, FIRST=fake.parent
    )
    made, trained = done.stdout.splitlines()
    corpus = tmp_path / "out" / settings / "corpus"
    assert f"--train {corpus}/train.tsv --train {corpus}/train-more.tsv --valid" in made
    assert "--preset parsing" in trained
    assert trained.endswith(f"{settings}-1/training --devices 8")
    preprocess, train = (Path(command.split(" --config ")[1].split()[0]) for command in (made, trained))
    assert read(PreprocessConfig, preprocess).tokenizer.vocab_size == entries
    model = read(TrainConfig, train, preset=preset_path("parsing")).model
    assert (model.encoder_layers, model.decoder_layers, model.width) == (4, 4, 1024)


@pytest.mark.parametrize(
    ("tags", "tree"),
    [
        ("UH", "(S UH )S"),
        ("UH .", "(S UH . )S"),
        (".", "(S . )S"),
        ("PRP VBZ", "(S PRP VBZ )S"),
        ("PRP VBZ JJ", "(S PRP (VP VBZ JJ )VP )S"),
        ("DT NN VBZ RB . ''", "(S DT (VP NN (VP VBZ RB )VP )VP . '' )S"),
        ("RB , PRP VBZ .", "(S RB (VP , (VP PRP VBZ )VP )VP . )S"),
    ],
)
def test_each_word_between_the_first_and_the_last_opens_a_verb_phrase(tags: str, tree: str) -> None:
    assert right_branching(tags.split()) == tree


def test_the_treebank_gives_right_branching_trees_the_known_score() -> None:
    if not os.environ.get("NMT_DATA"):
        pytest.skip("NMT_DATA is not set, and the treebank is in the folder that it names")
    file = Path(os.environ["NMT_DATA"]) / "treebank" / "test.trees"
    references = read_references(lines(file), file.name)
    comparison = compare([right_branching(tree.tags) for tree in references], references)
    assert not comparison.flaws
    assert round(comparison.total.f1, 2) == 14.96


def test_phrases_have_at_least_two_words_and_are_not_sentences() -> None:
    tree = TREES[1]
    assert tree == "(ROOT (S (NP-SBJ (DT The) (NN cat)) (VP (VBZ sees) (NP (DT a) (NN m@n.org))) (. .)))"
    short = list(phrases(tree, limit=3))
    assert short == [
        "(NP-SBJ (DT The) (NN cat))",
        "(NP (DT a) (NN m@n.org))",
        "(VP (VBZ sees) (NP (DT a) (NN m@n.org)))",
    ]
    assert list(phrases(tree, limit=2)) == short[:2]
    assert [trees.parse(phrase).words for phrase in short] == [
        ("The", "cat"),
        ("a", "m@n.org"),
        ("sees", "a", "m@n.org"),
    ]
