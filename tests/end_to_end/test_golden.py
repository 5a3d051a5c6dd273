"""What the first version wrote goes on working: its dataset, its run and its model."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

GOLDEN = Path(__file__).parent.parent / "golden"
MADE_BY = ("nmt",)
"""What may differ in a manifest that is made anew."""


def test_the_same_corpus_still_makes_the_same_dataset_byte_for_byte(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    nmt: Callable[..., CompletedProcess[str]],
    digests: Callable[[Path], dict[str, str]],
) -> None:
    monkeypatch.chdir(GOLDEN)
    done = nmt(
        *("preprocess", "--source-lang", "en", "--target-lang", "de", "--tokenizer", "bpe"),
        *("--vocab-size", 96, "--set", "text.words=raw", "--workers", 1),
        *("--set", "filter.decontaminate=false"),  # they have pairs in common
        *("--train", "corpus/train", "--valid", "corpus/valid", "--out", tmp_path / "dataset"),
    )
    assert done.returncode == 0, done.stderr
    ours, theirs = digests(tmp_path / "dataset"), digests(GOLDEN / "dataset")
    # Its page came later.
    del ours["dataset.json"], theirs["dataset.json"], ours["filter-report.html"]
    assert ours == theirs
    manifests = [
        json.loads((place / "dataset.json").read_bytes())
        for place in (tmp_path / "dataset", GOLDEN / "dataset")
    ]
    for manifest in manifests:
        for name in MADE_BY:
            manifest.pop(name)
        manifest["files"].pop("filter-report.html", None)
    settings, known = (manifest.pop("settings") for manifest in manifests)
    assert manifests[0] == manifests[1]
    assert known["tokenizer"].pop("seed") == 1  # removed since
    for section, values in known.items():  # later versions have more
        assert {key: settings[section][key] for key in values} == values


def test_what_an_older_version_made_of_a_corpus_is_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nmt: Callable[..., CompletedProcess[str]]
) -> None:
    monkeypatch.chdir(shutil.copytree(GOLDEN, tmp_path / "golden", symlinks=True))
    done = nmt(
        *("preprocess", "--source-lang", "en", "--target-lang", "de", "--tokenizer", "bpe"),
        *("--vocab-size", 96, "--set", "text.words=raw", "--workers", 1),
        *("--train", "corpus/train", "--valid", "corpus/valid", "--out", "dataset"),
    )
    assert (done.returncode, "is up to date" in done.stderr) == (0, True), done.stderr


def test_an_old_run_goes_on_where_it_stood(tmp_path: Path, nmt: Callable[..., CompletedProcess[str]]) -> None:
    run = tmp_path / "run"
    shutil.copytree(GOLDEN / "run", run, symlinks=True)
    done = nmt(
        *("train", GOLDEN / "dataset", "--config", GOLDEN / "train.toml", "--out", run, "--device", "cpu"),
        *("--batch-tokens", 300, "--max-steps", 244, "--save-every", 120, "--validate-every", 120),
    )
    assert done.returncode == 0, done.stderr
    assert "resuming from step 240" in done.stderr
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "valid" not in line]
    assert [line["step"] for line in steps] == list(range(1, 245))
    expected = [json.loads(line) for line in (GOLDEN / "continued.jsonl").read_text().splitlines()]
    for line, before in zip(steps[240:], expected, strict=True):
        assert line["target_tokens"] == before["target_tokens"]
        assert line["loss"] == pytest.approx(before["loss"], rel=1e-3)


@pytest.mark.parametrize("kind", ["model", "run"])
def test_an_old_model_translates_as_it_did(
    kind: str, tmp_path: Path, nmt: Callable[..., CompletedProcess[str]]
) -> None:
    out = tmp_path / "translations"
    source = GOLDEN / "corpus" / "valid.en"
    done = nmt(
        "translate", GOLDEN / kind, "--input", source, "--output", out, "--device", "cpu", "--threads", 1
    )
    assert done.returncode == 0, done.stderr
    assert out.read_text() == (GOLDEN / "translations.txt").read_text()
