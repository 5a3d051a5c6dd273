"""`.model` files and codes of other tools become tokenisers with our special tokens."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from subword_nmt.learn_bpe import learn_bpe

from nmt_cli.errors import UserError
from nmt_cli.text.config import Kind, TextConfig
from nmt_cli.text.tokenizer import SIDES, Side, Tokenizer
from nmt_cli.text.tokenizers import Recipe, adopt_tokenizers, kind_of_file, load_tokenizers
from nmt_cli.text.vocabulary import NEW_MARKS as MARKS
from tests.text.conftest import spm_train

SYMBOLS = ("<2de>", "<BT>")
LETTERS: dict[Side, str] = {"source": "bdfgaeio", "target": "nprstäöü"}
WORDS: dict[Side, list[str]] = {
    side: ["".join(random.Random(seed).choices(LETTERS[side], k=2 + seed % 6)) for seed in range(150)]
    for side in SIDES
}
LINES: dict[Side, list[str]] = {
    side: [" ".join(random.Random(seed).choices(WORDS[side], range(150, 0, -1), k=7)) for seed in range(200)]
    for side in SIDES
}


def adopting(kind: Kind, joint: bool = True, **options: Any) -> Recipe:
    return Recipe(kind, joint, "en", "de", TextConfig(words="raw"), **options)


def spm_file(path: Path, lines: list[str], **options: Any) -> Path:
    path.write_bytes(spm_train(lines, **{"vocab_size": 60, **options}))
    return path


def subword_nmt_learn(path: Path, lines: list[str], merges: int = 20) -> Path:
    with path.open("w", encoding="utf-8") as codes:
        learn_bpe(lines, codes, merges)
    return path


def assert_known(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.vocabulary.unknown not in ids
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("options", [{}, {"pad_id": 3}, {"model_type": "bpe"}], ids=str)
def test_models_of_other_tools_get_our_special_tokens(tmp_path: Path, options: dict[str, Any]) -> None:
    lines = LINES["source"] + LINES["target"]
    path = spm_file(tmp_path / "theirs", lines, **options)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    recipe = adopting("sentencepiece", symbols=SYMBOLS)
    tokenizers = adopt_tokenizers(recipe, {"joint": path}, LINES)
    tokenizers.save(tmp_path / "folder")
    for tokenizer in (tokenizers.source, load_tokenizers(tmp_path / "folder").target):
        assert tokenizer.vocabulary.entries[:4] == (*MARKS, *SYMBOLS)
        assert "<s>" not in tokenizer.vocabulary.entries
        for line in WORDS["source"] + WORDS["target"]:
            ids = tokenizer.encode(tokenizer.prepare(line))
            assert [tokenizer.vocabulary.entries[i] for i in ids] == processor.encode(line, out_type=str)
            assert tokenizer.decode(ids) == line


@pytest.mark.parametrize("kind", ["sentencepiece", "bpe"])
def test_each_side_may_have_its_own_file(tmp_path: Path, kind: Kind) -> None:
    make: Callable[[Path, list[str]], Path] = spm_file if kind == "sentencepiece" else subword_nmt_learn
    paths: dict[str, Path] = {side: make(tmp_path / side, LINES[side]) for side in SIDES}
    recipe = adopting(kind, joint=False)
    tokenizers = adopt_tokenizers(recipe, paths, LINES)
    for side in SIDES:
        for word in WORDS[side]:
            assert_known(tokenizers.side(side), word)
    assert tokenizers.source.vocabulary.entries != tokenizers.target.vocabulary.entries


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_codes_are_adopted_with_the_alphabet_of_codes_and_sample(tmp_path: Path, byte_fallback: bool) -> None:
    path = subword_nmt_learn(tmp_path / "codes", ["übermäßig überall übermut"] * 3, merges=100)
    recipe = adopting("bpe", symbols=SYMBOLS, byte_fallback=byte_fallback)
    tokenizers = adopt_tokenizers(recipe, {"joint": path}, LINES)
    for raw in [*LINES["source"], *LINES["target"], "überall ßü <2de>"]:
        assert_known(tokenizers.source, raw)
    assert ("字" in tokenizers.source.decode(tokenizers.source.encode("字"))) == byte_fallback
    assert [tokenizers.source.vocabulary.entries[i] for i in tokenizers.source.encode("überall")] == [
        "überall"
    ]


def test_codes_with_a_byte_order_mark_are_adopted(tmp_path: Path) -> None:
    plain = subword_nmt_learn(tmp_path / "codes", LINES["source"])
    marked = tmp_path / "marked"
    marked.write_bytes(b"\xef\xbb\xbf" + plain.read_bytes())
    recipe = adopting("bpe")
    assert kind_of_file(marked) == "bpe"
    tokenizers = [adopt_tokenizers(recipe, {"joint": path}, LINES) for path in (plain, marked)]
    assert tokenizers[0].source.vocabulary.entries == tokenizers[1].source.vocabulary.entries


def test_the_kind_of_a_file_follows_from_its_content(tmp_path: Path) -> None:
    assert kind_of_file(subword_nmt_learn(tmp_path / "a.model", LINES["source"])) == "bpe"
    assert kind_of_file(spm_file(tmp_path / "a.codes", LINES["source"], vocab_size=40)) == "sentencepiece"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(UserError) as caught:
            kind_of_file(path)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("sentencepiece", b"this is no model"),
        ("sentencepiece", b""),
        ("bpe", b"#version: 0.2\nl o w\n"),
        ("bpe", b"#version: 0.2\nl \xff\n"),
        ("bpe", b"#version: 0.1\nl o\n"),
    ],
)
def test_a_file_that_cannot_be_adopted_is_named(tmp_path: Path, kind: Kind, content: bytes) -> None:
    path = tmp_path / "adopted"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        adopt_tokenizers(adopting(kind), {"joint": path}, LINES)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "content", ["the 100\nnational@@ 3\n", "▁the\t-3.2\n</s>\t0\n", "the: 0\n<unk>: 1\n", "the\na\n"]
)
def test_a_vocabulary_of_another_toolkit_is_refused_with_what_to_give_instead(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "dict.txt"
    path.write_text(content, encoding="utf-8")
    assert kind_of_file(path) == "sentencepiece"
    problem = "this is a list of words, .* Give the SentencePiece model or the codes of subword-nmt"
    with pytest.raises(UserError, match=problem):
        adopt_tokenizers(adopting("sentencepiece"), {"joint": path}, LINES)


def test_codes_without_a_header_are_not_taken_for_a_list_of_words(tmp_path: Path) -> None:
    path = tmp_path / "codes"
    path.write_text("e r\nt h</w>\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"Codes of subword-nmt must begin with '#version: 0\.2'"):
        adopt_tokenizers(adopting("sentencepiece"), {"joint": path}, LINES)
