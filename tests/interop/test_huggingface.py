"""Marian folders of transformers: logits, translations and scores stay the same."""

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
import torch

from nmt_cli.checkpoints.model_folder import LoadedModel, read_model
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.interop.foreign import ImportOptions, write
from nmt_cli.interop.importing import read
from tests.interop.conftest import (
    AS_THEIRS,
    CODES,
    assert_logits_are_theirs,
    generated,
    marian_folder,
    sentences,
)
from tests.searching import translate_ids

if TYPE_CHECKING:
    from transformers import MarianMTModel

Pair: TypeAlias = "tuple[Path, MarianMTModel, LoadedModel]"

KINDS: dict[str, dict[str, Any]] = {
    "shared": {},
    "separate": {"vocabularies": "separate", "activation_function": "gelu"},
    "untied, fp16, pickled": {"vocabularies": "untied", "half": True, "pickled": True},
    "end token 7, relu": {"end": 7, "activation_function": "relu"},
}
ODD_LINES = [f"{CODES[0]} abba deg", "…?! ÄÖ 5", "e\u0301 “b” \u00a0 x", "日本 ab"]
LINES = [*sentences("source", 12, seed=3), *ODD_LINES]


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Return the folder, the transformers model, and the imported model."""
    folder = tmp_path_factory.mktemp("marian") / "theirs"
    theirs = marian_folder(folder, **KINDS[request.param])
    write(read(str(folder), ImportOptions()), folder.parent / "ours")
    return folder, theirs, read_model(folder.parent / "ours")


def tokenized(folder: Path, lines: list[str]) -> list[list[int]]:
    from transformers import MarianTokenizer

    tokenizer: Any = MarianTokenizer.from_pretrained(folder)
    return [tokenizer(line).input_ids for line in lines]


def test_lines_become_the_ids_that_their_tokeniser_gives(pair: Pair) -> None:
    folder, _, ours = pair
    tokenizer = ours.identity.tokenizers.source
    ids = [tokenizer.vocabulary.ended(tokenizer.encode(tokenizer.prepare(line))) for line in LINES]
    assert ids == tokenized(folder, LINES)


@pytest.mark.parametrize("language", ["fra", "deu"])
def test_a_language_is_the_code_before_the_line(pair: Pair, language: str) -> None:
    """The ids are those of the line with its code by transformers."""
    folder, _, ours = pair
    source = ours.identity.tokenizers.directed("en", {"fra": "fr", "deu": "de"}[language]).source
    ids = [source.vocabulary.ended(source.encode(source.prepare(line))) for line in LINES[:12]]
    assert ids == tokenized(folder, [f">>{language}<< {line}" for line in LINES[:12]])


def test_any_ids_become_the_text_that_their_tokeniser_gives(pair: Pair) -> None:
    """If both sides share a vocabulary, ids include subwords of the source's model."""
    folder, _, ours = pair
    from transformers import MarianTokenizer

    tokenizer: Any = MarianTokenizer.from_pretrained(folder)
    target = ours.identity.tokenizers.target
    marks = {target.vocabulary.end, target.vocabulary.unknown, *target.vocabulary.never}
    regular = sorted({*range(len(target.vocabulary))} - marks - {*target.numbering.symbols.values()})
    chosen = random.Random(5)
    for count in [1, 2, 5, 12] * 5:
        ids = chosen.choices(regular, k=count)
        assert target.decode(ids).split() == tokenizer.decode(ids).split()


def test_logits_are_theirs_in_double_precision(pair: Pair) -> None:
    folder, theirs, ours = pair
    sources = tokenized(folder, LINES[:8])
    size = len(ours.identity.tokenizers.target.vocabulary)
    targets = [
        torch.randint(size - 1, (3 + i,), generator=torch.Generator().manual_seed(i)).tolist()
        for i in range(8)
    ]
    assert_logits_are_theirs(theirs, ours, sources, targets)


@pytest.mark.parametrize("beam", [1, 4, 6])
def test_generate_finds_the_same_translations_with_the_same_scores(pair: Pair, beam: int) -> None:
    folder, theirs, ours = pair
    sources = tokenized(folder, LINES)
    search = SearchConfig(beam=beam, length_penalty=0.0, min_length=4, cap_extra=12, **AS_THEIRS)
    translations = translate_ids([ours.transformer], [ids[:-1] for ids in sources], search)
    expected = generated(theirs, sources, beam, length_penalty=0.0, min_new_tokens=4, max_length=14)
    compared = set()
    for source, (best, *_), (ids, score) in zip(sources, translations, expected, strict=True):
        if ids is None:
            continue  # cut at the maximum length, at which ours needs an end token
        assert list(best.tokens) == ids
        assert score is None or best.score == pytest.approx(score, abs=1e-3)
        compared.add((len(source), tuple(best.tokens)))
    assert beam == 1 or len(compared) > 2
