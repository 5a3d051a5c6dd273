"""Values of JSON, TOML and forms: types, bounds, and errors that name the value."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.errors import UserError
from nmt_cli.named_values import COUNT, Values
from nmt_cli.setting_values import Bounds
from tests.checks import refusal


def values_of(**values: Any) -> Values:
    """Return values whose errors begin with the name of a file."""
    return Values(values, lambda problem: UserError(f"f.json: {problem}. Copy it again."))


@pytest.mark.parametrize(
    ("read", "value", "result"),
    [
        ("integer", 5, 5),
        ("integer", -(2**70), -(2**70)),
        ("number", 5, 5.0),
        ("number", 0.5, 0.5),
        ("flag", False, False),
        ("text", "ä", "ä"),
        ("text", "", ""),
        ("measurement", math.inf, math.inf),
        ("measurement", 3, 3.0),
    ],
)
def test_a_value_of_the_type_is_returned(read: str, value: object, result: object) -> None:
    got = getattr(values_of(x=value), read)("x")
    assert (got, type(got)) == (result, type(result))


def test_a_number_that_diverged_is_a_measurement() -> None:
    assert math.isnan(values_of(x=math.nan).measurement("x"))


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        ("integer", True, "a whole number (got true)"),
        ("integer", 5.0, "a whole number (got 5.0)"),
        ("integer", "5", 'a whole number (got "5")'),
        ("integer", None, "a whole number (got None)"),
        ("number", math.nan, "a number (got nan)"),
        ("number", math.inf, "a number (got inf)"),
        ("number", False, "a number (got false)"),
        ("number", 1 << 1001, "a number (got "),
        ("measurement", "nan", 'a number (got "nan")'),
        ("flag", 1, "true or false (got 1)"),
        ("text", 7, "a text in UTF-8 (got 7)"),
        ("text", "\udc80", "a text in UTF-8 (got "),
        ("text", ["a"], 'a text in UTF-8 (got ["a"])'),
    ],
)
def test_a_value_of_another_type_is_an_error_with_name_value_and_expectation(
    read: str, value: object, expected: str
) -> None:
    message = refusal(getattr(values_of(steps=value), read), "steps")
    assert message.startswith(f"f.json: steps must be {expected}") and message.endswith(". Copy it again.")


@pytest.mark.parametrize("read", ["integer", "number", "flag", "text", "measurement", "table"])
def test_a_missing_value_without_a_default_is_an_error(read: str) -> None:
    assert refusal(getattr(values_of(), read), "steps") == "f.json: steps is missing. Copy it again."


def test_a_missing_value_gives_the_default_and_null_does_not() -> None:
    assert values_of().integer("x", 3) == 3
    assert values_of().list_of("x", str, ()) == []
    assert "got None" in refusal(values_of(x=None).integer, "x", 3)


def test_values_that_count_as_missing_give_the_default() -> None:
    class Forgiving(Values):
        absent = (None, "")

    values = Forgiving({"a": None, "b": "", "c": 0, "d": False}, UserError)
    assert [values.integer("a", 7), values.text("b", "z"), values.integer("c", 7)] == [7, "z", 0]
    assert values.flag("d", True) is False
    assert ["a" in values, "b" in values, "c" in values, "missing" in values] == [False, False, True, False]


@given(st.integers())
def test_a_count_is_whole_and_exact_in_json(number: int) -> None:
    inside = 0 <= number < 2**53
    if inside:
        assert values_of(n=number).integer("n", bounds=COUNT) == number
    else:
        assert "n must be at least 0 and less than" in refusal(values_of(n=number).integer, "n", bounds=COUNT)


def test_bounds_are_named() -> None:
    message = refusal(values_of(n=7).integer, "n", bounds=Bounds(least=0, most=5))
    assert message == "f.json: n must be 0 to 5 (got 7). Copy it again."


def test_lists_have_items_of_one_type() -> None:
    assert values_of(x=["a", "b"]).list_of("x", str) == ["a", "b"]
    assert values_of(x=[1, 2.5]).list_of("x", float) == [1.0, 2.5]
    assert "x must be a list, each item a text" in refusal(values_of(x=["a", 1]).list_of, "x", str)
    assert "x must be a list, each item a text" in refusal(values_of(x="ab").list_of, "x", str)


def test_a_choice_names_the_choices() -> None:
    assert values_of(role="valid").one_of("role", ["train", "valid"]) == "valid"
    message = refusal(values_of(role="dev").one_of, "role", ["train", "valid"])
    assert message == 'f.json: role must be "train" or "valid" (got "dev"). Copy it again.'


def test_errors_in_a_table_name_the_table() -> None:
    values = values_of(files={"a.npy": {"bytes": "x"}})
    assert [*values.table("files")] == ["a.npy"]
    message = refusal(values.table("files").table("a.npy").integer, "bytes")
    assert message == 'f.json: files.a.npy.bytes must be a whole number (got "x"). Copy it again.'
    assert "f.json: x must be a table of values (got 3)" in refusal(values_of(x=3).table, "x")


@pytest.mark.parametrize("content", [None, [], "x", 5])
def test_content_that_has_no_names_is_an_error(content: object) -> None:
    with pytest.raises(UserError, match="the content must be a table of values"):
        Values(content, UserError)
