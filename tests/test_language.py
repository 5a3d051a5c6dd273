"""Languages and their regions."""

import pytest

from nmt_cli.language import fits, language_in, name_of, nearest_language, without_region


@pytest.mark.parametrize(
    ("written", "language"),
    [
        ("de", "de"),
        ("DE", "de"),
        ("de-AT", "de"),
        ("zh_CN", "zh"),
        ("zh-Hans-CN", "zh"),
        ("yue", "yue"),
        ("", ""),
    ],
)
def test_a_language_is_the_same_in_every_region_and_case(written: str, language: str) -> None:
    assert without_region(written) == language


@pytest.mark.parametrize(
    ("marked", "lang", "holds"),
    [
        ("de", "de", True),
        ("DE_de", "de", True),
        ("deu", "de", True),
        ("de", "deu", True),
        ("de", "de-AT", True),
        ("deu-at", "de-AT", True),
        ("de-DE", "de-AT", False),
        ("den", "de", False),
        ("", "de", False),
    ],
)
def test_a_text_may_be_marked_in_several_ways(marked: str, lang: str, holds: bool) -> None:
    assert fits(marked, lang) == holds


def test_languages_have_english_names() -> None:
    codes = ("de", "pt_BR", "deu_Latn", "arb_Arab", "tlh")
    assert [name_of(code) for code in codes] == ["German", "Portuguese", "German", "Arabic", "tlh"]


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("deu_Latn", "deu_Latn"),
        ("de", "deu_Latn"),
        ("DEU-latn", "deu_Latn"),
        ("zh", "zho_Hans"),
        ("zho_hant", "zho_Hant"),
        ("ar", "arb_Arab"),
        ("fr", None),
    ],
)
def test_a_language_is_found_by_its_other_codes(wanted: str, name: str | None) -> None:
    assert language_in(["zho_Hans", "zho_Hant", "deu_Latn", "arb_Arab"], wanted) == name


@pytest.mark.parametrize(
    ("wanted", "names", "name"),
    [
        ("ZH-HANT", ["zho_Hans", "zho_Hant"], "zho_Hant"),
        ("zh-TW", ["zho_Hans", "zho_Hant"], "zho_Hant"),
        ("zh_Hant_HK", ["zho_Hans", "zho_Hant"], "zho_Hant"),
        ("zh-Hans", ["zh_TW", "zh_CN"], "zh_CN"),
        ("ZH-HANT", ["zho_Hans"], "zho_Hans"),
        ("sr-Cyrl-RS", ["srp_Latn", "srp_Cyrl"], "srp_Cyrl"),
        ("PT-PT", ["pt_BR", "pt"], "pt"),
        ("PT-PT", ["pt_BR", "pt", "por_PT"], "por_PT"),
        ("pt", ["pt_BR", "pt_PT"], "pt_BR"),
    ],
)
def test_the_script_or_region_chooses_among_names_of_a_language(
    wanted: str, names: list[str], name: str
) -> None:
    assert language_in(names, wanted) == name


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("german", "did you mean deu_Latn?"),
        ("deu_Lat", "did you mean deu_Latn?"),
        ("fre", "did you mean fra_Latn?"),
        ("xx", ""),
        ("", ""),
    ],
)
def test_the_nearest_language_is_suggested(wanted: str, hint: str) -> None:
    assert nearest_language(wanted, ["deu_Latn", "fra_Latn"]) == hint
