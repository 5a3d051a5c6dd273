"""The settings of a model, and the errors for invalid ones."""

from dataclasses import fields, replace
from typing import Any

import pytest

from nmt_cli.config import Kind, describe
from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig, disagreements, shape_in_words


def complaint(**settings: Any) -> str:
    with pytest.raises(UserError) as caught:
        ModelConfig(**settings)
    return str(caught.value)


def test_the_default_settings_are_the_papers_base_model() -> None:
    config = ModelConfig()
    assert (config.encoder_layers, config.decoder_layers, config.heads) == (6, 6, 8)
    assert (config.width, config.feed_forward, config.d_k, config.d_v) == (512, 2048, 64, 64)
    assert (config.norm, config.activation, config.positions, config.tie) == (
        "post",
        "relu",
        "sinusoidal",
        "all",
    )
    assert (config.norm_epsilon, config.attention_bias) == (1e-6, False)
    assert config.residual_dropout == 0.1
    assert (config.attention_dropout, config.activation_dropout) == (0, 0)
    assert config.window == 0


@pytest.mark.parametrize(
    ("settings", "widths"),
    [
        ({}, (64, 64)),
        ({"heads": 1}, (512, 512)),
        ({"key_width": 16}, (16, 64)),
        ({"value_width": 24}, (64, 24)),
        ({"heads": 3, "key_width": 40, "value_width": 56}, (40, 56)),
    ],
    ids=str,
)
def test_keys_and_values_may_have_different_widths(settings: dict[str, Any], widths: tuple[int, int]) -> None:
    config = replace(ModelConfig(), **settings)
    assert (config.d_k, config.d_v) == widths


SIZES = "encoder_layers", "decoder_layers", "width", "feed_forward", "heads", "longest"
MAY_BE_0 = "key_width", "value_width", "window"
DROPOUTS = "residual_dropout", "attention_dropout", "activation_dropout"
INVALID = [
    *((name, size, "") for name in SIZES for size in (0, -2)),
    *((name, -1, "") for name in MAY_BE_0),
    *((name, value, "at least 0 and less than 1") for name in DROPOUTS for value in (-0.1, 1.0, 1.5)),
    ("norm_epsilon", -1e-6, ""),
]


@pytest.mark.parametrize(("name", "value", "limits"), INVALID)
def test_a_value_out_of_range_is_refused_by_name_value_and_limits(
    name: str, value: float, limits: str
) -> None:
    message = complaint(**{name: value})
    assert message.startswith(f"{name} must be ") and f"(got {value:g})" in message and limits in message


def test_all_invalid_sizes_are_reported_at_once() -> None:
    message = complaint(width=0, heads=-1, window=-5)
    for part in ("width must be 1 to 16384 (got 0)", "heads must be", "window must be"):
        assert part in message


@pytest.mark.parametrize("widths", [{}, {"key_width": 40}, {"value_width": 40}], ids=str)
def test_a_width_that_is_not_a_multiple_of_the_heads_is_refused_with_a_remedy(widths: dict[str, int]) -> None:
    message = complaint(width=512, heads=12, **widths)
    assert "512" in message
    assert "12" in message
    assert "key_width and value_width" in message


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"width": 33, "heads": 3}, "width is 33"),
        ({"width": 2, "heads": 1, "positions": "marian"}, "width is 2"),
        ({"positions": "learned", "first_position": 2}, "first_position"),
        ({"positions": "sinusoidal", "longest": 2048}, "longest"),
        ({"positions": "marian", "longest": 2048}, "longest"),
        ({"decoder_heads": 6}, "not a multiple of the 6 decoder_heads"),
        ({"positions": "rotary", "width": 24, "heads": 4, "decoder_heads": 8}, "3 key channels"),
    ],
    ids=str,
)
def test_settings_that_conflict_are_refused(settings: dict[str, Any], expected: str) -> None:
    assert expected in complaint(**settings)


def test_the_number_of_positions_is_accepted_if_positions_are_learned() -> None:
    assert ModelConfig(positions="learned", longest=2048).longest == 2048


def test_every_setting_has_a_kind() -> None:
    assert [field.name for field in fields(ModelConfig) if not field.metadata.get("kind")] == []


@pytest.mark.parametrize(
    ("settings", "kinds", "names"),
    [
        ({"width": 64}, ("shape",), ["width"]),
        ({"window": 3, "norm_epsilon": 1e-5}, ("use",), ["norm_epsilon", "window"]),
        ({"residual_dropout": 0.0, "attention_dropout": 0.5}, ("shape", "use"), []),
        ({"residual_dropout": 0.0}, ("training only",), ["residual_dropout"]),
        ({"heads": 4}, ("use",), ["heads", "d_k", "d_v"]),
        ({"key_width": 64}, ("use",), []),
        ({"decoder_heads": 8, "decoder_feed_forward": 2048}, ("shape", "use"), []),
        (
            {"decoder_heads": 4, "decoder_feed_forward": 512},
            ("use", "shape"),
            ["decoder_heads", "decoder_feed_forward"],
        ),
        ({"heads": 4, "decoder_heads": 8, "key_width": 64, "value_width": 64}, ("use",), ["heads"]),
    ],
    ids=str,
)
def test_disagreements_are_limited_to_kinds_of_settings(
    settings: dict[str, Any], kinds: tuple[Kind, ...], names: list[str]
) -> None:
    assert disagreements(ModelConfig(), replace(ModelConfig(), **settings), *kinds) == names


def test_a_shape_in_words_shows_both_stacks_where_they_differ() -> None:
    assert shape_in_words(ModelConfig()) == "6+6 layers, 512 wide, 8 heads, feed-forward 2048, norm post"
    apart = ModelConfig(encoder_layers=12, decoder_layers=1, decoder_heads=4, decoder_feed_forward=512)
    assert shape_in_words(apart) == "12+1 layers, 512 wide, 8+4 heads, feed-forward 2048+512, norm post"


def test_every_setting_has_a_meaning() -> None:
    from nmt_cli.training.config import TrainConfig

    meanings = {setting.name: setting.meaning for setting in describe(TrainConfig)}
    for name in ModelConfig.__slots__:
        assert len(meanings[f"model.{name}"]) > 10, name
