"""The quickstart recipe: its corpus, its model and its score."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from nmt_cli.demo import corpus as grammar
from recipes.quickstart import dictionary, generate

SCRIPT = Path(generate.__file__)
SIZES = ["--train", "2000", "--valid", "60", "--test", "100"]


def run(*options: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *options]
    return subprocess.run(command, cwd=cwd, capture_output=True, encoding="utf-8", check=False)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the folder of the corpus that the command has written, and its output."""
    parent = tmp_path_factory.mktemp("quickstart")
    finished = run("--out", "some/folder", *SIZES, cwd=parent)
    assert (finished.returncode, finished.stderr) == (0, "")
    return parent / "some" / "folder", finished.stdout


def test_the_recipe_writes_a_corpus_trains_and_scores(
    tmp_path: Path,
    recipe: Callable[..., CompletedProcess[str]],
    recipe_copy: Callable[[str], Path],
    tiny_settings: str,
) -> None:
    copied, out = recipe_copy("quickstart"), tmp_path / "out"
    (copied / "train.toml").write_text(f"{tiny_settings}training.max_steps = 3\n", encoding="utf-8")
    sizes = ("--train", 300, "--valid", 8, "--test", 20)
    done = recipe(copied, out, *sizes, PREPROCESS="--vocab-size 200")
    assert done.returncode == 0, done.stderr
    report = done.stdout[done.stdout.index("20 lines") :]
    assert re.search(r"stdin +│ +\d+\.\d\d │ +\d+\.\d\d │", report)
    printed = report[report.index("first four lines:\n") :].split("\n")[1:17]
    texts = [lines(out, name)[:4] for name in ("corpus/test.en", "translations.de", "corpus/test.de")]
    assert printed == [line for triple in zip(*texts, strict=True) for line in (*triple, "")]
    assert len(lines(out, "translations.de")) == 20
    assert f"Curves of the training: {out}/training/report.html" in report
    assert (out / "training" / "report.html").exists() and (out / "model" / "config.json").exists()


def lines(folder: Path, name: str) -> list[str]:
    text = (folder / name).read_bytes().decode("utf-8")
    assert text.endswith("\n") and "\r" not in text
    return text[:-1].split("\n")


def test_the_sets_have_the_requested_sizes_and_no_source_twice(written: tuple[Path, str]) -> None:
    folder, _ = written
    sizes = {path.name: len(lines(folder, path.name)) for path in folder.iterdir()}
    assert sizes == {
        f"{split}.{language}": size
        for split, size in (("train", 2000), ("valid", 60), ("test", 100))
        for language in ("en", "de")
    }
    sources = [line for split in grammar.SIZES for line in lines(folder, f"{split}.en")]
    assert len(set(sources)) == len(sources)


def test_the_command_prints_sizes_samples_and_a_dictionary_score_below_50(written: tuple[Path, str]) -> None:
    folder, printed = written
    assert "train: 2000 pairs" in printed and "test: 100 pairs" in printed
    assert lines(folder, "train.en")[0] in printed and lines(folder, "train.de")[0] in printed
    score = re.search(
        r"^word-for-word dictionary translation of the test set: (\d+\.\d) BLEU$", printed, re.M
    )
    assert score and 5 < float(score[1]) < 50


def test_the_same_seed_gives_the_same_bytes_with_any_hash_seed(
    written: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = written
    monkeypatch.setenv("PYTHONHASHSEED", "77")
    run("--out", "again", *SIZES, "--seed", "1", cwd=tmp_path)
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


@pytest.mark.parametrize("size", ["0", "-5", "many"])
def test_an_invalid_size_is_refused_before_files_are_written(size: str, tmp_path: Path) -> None:
    finished = run("--out", "folder", f"--test={size}", cwd=tmp_path)
    assert finished.returncode == 2
    assert f"'{size}' is not a number of pairs. Give a whole number of at least 1." in finished.stderr
    assert list(tmp_path.iterdir()) == []


def test_sentences_are_capitalised_and_punctuated(written: tuple[Path, str]) -> None:
    folder, _ = written
    for name in ("train.en", "train.de"):
        for line in lines(folder, name):
            assert re.fullmatch(r"[A-Z][\w',-]*( [\w',-]+){1,24}[.?]", line), line
            assert not re.search(r" (i|montag|uhr|march) ", line), line


def test_the_dictionary_learns_words_from_sentences_and_keeps_their_order() -> None:
    words = dictionary.learn(
        [("The house.", "Das Haus."), ("The book?", "Das Buch?"), ("A book.", "Ein Buch.")]
    )
    assert words == {"the": "Das", "house": "Haus", "book": "Buch", "a": "Ein"}
    assert dictionary.translate("The book, a zebra?", words) == "Das Buch, Ein zebra?"


def test_the_dictionary_ignores_capitals_at_the_start_of_a_sentence() -> None:
    words = dictionary.learn([("We see", "Wir sehen"), ("See we", "Sehen wir"), ("We go", "Wir gehen")])
    assert words["we"] == "wir"
    assert dictionary.translate("we go", words) == "Wir gehen"


def test_the_dictionary_drops_a_word_without_a_translation() -> None:
    pairs = [("one of", "eins"), ("two of", "zwei"), ("ten of", "zehn"), ("six of", "sechs")]
    words = dictionary.learn([*pairs, ("one", "eins"), ("two", "zwei"), ("ten", "zehn"), ("six", "sechs")])
    assert dictionary.translate("two of six", words) == "Zwei sechs"
