"""The quickstart recipe as a user meets it: a corpus with right German, a model, and its score."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from subprocess import CompletedProcess

import pytest

# Recipes are no part of the installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from nmt_cli.demo import corpus as grammar
from nmt_cli.demo import numerals, phrases, sentences
from nmt_cli.demo.lexicon import THINGS, Pair
from recipes.quickstart import dictionary, generate

SCRIPT = Path(generate.__file__)
SIZES = ["--train", "2000", "--valid", "60", "--test", "100"]


def run(*options: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *options]
    return subprocess.run(command, cwd=cwd, capture_output=True, encoding="utf-8", check=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder the command has filled, and what it printed."""
    parent = tmp_path_factory.mktemp("quickstart")
    finished = run("--out", "some/folder", *SIZES, cwd=parent)
    assert (finished.returncode, finished.stderr) == (0, "")
    return parent / "some" / "folder", finished.stdout


def test_the_recipe_goes_from_nothing_to_a_score_and_translations(
    tmp_path: Path, recipe: Callable[..., CompletedProcess[str]], tiny_settings: str
) -> None:
    copied, out = tmp_path / "recipes" / "quickstart", tmp_path / "out"
    shutil.copytree(SCRIPT.parent, copied, ignore=shutil.ignore_patterns("run"))
    settings = (copied / "preprocess.toml").read_text(encoding="utf-8")
    (copied / "preprocess.toml").write_text(settings.replace("1504", "200"), encoding="utf-8")
    (copied / "train.toml").write_text(f"{tiny_settings}training.max_steps = 3\n", encoding="utf-8")
    done = recipe(copied, out, "--train", 300, "--valid", 8, "--test", 20)
    assert done.returncode == 0, done.stderr
    report = done.stdout[done.stdout.index("20 lines") :]
    assert re.search(r"stdin +│ +\d+\.\d\d │ +\d+\.\d\d │", report)
    shown = report[report.index("first four lines:\n") :].split("\n")[1:17]
    texts = [lines(out, name)[:4] for name in ("corpus/test.en", "translations.de", "corpus/test.de")]
    assert shown == [line for triple in zip(*texts, strict=True) for line in (*triple, "")]
    assert len(lines(out, "translations.de")) == 20
    assert f"Curves of the training: {out}/training/report.html" in report
    assert (out / "training" / "report.html").exists() and (out / "model" / "config.json").exists()


def lines(folder: Path, name: str) -> list[str]:
    text = (folder / name).read_bytes().decode("utf-8")
    assert text.endswith("\n") and "\r" not in text
    return text[:-1].split("\n")


def test_the_command_writes_six_files_of_the_sizes_asked_for(made: tuple[Path, str]) -> None:
    folder, _ = made
    sizes = {path.name: len(lines(folder, path.name)) for path in folder.iterdir()}
    assert sizes == {
        f"{split}.{language}": size
        for split, size in (("train", 2000), ("valid", 60), ("test", 100))
        for language in ("en", "de")
    }


def test_the_command_prints_sizes_samples_and_a_dictionary_score_below_50(made: tuple[Path, str]) -> None:
    folder, printed = made
    assert "train: 2000 pairs" in printed and "test: 100 pairs" in printed
    assert lines(folder, "train.en")[0] in printed and lines(folder, "train.de")[0] in printed
    score = re.search(
        r"^word-for-word dictionary translation of the test set: (\d+\.\d) BLEU$", printed, re.M
    )
    assert score and 5 < float(score[1]) < 50


def test_no_source_of_one_set_is_in_another_or_twice_in_its_own(made: tuple[Path, str]) -> None:
    folder, _ = made
    sources = [line for split in grammar.SIZES for line in lines(folder, f"{split}.en")]
    assert len(set(sources)) == len(sources)


