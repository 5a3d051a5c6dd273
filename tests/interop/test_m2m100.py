"""M2M100 and NLLB: ids, logits and translations are those of transformers."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor
from transformers import M2M100ForConditionalGeneration, M2M100Tokenizer, NllbTokenizer
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

from nmt_cli.api import load, preprocess
from nmt_cli.checkpoints.model_folder import LoadedModel, read_model
from nmt_cli.data.dataset import TOKENIZERS
from nmt_cli.decoding.search.hypotheses import History
from nmt_cli.errors import UserError
from nmt_cli.interop.foreign import ImportOptions, write
from nmt_cli.interop.importing import read
from nmt_cli.interop.m2m100 import KNOWN
from nmt_cli.text.tokenizers import load_tokenizers
from tests.cli.conftest import Nmt, assert_one_line
from tests.interop.conftest import (
    LANGUAGES,
    assert_found,
    assert_logits_are_theirs,
    assert_refused,
    generated,
    m2m100_folder,
    sentences,
    translations,
)

PAIRS = {"nllb": ("eng_Latn", "fra_Latn"), "m2m100": ("en", "fr")}
LINES = [*sentences("source", 10, seed=3), "abba", "…?! ÄÖ 5", "a  b", "日本 ab"]

Pair = tuple[str, Path, M2M100ForConditionalGeneration, LoadedModel]


@pytest.fixture(scope="module", params=PAIRS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Return the kind, the folder, the transformers model, and the imported model."""
    folder = tmp_path_factory.mktemp("many") / "theirs"
    theirs = m2m100_folder(folder, request.param)
    write(read(str(folder), ImportOptions(*PAIRS[request.param])), folder.parent / "ours")
    return request.param, folder, theirs, read_model(folder.parent / "ours")


def tokenizer_of(kind: str, folder: Path, source: str = "", target: str = "") -> Any:
    langs: dict[str, Any] = {"src_lang": source or PAIRS[kind][0], "tgt_lang": target or PAIRS[kind][1]}
    tokenizer: Any = M2M100Tokenizer if kind == "m2m100" else NllbTokenizer
    return tokenizer.from_pretrained(folder, **langs)


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
    assert_logits_are_theirs(theirs, ours, sources, targets)


def their_translations(
    theirs: Any, tokenizer: Any, lines: list[str], target: str, beam: int
) -> list[tuple[list[int] | None, float | None]]:
    """Return the ids and the score of each line's translation into the language `target`, a code."""
    start = tokenizer.convert_tokens_to_ids(target)
    options = {"forced_bos_token_id": start, "length_penalty": 1.0, "min_new_tokens": 7, "max_length": 40}
    return generated(theirs, [tokenizer(line).input_ids for line in lines], beam, **options)


@pytest.mark.parametrize("beam", [1, 4, 6])
def test_generate_finds_the_same_translations_with_the_same_scores(pair: Pair, beam: int) -> None:
    kind, folder, theirs, ours = pair
    codes = ours.identity.tokenizers.recipe.begins
    expected = their_translations(theirs, tokenizer_of(kind, folder), LINES, codes[1], beam)
    found = translations(ours, LINES, beam)
    assert len(assert_found(expected, found)) > 4
    assert not any(codes[1] in translation.text for translation in found)


def test_a_line_may_name_other_languages(pair: Pair) -> None:
    """The result is that of the transformers tokeniser for another pair."""
    kind, folder, theirs, ours = pair
    pairs = {"nllb": ("deu_Latn", "zho_Hans"), "m2m100": ("de", "zh")}
    source, target = (code if kind == "nllb" else f"__{code}__" for code in pairs[kind])
    expected = their_translations(theirs, tokenizer_of(kind, folder, *pairs[kind]), LINES, target, 4)
    lines = [f"{source} {line}\t{target}" for line in LINES]
    assert assert_found(expected, translations(ours, lines, 4, prefix=True))


DIRECTIONS = {
    "nllb": [("deu_Latn", "zho_Hans"), ("eng_Latn", "fra_Latn")],
    "m2m100": [("de", "zh"), ("ja", "en")],
}


