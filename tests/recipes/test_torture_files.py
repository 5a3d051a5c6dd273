"""The mutations and the verdicts of the campaign against files, and a short campaign."""

import io
import json
import os
import pickle
import resource
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from recipes.torture.cases import GOLDEN, Case, nothing, printed
from recipes.torture.files import judged
from recipes.torture.forks import Completed
from recipes.torture.lines import line_of_any_kind
from recipes.torture.mutations import KINDS, RAN, SCARCE, Runs, agree, read_only

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs pidfd_open of Linux")

ROOT = GOLDEN.parent.parent


@pytest.mark.parametrize("kind", KINDS)
def test_a_mutation_is_reproducible_and_changes_one_file(tmp_path: Path, kind: str) -> None:
    contents = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        (folder / "other").write_bytes(b"other content")
        os.link(folder / "other", folder / "link to other")
        (folder / "file").write_bytes(b"some content")
        KINDS[kind](folder / "file", Random(5))
        assert (folder / "other").read_bytes() == (folder / "link to other").read_bytes() == b"other content"
        contents.append((folder / "file").read_bytes() if (folder / "file").is_file() else None)
    assert contents[0] == contents[1] != b"some content"


def test_the_hostile_pickle_runs_code_when_it_is_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pickle.load(io.BytesIO(pickle.dumps(Runs())))
    assert (tmp_path / RAN).exists()


def test_resource_limits_are_low_and_folders_become_read_only(tmp_path: Path) -> None:
    assert all(0 < limit < 200_000 for limits in SCARCE.values() for limit in limits(Random(3)).values())
    assert {*SCARCE["disk full"](Random(1))} == {resource.RLIMIT_FSIZE}
    (tmp_path / "inside").mkdir()
    read_only(tmp_path)
    assert {path.stat().st_mode & 0o222 for path in (tmp_path, tmp_path / "inside")} == {0}


def test_a_forged_model_has_correct_hashes(tmp_path: Path) -> None:
    from nmt_cli.checkpoints.model_folder import read_model

    folder = tmp_path / "model"
    subprocess.run(["cp", "-r", GOLDEN / "model", folder], check=True)
    metadata = json.loads((folder / "config.json").read_bytes())
    metadata["nmt"] = "another"
    (folder / "config.json").write_text(json.dumps(metadata))
    agree(folder)
    assert read_model(folder).description["nmt"] == "another"


@pytest.mark.parametrize(
    ("completed", "any_result", "outcome"),
    [
        (Completed(0, b"same", ""), False, "identical"),
        (Completed(0, b"other", ""), False, "wrong"),
        (Completed(0, b"other", ""), True, "identical"),
        (Completed(1, b"", "Error: config.json is damaged"), False, "clean"),
        (Completed(1, b"", "Error: a bug in nmt (KeyError: 'x')"), False, "wrong"),
        (Completed(1, b"", "Traceback (most recent call last):\nKeyError"), False, "wrong"),
        (Completed(1, b"", "Error: \x1b[2J is missing"), False, "wrong"),
        (Completed(-11, b"", ""), True, "wrong"),
        (Completed(None, b"", ""), True, "wrong"),
    ],
)
def test_a_command_with_a_damaged_file_gets_an_outcome(
    completed: Completed, any_result: bool, outcome: str
) -> None:
    case = Case("x", GOLDEN, "", nothing if any_result else printed, 1, any_result)
    assert judged(case, GOLDEN, completed, None if any_result else b"same", forged=False)[0] == outcome


def test_random_lines_contain_no_line_feed() -> None:
    lines = [line_of_any_kind(Random(number)) for number in range(300)]
    assert not any(b"\n" in line for line in lines)
    assert len({*lines}) > 200


def test_a_short_campaign_resumes_and_has_no_wrong_outcome(tmp_path: Path) -> None:
    outcomes = tmp_path / "outcomes.jsonl"
    outcomes.write_text(json.dumps([0, "cut", "`.json`", "clean", "from an earlier campaign"]) + "\n")
    command = [
        sys.executable,
        "-m",
        "recipes.torture.files",
        "--mutations",
        "17",
        "--outcomes",
        str(outcomes),
    ]
    command += [f"--case={name}" for name in ("model", "average", "reused", "scores", "settings")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("| all | 17 |")
    numbers = [json.loads(line)[0] for line in outcomes.read_text().splitlines()]
    assert numbers == [*range(17)]