def test_the_same_seed_gives_the_same_bytes_whatever_the_hash_seed(
    made: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = made
    monkeypatch.setenv("PYTHONHASHSEED", "77")
    run("--out", "again", *SIZES, "--seed", "1", cwd=tmp_path)
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_another_seed_gives_another_corpus() -> None:
    assert grammar.corpus("train", 10, seed=1) != grammar.corpus("train", 10, seed=2)


def test_a_sentence_belongs_to_one_set_whatever_the_seed() -> None:
    test = grammar.corpus("test", 100, seed=1)
    train = grammar.corpus("train", 3000, seed=2)
    assert {grammar.split_of(pair.en) for pair in test} == {"test"}
    assert {grammar.split_of(pair.en) for pair in train} == {"train"}


def test_a_larger_corpus_begins_with_the_smaller_one() -> None:
    assert grammar.corpus("train", 300, seed=1)[:100] == grammar.corpus("train", 100, seed=1)


@pytest.mark.parametrize("size", ["0", "-5", "many"])
def test_a_size_that_is_none_is_refused_before_anything_is_written(size: str, tmp_path: Path) -> None:
    finished = run("--out", "folder", f"--test={size}", cwd=tmp_path)
    assert finished.returncode == 2
    assert f"'{size}' is not a size; give a whole number from 1 on" in finished.stderr
    assert list(tmp_path.iterdir()) == []


def test_asking_for_more_than_the_grammar_has_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "sentence", lambda rng: Pair(f"{rng.random():.1f}", "eins"))
    monkeypatch.setattr(grammar, "PATIENCE", 1000)
    with pytest.raises(ValueError, match=r"--train is 50, but the grammar gave only \d+ different sentences"):
        grammar.corpus("train", 50, seed=1)


@pytest.mark.parametrize(
    ("number", "english", "german"),
    [
        (0, "zero", "null"),
        (1, "one", "eins"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (70, "seventy", "siebzig"),
        (100, "one hundred", "einhundert"),
        (101, "one hundred and one", "einhunderteins"),
        (247, "two hundred and forty-seven", "zweihundertsiebenundvierzig"),
        (1000, "one thousand", "eintausend"),
        (1001, "one thousand and one", "eintausendeins"),
        (1212, "one thousand two hundred and twelve", "eintausendzweihundertzwölf"),
        (21_000, "twenty-one thousand", "einundzwanzigtausend"),
        (101_000, "one hundred and one thousand", "einhunderteintausend"),
        (
            999_999,
            "nine hundred and ninety-nine thousand nine hundred and ninety-nine",
            "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
        ),
        (1_000_000, "one million", "eine Million"),
        (2_300_000, "two million three hundred thousand", "zwei Millionen dreihunderttausend"),
    ],
)
def test_numbers(number: int, english: str, german: str) -> None:
    assert (numerals.english_cardinal(number), numerals.german_cardinal(number)) == (english, german)


@pytest.mark.parametrize("number", [-1, numerals.LIMIT])
def test_a_number_beyond_the_grammar_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match=f"{number} cannot be put into words"):
        numerals.german_cardinal(number)


@pytest.mark.parametrize("number", [1, 101, 2001])
def test_a_number_with_no_settled_plural_form_never_stands_before_a_noun(number: int) -> None:
    with pytest.raises(ValueError, match=f"{number} has no settled German form"):
        numerals.german_before_noun(number)
    drawn = phrases.before_noun(Random(1), number, number)
    assert drawn.de == numerals.german_cardinal(number + 1)


@pytest.mark.parametrize(
    ("hour", "minute", "english", "german"),
    [
        (7, 30, "half past seven", "halb acht"),
        (12, 30, "half past twelve", "halb eins"),
        (9, 0, "nine o'clock", "neun Uhr"),
        (1, 0, "one o'clock", "ein Uhr"),
        (8, 45, "a quarter to nine", "Viertel vor neun"),
        (12, 45, "a quarter to one", "Viertel vor eins"),
        (1, 15, "a quarter past one", "Viertel nach eins"),
        (6, 20, "twenty past six", "zwanzig nach sechs"),
        (6, 25, "twenty-five past six", "fünf vor halb sieben"),
        (6, 35, "twenty-five to seven", "fünf nach halb sieben"),
        (5, 50, "ten to six", "zehn vor sechs"),
        (1, 17, "one seventeen", "ein Uhr siebzehn"),
        (4, 3, "four oh three", "vier Uhr drei"),
    ],
)
def test_clock_times(hour: int, minute: int, english: str, german: str) -> None:
    assert (numerals.english_clock(hour, minute), numerals.german_clock(hour, minute)) == (english, german)


