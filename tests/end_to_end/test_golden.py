"""The dataset, the run and the model that the first version wrote still work."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from nmt_cli.removed_settings import REMOVED

GOLDEN = Path(__file__).parent.parent / "golden"


def test_the_corpus_still_gives_the_same_dataset(
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
    new, old = digests(tmp_path / "dataset"), digests(GOLDEN / "dataset")
    del new["dataset.json"], old["dataset.json"], new["filter-report.html"]  # the page is newer
    assert new == old
    folders = (tmp_path / "dataset", GOLDEN / "dataset")
    manifests = [json.loads((folder / "dataset.json").read_bytes()) for folder in folders]
    for manifest in manifests:
        del manifest["nmt"]
        manifest["files"].pop("filter-report.html", None)
    settings, old_settings = (manifest.pop("settings") for manifest in manifests)
    assert manifests[0] == manifests[1]
    for name in REMOVED.keys() & {f"{part}.{key}" for part in old_settings for key in old_settings[part]}:
        section, key = name.split(".")
        assert old_settings[section].pop(key) == REMOVED[name].meant
    for section, values in old_settings.items():  # later versions have more settings
        assert {key: settings[section][key] for key in values} == values


def test_a_dataset_of_an_older_version_is_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nmt: Callable[..., CompletedProcess[str]]
) -> None:
    monkeypatch.chdir(shutil.copytree(GOLDEN, tmp_path / "golden", symlinks=True))
    done = nmt(
        *("preprocess", "--source-lang", "en", "--target-lang", "de", "--tokenizer", "bpe"),
        *("--vocab-size", 96, "--set", "text.words=raw", "--workers", 1),
        *("--train", "corpus/train", "--valid", "corpus/valid", "--out", "dataset"),
    )
    assert (done.returncode, "is up to date" in done.stderr) == (0, True), done.stderr


def test_a_run_of_an_older_version_resumes(tmp_path: Path, nmt: Callable[..., CompletedProcess[str]]) -> None:
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
    for line, old_line in zip(steps[240:], expected, strict=True):
        assert line["target_tokens"] == old_line["target_tokens"]
        assert line["loss"] == pytest.approx(old_line["loss"], rel=1e-3)


@pytest.mark.parametrize("kind", ["model", "run"])
def test_a_model_of_an_older_version_gives_the_same_translations(
    kind: str, tmp_path: Path, nmt: Callable[..., CompletedProcess[str]]
) -> None:
    out = tmp_path / "translations"
    source = GOLDEN / "corpus" / "valid.en"
    done = nmt(
        "translate", GOLDEN / kind, "--input", source, "--output", out, "--device", "cpu", "--threads", 1
    )
    assert done.returncode == 0, done.stderr
    assert out.read_text() == (GOLDEN / "translations.txt").read_text()
