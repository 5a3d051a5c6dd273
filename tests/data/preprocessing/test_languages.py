"""The languages of a dataset whose corpora have several."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt_cli.data.dataset import MANIFEST, TOKENIZERS, read_manifest
from nmt_cli.errors import UserError
from nmt_cli.text.model_languages import ModelLanguages
from nmt_cli.text.tokenizers import Recipe, read_recipe
from tests.data.corpora import named_corpora, train_lines

Make = Callable[..., Any]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with the parallel files text.en, text.de and text.fr."""
    for lang in ("en", "de", "fr"):
        (tmp_path / f"text.{lang}").write_text(f"one {lang}\ntwo {lang}\n")
    return tmp_path


def recipe_of(out: Path) -> Recipe:
    return read_recipe(out / TOKENIZERS)


def test_a_corpus_names_its_own_languages(data: Path, make: Make) -> None:
    """The job is for English and German."""
    text = data / "text"
    corpora = named_corpora(
        ("en-de", text, 'tag="<2de>"'),
        ("en-fr", text, 'tag="<2fr>", target_lang="fr"'),
        ("de-en", text, 'tag="<2en>", source_lang="de", target_lang="en"'),
    )
    make(data / "out", (), corpora)
    assert train_lines(data / "out")[2:] == ["<2fr> one en", "<2fr> two en", "<2en> one de", "<2en> two de"]
    assert train_lines(data / "out", "target")[2::2] == ["one fr", "one en"]
    assert recipe_of(data / "out").languages == ModelLanguages(
        {"en": "", "de": ""},
        {"de": "<2de>", "fr": "<2fr>", "en": "<2en>"},
        pairs=(("en", "de"), ("en", "fr"), ("de", "en")),
    )
    inputs = read_manifest(data / "out")["inputs"]
    assert [(one.get("source_lang"), one.get("target_lang")) for one in inputs] == [
        (None, None),
        (None, "fr"),
        ("de", "en"),
    ]
    make(data / "out", (), corpora)  # up to date
    with pytest.raises(UserError, match="was made with other inputs"):
        make(data / "out", (), corpora.replace('"<2en>"', '"<2xx>"'))


def test_many_sources_need_no_tags(data: Path, make: Make) -> None:
    text = data / "text"
    corpora = named_corpora(
        ("en", text, ""), ("fr", text, 'source_lang="fr"'), ("fr again", text, 'source_lang="fr"')
    )
    make(data / "out", (), corpora)
    recipe = recipe_of(data / "out")
    assert recipe.own_languages.directions == [("en", "de"), ("fr", "de")]
    assert not recipe.symbols


def test_a_missing_side_of_a_corpus_is_named(data: Path, make: Make) -> None:
    with pytest.raises(UserError, match=r"text\.it"):
        make(data / "out", (), named_corpora(("one", data / "text", 'source_lang="it"')))


def test_nothing_is_recorded_for_corpora_without_languages(data: Path, make: Make) -> None:
    """The bytes of datasets do not change."""
    make(data / "out", (), named_corpora(("one", data / "text", 'tag="<2de>"')))
    assert recipe_of(data / "out").languages is None
    assert b"_lang" not in b"".join(
        line for line in (data / "out" / MANIFEST).read_bytes().splitlines() if b'      "' in line
    )