@pytest.mark.parametrize("number", [0, 1])
def test_an_import_without_languages_has_all_directions(pair: Pair, tmp_path: Path, number: int) -> None:
    kind, folder, theirs, _ = pair
    source, target = DIRECTIONS[kind][number]
    write(read(str(folder), ImportOptions()), tmp_path / "ours")
    ours = read_model(tmp_path / "ours")
    tokenizers = ours.identity.tokenizers.directed(source, target)
    code = tokenizers.target.begin
    expected = their_translations(theirs, tokenizer_of(kind, folder, source, target), LINES, code, 4)
    directed = replace(ours, identity=replace(ours.identity, tokenizers=tokenizers))
    assert len(assert_found(expected, translations(directed, LINES, 4))) > 4


def test_a_model_without_a_usual_direction_asks_for_one(nllb: Path, tmp_path: Path, nmt: Nmt) -> None:
    text = tmp_path / "text"
    text.write_text("ab\n")
    write(read(str(nllb), ImportOptions()), tmp_path / "ours")
    with load(tmp_path / "ours", device="cpu", threads=1) as model:
        assert model.languages == ("mul", "mul") and len(model.directions) == 20
        refused: list[Any] = [model.translate, model.score, model.sentences]
        for method in refused:
            with pytest.raises(UserError, match=r"translates from ace_Arab, deu_Latn, .*Choose one of them"):
                method([])
        scored = nmt("score", "--model", tmp_path / "ours", "--source", text, text)
        assert_one_line(scored, 1, "Give --source-lang and --target-lang")
        by_two = model.translate(LINES, source="en", target="fr")
        assert by_two == model.direction("fra_Latn", "eng_Latn").translate(LINES) != LINES


def test_a_dataset_takes_any_direction_of_the_tokeniser(nllb: Path, tmp_path: Path) -> None:
    write(read(str(nllb), ImportOptions()), tmp_path / "ours")
    pairs = zip(sentences("source", 20), sentences("target", 20), strict=True)
    dataset, reused = tmp_path / "dataset", str(tmp_path / "ours")
    preprocess("eng_Latn", "fra_Latn", pairs, dataset, reuse_tokenizer=reused, workers=1)
    made = load_tokenizers(dataset / TOKENIZERS)
    assert (
        made.recipe.begins == PAIRS["nllb"]
        and (made.recipe.source_lang, made.recipe.target_lang) == (PAIRS["nllb"])
    )
    assert made.source.vocabulary == load_tokenizers(tmp_path / "ours" / TOKENIZERS).source.vocabulary
    with pytest.raises(UserError, match="is for mul-mul, not for eng_Latn-xxx"):
        preprocess("eng_Latn", "xxx", [("a", "b")], tmp_path / "other", reuse_tokenizer=reused, workers=1)


def test_a_language_may_have_its_code_of_two_letters(nllb: Path) -> None:
    by_two, by_full = (read(str(nllb), ImportOptions(*pair)) for pair in (("en", "fr"), PAIRS["nllb"]))
    assert by_two.tokenizers.fingerprint == by_full.tokenizers.fingerprint


def test_an_empty_line_has_an_empty_translation(pair: Pair) -> None:
    assert [translation.text for translation in translations(pair[3], ["", "  "], 4)] == ["", ""]


def test_an_empty_translation_is_scored_as_the_search_scores_it(nllb: Path, tmp_path: Path) -> None:
    def only_end(log_probs_RV: Tensor, history: History, end: int) -> None:
        ends_R = log_probs_RV[:, end].clone()
        log_probs_RV[:] = -float("inf")
        log_probs_RV[:, end] = ends_R

    write(read(str(nllb), ImportOptions(*PAIRS["nllb"])), tmp_path / "ours")
    with load(tmp_path / "ours", device="cpu", threads=1) as model:
        for found, line in zip(model.translations(LINES, rule=only_end), LINES, strict=True):
            (candidate,) = found.candidates
            (scored,) = model.token_scores([(line, "")])
            assert found.text == "" and scored.tokens == candidate.tokens
            assert scored.token_scores == pytest.approx(candidate.token_scores, abs=1e-4)


@pytest.fixture(scope="module")
def nllb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nllb") / "theirs"
    m2m100_folder(folder, "nllb")
    return folder


def token(number: int) -> dict[str, Any]:
    return {"added_tokens": [{"id": number, "content": "x"}]}


