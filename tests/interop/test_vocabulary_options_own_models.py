"""Models that nmt trained: the same options trim and grow them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nmt_cli.checkpoints.model_folder import Identity, read_model, weights, write_model
from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from nmt_cli.engine.decoder import Decoder
from nmt_cli.interop.foreign import ImportOptions, write
from nmt_cli.interop.importing import read
from nmt_cli.interop.vocabulary_options import Wishes, fit
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.text.tokenizers import DESCRIPTION, Tokenizers
from nmt_cli.translation.translator import Translator
from tests.checks import refusal

SMALL = ModelConfig(encoder_layers=1, decoder_layers=1, width=16, feed_forward=32, heads=2)


@pytest.fixture(params=["joint", "separate"])
def folder(request: pytest.FixtureRequest, toy_tokenizers: Callable[..., Tokenizers], tmp_path: Path) -> Path:
    """Return a random model of nmt."""
    joint = request.param == "joint"
    config = SMALL if joint else replace(SMALL, tie="decoder")
    identity = Identity(config, toy_tokenizers(joint), {"longest": 64})
    torch.manual_seed(3)
    (tmp_path / "model").mkdir()
    write_model(tmp_path / "model", identity, weights(identity.build()), {})
    return tmp_path / "model"


@pytest.fixture
def lines(toy: str) -> list[str]:
    return Path(f"{toy}.en").read_text("utf-8").splitlines()


def translated(folder: Path, lines: list[str]) -> list[list[str]]:
    """Return the pieces of the translations in a greedy search."""
    model = read_model(folder)
    models: list[Transformer] = [model.transformer]
    search = SearchConfig(beam=1, unknown=True, cap_extra=5)
    translator = Translator(model.identity.tokenizers, models, TranslateConfig(search=search))
    entries = model.identity.tokenizers.target.vocabulary.entries
    found = translator.translate(Decoder.of(models), lines)
    return [[entries[i] for i in one.candidates[0].parts[0].tokens] for one in found]


def test_a_trimmed_model_translates_alike_if_all_pieces_are_kept(
    folder: Path, toy: str, tmp_path: Path, lines: list[str]
) -> None:
    pair = read_model(folder).identity.tokenizers.recipe
    texts = []
    for lang in (pair.source_lang, pair.target_lang):
        some = Path(f"{toy}.{lang}").read_text("utf-8").splitlines()
        texts.append(tmp_path / f"mine.{lang}")
        texts[-1].write_text("".join(f"{line.split()[0]}\n" for line in some * 3), "utf-8")
    wishes = Wishes((pair.source_lang, pair.target_lang), {}, tuple(texts))
    foreign = read(str(folder), ImportOptions(), own=True)
    small, _ = fit(foreign, wishes, ImportOptions())
    write(small, tmp_path / "small")
    sizes = [len({*one.tokenizers.target.vocabulary.entries}) for one in (foreign, small)]
    assert sizes[1] < sizes[0]
    assert read_model(tmp_path / "small").identity.trained_on["longest"] == 64
    short = [line.split()[0] for line in lines[:40]]
    kept = {*small.tokenizers.target.vocabulary.entries}
    both = zip(translated(folder, short), translated(tmp_path / "small", short), strict=True)
    equal = [before == after for before, after in both if {*before} <= kept]
    assert equal and all(equal)


def test_a_new_domain_gets_pieces_that_start_as_their_old_ones(folder: Path, tmp_path: Path) -> None:
    text = tmp_path / "domain.txt"
    text.write_text("новый baabaab\n" * 200, "utf-8")
    foreign = read(str(folder), ImportOptions(), own=True)
    large, compared = fit(foreign, Wishes((), {}, (text,), 30), ImportOptions())
    write(large, tmp_path / "large")
    tokenizer = read_model(tmp_path / "large").identity.tokenizers.source
    assert tokenizer.vocabulary.unknown not in tokenizer.encode(tokenizer.prepare("новый baabaab"))
    assert [row.after for row in compared if row.name.startswith("unknown")] == ["0.00%"]


def test_rare_pieces_of_older_versions_are_refused(folder: Path, tmp_path: Path) -> None:
    text = tmp_path / "domain.txt"
    text.write_text("ab ba\n" * 200, "utf-8")
    foreign = read(str(folder), ImportOptions(), own=True)
    files = dict(foreign.tokenizers.files)
    files[DESCRIPTION] = files[DESCRIPTION].replace(b'"source": []', b'"source": [9]')
    old = replace(foreign, tokenizers=replace(foreign.tokenizers, files=files))
    wishes = Wishes((), {}, (text,), 30)
    assert "splits rare pieces" in refusal(fit, old, wishes, ImportOptions())
