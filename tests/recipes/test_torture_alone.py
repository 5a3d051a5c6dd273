"""Translations of single lines are compared with translations of a batch."""

import pytest

from recipes.torture.alone import report


@pytest.mark.parametrize(("text", "score", "different"), [("b", -1.0, 0), ("c", -1.0, 1), ("b", -1.1, 1)])
def test_a_different_translation_or_score_is_counted(text: str, score: float, different: int) -> None:
    assert report("int8", ["a", "b"], [("x", -2.0), ("b", -1.0)], [("x", -2.0), (text, score)]) == different
