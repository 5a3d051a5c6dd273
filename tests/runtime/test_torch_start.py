"""PyTorch without a module that only compilers need gives the same translations."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nmt_cli.api import load
from nmt_cli.checkpoints.model_folder import Identity, read_model, weights, write_model
from nmt_cli.config import read
from nmt_cli.decoding.config import TranslateConfig
from nmt_cli.model.config import ModelConfig

LEAVES_OUT = torch.__version__.startswith("2.13.") and not torch.cuda.is_available()

REGISTERED = 'print(*torch._C._dispatch_get_registrations_for_dispatch_key("Meta"))'
TRANSLATED = f"""
from tests.runtime.test_torch_start import torch, translated
print(*translated(*sys.argv[1:]), "torch._decomp" in sys.modules, sep="\\n")
import torch._meta_registrations
{REGISTERED}
"""


def translated(copies: str, out: str) -> list[str]:
    """Return translations, scores and alignments by models of all variants, the first with many settings."""
    identity = read_model(Path(copies)).identity
    forms = [
        ModelConfig(norm="pre", activation="gelu"),
        ModelConfig(decoder_history="ssru", positions="marian", tie="none"),
        ModelConfig(positions="learned", activation="swish", start="zeros", output_bias=True),
    ]
    folders = [copies]
    for number, form in enumerate(forms):
        torch.manual_seed(number)
        small = replace(form, encoder_layers=1, decoder_layers=1, width=16, heads=2, feed_forward=32)
        other = Identity(small, identity.tokenizers, {})
        folders.append(f"{out}/{number}")
        Path(folders[-1]).mkdir()
        write_model(Path(folders[-1]), other, weights(other.build()), {"step": 1})
    several = read(TranslateConfig, assignments=["search.n_best=3", "search.no_repeat_ngram=3"])
    sampled = read(TranslateConfig, assignments=["search.sample=true", "search.top_k=5"])
    greedy = read(TranslateConfig, assignments=["search.beam=1", "search.max_length=20"])
    output = []
    for folder, precision, config in (
        *((folder, "fp32", greedy) for folder in folders),
        *((copies, precision, several) for precision in ("fp32", "int8")),
        (copies, "fp32", sampled),
    ):
        with load(folder, device="cpu", precision=precision, threads=1, config=config) as model:  # type: ignore[arg-type]
            output.append(repr(model.translate(["a dog runs", "", "the cat " * 6])))
            output.append(repr(model.score([("ab", "ba")])))
            if folder == copies:
                output.append(repr(model.align([("ab", "ba")])))
    return output


def _python(script: str, *arguments: object) -> list[str]:
    begin = "import sys; from nmt_cli.runtime import torch_start as start; "
    command = [sys.executable, "-c", f"{begin}{script}", *map(str, arguments)]
    root = Path(__file__).parents[2]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=root).stdout.split("\n")


@pytest.fixture(scope="module")
def output(made_models: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the output of `TRANSLATED`."""
    return _python(
        f"start.load_for_cpu(){TRANSLATED}", made_models / "copies", tmp_path_factory.mktemp("forms")
    )


@pytest.mark.slow
def test_models_of_all_variants_translate_the_same_without_the_skipped_module(
    output: list[str], made_models: Path, tmp_path: Path
) -> None:
    *actual, loaded, _, _ = output
    assert actual == translated(str(made_models / "copies"), str(tmp_path))
    assert loaded == str(not LEAVES_OUT)


@pytest.mark.slow
def test_the_skipped_module_can_be_imported_later(output: list[str]) -> None:
    complete = _python(f"import torch; {REGISTERED}")[0].split()  # this process may have imported more
    assert {name for name in complete if name.startswith(("aten::", "prims::"))} <= set(output[-2].split())


def test_an_untested_pytorch_is_not_imported() -> None:
    script = "start.TESTED_VERSIONS = ('1.',); start.load_for_cpu(); print('torch' in sys.modules)"
    assert _python(script)[0] == "False"
