"""M2M100 and NLLB: ids, logits and translations are those of transformers."""

import contextlib
import json
import random
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import M2M100ForConditionalGeneration, M2M100Tokenizer, NllbTokenizer

from nmt_cli.checkpoints.model_folder import Model, read_model
from nmt_cli.decoding.config import InputConfig, SearchConfig, TranslateConfig
from nmt_cli.errors import UserError
from nmt_cli.interop.foreign import ImportOptions, write
from nmt_cli.interop.importers.importing import read
from nmt_cli.ragged import Layout
from nmt_cli.translation.translator import Translation, Translator
from tests.interop.conftest import LANGUAGES, m2m100_folder, sentences

PAIRS = {"nllb": ("eng_Latn", "fra_Latn"), "m2m100": ("en", "fr")}
LINES = [*sentences("source", 10, seed=3), "abba", "…?! ÄÖ 5", "a  b", "日本 ab"]

Pair = tuple[str, Path, M2M100ForConditionalGeneration, Model]


@pytest.fixture(scope="module", params=PAIRS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Return the kind, the folder, the transformers model, and the imported model."""
    folder = tmp_path_factory.mktemp("many") / "theirs"
    theirs = m2m100_folder(folder, request.param)
    write(read(str(folder), ImportOptions(*PAIRS[request.param])), folder.parent / "ours")
    return request.param, folder, theirs, read_model(folder.parent / "ours")


def tokenizer_of(kind: str, folder: Path, source: str = "", target: str = "") -> Any:
    langs: dict[str, Any] = dict(zip(("src_lang", "tgt_lang"), PAIRS[kind], strict=True))
    langs |= {name: lang for name, lang in (("src_lang", source), ("tgt_lang", target)) if lang}
    if kind == "m2m100":
        return M2M100Tokenizer.from_pretrained(folder, **langs)
    return NllbTokenizer.from_pretrained(folder, **langs)


def test_lines_become_the_ids_that_their_tokeniser_gives(pair: Pair) -> None:
    kind, folder, _, ours = pair
    theirs, tokenizers = tokenizer_of(kind, folder), ours.identity.tokenizers
    for line in LINES:
        source = tokenizers.source.encode(tokenizers.source.prepare(line))
        assert [*source, 2] == theirs(line).input_ids
        target = tokenizers.target.encode(tokenizers.target.prepare(line))
        assert [*target, 2] == theirs(text_target=line).input_ids
        shown = theirs.decode(target, skip_special_tokens=True)
        assert tokenizers.target.decode(target).replace("⁇", "").split() == shown.split()


def test_logits_are_theirs_in_double_precision(pair: Pair) -> None:
    kind, folder, theirs, ours = pair
    tokenizer = tokenizer_of(kind, folder)
    sources = [tokenizer(line).input_ids for line in LINES[:6]]
    targets = [tokenizer(text_target=line).input_ids for line in LINES[4:10]]
    pairs = zip(sources, targets, strict=True)
    with torch.no_grad():
        double = deepcopy(theirs).double()
        inputs = ({"input_ids": source, "decoder_input_ids": [2, *target[:-1]]} for source, target in pairs)
        rows = ({name: torch.tensor([ids]) for name, ids in each.items()} for each in inputs)
        wanted = [double(**each).logits[0] for each in rows]
        flat = (torch.tensor(list(chain(*ids))) for ids in (sources, targets))
        layouts = (Layout.of([len(each) for each in ids]) for ids in (sources, targets))
        model = deepcopy(ours.transformer).double()
        found = model.logits(model(*flat, *layouts))
    assert torch.cat(wanted).std() > 0.5
    assert (found - torch.cat(wanted)).abs().max() <= 1e-4


def generated(
    theirs: Any, tokenizer: Any, lines: list[str], target: str, beam: int
) -> list[tuple[list[int], float]]:
    """Return the ids without special tokens, and the score, of each line's translation."""
    rows = pad_sequence([torch.tensor(tokenizer(line).input_ids) for line in lines], True, -1)
    out = theirs.generate(
        input_ids=rows.clamp(min=0).masked_fill(rows < 0, 1),
        attention_mask=(rows >= 0).long(),
        forced_bos_token_id=tokenizer.convert_tokens_to_ids(target),
        num_beams=beam,
        length_penalty=1.0,
        min_new_tokens=6,
        early_stopping="never" if beam > 1 else False,
        max_length=40,
        output_scores=True,
        return_dict_in_generate=True,
    )
    scores = out.sequences_scores.tolist() if beam > 1 else [None] * len(lines)
    return [
        (ids[1 : ids.index(2, 1)] if 2 in ids[1:] else [], score)
        for ids, score in zip(out.sequences.tolist(), scores, strict=True)
    ]


def ours_of(model: Model, lines: list[str], beam: int, *, prefix: bool = False) -> list[Translation]:
    search = SearchConfig(
        beam=beam,
        length_rule="power",
        length_penalty=1.0,
        min_length=6,
        cap_ratio=0.0,
        cap_extra=38,
        unknown=True,
    )
    config = TranslateConfig(search=search, input=InputConfig(prefix=prefix))
    return Translator(model.identity.tokenizers, [model.transformer], config).translate(
        [model.transformer], lines
    )


@pytest.mark.parametrize("beam", [1, 4, 6])
def test_generate_finds_the_same_translations_with_the_same_scores(pair: Pair, beam: int) -> None:
    kind, folder, theirs, ours = pair
    codes = ours.identity.tokenizers.recipe.begins
    wanted = generated(theirs, tokenizer_of(kind, folder), LINES, codes[1], beam)
    compared = set()
    for (ids, score), found in zip(wanted, ours_of(ours, LINES, beam), strict=True):
        if ids:
            best = found.candidates[0]
            assert [*best.parts[0].tokens] == ids
            assert score is None or best.score == pytest.approx(score, abs=1e-4)
            assert codes[1] not in best.text
            compared.add(tuple(ids))
    assert len(compared) > 4


def test_a_line_may_say_other_languages(pair: Pair) -> None:
    """The result is that of the transformers tokeniser for another pair."""
    kind, folder, theirs, ours = pair
    pairs = {"nllb": ("deu_Latn", "zho_Hans"), "m2m100": ("de", "zh")}
    source, target = (code if kind == "nllb" else f"__{code}__" for code in pairs[kind])
    wanted = generated(theirs, tokenizer_of(kind, folder, *pairs[kind]), LINES, target, 4)
    lines = [f"{source} {line}\t{target}" for line in LINES]
    found = ours_of(ours, lines, 4, prefix=True)
    assert [
        [*each.candidates[0].parts[0].tokens] for each, (ids, _) in zip(found, wanted, strict=True) if ids
    ] == [ids for ids, _ in wanted if ids]


def test_an_empty_line_has_an_empty_translation(pair: Pair) -> None:
    assert [each.text for each in ours_of(pair[3], ["", "  "], 4)] == ["", ""]


@pytest.fixture(scope="module")
def nllb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nllb") / "theirs"
    m2m100_folder(folder, "nllb")
    return folder


@pytest.mark.parametrize(
    ("name", "content", "langs", "told"),
    [
        ("", {}, ("eng_Latn", None), "Add --source-lang and --target-lang"),
        ("", {}, ("eng_Latn", "xx"), r"has no language xx\. It has ace_Arab"),
        ("", {}, ("en", "fr"), r"has no language en\. It has eng_Latn"),
        ("tokenizer.json", None, ("eng_Latn", "fra_Latn"), "names no languages"),
        ("vocab.json", {"<s>": 0, "a": 2}, ("eng_Latn", "fra_Latn"), "does not number its pieces"),
        ("vocab.json", {"<s>": 0, "a": 1}, ("eng_Latn", "fra_Latn"), "does not begin with <s> <pad>"),
        (
            "tokenizer.json",
            {"added_tokens": [{"id": 10**12, "content": "x"}]},
            ("a", "b"),
            "is not a language code",
        ),
        ("tokenizer.json", {"added_tokens": [{"id": 500, "content": "x"}]}, ("a", "b"), "but the model only"),
        ("tokenizer.json", {"added_tokens": 5}, ("a", "b"), "added_tokens is 5, not a list"),
    ],
    ids=str,
)
def test_what_is_not_whole_is_named(
    nllb: Path, tmp_path: Path, name: str, content: Any, langs: tuple[str, str], told: str
) -> None:
    for path in nllb.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    if content is None:
        (tmp_path / name).unlink()
        (tmp_path / "special_tokens_map.json").unlink()
    elif name:
        (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(UserError, match=told) as caught:
        read(str(tmp_path), ImportOptions(*langs))
    assert "\n" not in str(caught.value)


def test_mutated_files_are_refused_in_a_line(nllb: Path, tmp_path: Path) -> None:
    chosen = random.Random(4)
    for path in nllb.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for name in ("tokenizer.json", "sentencepiece.bpe.model", "config.json"):
        whole = (tmp_path / name).read_bytes()
        for number in range(12):
            bad = bytearray(whole)
            at = chosen.randrange(len(bad))
            bad[at] = chosen.randrange(256)
            (tmp_path / name).write_bytes(bad[:at] if number % 4 == 0 else bad)
            with contextlib.suppress(UserError):
                read(str(tmp_path), ImportOptions(*PAIRS["nllb"]))
        (tmp_path / name).write_bytes(whole)


def test_codes_have_the_same_ids_where_only_their_list_is_there(nllb: Path, tmp_path: Path) -> None:
    for path in nllb.iterdir():
        if path.name != "tokenizer.json":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    both = [read(str(folder), ImportOptions(*PAIRS["nllb"])).tokenizers for folder in (nllb, tmp_path)]
    assert both[0].fingerprint == both[1].fingerprint


def test_codes_have_the_ids_that_todays_transformers_gives_them(nllb: Path, tmp_path: Path) -> None:
    """A tokeniser built from scratch has the mask first."""
    (tmp_path / "spm").mkdir()
    (tmp_path / "spm" / "sentencepiece.bpe.model").write_bytes(
        (nllb / "sentencepiece.bpe.model").read_bytes()
    )
    theirs: Any = NllbTokenizer
    tokenizer = theirs.from_pretrained(tmp_path / "spm", extra_special_tokens=LANGUAGES, src_lang="eng_Latn")
    for path in nllb.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    tokenizer.save_pretrained(tmp_path)
    found = read(str(tmp_path), ImportOptions(target_lang="fra_Latn")).tokenizers
    assert found.recipe.source_lang == "eng_Latn"
    assert [*found.source.encode(found.source.prepare("abba")), 2] == tokenizer("abba").input_ids
