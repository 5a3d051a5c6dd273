"""Languages are found by what clients call them, and pairs by way of a third where they must."""

from types import SimpleNamespace
from typing import Any

import pytest

from nmt_cli.errors import UserError
from nmt_cli.serving.directions import Directions, name_of


def model(source: str, target: str) -> Any:
    return SimpleNamespace(languages=(source, target))


def served(*pairs: str, pivot: str = "en") -> Directions:
    return Directions({pair: model(*pair.split("-", 1)) for pair in pairs}, pivot)


def test_two_models_make_a_pair_through_the_pivot_unless_a_model_does_it_alone() -> None:
    found = served("fr-en", "en-de", "de-en", "en-fr", "fr-de")
    assert {(one.name, len(one.models)) for one in found.named.values()} == {
        *(("fr-en", 1), ("en-de", 1), ("de-en", 1), ("en-fr", 1), ("fr-de", 1), ("de-fr", 2))
    }
    assert served("fr-en", "en-de", pivot="").targets("fr") == ["en"]
    assert served("fr-es", "es-de", pivot="es").targets("fr") == ["es", "de"]


@pytest.mark.parametrize("asked", ["en", "EN", "en-US", "en_GB"])
def test_a_region_that_no_model_knows_does_not_count(asked: str) -> None:
    direction = served("en-de").find(asked, "DE-at")
    assert direction and direction.name == "en-de"


def test_of_regions_that_models_know_each_is_found() -> None:
    found = served("en-pt", "en-pt_BR")
    wanted = {"pt-br": "pt_BR", "PT": "pt", "pt-PT": "pt"}
    assert {asked: found.resolve(asked) for asked in wanted} == wanted
    assert found.resolve("fr") is None and found.find("pt", "en") is None


def test_a_pair_that_two_models_translate_is_a_mistake() -> None:
    with pytest.raises(UserError, match="b translates from en to de, and so does another model"):
        Directions({"a": model("en", "de"), "b": model("en", "de")})


def test_languages_are_called_what_people_call_them() -> None:
    assert [name_of(code) for code in ("de", "pt_BR", "tlh")] == ["German", "Portuguese", "tlh"]
