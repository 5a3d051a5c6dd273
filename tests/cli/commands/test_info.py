"""`nmt info`: the description of each kind of folder."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from nmt_cli.checkpoints.average import average
from nmt_cli.checkpoints.model_folder import read_model, weights, write_model, write_shortlist
from nmt_cli.text.shortlist import shortlist_of
from nmt_cli.text.tokenizers import load_tokenizers
from tests.cli.conftest import Nmt, assert_one_line

GOLDEN = Path(__file__).parents[2] / "golden"


def described(result: CompletedProcess[str]) -> dict[str, str]:
    assert (result.returncode, result.stderr) == (0, "")
    rows = (line.partition("  ") for line in result.stdout.splitlines())
    return {name.strip(): value.strip() for name, _, value in rows}


def test_a_dataset_is_described_with_its_sizes(nmt: Nmt) -> None:
    assert described(nmt("info", GOLDEN / "dataset")) == {
        "kind": "dataset folder",
        "languages": "en -> de",
        "subwords": "bpe, 96 entries, joint",
        "train": "150 pairs, 1,633 source and 1,624 target tokens",
        "valid": "10 pairs, 121 source and 123 target tokens (valid)",
    }


def test_the_corpora_of_a_dataset_are_described_with_their_tags(
    nmt: Nmt, tmp_path: Path, make: Callable[..., object], toy: str
) -> None:
    tables = f'{{name="real", path="{toy}"}}, {{name="made", path="{toy}", tag="<BT>"}}'
    make(tmp_path / "out", (), f"corpus.named=[{tables}]")
    facts = described(nmt("info", tmp_path / "out"))
    assert (facts["corpora"], facts["languages"]) == ("real 300, made 300 (<BT>)", "en -> de")


def test_the_languages_of_a_model_are_described(nmt: Nmt, made_models: Path) -> None:
    assert described(nmt("info", made_models / "tagged"))["languages"] == "en -> de, fr, es"


def test_the_usual_direction_of_a_model_of_several_languages_is_described(
    nmt: Nmt, made_models: Path, tmp_path: Path
) -> None:
    folder = made_models / "tagged"
    assert "without languages" not in described(nmt("info", folder))  # each line needs a tag
    directed = load_tokenizers(folder / "tokenizer").directed("en", "fr").described_anew()
    identity = replace(read_model(folder).identity, tokenizers=directed)
    (tmp_path / "french").mkdir()
    write_model(tmp_path / "french", identity, weights(read_model(folder).transformer), {})
    assert described(nmt("info", tmp_path / "french"))["without languages"] == "en -> fr"


def test_the_search_settings_and_the_shortlist_of_a_model_are_described(nmt: Nmt, tmp_path: Path) -> None:
    model = read_model(GOLDEN / "model")
    tensors, tokenizers = weights(model.transformer), model.identity.tokenizers
    write_model(tmp_path, model.identity, tensors, {"search": {"beam": 6, "unknown": False}})
    write_shortlist(tmp_path, shortlist_of([[1, 2]] * 96), tokenizers)
    facts = described(nmt("info", tmp_path))
    assert facts["search"] == "beam 6, unknown False"
    assert facts["shortlist"] == "2.0 entries for a source token"


MODEL = {
    "languages": "en -> de",
    "model": "1+1 layers, 24 wide, 2 heads, feed-forward 48, norm post; 14,208 parameters",
    "subwords": "bpe, 96 entries, joint",
    "trained on": "train (150 pairs)",
}


def test_a_model_is_described_with_its_shape_and_averaged_steps(nmt: Nmt) -> None:
    facts = described(nmt("info", GOLDEN / "model"))
    assert facts == {"kind": "model folder", **MODEL, "average of": "steps 240"}


def test_an_average_of_averages_is_described_with_their_number(nmt: Nmt, tmp_path: Path) -> None:
    other = shutil.copytree(GOLDEN / "model", tmp_path / "other")
    average([GOLDEN / "model", other], tmp_path / "mean")
    assert described(nmt("info", tmp_path / "mean"))["average of"] == "2 models"


def test_a_run_is_described_with_its_progress_and_best_checkpoint(nmt: Nmt) -> None:
    facts = described(nmt("info", GOLDEN / "run"))
    assert facts.items() >= {"kind": "run folder", **MODEL}.items()
    assert facts["step"].startswith("240 of 240, epoch 40, ")
    assert facts["checkpoints"] == "1, of step 240; best: step-00000240"
    assert "bleu 1.72" in facts["validated"]


def test_scores_of_a_run_and_of_its_checkpoint_say_on_how_many_sentences(nmt: Nmt, tmp_path: Path) -> None:
    run = shutil.copytree(GOLDEN / "run", tmp_path / "run", symlinks=True)
    settings = (run / "config.toml").read_text(encoding="utf-8")
    (run / "config.toml").write_text(re.sub(r"(?m)^sentences = \d+$", "sentences = 5", settings))
    for folder, kind in ((run, "run folder"), (run / "last", "checkpoint folder")):
        facts = described(nmt("info", folder))
        assert facts["kind"] == kind
        assert facts["validated"].endswith(" (BLEU and chrF on up to 5 sentences)")


def test_a_run_without_checkpoints_is_described(nmt: Nmt, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").touch()
    assert described(nmt("info", tmp_path)) == {"kind": "run folder", "checkpoints": "none yet"}


def test_a_model_of_another_toolkit_is_described(nmt: Nmt, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "marian"}))
    shown = described(nmt("info", tmp_path))
    assert shown["kind"] == "a model of Hugging Face, not of nmt"
    assert shown["to use it"] == f"Convert it: nmt import {tmp_path} --out MODEL."


def test_unknown_files_and_folders_are_refused(nmt: Nmt, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"eins\n")
    for path in (tmp_path, tmp_path / "text"):
        assert_one_line(nmt("info", path), 1, "is not a dataset, run, checkpoint or model folder")


@pytest.mark.parametrize(
    ("folder", "name", "entry", "value"),
    [
        ("model", "config.json", "averaged", [3]),
        ("model", "config.json", "trained_on", {"inputs": "x"}),
        ("run/checkpoints/step-00000240", "state.json", "judged", [[]]),
        ("run/checkpoints/step-00000240", "state.json", "seconds", 10**400),
    ],
)
def test_a_forged_description_is_named(
    nmt: Nmt, tmp_path: Path, folder: str, name: str, entry: str, value: object
) -> None:
    forged = Path(shutil.copytree(GOLDEN / folder, tmp_path / Path(folder).name))
    content = json.loads((forged / name).read_bytes())
    del content["sha256"]
    content[entry] = value
    content["sha256"] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    (forged / name).write_text(json.dumps(content))
    result = nmt("info", forged)
    assert_one_line(result, 1, f"Error: {forged}")
    assert "bug in nmt" not in result.stderr
