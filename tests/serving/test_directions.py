"""The translation directions and the names of languages."""

from types import SimpleNamespace
from typing import Any

import pytest

from nmt_cli.errors import UserError
from nmt_cli.serving.directions import Directions


def model(*pairs: tuple[str, str], usual: tuple[str, str] | None = None) -> Any:
    languages = usual or pairs[0]
    name, described = (
        "-".join(languages),
        {"languages": languages, "needs_direction": usual == ("mul", "mul")},
    )
    return SimpleNamespace(name=name, directions=[*pairs], **described)


def served(*pairs: str, pivot: str = "en") -> Directions:
    return Directions({pair: model(tuple_of(pair)) for pair in pairs}, pivot)


def tuple_of(pair: str) -> tuple[str, str]:
    source, _, target = pair.partition("-")
    return source, target


def test_two_models_form_a_direction_unless_a_single_model_does() -> None:
    directions = served("fr-en", "en-de", "de-en", "en-fr", "fr-de")
    assert {(one.name, len(one.legs)) for one in directions.named.values()} == {
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
        Directions({"a": model(("en", "de")), "b": model(("en", "de"))})


def test_a_model_of_many_languages_has_all_its_directions() -> None:
    tagged = model(("en", "de"), ("en", "fr"), usual=("en", "mul"))
    many = model(("fr", "es"), ("es", "it"), usual=("mul", "mul"))
    directions = Directions({"tagged": tagged, "many": many}, "fr")
    assert directions.languages == ["en", "de", "fr", "es", "it"]
    assert directions.targets("en") == ["de", "fr", "es"]
    names = ["tagged", "en-mul", "en-de", "en-fr", "fr-es", "es-it", "en-es"]
    assert [*directions.named] == names
    through = directions.find("en-GB", "spa")
    assert through and [tuple(leg)[1:] for leg in through.legs] == [("en", "fr"), ("fr", "es")]
    # Clients that put <2fr> into their text.
    assert (found := directions.find("en", "mul")) and found.legs == [(tagged, "en", "mul")]
    assert directions.find("mul", "mul") is None


def test_a_model_is_both_legs_of_a_pivot() -> None:
    directions = Directions({"one": model(("de", "en"), ("en", "fr"), usual=("mul", "mul"))}, "eng")
    assert (found := directions.find("de", "fr")) and [leg.source for leg in found.legs] == ["de", "en"]


def test_the_first_of_two_models_with_a_direction_translates() -> None:
    own, many = model(("en", "de")), model(("en", "de"), ("en", "fr"), usual=("mul", "mul"))
    directions = Directions({"own": own, "many": many})
    assert (found := directions.find("en", "de")) and found.legs[0].served is own
    assert (found := directions.find("en", "fr")) and found.legs[0].served is many
    with pytest.raises(UserError, match="own translates from en to de, and so does another model"):
        Directions({"many": many, "own": own})


def test_a_model_of_many_sources_reads_languages_that_it_does_not_record() -> None:
    directions = served("mul-en", "en-de")
    assert (found := directions.find("it", "en")) and found.name == "mul-en"
    assert (found := directions.find("it", "de")) and found.name == "mul-de"
    assert directions.find("de", "en") is None and directions.find("it", "fr") is None


def test_languages_of_one_name_have_their_codes() -> None:
    directions = served("en-zho_Hans", "en-zho_Hant", "en-deu_Latn")
    names = ["English", "Chinese (zho_Hans)", "Chinese (zho_Hant)", "German"]
    assert [*directions.names.values()] == names


def test_a_model_of_hundreds_of_languages_is_listed_in_short() -> None:
    codes = [f"{a}{b}x" for a in "abcdefghij" for b in "abcdefghij"]
    directions = Directions(
        {"many": model(*((one, other) for one in codes for other in codes if one != other))}
    )
    assert directions.offered("zz").count(",") == 10 and "and 94 more" in directions.offered("zz")
    assert (found := directions.find("aax", "jjx")) and found.name == "aax-jjx"
