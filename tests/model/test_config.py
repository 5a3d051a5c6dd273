"""The settings of a model, and what a user is told of wrong ones."""

from dataclasses import fields, replace
from typing import Any

import pytest

from nmt_cli.config import Kind, describe
from nmt_cli.errors import UserError
from nmt_cli.model.config import ModelConfig, disagreements


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
    assert (config.residual_dropout, config.embedding_dropout) == (0.1, 0.1)
    assert (config.attention_dropout, config.activation_dropout) == (0, 0)
    assert (config.encoder_window, config.decoder_window) == (0, 0)


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


@pytest.mark.parametrize(
    "name", ["encoder_layers", "decoder_layers", "width", "feed_forward", "heads", "longest"]
)
@pytest.mark.parametrize("size", [0, -2])
def test_a_size_of_nothing_is_refused_by_name_and_value(name: str, size: int) -> None:
    assert f"{name} is {size}" in complaint(**{name: size})


@pytest.mark.parametrize("name", ["key_width", "value_width", "encoder_window", "decoder_window"])
def test_a_size_that_may_be_0_is_refused_below(name: str) -> None:
    assert f"{name} is -1" in complaint(**{name: -1})


@pytest.mark.parametrize(
    "name", ["residual_dropout", "embedding_dropout", "attention_dropout", "activation_dropout"]
)
@pytest.mark.parametrize("value", [-0.1, 1.0, 1.5])
def test_a_dropout_out_of_range_is_refused_with_its_range(name: str, value: float) -> None:
    message = complaint(**{name: value})
    assert f"{name} is {value}" in message
    assert "at least 0 and less than 1" in message


@pytest.mark.parametrize("value", [-1e-6])
def test_an_epsilon_that_makes_no_norm_is_refused(value: float) -> None:
    assert f"norm_epsilon is {value}" in complaint(norm_epsilon=value)


def test_all_invalid_sizes_are_reported_at_once() -> None:
    message = complaint(width=0, heads=-1, encoder_window=-5)
    for part in ("width is 0", "heads is -1", "encoder_window is -5"):
        assert part in message


@pytest.mark.parametrize("widths", [{}, {"key_width": 40}, {"value_width": 40}], ids=str)
def test_a_width_that_is_not_a_multiple_of_the_heads_is_refused_with_a_remedy(widths: dict[str, int]) -> None:
    message = complaint(width=512, heads=12, **widths)
    assert "512" in message
    assert "12" in message
    assert "key_width and value_width" in message


def test_an_odd_width_is_refused() -> None:
    assert "width is 33" in complaint(width=33, heads=3)


def test_the_number_of_learned_positions_is_refused_where_none_are_learned() -> None:
    """A setting that would have no effect is an error."""
    assert "longest" in complaint(positions="sinusoidal", longest=2048)
    assert ModelConfig(positions="learned", longest=2048).longest == 2048


def test_marians_positions_need_two_waves_and_learned_ones_begin_nowhere_else() -> None:
    assert "width is 2" in complaint(width=2, heads=1, positions="marian")
    assert "first_position" in complaint(positions="learned", first_position=2)
    assert "longest" in complaint(positions="marian", longest=2048)


def test_an_ssru_has_no_window() -> None:
    assert "decoder_window" in complaint(decoder_history="ssru", decoder_window=3)


def test_every_setting_has_a_kind() -> None:
    assert [field.name for field in fields(ModelConfig) if not field.metadata.get("kind")] == []


@pytest.mark.parametrize(
    ("settings", "kinds", "names"),
    [
        ({"width": 64}, ("shape",), ["width"]),
        ({"decoder_window": 3, "norm_epsilon": 1e-5}, ("use",), ["norm_epsilon", "decoder_window"]),
        ({"residual_dropout": 0.0, "attention_dropout": 0.5}, ("shape", "use"), []),
        ({"residual_dropout": 0.0}, ("training only",), ["residual_dropout"]),
        ({"heads": 4}, ("use",), ["heads", "d_k", "d_v"]),
        ({"key_width": 64}, ("use",), []),
    ],
    ids=str,
)
def test_disagreements_are_limited_to_kinds_of_settings(
    settings: dict[str, Any], kinds: tuple[Kind, ...], names: list[str]
) -> None:
    assert disagreements(ModelConfig(), replace(ModelConfig(), **settings), *kinds) == names


def test_every_setting_has_a_meaning() -> None:
    from nmt_cli.training.config import TrainConfig

    meanings = {setting.name: setting.meaning for setting in describe(TrainConfig)}
    for name in ModelConfig.__slots__:
        assert len(meanings[f"model.{name}"]) > 10, name