@pytest.mark.parametrize(
    ("name", "content", "langs", "message"),
    [
        ("", {}, ("eng_Latn", "xx"), r"has no language xx: it has ace_Arab, deu_Latn, .*, zho_Hans\."),
        ("", {}, ("enx", "fr"), r"has no language enx: did you mean eng_Latn\?"),
        ("tokenizer.json", None, ("eng_Latn", "fra_Latn"), "names no languages"),
        ("vocab.json", {"<s>": 0, "a": 2}, ("eng_Latn", "fra_Latn"), "does not number its pieces"),
        ("vocab.json", {"<s>": 0, "a": 1}, ("eng_Latn", "fra_Latn"), "does not begin with <s> <pad>"),
        ("tokenizer.json", token(10**12), ("a", "b"), "is not a language code"),
        ("tokenizer.json", token(500), ("a", "b"), "but the model has only"),
        (
            "tokenizer.json",
            {"added_tokens": 5},
            ("a", "b"),
            "added_tokens must be a list, each item a setting",
        ),
    ],
    ids=str,
)
def test_a_missing_or_damaged_file_is_named(
    nllb: Path, tmp_path: Path, name: str, content: Any, langs: tuple[str, str], message: str
) -> None:
    shutil.copytree(nllb, tmp_path, dirs_exist_ok=True)
    if content is None:
        (tmp_path / name).unlink()
        (tmp_path / "special_tokens_map.json").unlink()
    elif name:
        (tmp_path / name).write_text(json.dumps(content))
    assert_refused(tmp_path, message, ImportOptions(*langs))


def test_a_list_of_codes_gives_the_ids_of_tokenizer_json(nllb: Path, tmp_path: Path) -> None:
    shutil.copytree(nllb, tmp_path, dirs_exist_ok=True)
    (tmp_path / "tokenizer.json").unlink()
    both = [read(str(folder), ImportOptions(*PAIRS["nllb"])).tokenizers for folder in (nllb, tmp_path)]
    assert both[0].fingerprint == both[1].fingerprint


def test_codes_have_the_ids_of_the_installed_transformers(nllb: Path, tmp_path: Path) -> None:
    """A tokeniser built from scratch has the mask first."""
    (tmp_path / "spm").mkdir()
    shutil.copy(nllb / "sentencepiece.bpe.model", tmp_path / "spm")
    theirs: Any = NllbTokenizer
    tokenizer = theirs.from_pretrained(tmp_path / "spm", extra_special_tokens=LANGUAGES, src_lang="eng_Latn")
    shutil.copytree(nllb, tmp_path, dirs_exist_ok=True)
    tokenizer.save_pretrained(tmp_path)
    ours = read(str(tmp_path), ImportOptions(target_lang="fra_Latn")).tokenizers
    assert ours.recipe.source_lang == "eng_Latn"
    assert [*ours.source.encode(ours.source.prepare("abba")), 2] == tokenizer("abba").input_ids


def test_the_known_lists_of_codes_are_those_of_transformers() -> None:
    assert {name: listed.split() for name, listed in KNOWN.items()} == FAIRSEQ_LANGUAGE_CODES


@pytest.mark.parametrize("codes", ["m2m100", "wmt21", "klingon"])
def test_a_tokeniser_saved_with_the_name_of_its_codes_only_has_the_same_ids(
    codes: str, tmp_path: Path
) -> None:
    folder = tmp_path / "theirs"
    m2m100_folder(folder, "m2m100")
    known = codes if codes != "klingon" else "m2m100"
    untyped: Any = M2M100Tokenizer
    theirs = untyped(
        str(folder / "vocab.json"),
        str(folder / "sentencepiece.bpe.model"),
        language_codes=known,
        src_lang="de",
        tgt_lang="zh",
    )
    (folder / "special_tokens_map.json").unlink()
    theirs.save_pretrained(folder)
    described = json.loads((folder / "tokenizer_config.json").read_text())
    assert described["extra_special_tokens"] == []
    (folder / "tokenizer_config.json").write_text(json.dumps(described | {"language_codes": codes}))
    if codes != known:
        assert_refused(folder, "language_codes is klingon. nmt supports m2m100, wmt21")
        return
    ours = read(str(folder), ImportOptions()).tokenizers
    assert [*ours.source.encode(ours.source.prepare("abba")), 2] == theirs("abba").input_ids
    assert [*ours.target.encode(ours.target.prepare("abba")), 2] == theirs(text_target="abba").input_ids
    assert len(ours.recipe.symbols) == {"m2m100": 100, "wmt21": 8}[codes]
