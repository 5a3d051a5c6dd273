"""The fine-tuning recipe on a random Marian model, with a few lines and two steps."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from transformers import MarianMTModel

from tests.interop.conftest import marian_folder, sentences

SETTINGS = """
[batch]
tokens = 200

[training]
max_steps = 2
"""


@pytest.mark.slow
def test_a_marian_model_is_imported_fine_tuned_and_exported(
    recipe: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    before = marian_folder(tmp_path / "theirs").get_parameter("model.shared.weight")
    for seed, name in enumerate(("mine", "old", "valid")):
        for side, language in (("source", "en"), ("target", "fr")):
            text = "".join(f"{line}\n" for line in sentences(side, 20, seed))
            (tmp_path / f"{name}.{language}").write_text(text, encoding="utf-8")
    (tmp_path / "train.toml").write_text(SETTINGS)
    texts, out = [tmp_path / name for name in ("mine", "old", "valid")], tmp_path / "out"
    (out / "huggingface" / "of an earlier run").mkdir(parents=True)
    done = recipe("fine-tuning", tmp_path / "theirs", *texts, out, TRAIN=tmp_path / "train.toml")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"Translate with it: nmt translate {out / 'model'}")
    after = MarianMTModel.from_pretrained(out / "huggingface").get_parameter("model.shared.weight")
    assert 0 < (before[:80] - after[:80]).abs().max() < 0.1
