"""The comparison of ways of training: statistics, logs and the picture."""

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest

from recipes.benchmarks.charts import charts
from recipes.benchmarks.variants import FAIRSEQ, FIRST, VARIANTS, curve, main, p_value, read_fairseq


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


RUN = {"updates": 200, "tokens": 1000, "more": [], "seconds": 20.0}
LOSSES = {FIRST: [(3.0, 2.0), (3.1, 2.1)], "Muon": [(2.5, 1.5), (2.6, 1.7)]}


def test_finished_runs_are_shown_again_and_runs_of_another_length_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "complete").touch()
    with (tmp_path / "results.jsonl").open("w") as file:
        for name, seeds in LOSSES.items():
            for seed, (early, late) in enumerate(seeds, 1):
                nll = {"100": early, "200": late}
                file.write(json.dumps({"variant": name, "seed": seed, "nll": nll, **RUN}) + "\n")
    command = f"--out {tmp_path} --variants Muon --seeds 1 --seeds 2 --tokens 1000 --updates".split()
    main([*command, "200"], standalone_mode=False)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("| Muon | 2 | ") and "| 4.98 ± 0.70 | 0.092 | 100 | 4.98 ± 0.70 | 0.092 |" in last
    assert (tmp_path / "variants.svg").exists()
    with pytest.raises(click.ClickException, match="has runs with other --updates, --tokens or"):
        main([*command, "300"], standalone_mode=False)


def test_the_picture_has_one_line_per_variant_and_chart() -> None:
    names = [*VARIANTS, FAIRSEQ]
    lines = {name: [(1.0, 9.0 + number), (2.0, 3.0)] for number, name in enumerate(names)}
    root = ElementTree.fromstring(charts({"one": lines, "two": lines}))
    polylines = list(root.iter("{http://www.w3.org/2000/svg}polyline"))
    assert len(polylines) == 2 * len(names)
    assert len({line.get("stroke") for line in polylines}) == len(names)
