"""SentencePiece models: numbering of pieces, models of other tools, and rare pieces."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import sentencepiece

from nmt_cli.errors import UserError
from nmt_cli.text.config import TokenizerConfig
from nmt_cli.text.subword_models.pieces import Pieces, learn_pieces
from nmt_cli.text.vocabulary import NEW_MARKS, Numbering
from tests.text.conftest import LINES, spm_train
from tests.text.rare import too_rare

MARKS = len(NEW_MARKS)


def processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def shown(pieces: Pieces, numbers: Sequence[int]) -> list[str | None]:
    return [pieces.entries[i] for i in numbers]


FOREIGN: dict[str, dict[str, Any]] = {
    "usual": {},
    "padded": {"pad_id": 3},
    "marks-elsewhere": {"unk_id": 2, "bos_id": 0, "eos_id": 1},
    "marks-last": {"unk_id": 79, "bos_id": 78, "eos_id": 77},
    "bpe": {"model_type": "bpe"},
    "char": {"model_type": "char", "vocab_size": 30, "hard_vocab_limit": False},
    "bytes": {"byte_fallback": True, "vocab_size": 336},
    "control-symbols": {"control_symbols": ["<2de>"]},
    "user-symbols": {"user_defined_symbols": ["hund"], "vocab_size": 70},
}


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def config(request: pytest.FixtureRequest) -> TokenizerConfig:
    return TokenizerConfig(vocab_size=80, sentencepiece_model=request.param)


@pytest.fixture(scope="module")
def model(config: TokenizerConfig) -> bytes:
    return learn_pieces(LINES, config)


@pytest.fixture(scope="module", params=FOREIGN)
def foreign(request: pytest.FixtureRequest) -> bytes:
    return spm_train(LINES, **FOREIGN[request.param])


def test_a_learnt_model_has_the_ids_of_sentencepiece(model: bytes) -> None:
    theirs, ours = processor(model), Pieces(model)
    assert theirs.get_piece_size() == 80
    assert [None] * MARKS + [theirs.id_to_piece(i) for i in range(MARKS, 80)] == ours.entries
    for line in LINES:
        assert ours.encode(line) == theirs.encode(line)


def test_special_tokens_of_other_models_are_not_pieces(foreign: bytes) -> None:
    theirs, ours = processor(foreign), Pieces(foreign)
    pieces = [entry for entry in ours.entries if entry is not None]
    assert len(set(pieces)) == len(pieces)
    assert not {"<s>", "</s>", "<unk>", "<pad>", "<2de>"}.intersection(ours.entries)
    for line in LINES:
        ids = ours.encode(line)
        assert shown(ours, ids) == theirs.encode(line, out_type=str)
        assert ours.decode(ids) == line


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("ｈａｕｓ  ﬂuss", "haus fluss"),
        ("  hund\tkatze ", "hund katze"),
        ("</s> haus <s> <unk>", None),
        ("haus 漢字 hund", None),
    ],
)
def test_models_of_other_tools_keep_their_normalisation(text: str, decoded: str | None) -> None:
    model = spm_train(LINES)
    theirs, ours = processor(model), Pieces(model)
    ids = ours.encode(text)
    vocabulary = (numbering := Numbering.new((), ours.entries)).vocabulary
    piece_ids = [numbering.ids[i] for i in ids]
    assert vocabulary.end not in piece_ids
    assert piece_ids.count(vocabulary.unknown) == theirs.encode(text).count(theirs.unk_id())
    if decoded:
        assert ours.decode(ids) == decoded


def test_an_unknown_character_is_one_unknown_piece(model: bytes) -> None:
    pieces = Pieces(model)
    ids = pieces.encode("haus字hund")
    assert shown(pieces, ids).count(None) == 1
    assert pieces.decode(ids) == "haus\u2047hund"


@pytest.mark.parametrize("number", [-1, 80, 10**6])
def test_numbers_without_a_piece_decode_to_unknown(model: bytes, number: int) -> None:
    assert "\u2047" in Pieces(model).decode([number])


@pytest.mark.parametrize("min_count", [5, 60, 100_000])
def test_pieces_that_are_too_rare_are_split_into_common_ones(model: bytes, min_count: int) -> None:
    plain = Pieces(model)
    rare = too_rare(plain, LINES, min_count)
    ours = Pieces(model, rare)
    counts = Counter(i for line in LINES for i in plain.encode(line))
    assert any(len(plain.entries[i] or "") > 1 for i in rare)
    seen: Counter[int] = Counter()
    for line in LINES:
        ids = ours.encode(line)
        seen.update(ids)
        assert "".join(map(str, shown(ours, ids))) == "".join(map(str, shown(plain, plain.encode(line))))
        assert ours.decode(ids) == line
    assert None not in shown(plain, list(seen))
    assert all(counts[i] >= min_count or len(plain.entries[i] or "") == 1 for i in seen)


def test_common_pieces_are_not_split(model: bytes) -> None:
    plain = Pieces(model)
    common = plain.encode(LINES[0])
    ours = Pieces(model, set(range(MARKS, 80)).difference(common))
    assert ours.encode(LINES[0]) == common


def test_a_split_takes_the_fewest_common_pieces() -> None:
    model = spm_train(
        LINES, user_defined_symbols=["abcd", "ab", "cd", "abc", "d", "a", "b", "c"], vocab_size=57
    )
    plain = Pieces(model)
    rare = plain.entries.index("abcd")
    ids = Pieces(model, [rare]).encode("abcd")
    assert shown(plain, ids) in (["\u2581", "ab", "cd"], ["\u2581", "abc", "d"])


@pytest.mark.parametrize("content", [b"", b"#version: 0.2\ne r</w>\n", b"\x00" * 100, spm_train(LINES)[:300]])
def test_a_file_that_is_not_a_sentencepiece_model_is_an_error(
    content: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    sentencepiece.set_min_log_level(0)
    with pytest.raises(UserError, match="not a SentencePiece model"):
        Pieces(content)
    sentencepiece.set_min_log_level(3)
    assert capfd.readouterr().err == ""


def test_all_characters_of_a_long_line_are_covered() -> None:
    lines = ["a b " * 1500 + "Z", "ab \ufdd0 c", "b \u2585 a"] * 5
    pieces = Pieces(learn_pieces(lines, TokenizerConfig(vocab_size=10)))
    for text in ("Z", "ab \ufdd0", "b \u2585"):
        assert pieces.decode(pieces.encode(text)) == text


def test_text_with_many_unassigned_characters_can_be_learnt() -> None:
    lines = ["a b \u2585", "".join(map(chr, range(0xFDD0, 0xFDF0)))]
    pieces = Pieces(learn_pieces(lines, TokenizerConfig(vocab_size=38)))
    for line in lines:
        assert pieces.decode(pieces.encode(line)) == line
