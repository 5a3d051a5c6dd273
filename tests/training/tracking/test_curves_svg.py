"""`nmt report` draws the curves of a run as SVG."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

from nmt_cli.training.tracking.curves_svg import write_curves
from tests.checks import refusal
from tests.training.runs import lines_of

GOLDEN = Path(__file__).parents[2] / "golden" / "run"


def texts_and_curves(svg: Path) -> tuple[list[str | None], list[list[str]]]:
    """Return the texts, and the points of each curve."""
    root = ElementTree.parse(svg).getroot()
    curves = [node.get("points", "").split() for node in root.findall(".//{*}polyline")]
    return [node.text for node in root.findall(".//{*}text")], curves


def test_the_command_draws_each_value_of_one_run(
    tmp_path: Path, nmt: Callable[..., CompletedProcess[str]]
) -> None:
    out = tmp_path / "curves.svg"
    done = nmt("report", GOLDEN, "--out", out)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"{out}: curves of {GOLDEN}\n")
    texts, curves = texts_and_curves(out)
    assert {"Training loss", "Validation loss", "Validation BLEU", "Step"} <= {*texts}
    validations = sum("valid" in line for line in lines_of(GOLDEN))
    assert [len(points) for points in curves] == [240, validations, validations]
    lows = [float(point.split(",")[1]) for point in curves[0]]
    assert lows[-1] > lows[0]  # the loss falls, so that its curve goes down
    refused = nmt("report", GOLDEN, GOLDEN, "--out", out)
    assert refused.returncode == 2
    assert "unexpected extra argument" in refused.stderr


def test_hostile_texts_damaged_lines_and_missing_values_are_drawn_safely(tmp_path: Path) -> None:
    lines = lines_of(GOLDEN)
    for line in lines:
        line |= {"nll": None} | ({"scored_on": "a<b"} if "valid" in line else {})
    texts = [json.dumps(line) for line in lines]
    (tmp_path / "log.jsonl").write_text("\n".join([*texts[:3], "[]", *texts[4:], '{"being": "writ']))
    write_curves(tmp_path, tmp_path / "curves.svg")
    shown, curves = texts_and_curves(tmp_path / "curves.svg")
    assert shown[0] == "Validation BLEU of a<b"
    assert len(curves) == 1


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "curves.svg"
    message = refusal(write_curves, GOLDEN, tmp_path / "page.html")
    assert f"must end in .svg. For a page about the run, see {GOLDEN}/report.html" in message
    shutil.copytree(GOLDEN, run, symlinks=True)
    (run / "log.jsonl").write_text("")
    assert "has no steps in log.jsonl" in refusal(write_curves, run, out)
    (run / "log.jsonl").unlink()
    os.mkfifo(run / "log.jsonl")
    assert "log.jsonl is not an " in refusal(write_curves, run, out)
    assert not out.exists()
