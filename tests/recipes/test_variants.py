"""The comparison of ways of training: statistics, logs and the picture."""

import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from recipes.benchmarks.charts import charts
from recipes.benchmarks.variants import curve, p_value, read_fairseq


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [  # scipy.stats.ttest_ind(one, other, equal_var=False)
        ([1.0, 2.0, 3.0], [2.0, 3.5, 4.1], 0.2315),
        ([5.1, 5.0, 5.2], [4.0, 4.1, 4.3], 0.0015),
        ([1.0, 1.1], [1.05, 1.06, 1.04], 1.0),
    ],
)
def test_p_values_are_those_of_welchs_test(one: list[float], other: list[float], expected: float) -> None:
    assert p_value(one, other) == pytest.approx(expected, abs=2e-4)


def test_fairseqs_losses_are_read_in_nats(tmp_path: Path) -> None:
    lines = (
        '2026-01-01 00:00:00 | INFO | train_inner | {"loss": "9", "num_updates": "100"}\n'
        '2026-01-01 00:00:01 | INFO | valid | {"valid_nll_loss": "2", "valid_num_updates": "100"}\n'
    )
    (tmp_path / "printed").write_text(lines)
    assert read_fairseq(tmp_path / "printed") == {"100": pytest.approx(2 * math.log(2))}


def test_losses_between_validations_are_interpolated() -> None:
    assert curve([{"nll": {"100": 4.0, "200": 3.0}}], [100, 150, 300]) == [[4.0, 3.5, 3.0]]


def test_the_picture_has_one_line_per_variant_and_chart() -> None:
    lines = {"a": [(1.0, 9.0), (2.0, 3.0)], "b": [(1.0, 8.0), (2.0, 4.0)]}
    root = ElementTree.fromstring(charts({"one": lines, "two": lines}))
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) == 4
