"""The IWSLT14 recipe, from made-up talks, packed like the published archive, to scored translations."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from subprocess import CompletedProcess

import pytest

Recipe = Callable[..., CompletedProcess[str]]
StandIns = Callable[[str, Path, Callable[[str], bytes]], Path]

PREPARE = Path(__file__).resolve().parents[2] / "recipes" / "iwslt14-de-en" / "prepare.py"
TINY = (
    *("--set", "model.width=16", "--set", "model.feed_forward=16", "--set", "model.heads=2"),
    *("--set", "model.encoder_layers=1", "--set", "model.decoder_layers=1"),
    *("--batch-tokens", "500", "--save-every", "1", "--max-steps", "10", "--device", "cpu", "--quiet"),
)
WORDS = {
    "de": "das Haus ist alt und der Mann sieht es".split(),
    "en": "a House is old and Men see it".split(),
}
SEGMENTS = {"dev2010": 3, "dev2012": 2, "tst2010": 4, "tst2011": 1, "tst2012": 2}
TALK_LINES = 120


def sentences(name: str, lang: str, count: int) -> list[str]:
    """As many lines, others in each file; the languages of a file say the same."""
    rng = Random(name)
    return [
        " ".join(WORDS[lang][rng.randrange(8)] for _ in range(rng.randint(4, 9))) + ". “Ja”, it’s"
        for _ in range(count)
    ]


def content(name: str) -> bytes:
    """What a file of the archive holds, by its name in the recipe."""
    name = Path(name).name.removesuffix(".xml")
    stem, lang = name.rsplit(".", 1)
    if stem == "train.tags":
        head = f"<url>http://a/{lang}</url>\n<talkid>1</talkid>\n<title>Titel: A</title>\n"
        lines = "".join(f"{line}\n" for line in sentences(stem, lang, TALK_LINES))
        return (head + "<description>TED Talk</description>\n<keywords>a, b</keywords>\n" + lines).encode()
    segments = enumerate(sentences(stem, lang, SEGMENTS[stem]), start=1)
    body = "".join(f'<seg id="{n}"> {line} </seg>\n' for n, line in segments)
    return f'<?xml version="1.0"?>\n<doc docid="1">\n<title>No</title>\n{body}</doc>\n'.encode()


def lines(file: Path) -> list[str]:
    return file.read_text("utf-8").splitlines()


@pytest.fixture
def prepare(tmp_path: Path) -> Callable[[dict[str, list[str]]], Path]:
    """Runs prepare.py on training text, and test sets as in `content`; returns the folder of the sets."""

    def run(training: dict[str, list[str]]) -> Path:
        given = tmp_path / "given"
        given.mkdir()
        for lang in ("de", "en"):
            (given / f"train.tags.{lang}").write_text("".join(f"{x}\n" for x in training[lang]), "utf-8")
            for name in SEGMENTS:
                (given / f"{name}.{lang}.xml").write_bytes(content(f"{name}.{lang}.xml"))
        out = tmp_path / "out"
        subprocess.run([sys.executable, PREPARE, given, "--out", out], check=True, capture_output=True)
        return out

    return run


def test_training_text_loses_tags_and_pairs_of_unlike_length_and_every_23rd_validates(
    prepare: Callable[[dict[str, list[str]]], Path],
) -> None:
    kept = [f"Satz {n} , gut" for n in range(1, 47)]
    bad = {
        "de": ["<url>x</url>", "<talkid>7</talkid>", "eins", "eins zwei", "", "wort " * 176, "a b c d e"],
        "en": [
            "<url>x</url>",
            "<talkid>7</talkid>",
            "",
            "one two three four",
            "",
            "word " * 176,
            "a b c d e f g h",
        ],
    }
    good = ["<title>Über uns</title>", "<description>mehr</description>", "wort " * 175, "a\u2028b c\u2028d"]
    text = {lang: [*bad[lang], *kept[:10], *bad[lang], *kept[10:], *good] for lang in ("de", "en")}
    text["de"] += ["a b c d", "a b"]
    text["en"] += ["a b c d e f", "a b c"]
    out = prepare(text)
    train, valid = lines(out / "train.de"), lines(out / "valid.de")
    assert valid == [kept[22], kept[45]]
    assert train[:44] == [line for line in kept if line not in valid]
    assert [line.split()[0] for line in train[44:]] == ["Über", "mehr", "wort", "a", "a", "a"]
    assert lines(out / "train.en")[-2:] == ["a b c d e f", "a b c"]


def test_the_test_set_is_five_sets_in_order_in_words_with_plain_apostrophes(
    prepare: Callable[[dict[str, list[str]]], Path],
) -> None:
    out = prepare({"de": ["a"], "en": ["a"]})
    texts = [line for name, count in SEGMENTS.items() for line in sentences(name, "en", count)]
    expected = [line.replace(". “Ja”, it’s", " . “ Ja ” , it 's") for line in texts]
    assert lines(out / "test.en") == expected
    assert len(lines(out / "test.de")) == sum(SEGMENTS.values())


@pytest.mark.slow
def test_the_recipe_goes_from_the_archive_to_scores_of_the_best_and_the_average(
    tmp_path: Path, recipe: Recipe, stand_ins: StandIns
) -> None:
    downloads = stand_ins("iwslt14-de-en/downloads.toml", tmp_path, content)
    run = tmp_path / "run"
    done = recipe(
        "iwslt14-de-en", run, *TINY, DOWNLOADS=downloads, PREPROCESS="--set tokenizer.merges=20 --workers 1"
    )
    assert done.returncode == 0, done.stderr
    described = json.loads((run / "dataset" / "dataset.json").read_text())
    pairs = (TALK_LINES + 2) // 23
    assert f"{pairs} pairs" in done.stdout and f"{TALK_LINES + 2 - pairs} pairs" in done.stdout
    assert described["settings"]["text"]["lowercase"]
    assert lines(run / "dataset" / "train.target.txt")[0] == "titel : a"
    averaged = json.loads((run / "average" / "config.json").read_text())["averaged"]
    assert [part["step"] for part in averaged] == list(range(1, 11))
    systems = json.loads((run / "scores.json").read_text())["systems"]
    assert [Path(system["system"]).name for system in systems] == ["training.en", "average.en"]
    for system in systems:
        (score,) = system["scores"]
        assert "case:lc" in score["signature"] and "tok:none" in score["signature"]
        assert len(lines(Path(system["system"]))) == sum(SEGMENTS.values())
