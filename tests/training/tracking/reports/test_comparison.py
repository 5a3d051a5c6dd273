"""A page that compares several run folders."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

import pytest

from nmt_cli.errors import Caution
from nmt_cli.training.tracking.reports.comparison import write_comparison
from tests.checks import refusal
from tests.training.runs import Go, content_of, lines_of

GOLDEN = Path(__file__).parents[3] / "golden" / "run"


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """Return a copy of the golden run."""
    return Path(shutil.copytree(GOLDEN, tmp_path / "run", symlinks=True))


@pytest.fixture
def runs(go: Go, tmp_path: Path) -> list[Path]:
    """Return two runs with different seeds. One of them has a validation."""
    folders = [tmp_path / "a" / "one", tmp_path / "b" / "one"]
    go("training.seed=1", "validation.every_steps=2", "validation.sentences=10", out=folders[0])
    go("training.seed=2", "training.max_steps=3", out=folders[1])
    return folders


def test_curves_scores_environment_and_differences_are_those_of_the_runs(
    runs: list[Path], tmp_path: Path
) -> None:
    write_comparison([*runs, GOLDEN], tmp_path / "page.html")
    content = content_of(tmp_path / "page.html")
    one, two, golden = content["runs"]
    assert [one["name"], two["name"], golden["name"]] == [*map(str, runs), "run"]
    assert [run["curves"]["step"] for run in (one, two)] == [[1, 2, 3, 4], [1, 2, 3]]
    judged = [line for line in lines_of(runs[0]) if "valid" in line]
    assert one["validations"][0]["scores"]["bleu"] == [float(f"{line['bleu']:.5g}") for line in judged]
    assert one["validations"][0]["scored_on"] == judged[0]["scored_on"] == "10 of 20 sentences"
    assert golden["validations"][0]["scored_on"] == ""
    assert two["validations"] == []
    assert golden["environment"]["torch"] == "2.13.0+cpu"
    assert golden["environment"]["command"].startswith("nmt train dataset --config")
    differing = {name: values for name, *values in content["differences"]}
    assert differing["training.seed"][:2] == ["1", "2"]
    assert "model.tie" not in differing


def test_a_folder_that_is_not_a_run_is_refused(runs: list[Path], tmp_path: Path) -> None:
    message = refusal(write_comparison, [runs[0], tmp_path], tmp_path / "page.html")
    assert "has no config.toml, so it is not a run folder" in message
    (runs[1] / "log.jsonl").write_text("")
    assert "has taken no step yet" in refusal(write_comparison, runs, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_the_command_writes_the_page(tmp_path: Path, nmt: Callable[..., CompletedProcess[str]]) -> None:
    done = nmt("report", GOLDEN, GOLDEN, "--out", tmp_path / "page.html")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"{tmp_path / 'page.html'}: 2 runs\n")
    assert len(content_of(tmp_path / "page.html")["runs"]) == 2


def test_curves_are_drawn_as_svg_with_a_legend_and_each_value(tmp_path: Path) -> None:
    run = Path(shutil.copytree(GOLDEN, tmp_path / "a<b", symlinks=True))
    write_comparison([run, GOLDEN], tmp_path / "curves.svg")
    svg = ElementTree.parse(tmp_path / "curves.svg").getroot()
    texts = [node.text for node in svg.findall(".//{*}text")]
    for text in ("Training loss", "Validation loss", "Validation BLEU", "Step", "a<b", "run"):
        assert text in texts
    lines = [node.get("points", "").split() for node in svg.findall(".//{*}polyline")]
    assert [len(points) for points in lines[:2]] == [240, 240]
    lows = [float(point.split(",")[1]) for point in lines[0]]
    assert lows[-1] > lows[0]  # the loss falls, so that its curve goes down


def test_drawings_of_another_kind_are_refused_with_the_way_to_make_them(tmp_path: Path) -> None:
    message = refusal(write_comparison, [GOLDEN], tmp_path / "curves.png")
    assert "must end in .html or .svg. Convert it with" in message


@pytest.mark.parametrize(
    "line",
    [b"{", b"\xff", b"[1]", b'{"step": 1}', b"[" * 100_000, b'{"step": 3, "target_tokens": null}', b"nul"],
    ids=["cut", "no text", "a list", "a step of nothing", "deep", "no number", "a cut word"],
)
def test_damaged_lines_of_a_log_are_counted_and_left_out(golden: Path, tmp_path: Path, line: bytes) -> None:
    lines = (golden / "log.jsonl").read_bytes().splitlines(keepends=True)
    message = json.loads(lines[3])
    wrong = json.dumps({**message, **json.loads(line)}).encode() if b"null" in line else line
    (golden / "log.jsonl").write_bytes(b"".join([*lines[:3], wrong + b"\n", *lines[4:], b'{"being": "writ']))
    (golden / "environment.jsonl").write_bytes(b'{"command": 3}\n[]\n\xff\n')
    with pytest.warns(Caution, match=r"log\.jsonl has 1 damaged lines, which are left out"):
        write_comparison([golden], tmp_path / "page.html")
    (content,) = content_of(tmp_path / "page.html")["runs"]
    assert content["step"] == 240
    assert content["environment"] == {}


def test_settings_that_are_not_toml_are_reported_with_their_file(golden: Path, tmp_path: Path) -> None:
    for content in (b"a = ", b"\xff\xfe", b"a = " + b"[" * 100_000):
        (golden / "config.toml").write_bytes(content)
        message = refusal(write_comparison, [golden], tmp_path / "page.html")
        assert "config.toml is not a TOML file" in message


@pytest.mark.parametrize("name", ["log.jsonl", "environment.jsonl"])
def test_a_file_that_is_not_ordinary_is_refused_without_blocking(
    golden: Path, tmp_path: Path, name: str
) -> None:
    (golden / name).unlink()
    os.mkfifo(golden / name)
    assert f"{name} is not an " in refusal(write_comparison, [golden], tmp_path / "page.html")
