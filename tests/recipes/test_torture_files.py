"""The campaign against files: its mutations, its verdicts, and a slice of it."""

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
from recipes.torture.forks import Ended
from recipes.torture.lines import line_of_any_kind
from recipes.torture.mutations import KINDS, RAN, SCARCE, Runs, agree, read_only

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="waits for processes as Linux does")

ROOT = GOLDEN.parent.parent


@pytest.mark.parametrize("kind", KINDS)
def test_a_mutation_changes_the_file_the_same_way_each_time_and_no_other(tmp_path: Path, kind: str) -> None:
    seen = []
    for place in (tmp_path / "one", tmp_path / "other"):
        place.mkdir()
        (place / "kept").write_bytes(b"other content")
        os.link(place / "kept", place / "kept too")
        (place / "file").write_bytes(b"some content")
        KINDS[kind](place / "file", Random(5))
        assert (place / "kept").read_bytes() == (place / "kept too").read_bytes() == b"other content"
        seen.append((place / "file").read_bytes() if (place / "file").is_file() else None)
    assert seen[0] == seen[1] != b"some content"


def test_the_pickle_of_somebody_who_means_harm_would_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pickle.load(io.BytesIO(pickle.dumps(Runs())))
    assert (tmp_path / RAN).exists()


def test_scarce_things_are_limits_that_bite(tmp_path: Path) -> None:
    assert all(0 < most < 200_000 for limits in SCARCE.values() for most in limits(Random(3)).values())
    assert {*SCARCE["disk full"](Random(1))} == {resource.RLIMIT_FSIZE}
    (tmp_path / "inside").mkdir()
    read_only(tmp_path)
    assert {path.stat().st_mode & 0o222 for path in (tmp_path, tmp_path / "inside")} == {0}


def test_a_forger_makes_hashes_agree(tmp_path: Path) -> None:
    from nmt_cli.checkpoints.model_folder import read_model

    folder = tmp_path / "model"
    subprocess.run(["cp", "-r", GOLDEN / "model", folder], check=True)
    told = json.loads((folder / "config.json").read_bytes())
    told["nmt"] = "another"
    (folder / "config.json").write_text(json.dumps(told))
    agree(folder)
    assert read_model(folder).description["nmt"] == "another"


@pytest.mark.parametrize(
    ("ended", "any_result", "outcome"),
    [
        (Ended(0, b"same", ""), False, "identical"),
        (Ended(0, b"other", ""), False, "wrong"),
        (Ended(0, b"other", ""), True, "identical"),
        (Ended(1, b"", "Error: config.json is damaged"), False, "clean"),
        (Ended(1, b"", "Error: a bug in nmt (KeyError: 'x')"), False, "wrong"),
        (Ended(1, b"", "Traceback (most recent call last):\nKeyError"), False, "wrong"),
        (Ended(1, b"", "Error: \x1b[2J is missing"), False, "wrong"),
        (Ended(-11, b"", ""), True, "wrong"),
        (Ended(None, b"", ""), True, "wrong"),
    ],
)
def test_the_verdict_on_a_command(ended: Ended, any_result: bool, outcome: str) -> None:
    case = Case("x", GOLDEN, "", nothing if any_result else printed, 1, any_result)
    assert judged(case, GOLDEN, ended, None if any_result else b"same", forged=False)[0] == outcome


def test_lines_of_any_kind_have_no_end_in_them() -> None:
    lines = [line_of_any_kind(Random(number)) for number in range(300)]
    assert not any(b"\n" in line for line in lines)
    assert len({*lines}) > 200


def test_a_slice_of_the_campaign_finds_nothing_wrong_and_goes_on_where_it_was(tmp_path: Path) -> None:
    kept = tmp_path / "found.jsonl"
    kept.write_text(json.dumps([0, "cut", "`.json`", "clean", "found before"]) + "\n")
    command = [sys.executable, "-m", "recipes.torture.files", "--mutations", "17", "--kept", str(kept)]
    command += [f"--case={name}" for name in ("model", "average", "reused", "scores", "settings")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("| all | 17 |")
    numbers = [json.loads(line)[0] for line in kept.read_text().splitlines()]
    assert numbers == [*range(17)]
