"""Validation sets in several directions of one model, such as NLLB."""

import pytest
import torch

from nmt_cli.api import preprocess
from nmt_cli.checkpoints.model_folder import LoadedModel, read_model
from nmt_cli.data.dataset import Dataset, open_dataset
from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from nmt_cli.engine.decoder import Decoder
from nmt_cli.interop.foreign import ImportOptions, write
from nmt_cli.interop.importing import read
from nmt_cli.training.config import ValidationConfig
from nmt_cli.training.step.distributed import Group, Process
from nmt_cli.training.step.trainer import MixedPrecision
from nmt_cli.training.validation.judge import Judge
from nmt_cli.translation.translator import Translator
from tests.interop.conftest import m2m100_folder, sentences

CPU = torch.device("cpu")
TRANSLATE = TranslateConfig(search=SearchConfig(beam=2))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tmp_path_factory.mktemp("directions")
    m2m100_folder(folder / "nllb", "nllb")
    write(read(str(folder / "nllb"), ImportOptions("eng_Latn", "fra_Latn")), folder / "model")
    return read_model(folder / "model")


@pytest.fixture(scope="module")
def dataset(model: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Return a dataset with a validation set into French, and one into German by a code in its targets."""
    folder = tmp_path_factory.mktemp("dataset")
    for name, code in (("train", ""), ("usual", ""), ("other", "deu_Latn ")):
        for lang, side in (("eng_Latn", "source"), ("fra_Latn", "target")):
            lines = sentences(side, 40, seed=3 if name == "train" else 8)
            start = code if side == "target" else ""
            (folder / f"{name}.{lang}").write_text("".join(f"{start}{line}\n" for line in lines))
    model.identity.tokenizers.save(folder / "tokenizer")
    sets = [str(folder / "usual"), str(folder / "other")]
    preprocess(
        "eng_Latn", "fra_Latn", [str(folder / "train")], folder / "dataset", valid=sets,
        reuse_tokenizer=str(folder), workers=1,
    )  # fmt: skip
    return open_dataset(folder / "dataset")


def test_each_set_is_translated_into_the_language_of_its_references(
    model: LoadedModel, dataset: Dataset
) -> None:
    tokenizers = model.identity.tokenizers
    group, precision = Group(Process(), CPU, 1.0), MixedPrecision("fp32", CPU)
    judge = Judge(dataset, tokenizers, ValidationConfig(), TRANSLATE, group, precision)
    translator = Translator(tokenizers, [model.transformer], TRANSLATE)
    lines = sentences("source", 40, seed=8)
    found = {}
    for split, target in zip(dataset.valid_sets, ("fra_Latn", "deu_Latn"), strict=True):
        judgement = judge.judge(model.transformer, split)
        directed = translator.directed("eng_Latn", target)
        expected = directed.translate(Decoder.of([model.transformer]), lines)
        assert judgement.translations == [one.text for one in expected]
        assert judgement.references == sentences("target", 40, seed=8)
        found[target] = judgement.translations
    assert found["fra_Latn"] != found["deu_Latn"]
