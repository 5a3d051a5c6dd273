"""Random COMET models, written by PyTorch as Lightning does."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.scoring.neural.models import LAYERS, OPTIONS, SIZES, WIDTH, write_encoder


@pytest.fixture(scope="session")
def encoder_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the tokeniser and the configuration of a small encoder."""
    folder = tmp_path_factory.mktemp("encoder")
    write_encoder(folder)
    return folder


@pytest.fixture(scope="session")
def comets(encoder_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a COMET folder for each name in `OPTIONS`, with random weights."""
    folder = tmp_path_factory.mktemp("comets")
    for name, options in OPTIONS.items():
        write_comet(folder / name, options, encoder_files)
    return folder


def write_comet(folder: Path, options: dict[str, Any], encoder_files: Path) -> None:
    """Write a COMET folder with `options` and random weights."""
    shutil.copytree(encoder_files, folder, dirs_exist_ok=True)
    (folder / "checkpoints").mkdir()
    given = {key: value for key, value in options.items() if key not in ("class_identifier", "patched")}
    content = {"state_dict": weights(options), "hyper_parameters": given, "epoch": 1, "loops": {"a": [None]}}
    torch.save(content, folder / "checkpoints/model.ckpt")
    layers = "sparsemax_patch" if options.get("patched") else given.get("layer_transformation", "softmax")
    lines = (f"class_identifier: {options['class_identifier']}", f"layer_transformation: {layers}")
    (folder / "hparams.yaml").write_text("\n".join(["activations: Tanh", *lines]) + "\n")


def encoder_of(options: dict[str, Any]) -> Any:
    """Return the encoder in transformers, without weights."""
    import transformers

    kind = "XLMRobertaXL" if options.get("encoder_model") == "XLM-RoBERTa-XL" else "XLMRoberta"
    config = getattr(transformers, f"{kind}Config")(**SIZES)
    return getattr(transformers, f"{kind}Model")(config, add_pooling_layer=False).eval()


def weights(options: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return random weights of all parts, the same for the same options."""
    vectors = {"regression_metric": 6, "referenceless_regression_metric": 4}.get(
        options["class_identifier"], 1
    )
    sizes = [vectors * WIDTH, *options["hidden_sizes"], 1]
    with torch.device("meta"):
        encoder = encoder_of(options)
    shapes = {f"encoder.model.{name}": part.shape for name, part in encoder.named_parameters()}
    for number, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        shapes |= {
            f"estimator.ff.{3 * number}.weight": (outputs, inputs),
            f"estimator.ff.{3 * number}.bias": (outputs,),
        }
    shapes |= {f"layerwise_attention.scalar_parameters.{n}": (1,) for n in range(LAYERS + 1)}
    shapes |= {"layerwise_attention.gamma": (1,), "hidden2tag.weight": (4, WIDTH), "hidden2tag.bias": (4,)}
    draws = torch.Generator().manual_seed(len(str(options)))
    tensors = {
        name: 0.3 * torch.randn(*shape, generator=draws, dtype=torch.float32) + float("Norm.weight" in name)
        for name, shape in shapes.items()
    }
    # A buffer, as old versions of transformers write.
    return tensors | {"encoder.model.embeddings.position_ids": torch.arange(514)[None]}
