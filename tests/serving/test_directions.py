"""The translation directions and the names of languages."""

from types import SimpleNamespace
from typing import Any

import pytest

from nmt_cli.errors import UserError
from nmt_cli.serving.directions import Directions


def model(source: str, target: str) -> Any:
    return SimpleNamespace(languages=(source, target))


def served(*pairs: str, pivot: str = "en") -> Directions:
    return Directions({pair: model(*pair.split("-", 1)) for pair in pairs}, pivot)


def test_two_models_form_a_direction_unless_a_single_model_does() -> None:
    directions = served("fr-en", "en-de", "de-en", "en-fr", "fr-de")
    assert {(one.name, len(one.models)) for one in directions.named.values()} == {
        *(("fr-en", 1), ("en-de", 1), ("de-en", 1), ("en-fr", 1), ("fr-de", 1), ("de-fr", 2))
    }
    assert served("fr-en", "en-de", pivot="").targets("fr") == ["en"]
    assert served("fr-es", "es-de", pivot="es").targets("fr") == ["es", "de"]


@pytest.mark.parametrize("name", ["en", "EN", "en-US", "en_GB"])
def test_an_unknown_region_is_ignored(name: str) -> None:
    direction = served("en-de").find(name, "DE-at")
    assert direction and direction.name == "en-de"


def test_known_regions_are_distinguished() -> None:
    directions = served("en-pt", "en-pt_BR")
    names = {"pt-br": "pt_BR", "PT": "pt", "pt-PT": "pt"}
    assert {name: directions.resolve(name) for name in names} == names
    assert directions.resolve("fr") is None and directions.find("pt", "en") is None


def test_a_region_is_ignored_if_only_another_region_has_a_model() -> None:
    directions = served("en-pt_BR", "pt-en")
    assert (found := directions.find("EN", "pt")) and found.name == "en-pt_BR"
    assert (found := directions.find("pt-PT", "en-GB")) and found.name == "pt-en"
    assert (found := directions.find("pt-BR", "en")) and found.name == "pt-en"
    assert directions.find("pt", "pt") is None and served("en-pt_BR").find("pt", "en") is None


def test_two_models_for_one_direction_are_refused() -> None:
    with pytest.raises(UserError, match="b translates from en to de, and so does another model"):
        Directions({"a": model("en", "de"), "b": model("en", "de")})
