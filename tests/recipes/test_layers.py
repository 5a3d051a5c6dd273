"""What the comparison of layers makes of times, and the picture of them; nothing is timed here."""

from xml.etree import ElementTree

import pytest
import torch

from recipes.benchmarks import layers
from recipes.benchmarks.curves import Axis, Look, Panel, picture


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5, 2.0])
def test_the_exponent_of_a_power_law_is_found(exponent: float) -> None:
    assert layers.slope([(n, 0.3 * n**exponent) for n in (64, 128, 256, 512)]) == pytest.approx(exponent)


def test_where_curves_cross_is_found_between_the_points_that_were_timed() -> None:
    lengths = (32, 64, 128, 256, 512)
    assert layers.crossing([(n, n**2, 100 * n) for n in lengths]) == "100"
    assert layers.crossing([(n, n**2, n) for n in lengths]) == "below 32"
    assert layers.crossing([(n, n**2, 1000 * n) for n in lengths]) == "beyond 512"


@torch.inference_mode()
def test_both_ways_to_restrict_attention_agree() -> None:
    assert 0 < layers._difference(torch.device("cpu")) < layers.TOLERANCE


def test_the_picture_holds_every_curve_of_every_panel_at_its_place() -> None:
    curves = [("<straight> & linear", [(16.0, 1.0), (64.0, 10.0)]), ("steep", [(16.0, 1.0), (64.0, 100.0)])]
    looks = {"<straight> & linear": Look(0), "steep": Look(1, stroke=1)}
    panels = [Panel(f"d = {d}", curves, mark=d, mark_label="n = d") for d in (32, 1024)]
    tree = ElementTree.fromstring(picture(panels, looks, Axis("n", 4), Axis("ms", 10)))
    lines = [line for line in tree.iter() if line.tag.endswith("polyline")]
    places = [[tuple(map(float, p.split(","))) for p in line.attrib["points"].split()] for line in lines]
    assert len(places) == 4
    (left, bottom), (right, middle) = places[0]
    assert places[1] == [(left, bottom), (right, pytest.approx(2 * middle - bottom, abs=0.2))]
    assert [line[0].text for line in lines[:2]] == [name for name, _ in curves]
    marks = [text for text in tree.iter() if text.text == "n = d"]
    assert len(marks) == 1  # 1024 lies beyond the axis
