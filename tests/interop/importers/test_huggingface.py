"""Marian folders of transformers: logits, translations and scores stay the same."""

import random
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from nmt_cli.checkpoints.model_folder import Model, read_model
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.interop.foreign import ImportOptions, write
from nmt_cli.interop.importers.importing import read
from nmt_cli.ragged import Layout
from tests.interop.conftest import CODES, marian_folder, sentences
from tests.searching import translate_ids

if TYPE_CHECKING:
    from transformers import MarianMTModel

Pair: TypeAlias = "tuple[Path, MarianMTModel, Model]"

KINDS: dict[str, dict[str, Any]] = {
    "shared": {},
    "separate": {"vocabularies": "separate", "activation_function": "gelu"},
    "untied, fp16, pickled": {"vocabularies": "untied", "half": True, "pickled": True},
    "end mark 7, relu": {"end": 7, "activation_function": "relu"},
}
LINES = [
    *sentences("source", 12, seed=3),
    f"{CODES[0]} abba deg",
    "…?! ÄÖ 5",
    "e\u0301 “b” \u00a0 x",
    "日本 ab",
]


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Return the folder, the transformers model, and the imported model."""
    folder = tmp_path_factory.mktemp("marian") / "theirs"
    theirs = marian_folder(folder, **KINDS[request.param])
    return folder, theirs, imported(folder, folder.parent / "ours")


def imported(folder: Path, out: Path, **wanted: Any) -> Model:
    write(read(str(folder), ImportOptions(**wanted)), out)
    return read_model(out)


def tokenized(folder: Path, lines: list[str]) -> list[list[int]]:
    from transformers import MarianTokenizer

    tokenizer: Any = MarianTokenizer.from_pretrained(folder)
    return [tokenizer(line).input_ids for line in lines]


@torch.no_grad()
def their_logits(theirs: "MarianMTModel", sources: list[list[int]], targets: list[list[int]]) -> torch.Tensor:
    padding = theirs.config.pad_token_id or 0
    source, target = (
        pad_sequence([torch.tensor(x) for x in ids], batch_first=True, padding_value=padding)
        for ids in (sources, targets)
    )
    mask = torch.tensor([[int(i < len(x)) for i in range(source.shape[1])] for x in sources])
    inputs = F.pad(target, (1, 0), value=theirs.config.decoder_start_token_id)[:, :-1]
    logits = deepcopy(theirs).double()(input_ids=source, attention_mask=mask, decoder_input_ids=inputs).logits
    return torch.cat([row[: len(x)] for row, x in zip(logits, targets, strict=True)])


def our_logits(ours: Model, sources: list[list[int]], targets: list[list[int]]) -> torch.Tensor:
    source, target = (torch.tensor(list(chain(*ids))) for ids in (sources, targets))
    layouts = (Layout.of([len(x) for x in ids]) for ids in (sources, targets))
    with torch.no_grad():
        model = deepcopy(ours.transformer).double()
        return model.logits(model(source, target, *layouts))


def test_lines_become_the_ids_that_their_tokeniser_gives(pair: Pair) -> None:
    folder, _, ours = pair
    tokenizer = ours.identity.tokenizers.source
    found = [tokenizer.vocabulary.ended(tokenizer.encode(tokenizer.prepare(line))) for line in LINES]
    assert found == tokenized(folder, LINES)


def test_any_ids_become_the_text_that_their_tokeniser_gives(pair: Pair) -> None:
    """If both sides share a vocabulary, ids include subwords of the source's model."""
    folder, _, ours = pair
    from transformers import MarianTokenizer

    tokenizer: Any = MarianTokenizer.from_pretrained(folder)
    target = ours.identity.tokenizers.target
    marks = {target.vocabulary.end, target.vocabulary.unknown, *target.vocabulary.never}
    known = sorted({*range(len(target.vocabulary))} - marks - {*target.numbering.symbols.values()})
    chosen = random.Random(5)
    for count in [1, 2, 5, 12] * 5:
        ids = chosen.choices(known, k=count)
        assert target.decode(ids).split() == tokenizer.decode(ids).split()


def test_logits_are_theirs_in_double_precision(pair: Pair) -> None:
    folder, theirs, ours = pair
    sources = tokenized(folder, LINES[:8])
    size = len(ours.identity.tokenizers.target.vocabulary)
    targets = [
        torch.randint(size - 1, (3 + i,), generator=torch.Generator().manual_seed(i)).tolist()
        for i in range(8)
    ]
    wanted = their_logits(theirs, sources, targets)
    assert wanted.std() > 0.5
    assert (our_logits(ours, sources, targets) - wanted).abs().max() <= 1e-4


@pytest.mark.parametrize("beam", [1, 4, 6])
def test_generate_finds_the_same_translations_with_the_same_scores(pair: Pair, beam: int) -> None:
    folder, theirs, ours = pair
    sources = tokenized(folder, LINES)
    known = ours.identity.tokenizers.target.vocabulary
    search = SearchConfig(
        beam=beam,
        length_rule="power",
        length_penalty=0.0,
        min_length=4,
        cap_ratio=0.0,
        cap_extra=12,
        unknown=True,
    )
    found = translate_ids([ours.transformer], [ids[:-1] for ids in sources], search)
    compared = set()
    untyped: Any = theirs
    padded = pad_sequence([torch.tensor(ids) for ids in sources], batch_first=True, padding_value=-1)
    out = untyped.generate(
        input_ids=padded.clamp(min=0),
        attention_mask=(padded >= 0).long(),
        num_beams=beam,
        do_sample=False,
        length_penalty=0.0,
        min_new_tokens=4,
        early_stopping="never" if beam > 1 else False,
        max_length=14,
        output_scores=True,
        return_dict_in_generate=True,
    )
    scores = out.sequences_scores.tolist() if beam > 1 else [None] * len(sources)
    for source, (best, *_), row, score in zip(sources, found, out.sequences.tolist(), scores, strict=True):
        tokens = row[1:]
        if known.end not in tokens:
            continue  # cut at the greatest length, where ours demands an end mark
        assert list(best.tokens) == tokens[: tokens.index(known.end)]
        assert score is None or best.score == pytest.approx(score, abs=1e-3)
        compared.add((len(source), tuple(best.tokens)))
    assert beam == 1 or len(compared) > 2
