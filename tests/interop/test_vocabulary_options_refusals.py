"""Wishes for a vocabulary that cannot be fulfilled: each gets an error of one line."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from nmt_cli.errors import UserError
from nmt_cli.interop.foreign import ImportOptions
from nmt_cli.interop.importing import read
from nmt_cli.interop.vocabulary_options import Wishes, fit
from nmt_cli.text.tokenizers import load_tokenizers
from tests.checks import refusal
from tests.interop.conftest import m2m100_folder, marian_folder, sentences
from tests.interop.test_vocabulary_options import text, texts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refusals")
    m2m100_folder(folder / "nllb", "nllb")
    marian_folder(folder / "opus-mt-en-fr")
    marian_folder(folder / "one" / "opus-mt-en-fr", "separate")
    text(folder, "mine.en", sentences("source", 150))
    text(folder, "mine.fr", sentences("target", 150))
    text(folder, "mine.txt", sentences("source", 150))
    text(folder, "short.en", sentences("source", 12))
    text(folder, "greek.en", ["το σπίτι είναι μικρό"] * 200)
    text(folder, "greek.txt", ["το σπίτι είναι μικρό"] * 200)
    return folder


def fitted(folder: Path, source: str, wishes: Wishes, *pair: str) -> None:
    options = ImportOptions(*pair)  # type: ignore[arg-type]
    fit(read(str(folder / source), wishes.options(options)), wishes, options)


PAIR = ("eng_Latn", "fra_Latn")


@pytest.mark.parametrize(
    ("keep", "add", "names", "pair", "message"),
    [
        ("eng_Latin,fra_Latn", {}, ["mine.en"], (), "has no language eng_Latin: did you mean eng_Latn?"),
        ("eng_Latn,xyz_Latn", {}, ["mine.en"], PAIR, "--keep: the model has no language xyz_Latn: "),
        ("", {"tyv_Cyrl": "kaz_Cyrl"}, ["mine.en"], PAIR, "--add tyv_Cyrl=kaz_Cyrl: the model has no "),
        ("", {"deu_Latn": "fra_Latn"}, ["mine.en"], PAIR, "the model has deu_Latn already. Omit --add."),
        ("eng_Latn,fra_Latn", {}, ["mine.en"], (), "no --text is in fra_Latn, so its entries cannot"),
        ("eng_Latn", {}, ["mine.en"], (), "--keep eng_Latn leaves nothing to translate into. Name two"),
        ("eng_Latn,fra_Latn", {}, ["short.en", "mine.fr"], (), "short.en has 12 lines of text, but choosing"),
        ("eng_Latn,fra_Latn", {}, ["greek.en", "mine.fr"], (), "greek.en: 0% of its letters are Latn, the "),
        ("eng_Latn,fra_Latn", {}, ["greek.txt"], (), "greek.txt: 0% of its letters are Latn, the script of"),
        ("eng_Latn,fra_Latn", {}, ["mine.en", "mine.fr"], ("deu_Latn",), "would not have the language"),
    ],
    ids=str,
)  # fmt: skip
def test_a_wish_that_cannot_be_fulfilled_is_refused(
    folder: Path, keep: str, add: dict[str, str], names: list[str], pair: tuple[str, ...], message: str
) -> None:
    wishes = Wishes(tuple(filter(None, keep.split(","))), add, texts(folder, *names))
    assert message in refusal(fitted, folder, "nllb", wishes, *pair)


def test_languages_to_keep_may_be_given_together_or_apart(
    folder: Path, nmt: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    text = ["--text", folder / "mine.en", "--text", folder / "mine.fr"]
    for out, keep in (("a", ["eng_Latn,fra_Latn"]), ("b", ["eng_Latn", "fra_Latn"])):
        options = [part for name in keep for part in ("--keep", name)]
        result = nmt("import", folder / "nllb", *options, *text, "--out", tmp_path / out)
        assert result.returncode == 0, result.stderr
    a, b = (load_tokenizers(tmp_path / out / "tokenizer").fingerprint for out in "ab")
    assert a == b


def test_a_text_in_any_language_may_cover_all(folder: Path) -> None:
    fitted(folder, "nllb", Wishes(PAIR, texts=texts(folder, "mine.txt")))


def test_options_need_each_other(folder: Path) -> None:
    assert "--keep needs text" in refusal(Wishes, ("en", "fr"))
    assert "--add needs text" in refusal(Wishes, (), {"a": "b"})
    assert "--text has no effect without --keep, --add or --pieces" in refusal(
        Wishes, texts=texts(folder, "mine.en")
    )


def test_a_model_of_one_direction_takes_no_new_language(folder: Path) -> None:
    foreign = read(str(folder / "one" / "opus-mt-en-fr"), ImportOptions())
    recipe = replace(foreign.tokenizers.recipe, symbols=())
    one = replace(foreign, tokenizers=replace(foreign.tokenizers, recipe=recipe))
    wishes = Wishes((), {"de": "fr"}, texts(folder, "mine.txt"))
    assert "--add de needs a model of several languages" in refusal(fit, one, wishes, ImportOptions())


def test_an_opus_model_is_trimmed_on_both_sides(folder: Path) -> None:
    """It has two SentencePiece models, and one vocabulary or two."""
    for source in ("opus-mt-en-fr", "one/opus-mt-en-fr"):
        wishes, options = Wishes(("en", "fr"), {}, texts(folder, "mine.en", "mine.fr")), ImportOptions()
        whole = read(str(folder / source), options)
        small, _ = fit(whole, wishes, options)
        for side, name in (("source", "mine.en"), ("target", "mine.fr")):
            before, after = (getattr(one.tokenizers, side) for one in (whole, small))
            for line in (folder / name).read_text().splitlines():
                ids = [one.encode(one.prepare(line)) for one in (before, after)]
                entries = [
                    [one.vocabulary.entries[i] for i in line_ids]
                    for one, line_ids in zip((before, after), ids, strict=True)
                ]
                # The model has symbols of several targets, and that of the kept one is the usual one.
                assert [">>fra<<"] * (side == "source") + entries[0] == entries[1]


def test_the_order_of_kept_languages_does_not_turn_a_model_around(folder: Path) -> None:
    made = []
    for keep in (("en", "fr"), ("fr", "en")):
        wishes = Wishes(keep, {}, texts(folder, "mine.en", "mine.fr"))
        options = wishes.options(ImportOptions())
        made.append(fit(read(str(folder / "one/opus-mt-en-fr"), options), wishes, ImportOptions()))
    (first, compared), (second, _) = made
    assert first.tokenizers.fingerprint == second.tokenizers.fingerprint
    assert (first.tokenizers.recipe.source_lang, first.tokenizers.recipe.target_lang) == ("en", "fra")
    # Each text is counted on the side of its language, before and after.
    assert all(row.before == row.after for row in compared[4:])


def test_odd_wishes_are_refused_in_one_line_or_fulfilled(folder: Path) -> None:
    draw = random.Random(5)
    langs = [
        *PAIR,
        "deu_Latn",
        "en",
        "fra",
        "",
        "zz",
        "😀",
        "eng_Latn ",
        "ENG-latn",
        "mul",
        "a" * 999,
        "__en__",
    ]
    odd = [
        b"", b"\n" * 500, b"\xff\xfe" * 90, b"\x00\n" * 200, b"a\n" * 200, "\u2581 \u2581\n".encode() * 150,
        b"</s> <unk> eng_Latn\n" * 120, "é̂é̂\u200b\n".encode() * 120, ("x" * 5000 + "\n").encode() * 110,
        "<0x0A> ⟦1⟧\n".encode() * 130, b"\r\r\n" * 120, "日本語 ไทย\n".encode() * 120,
        b"5 . , !\n" * 120,
    ]  # fmt: skip
    models = {name: read(str(folder / name), ImportOptions(*pair)) for name, pair in
              (("nllb", PAIR), ("one/opus-mt-en-fr", ("en", "fr")))}  # fmt: skip
    refused = 0
    for _ in range(1000):
        path = folder / f"odd.{draw.choice(['en', 'fr', 'txt', 'tyv', 'gz'])}"
        path.write_bytes(draw.choice(odd))
        keep = tuple(draw.choices(langs, k=draw.randint(0, 3)))
        add = {draw.choice([*langs, "tyv_Cyrl"]): draw.choice(langs)} if draw.random() < 0.5 else {}
        some = [path, *texts(folder, *draw.sample(["mine.en", "mine.fr", "short.en"], draw.randint(0, 2)))]
        model = models[draw.choice([*models])]
        try:
            wishes = Wishes(keep, add, tuple(some), draw.choice([None, 0, 1, 50, 100_000]))
            fit(model, wishes, ImportOptions(draw.choice([None, None, *langs])))
        except UserError as error:
            assert "\n" not in str(error)
            refused += 1
    assert 300 < refused < 1000