@pytest.mark.parametrize(
    ("year", "english", "german"),
    [
        (1997, "nineteen ninety-seven", "neunzehnhundertsiebenundneunzig"),
        (1905, "nineteen oh five", "neunzehnhundertfünf"),
        (1900, "nineteen hundred", "neunzehnhundert"),
        (2000, "two thousand", "zweitausend"),
        (2007, "two thousand and seven", "zweitausendsieben"),
        (2014, "twenty fourteen", "zweitausendvierzehn"),
    ],
)
def test_years(year: int, english: str, german: str) -> None:
    assert (numerals.english_year(year), numerals.german_year(year)) == (english, german)


@pytest.mark.parametrize(
    ("day", "english", "german"),
    [
        (1, "first", "erste"),
        (3, "third", "dritte"),
        (7, "seventh", "siebte"),
        (8, "eighth", "achte"),
        (12, "twelfth", "zwölfte"),
        (19, "nineteenth", "neunzehnte"),
        (20, "twentieth", "zwanzigste"),
        (22, "twenty-second", "zweiundzwanzigste"),
    ],
)
def test_days_of_the_month(day: int, english: str, german: str) -> None:
    assert (numerals.english_ordinal(day), numerals.german_ordinal(day)) == (english, german)


@pytest.mark.parametrize(
    ("euros", "cents", "english", "german"),
    [
        (1, 0, "one euro", "einen Euro"),
        (1, 5, "one euro and five cents", "einen Euro fünf"),
        (2, 50, "two euros and fifty cents", "zwei Euro fünfzig"),
        (21, 0, "twenty-one euros", "einundzwanzig Euro"),
    ],
)
def test_prices(euros: int, cents: int, english: str, german: str) -> None:
    assert (numerals.english_price(euros, cents), numerals.german_price(euros, cents)) == (english, german)


@pytest.mark.parametrize(
    ("english", "der", "den", "einen", "pronouns"),
    [
        ("suitcase", "der rote Koffer", "den roten Koffer", "einen roten Koffer", "er ihn den"),
        ("lamp", "die rote Lampe", "die rote Lampe", "eine rote Lampe", "sie sie die"),
        ("shirt", "das rote Hemd", "das rote Hemd", "ein rotes Hemd", "es es das"),
    ],
)
def test_articles_adjectives_and_pronouns_follow_the_gender(
    english: str, der: str, den: str, einen: str, pronouns: str
) -> None:
    noun = next(thing for thing in THINGS if thing.en == english)
    assert [noun.with_ending("rot", d) for d in ("der", "den", "einen")] == [der, den, einen]
    assert [noun.pronoun(p) for p in ("nominative", "accusative", "relative")] == pronouns.split()


def test_relatives_are_declined() -> None:
    drawn = {person.en: person[1:] for person in (phrases.relative(rng) for rng in map(Random, range(800)))}
    assert len(drawn) == 40
    assert drawn["our son"] == ("unser Sohn", "unseren Sohn", "unserem Sohn", "unseres Sohnes")
    assert drawn["her aunt"] == ("ihre Tante", "ihre Tante", "ihrer Tante", "ihrer Tante")


