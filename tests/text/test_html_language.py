"""The declared language of a page."""

import pytest

from nmt_cli.text.html_language import with_language


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ('<html lang="en"><p lang="en">', '<html lang="de-AT"><p lang="en">'),
        (
            "<!DOCTYPE html>\n<HTML class='a>b' LANG='en-US'>",
            "<!DOCTYPE html>\n<HTML class='a>b' LANG=\"de-AT\">",
        ),
        ("\ufeff <!--<html lang=fr>--><html lang=en>", '\ufeff <!--<html lang=fr>--><html lang="de-AT">'),
        ("<html a=' lang=en <html' lang='en'>", "<html a=' lang=en <html' lang=\"de-AT\">"),
        (
            '<?xml version="1.0"?><html xml:lang="en" lang="en" dir="ltr">',
            '<?xml version="1.0"?><html xml:lang="de-AT" lang="de-AT" dir="ltr">',
        ),
    ],
)
def test_a_page_declares_the_target_language(document: str, expected: str) -> None:
    assert with_language(document, "de_AT") == expected


@pytest.mark.parametrize(
    "document",
    [
        "<html><p>a",
        '<p lang="en">a',
        '<htmlx lang="en">',
        '<html data-lang="en">',
        '<html lang="en',
        "",
        "<!--",
    ],
)
def test_a_text_without_a_declared_language_stays(document: str) -> None:
    assert with_language(document, "de") == document


@pytest.mark.parametrize("part", ["<!--a>", "<!-->", "<?", "<!a>", " ", '<html a="', "<html lang="])
def test_the_time_is_linear(part: str) -> None:
    assert len(with_language(part * 200_000, "de")) >= len(part)


@pytest.mark.parametrize(
    ("language", "code"), [("deu_Latn", "de-Latn"), ("zho_Hant", "zh-Hant"), ("tyv", "tyv")]
)
def test_a_language_of_three_letters_gets_the_code_of_html(language: str, code: str) -> None:
    assert with_language('<html lang="en">', language) == f'<html lang="{code}">'
