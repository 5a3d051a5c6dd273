"""The IWSLT14 recipe, from generated talks in an archive like the published one to scores."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.recipes.conftest import TINY, Recipe, StandIns, averaged_steps, text_lines

PREPARE = Path(__file__).resolve().parents[2] / "recipes" / "iwslt14-de-en" / "prepare.py"
WORDS = {
    "de": "das Haus ist alt und der Mann sieht es".split(),
    "en": "a House is old and Men see it".split(),
}
SEGMENTS = {"dev2010": 3, "dev2012": 2, "tst2010": 4, "tst2011": 1, "tst2012": 2}
TALK_LINES = 120


def sentences(name: str, lang: str, count: int) -> list[str]:
    """Return `count` random lines for the file `name`. Lines of both languages correspond."""
    rng = Random(name)
    return [
        " ".join(WORDS[lang][rng.randrange(8)] for _ in range(rng.randint(4, 9))) + ". “Ja”, it’s"
        for _ in range(count)
    ]


def content(name: str) -> bytes:
    """Return the content of a file of the archive by its name in the recipe."""
    name = Path(name).name.removesuffix(".xml")
    stem, lang = name.rsplit(".", 1)
    if stem == "train.tags":
        head = f"<url>http://a/{lang}</url>\n<talkid>1</talkid>\n<title>Titel: A</title>\n"
        lines = "".join(f"{line}\n" for line in sentences(stem, lang, TALK_LINES))
        return (head + "<description>TED Talk</description>\n<keywords>a, b</keywords>\n" + lines).encode()
    segments = enumerate(sentences(stem, lang, SEGMENTS[stem]), start=1)
    body = "".join(f'<seg id="{n}"> {line} </seg>\n' for n, line in segments)
    return f'<?xml version="1.0"?>\n<doc docid="1">\n<title>No</title>\n{body}</doc>\n'.encode()


@pytest.fixture
def prepare(tmp_path: Path) -> Callable[[dict[str, list[str]]], Path]:
    """Return a function that runs prepare.py on training text by language, and returns the output folder."""

    def run(training: dict[str, list[str]]) -> Path:
        talks = tmp_path / "talks"
        talks.mkdir()
        for lang in ("de", "en"):
            (talks / f"train.tags.{lang}").write_text("".join(f"{x}\n" for x in training[lang]), "utf-8")
            for name in SEGMENTS:
                (talks / f"{name}.{lang}.xml").write_bytes(content(f"{name}.{lang}.xml"))
        out = tmp_path / "out"
        subprocess.run([sys.executable, PREPARE, talks, "--out", out], check=True, capture_output=True)
        return out

    return run


def test_training_text_has_no_tags_and_no_unequal_pairs_and_every_23rd_pair_is_validation(
    prepare: Callable[[dict[str, list[str]]], Path],
) -> None:
    plain = [f"Satz {n} , gut" for n in range(1, 47)]
    bad = {
        "de": ["<url>x</url>", "<talkid>7</talkid>", "eins", "eins zwei", "", "wort " * 176, "a b c d e"],
        "en": [
            *("<url>x</url>", "<talkid>7</talkid>", "", "one two three four", ""),
            *("word " * 176, "a b c d e f g h"),
        ],
    }
    good = ["<title>Über uns</title>", "<description>mehr</description>", "wort " * 175, "a\u2028b c\u2028d"]
    text = {lang: [*bad[lang], *plain[:10], *bad[lang], *plain[10:], *good] for lang in ("de", "en")}
    text["de"] += ["a b c d", "a b"]
    text["en"] += ["a b c d e f", "a b c"]
    out = prepare(text)
    train, valid = text_lines(out / "train.de"), text_lines(out / "valid.de")
    assert valid == [plain[22], plain[45]]
    assert train[:44] == [line for line in plain if line not in valid]
    assert [line.split()[0] for line in train[44:]] == ["Über", "mehr", "wort", "a", "a", "a"]
    assert text_lines(out / "train.en")[-2:] == ["a b c d e f", "a b c"]


def test_the_test_set_is_five_tokenised_sets_with_plain_apostrophes(
    prepare: Callable[[dict[str, list[str]]], Path],
) -> None:
    out = prepare({"de": ["a"], "en": ["a"]})
    texts = [line for name, count in SEGMENTS.items() for line in sentences(name, "en", count)]
    expected = [line.replace(". “Ja”, it’s", " . “ Ja ” , it 's") for line in texts]
    assert text_lines(out / "test.en") == expected
    assert len(text_lines(out / "test.de")) == sum(SEGMENTS.values())


@pytest.mark.slow
def test_the_recipe_scores_the_best_and_the_averaged_model(
    tmp_path: Path, recipe: Recipe, stand_ins: StandIns
) -> None:
    downloads = stand_ins("iwslt14-de-en/downloads.toml", tmp_path, content)
    run = tmp_path / "run"
    options = "--set tokenizer.merges=20 --workers 1"
    arguments = (*TINY, "--max-steps", 10)
    done = recipe("iwslt14-de-en", run, *arguments, DOWNLOADS=downloads, PREPROCESS=options)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((run / "dataset" / "dataset.json").read_text())
    pairs = (TALK_LINES + 2) // 23
    assert f"{pairs} pairs" in done.stdout and f"{TALK_LINES + 2 - pairs} pairs" in done.stdout
    assert manifest["settings"]["text"]["lowercase"]
    assert text_lines(run / "dataset" / "train.target.txt")[0] == "titel : a"
    assert averaged_steps(run / "average") == list(range(1, 11))
    systems = json.loads((run / "scores.json").read_text())["systems"]
    assert [Path(system["system"]).name for system in systems] == ["training.en", "average.en"]
    for system in systems:
        (score,) = system["scores"]
        assert "case:lc" in score["signature"] and "tok:none" in score["signature"]
        assert len(text_lines(Path(system["system"]))) == sum(SEGMENTS.values())
