"""COMET folders: what is read, and how what does not fit is refused."""

import os
import shutil
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli.errors import UserError
from nmt_cli.scoring.neural.comet import Comet
from nmt_cli.scoring.neural.folder import read_comet
from tests.scoring.neural.conftest import write_comet
from tests.scoring.neural.models import OPTIONS

Change = Callable[[Path], Any]


def edited(file: str, old: str, new: str) -> Change:
    return lambda folder: (folder / file).write_text((folder / file).read_text().replace(old, new))


def saved(**changes: Any) -> Change:
    """Return a change of the checkpoint: a value of None removes an entry, and a dict updates an entry."""

    def change(folder: Path) -> None:
        path = folder / "checkpoints/model.ckpt"
        content = torch.load(path, weights_only=True)
        for name, value in changes.items():
            content[name] = {**content[name], **value} if isinstance(value, dict) else value
        torch.save(content, path)

    return change


def tensor(name: str, value: Any) -> Change:
    return saved(state_dict={name: value})


WORDS = "encoder.model.embeddings.word_embeddings.weight"

REFUSED: dict[str, tuple[Change, str]] = {
    "another folder": (lambda folder: (folder / "hparams.yaml").unlink(), "has no hparams.yaml"),
    "no checkpoint": (lambda folder: shutil.rmtree(folder / "checkpoints"), "has no checkpoints/model.ckpt"),
    "another class": (
        edited("hparams.yaml", "regression_metric", "ranking_metric"),
        "is ranking_metric, but",
    ),
    "no class": (edited("hparams.yaml", "class_identifier", "class"), "class_identifier is missing"),
    "damaged": (
        lambda folder: os.truncate(folder / "checkpoints/model.ckpt", 999),
        "not a complete zip archive",
    ),
    "another kind of checkpoint": (saved(hyper_parameters=None), "not a checkpoint of COMET"),
    "another encoder": (saved(hyper_parameters={"encoder_model": "MiniLM"}), "encoder_model is MiniLM"),
    "no tokeniser": (
        lambda folder: (folder / "sentencepiece.bpe.model").unlink(),
        "lacks config.json and sentence",
    ),
    "damaged tokeniser": (
        lambda folder: (folder / "sentencepiece.bpe.model").write_bytes(b"x"),
        "not a SentencePiece model",
    ),
    "another configuration": (edited("config.json", '"gelu"', '"relu"'), "is not the configuration of XLM"),
    "wrong heads": (
        edited("config.json", '"num_attention_heads": 4', '"num_attention_heads": 5'),
        "don't fit",
    ),
    "not finite": (tensor("estimator.ff.0.bias", torch.full((24,), torch.nan)), "finite numbers"),
    "a huge view": (tensor("estimator.ff.0.weight", torch.zeros(1).expand(1 << 40, 32)), "not an ordinary"),
    "sparse": (tensor("estimator.ff.0.weight", torch.eye(24).to_sparse()), "not an ordinary"),
    "another width": (tensor("estimator.ff.0.weight", torch.zeros(24, 33)), "don't fit"),
    "two outputs": (tensor("estimator.ff.6.weight", torch.zeros(2, 16)), "don't fit"),
    "too few words": (tensor(WORDS, torch.zeros(9, 32)), "tokeniser has more pieces"),
    "an unknown activation": (saved(hyper_parameters={"activations": "Sinh"}), "sinh"),
    "an unknown pooling": (saved(hyper_parameters={"pool": "median"}), "pool is median"),
    "a missing layer": (saved(hyper_parameters={"layer": 9}), "don't fit"),
    "a missing word layer": (
        lambda folder: (
            edited("hparams.yaml", "regression_metric", "xcomet_metric")(folder),
            tensor("estimator.ff.0.weight", torch.zeros(24, 32))(folder),
            saved(hyper_parameters={"word_layer": 9})(folder),
        ),
        "there is no word_layer 9",
    ),
}


@pytest.fixture
def folder(encoder_files: Path, tmp_path: Path) -> Path:
    write_comet(tmp_path / "comet", OPTIONS["comet-20"], encoder_files)
    return tmp_path / "comet"


@pytest.mark.parametrize(("change", "reason"), list(REFUSED.values()), ids=list(REFUSED))
def test_what_does_not_fit_is_refused_in_one_line(change: Change, reason: str, folder: Path) -> None:
    change(folder)
    with pytest.raises(UserError, match=reason) as caught:
        Comet(folder, "cpu")
    assert "\n" not in str(caught.value)
    assert "comet" in str(caught.value)


def test_callbacks_of_old_versions_of_lightning_are_ignored(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Comet(folder, "cpu").score(["a"], ["b"], ["c"])
    module = types.ModuleType("pytorch_lightning.callbacks")
    module.Stopping = type("Stopping", (), {"__module__": module.__name__, "__qualname__": "Stopping"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pytorch_lightning", types.ModuleType("pytorch_lightning"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    path = folder / "checkpoints/model.ckpt"
    torch.save({**torch.load(path), "callbacks": {module.Stopping: {"wait": 1}}}, path)
    assert b"Stopping" in path.read_bytes()
    assert Comet(folder, "cpu").score(["a"], ["b"], ["c"]) == before


class Hostile:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def test_no_code_in_a_checkpoint_runs(folder: Path, tmp_path: Path) -> None:
    torch.save(
        {"state_dict": {}, "hyper_parameters": Hostile(tmp_path / "ran")}, folder / "checkpoints/model.ckpt"
    )
    with pytest.raises(UserError, match=r"asks to run .*mkdir"):
        Comet(folder, "cpu")
    assert not (tmp_path / "ran").exists()


def test_the_encoder_may_be_in_the_cache_of_the_hub(
    folder: Path, encoder_files: Path, tmp_path: Path
) -> None:
    snapshot = tmp_path / "hub/models--Unbabel--wmt22-comet-da/snapshots/0123"
    shutil.copytree(folder, snapshot)
    for name in ("config.json", "sentencepiece.bpe.model"):
        (snapshot / name).unlink()
    saved(hyper_parameters={"pretrained_model": "facebook/xlm-roberta"})(snapshot)
    with pytest.raises(UserError, match=r"https://huggingface.co/facebook/xlm-roberta\."):
        Comet(snapshot, "cpu")
    shutil.copytree(encoder_files, tmp_path / "hub/models--facebook--xlm-roberta/snapshots/4567")
    comet = Comet(snapshot, "cpu")
    assert comet.kind == "wmt22-comet-da"
    assert comet.score(["a"], ["b"], ["c"]) == Comet(folder, "cpu").score(["a"], ["b"], ["c"])


def test_a_patched_file_of_options_means_softmax(folder: Path) -> None:
    saved(hyper_parameters={"layer_transformation": "sparsemax"})(folder)
    assert read_comet(folder).options["layer_transformation"] == "sparsemax"
    edited("hparams.yaml", "softmax", "sparsemax_patch")(folder)
    assert read_comet(folder).options["layer_transformation"] == "softmax"


def test_the_signature_has_the_checksum_of_the_checkpoint(folder: Path) -> None:
    first = Comet(folder, "cpu").signature(1)
    assert first.startswith("comet:comet|refs:1|sha256:")
    tensor("layerwise_attention.gamma", torch.ones(1))(folder)
    assert Comet(folder, "cpu").signature(1) != first
