"""The presets of the package, and the models of the paper's Table 3."""

from dataclasses import asdict, replace
from typing import Any

import pytest
import torch

from nmt_cli.config import preset_names, preset_path, read
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.cost import parameters
from nmt_cli.training.config import TrainConfig
from tests.model.models import model_of

JOINT = 37_000

IMPLIED = 41_000
"""Vocabulary size that the parameters in the paper's Table 3 imply, except for the big model."""


def preset(name: str) -> ModelConfig:
    return read(TrainConfig, preset=preset_path(name)).model


def size(config: ModelConfig, vocabulary: int = JOINT) -> int:
    with torch.device("meta"):
        return parameters(model_of(config, vocabulary))


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_builds(name: str) -> None:
    config = preset(name)
    with torch.device("meta"):
        model = model_of(config, 100)
    assert (len(model.encoder), len(model.decoder)) == (config.encoder_layers, config.decoder_layers)


SHAPES = [
    ("vaswani2017-base", 6, 512, 2048, 8, 64, "all", 0.1, "smaller"),
    ("vaswani2017-big", 6, 1024, 4096, 16, 64, "all", 0.3, "smaller"),
    ("small", 3, 256, 1024, 4, 64, "all", 0.1, "smaller"),
    ("tiny", 4, 128, 256, 4, 32, "all", 0.3, "smaller"),
    ("iwslt14", 6, 512, 1024, 4, 128, "decoder", 0.3, "smaller"),
    ("parsing", 4, 1024, 2048, 8, 128, "none", 0.2, "xavier"),
    ("marian-base", 6, 512, 2048, 8, 64, "all", 0.1, "xavier"),
    ("t2t-base", 6, 512, 2048, 8, 64, "all", 0.1, "xavier"),
    ("t2t-big", 6, 1024, 4096, 16, 64, "all", 0.3, "xavier"),
]


DEEP = {"deep-12-1": 1, "deep-12-2": 2}


def test_the_package_has_these_presets() -> None:
    assert preset_names() == sorted([*DEEP, *(name for name, *_ in SHAPES)])


@pytest.mark.parametrize(("name", "decoder_layers"), DEEP.items())
def test_a_deep_preset_is_the_base_model_with_other_depths_and_pre_norm(
    name: str, decoder_layers: int
) -> None:
    base = read(TrainConfig, preset=preset_path("vaswani2017-base"))
    deep = read(TrainConfig, preset=preset_path(name))
    expected = replace(base.model, norm="pre", encoder_layers=12, decoder_layers=decoder_layers)
    assert deep == replace(base, model=expected)


@pytest.mark.parametrize(("name", "layers", "width", "inner", "heads", "head", "tie", "drop", "init"), SHAPES)
def test_a_preset_has_its_published_shape_and_initialisation(
    name: str, layers: int, width: int, inner: int, heads: int, head: int, tie: str, drop: float, init: str
) -> None:
    config = preset(name)
    assert (config.encoder_layers, config.decoder_layers) == (layers, layers)
    assert (config.width, config.feed_forward, config.heads) == (width, inner, heads)
    assert (config.d_k, config.d_v, config.tie, config.init) == (head, head, tie, init)
    assert config.residual_dropout == drop


@pytest.mark.parametrize("name", ["vaswani2017-base", "vaswani2017-big", "small", "tiny"])
def test_the_papers_presets_follow_the_paper_and_not_later_code(name: str) -> None:
    config = preset(name)
    assert (config.norm, config.norm_epsilon, config.activation) == ("post", 1e-6, "relu")
    assert (config.positions, config.attention_bias) == ("sinusoidal", False)
    assert (config.attention_dropout, config.activation_dropout) == (0, 0)
    assert config.window == 0


