"""Settings of other toolkits: a value has the expected type, or an error names it."""

import json

import pytest

from nmt_cli.errors import UserError
from nmt_cli.interop.foreign_settings import ForeignSettings


@pytest.mark.parametrize("value", ["1e999", "-1e999", "NaN", "1" + "0" * 400, "true", '"0.1"', "[]"])
def test_a_value_that_is_not_a_finite_number_is_refused_by_name(value: str) -> None:
    settings = ForeignSettings({"dropout": json.loads(value)}, "config.json")
    with pytest.raises(UserError, match=r"config\.json: dropout is .*, not a number"):
        settings.number("dropout", 0.0)


@pytest.mark.parametrize("value", [0, 1, 0.1, -2.5, 1e200])
def test_a_finite_number_is_returned(value: float) -> None:
    assert ForeignSettings({"dropout": value}, "config.json").number("dropout", 0.3) == value