@pytest.mark.parametrize(
    ("pattern", "seed", "english", "german"),
    [
        (
            sentences.departure,
            2,
            "the plane to London leaves on Saturday at ten to two.",
            "das Flugzeug nach London fliegt am Samstag um zehn vor zwei ab.",
        ),
        (
            sentences.errand,
            1,
            "they should go home because the bus leaves at a quarter to seven.",
            "sie sollten nach Hause gehen, weil der Bus um Viertel vor sieben abfährt.",
        ),
        (
            sentences.bought,
            3,
            "she ordered sixty-three chairs eleven weeks ago.",
            "sie hat vor elf Wochen dreiundsechzig Stühle bestellt.",
        ),
        (
            sentences.bought_for,
            3,
            "on the seventh of December she bought a green shirt for two euros.",
            "am siebten Dezember hat sie ein grünes Hemd für zwei Euro gekauft.",
        ),
        (
            sentences.condition,
            2,
            "if the old chair costs less than seven hundred and two euros and sixty cents, "
            "the students will buy it.",
            "wenn der alte Stuhl weniger als siebenhundertzwei Euro sechzig kostet, "
            "kaufen die Studenten ihn.",
        ),
        (
            sentences.which_cost,
            4,
            "the old blanket that I bought yesterday cost ninety-one euros.",
            "die alte Decke, die ich gestern gekauft habe, hat einundneunzig Euro gekostet.",
        ),
        (
            sentences.present,
            2,
            "Felix gave my brother a white children's book on Wednesday afternoon.",
            "Felix hat meinem Bruder am Mittwochnachmittag ein weißes Kinderbuch geschenkt.",
        ),
        (
            sentences.born,
            4,
            "I was born on the twelfth of February nineteen oh eight.",
            "ich wurde am zwölften Februar neunzehnhundertacht geboren.",
        ),
        (
            sentences.event,
            2,
            "the book fair takes place in front of the church on Monday morning at a quarter past nine.",
            "die Buchmesse findet am Montagmorgen um Viertel nach neun vor der Kirche statt.",
        ),
        (
            sentences.inhabitants,
            3,
            "thirty-four thousand five hundred people lived in Cologne in nineteen forty.",
            "im Jahr neunzehnhundertvierzig lebten in Köln vierunddreißigtausendfünfhundert Menschen.",
        ),
        (
            sentences.number_of,
            4,
            "my father's room number is one.",
            "die Zimmernummer meines Vaters ist eins.",
        ),
    ],
)
def test_whole_sentences_with_german_word_order(
    pattern: Callable[[Random], Pair], seed: int, english: str, german: str
) -> None:
    assert pattern(Random(seed)) == (english, german)


def test_sentences_look_like_print(made: tuple[Path, str]) -> None:
    folder, _ = made
    for name in ("train.en", "train.de"):
        for line in lines(folder, name):
            assert re.fullmatch(r"[A-Z][\w',-]*( [\w',-]+){3,24}[.?]", line), line
            assert not re.search(r" (i|montag|uhr|march) ", line), line


def test_the_dictionary_learns_words_from_sentences_and_keeps_their_order() -> None:
    words = dictionary.learn(
        [("The house.", "Das Haus."), ("The book?", "Das Buch?"), ("A book.", "Ein Buch.")]
    )
    assert words == {"the": "Das", "house": "Haus", "book": "Buch", "a": "Ein"}
    assert dictionary.translate("The book, a zebra?", words) == "Das Buch, Ein zebra?"


def test_the_dictionary_undoes_the_capital_at_the_start_of_a_sentence() -> None:
    words = dictionary.learn([("We see", "Wir sehen"), ("See we", "Sehen wir"), ("We go", "Wir gehen")])
    assert words["we"] == "wir"
    assert dictionary.translate("we go", words) == "Wir gehen"


def test_the_dictionary_leaves_out_a_word_that_nothing_answers_to() -> None:
    pairs = [("one of", "eins"), ("two of", "zwei"), ("ten of", "zehn"), ("six of", "sechs")]
    words = dictionary.learn([*pairs, ("one", "eins"), ("two", "zwei"), ("ten", "zehn"), ("six", "sechs")])
    assert dictionary.translate("two of six", words) == "Zwei sechs"
