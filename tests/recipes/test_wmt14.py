"""The WMT14 recipes, from generated pairs in archives like the published ones to scores."""

import gzip
import json
import tomllib
from pathlib import Path
from random import Random

import pytest

from nmt_cli.config import read
from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from tests.recipes.conftest import TINY, Recipe, StandIns, averaged_steps, text_lines

WORDS = {
    "en": "the a house old man sees red car goes home and then sleeps well-known Tom's friend , .".split(),
    "de": "das ein Haus alt Mann sieht rot Auto geht heim und dann schläft ICE-Zug Toms Freund , .".split(),
    "fr": "la une maison vieux homme voit rouge voiture va chez-lui et puis dort d'abord ami , .".split(),
}
LINES = {"newstest2014": 10, "newstest2014-full": 12, "newstest2014-filtered": 9, "newstest2013": 8}
TRAINING_LINES = 60


def sentences(name: str, lang: str, count: int) -> list[str]:
    """Return `count` random lines for the file `name`. Lines of all languages correspond."""
    rng = Random(name)
    picks = [[rng.randrange(18) for _ in range(rng.randint(3, 12))] for _ in range(count)]
    return [" ".join(WORDS[lang][n % len(WORDS[lang])] for n in line) for line in picks]


def content(name: str) -> bytes:
    """Return the content of a file by its name in the recipe, such as newstest2013.en.sgm."""
    stem, lang = name.removesuffix(".sgm").removesuffix(".gz").rsplit(".", 1)
    if name.endswith(".sgm"):
        segments = enumerate(sentences(stem, lang, LINES[stem]), start=1)
        body = "\n".join(f'<seg id="{n}">{line}</seg>' for n, line in segments)
        kind = "srcset" if lang == "en" else "refset"
        return f'<{kind} setid="{stem}">\n<doc docid="one">\n{body}\n</doc>\n</{kind}>\n'.encode()
    lines = [line.encode() for line in sentences(stem, lang, TRAINING_LINES)]
    if stem == "commoncrawl":
        lines[7] += b" \xff"
    if stem == "google-bpe":
        lines = [line.replace(b"house", b"ho@@ use").replace(b"'", b" &apos;") for line in lines]
    text = b"".join(line + b"\n" for line in lines)
    return gzip.compress(text) if name.endswith(".gz") else text


def metrics(file: Path) -> set[str]:
    """Return the names of the metrics in the output of `nmt score --json`."""
    return {score["metric"] for score in json.loads(file.read_text())["systems"][0]["scores"]}


@pytest.mark.slow
def test_english_german_is_trained_and_gets_both_scores_of_both_test_sets(
    tmp_path: Path, recipe: Recipe, stand_ins: StandIns
) -> None:
    downloads = stand_ins("wmt14-en-de/downloads.toml", tmp_path, content)
    arguments = (tmp_path / "run", *TINY, "--validate-every", 0, "--max-steps", 6)
    done = recipe("wmt14-en-de", *arguments, DOWNLOADS=downloads, PREPROCESS="--vocab-size 80 --workers 1")
    assert done.returncode == 0, done.stderr
    dataset, results = tmp_path / "run" / "dataset-wmt14", tmp_path / "run" / "wmt14-base"
    # One line of Common Crawl is not UTF-8.
    assert len(text_lines(dataset / "train.source.txt")) == 3 * TRAINING_LINES - 1
    assert averaged_steps(results / "model") == [2, 3, 4, 5, 6]
    for name in ("newstest2014-full", "newstest2014-filtered"):
        assert f"{name}, {LINES[name]} lines, wmt14 data, base model:" in done.stdout
        assert text_lines(dataset / f"{name}.source.raw.txt") == sentences(name, "en", LINES[name])
        assert len(text_lines(results / f"{name}.de")) == LINES[name]
        assert {"bleu", "paper-bleu"} <= metrics(results / f"{name}.json")


@pytest.mark.slow
def test_english_french_is_trained_and_gets_both_scores(
    tmp_path: Path, recipe: Recipe, stand_ins: StandIns
) -> None:
    downloads = stand_ins("wmt14-en-fr/downloads.toml", tmp_path, content)
    arguments = (tmp_path / "run", *TINY, "--validate-every", 0, "--max-steps", 20)
    options = "--vocab-size 60 --workers 1"
    done = recipe("wmt14-en-fr", *arguments, MODEL="big", DOWNLOADS=downloads, PREPROCESS=options)
    assert done.returncode == 0, done.stderr
    results = tmp_path / "run" / "big"
    manifest = json.loads((tmp_path / "run" / "dataset" / "dataset.json").read_text())
    assert manifest["settings"]["tokenizer"]["kind"] == "sentencepiece"
    assert averaged_steps(results / "model") == list(range(1, 21))
    trained = tomllib.loads((results / "training" / "config.toml").read_text())
    assert trained["model"]["residual_dropout"] == 0.1
    assert f"newstest2014, {LINES['newstest2014']} lines, big model:" in done.stdout
    assert len(text_lines(results / "newstest2014.fr")) == LINES["newstest2014"]
    assert {"bleu", "paper-bleu"} <= metrics(results / "newstest2014.json")


def test_the_tokenised_text_of_google_is_detokenised_before_preprocessing(
    tmp_path: Path, recipe: Recipe, stand_ins: StandIns
) -> None:
    downloads = stand_ins("wmt14-en-de/downloads-google.toml", tmp_path, content)
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text('#!/bin/sh\necho "$@"\nexit 7\n')
    srun.chmod(0o755)
    done = recipe(
        *("wmt14-en-de", tmp_path / "run", "--max-steps", 9),
        **{"DATA": "google", "MODEL": "big", "DOWNLOADS": downloads},
        **{"FIRST": srun.parent, "TRAIN": "srun nmt train"},
        PREPROCESS="--set tokenizer.merges=20 --workers 1",
    )
    assert done.returncode == 7, done.stderr
    run = tmp_path / "run"
    running = [
        line.replace(" ,", ",").replace(" .", ".") for line in sentences("google-bpe", "en", TRAINING_LINES)
    ]
    assert text_lines(run / "corpus" / "google.en") == running
    assert len(text_lines(run / "dataset-google" / "train.source.txt")) == TRAINING_LINES
    assert done.stdout.startswith(f"nmt train {run / 'dataset-google'} --preset vaswani2017-big --config ")
    assert done.stdout.endswith(f"--out {run / 'google-big' / 'training'} --max-steps 9\n")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"MODEL": "huge"}, "Error: MODEL is 'huge'; give base or big."),
        ({"DATA": "wmt17"}, "Error: DATA is 'wmt17'; give wmt14 or google."),
    ],
    ids=["model", "data"],
)
def test_an_invalid_variable_is_refused_before_any_download(
    tmp_path: Path, recipe: Recipe, variables: dict[str, str], message: str
) -> None:
    done = recipe("wmt14-en-de", tmp_path / "run", **variables)
    assert (done.returncode, done.stderr) == (2, f"{message}\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("recipe_name", ["wmt14-en-de", "wmt14-en-fr"])
def test_the_search_is_that_of_the_paper_and_drops_no_hypothesis_early(recipe_name: str) -> None:
    file = Path(__file__).resolve().parents[2] / "recipes" / recipe_name / "translate.toml"
    expected = SearchConfig(beam=4, length_rule="gnmt", length_penalty=0.6, cap_extra=50, reach=1000.0)
    assert read(TranslateConfig, file).search == expected