@pytest.mark.parametrize("kind", ["base", "big"])
def test_tensor2tensors_later_models_differ_only_in_norm_dropout_and_initialisation(kind: str) -> None:
    later, paper = asdict(preset(f"t2t-{kind}")), asdict(preset(f"vaswani2017-{kind}"))
    assert {name: value for name, value in later.items() if value != paper[name]} == {
        "norm": "pre",
        "init": "xavier",
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
    }


def test_the_parsing_model_has_attention_dropout() -> None:
    assert (preset("parsing").attention_dropout, preset("parsing").activation_dropout) == (0.2, 0)


# Row of Table 3, changed settings, difference of parameters to the base model, the paper's in millions.
TABLE_3: list[tuple[str, dict[str, Any], int, int | None]] = [
    ("A 1", {"heads": 1}, 0, None),
    ("A 4", {"heads": 4}, 0, None),
    ("A 16", {"heads": 16}, 0, None),
    ("A 32", {"heads": 32}, 0, None),
    ("B 16", {"key_width": 16}, -18 * 2 * 512 * 8 * (64 - 16), 58 - 65),
    ("B 32", {"key_width": 32}, -18 * 2 * 512 * 8 * (64 - 32), 60 - 65),
    ("C N 2", {"encoder_layers": 2, "decoder_layers": 2}, -4 * 7_350_272, 36 - 65),
    ("C N 4", {"encoder_layers": 4, "decoder_layers": 4}, -2 * 7_350_272, 50 - 65),
    ("C N 8", {"encoder_layers": 8, "decoder_layers": 8}, 2 * 7_350_272, 80 - 65),
    ("C d 256", {"width": 256}, 26_816_512 - 63_045_632, None),
    ("C d 1024", {"width": 1024}, 163_815_424 - 63_045_632, None),
    ("C ff 1024", {"feed_forward": 1024}, -12 * (2 * 512 + 1) * 1024, 53 - 65),
    ("C ff 4096", {"feed_forward": 4096}, 12 * (2 * 512 + 1) * 2048, 90 - 65),
    ("D 0.0", {"residual_dropout": 0.0}, 0, None),
    ("D 0.2", {"residual_dropout": 0.2}, 0, None),
    ("E", {"positions": "learned"}, 2 * 1024 * 512, None),
]


@pytest.mark.parametrize(("row", "settings", "more", "papers"), TABLE_3, ids=[row[0] for row in TABLE_3])
def test_a_row_of_table_3_is_the_base_model_with_one_or_two_settings_changed(
    row: str, settings: dict[str, Any], more: int, papers: int | None
) -> None:
    assert len(settings) <= 2
    base = preset("vaswani2017-base")
    difference = size(replace(base, **settings)) - size(base)
    assert difference == more
    assert papers is None or abs(difference / 1e6 - papers) < 1  # the paper rounds both numbers to millions


@pytest.mark.parametrize(("width", "papers"), [(256, 28), (512, 65), (1024, 168)])
def test_models_of_other_widths_have_the_papers_number_of_parameters(width: int, papers: int) -> None:
    config = replace(preset("vaswani2017-base"), width=width)
    assert round(size(config, IMPLIED) / 1e6) == papers


def test_the_base_model_has_the_parameters_of_its_matrices_and_norms() -> None:
    attention, norm, feed_forward = 4 * 512 * 512, 2 * 512, 2 * 512 * 2048 + 2048 + 512
    one_of_each = 3 * attention + 5 * norm + 2 * feed_forward
    assert one_of_each == 7_350_272
    assert size(preset("vaswani2017-base")) == 6 * one_of_each + JOINT * 512 == 63_045_632


def test_the_big_model_has_the_parameters_of_its_matrices_and_norms() -> None:
    attention, norm, feed_forward = 4 * 1024**2, 2 * 1024, 2 * 1024 * 4096 + 4096 + 1024
    expected = 6 * (3 * attention + 5 * norm + 2 * feed_forward) + JOINT * 1024
    assert size(preset("vaswani2017-big")) == expected
    assert abs(size(preset("vaswani2017-big"), 36_000) / 1e6 - 213) < 1
