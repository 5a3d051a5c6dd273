"""The PyTorch module of a model: read, trained by a loop of another program, written, and translated with."""

import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import nmt_cli
from nmt_cli.api import UserError, load, read_model, write_model
from nmt_cli.checkpoints.model_folder import read_model as read_folder

PAGE = Path(nmt_cli.__file__).parent / "docs" / "how-to" / "use-pytorch-module.md"
PAIRS = [("abc", "cba"), ("de", "ed"), ("fgh", "hgf"), ("", "a"), ("hab", "bah")]


@pytest.fixture
def model(made_models: Path, tmp_path: Path) -> Path:
    """Return the folder of a model that returns its input."""
    return Path(shutil.copytree(made_models / "copies", tmp_path / "model"))


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_loop_of_the_guide_trains_the_model(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (loop,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    for side, lang in enumerate(("en", "de")):
        (tmp_path / f"train.{lang}").write_text("".join(f"{pair[side]}\n" for pair in PAIRS * 20))
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(1)
    before = digests(model)
    exec(compile(loop, str(PAGE), "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert digests(model) == before
    with load(model, device="cpu", threads=1) as old, load("tuned", device="cpu", threads=1) as new:
        assert sum(new.score(PAIRS)) > sum(old.score(PAIRS)) + 1
        assert new.languages == old.languages


def test_the_module_has_all_weights_and_the_probabilities_of_the_model(model: Path) -> None:
    trainable = read_model(model, device="cpu")
    stored = dict(read_folder(model).transformer.named_parameters())
    state = trainable.transformer.state_dict()
    assert all(torch.equal(state[name], weight) for name, weight in stored.items())
    assert all(parameter.requires_grad for parameter in trainable.transformer.parameters())
    batch = trainable.batch(PAIRS)
    logits = trainable.transformer.logits(trainable.transformer(*batch))
    log_probabilities = logits.log_softmax(-1).gather(1, batch.target_tokens[:, None])[:, 0]
    with load(model, device="cpu", threads=1) as loaded:
        expected = [score for scored in loaded.token_scores(PAIRS) for score in scored.token_scores]
    assert log_probabilities.tolist() == pytest.approx(expected, rel=1e-4)


def test_a_model_that_is_read_and_written_is_the_same(model: Path, tmp_path: Path) -> None:
    trainable = read_model(model, device="cpu")
    count = sum(parameter.numel() for parameter in trainable.transformer.parameters())
    assert repr(trainable) == f"<TrainableModel en-de, {count:,} parameters>"
    assert write_model(trainable, tmp_path / "again") == tmp_path / "again"
    again = read_model(tmp_path / "again", device="cpu")
    weights = dict(again.transformer.named_parameters())
    assert all(torch.equal(weights[name], own) for name, own in trainable.transformer.named_parameters())
    assert again.tokenizers.fingerprint == trainable.tokenizers.fingerprint
    assert again.identity.config == trainable.identity.config


def test_half_precision_is_written_in_fp32(model: Path, tmp_path: Path) -> None:
    trainable = read_model(model, device="cpu")
    trainable.transformer.bfloat16()
    write_model(trainable, tmp_path / "half")
    with load(tmp_path / "half", device="cpu", threads=1) as loaded:
        assert loaded.translate(["abc"]) == ["abc"]


def test_files_at_the_output_and_weights_that_are_not_finite_are_refused(model: Path, tmp_path: Path) -> None:
    trainable = read_model(model, device="cpu")
    with pytest.raises(UserError, match=r"model is not empty. Remove it, or choose another out\."):
        write_model(trainable, model)
    with torch.no_grad():
        trainable.transformer.output_matrix[0, 0] = torch.nan
    with pytest.raises(UserError, match="has values that are not finite"):
        write_model(trainable, tmp_path / "nan")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


@pytest.mark.parametrize("pairs", [[("a",)], "ab", [("a", None)]], ids=repr)
def test_an_invalid_pair_or_device_is_named(model: Path, pairs: Any) -> None:
    with pytest.raises(TypeError, match="each pair must be a source and its translation"):
        read_model(model, device="cpu").batch(pairs)
    with pytest.raises(UserError, match="must be auto, cpu, cuda or cuda:N"):
        read_model(model, device="gpu")


def test_a_text_with_more_tokens_than_positions_is_named(model: Path) -> None:
    with pytest.raises(UserError, match=r"line 2 has a side of 65 tokens, .* only 64 positions"):
        read_model(model, device="cpu").batch([("a", "b"), ("a", "b" * 64)])


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_loaded_model_keeps_all_weights_and_translates_with_its_own_copy(
    model: Path, precision: Any
) -> None:
    stored = dict(read_folder(model).transformer.named_parameters())
    with load(model, device="cpu", threads=1, precision=precision) as loaded:
        before = loaded.translate(["abc"])
        state = loaded.transformers[0].state_dict()
        assert all(torch.equal(state[name], weight) for name, weight in stored.items())
        for weight in state.values():
            weight.zero_()
        assert loaded.translate(["abc"]) == before
