"""Vocabularies, new ones and those of other toolkits, which two subword models may share."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import sentencepiece

from nmt_cli.errors import UserError
from nmt_cli.text.config import TextConfig
from nmt_cli.text.tokenizer import SIDES, Side
from nmt_cli.text.tokenizers import Recipe, Tokenizers, load_tokenizers, numbered_tokenizers
from nmt_cli.text.vocabulary import Numbering, Vocabulary, read_vocabulary
from tests.text.conftest import spm_train

TEXTS: dict[Side, list[str]] = {
    "source": ["the cat sat on the mat"] * 30,
    "target": ["die katze sitzt auf der matte"] * 30,
}
RECIPE = Recipe("sentencepiece", True, "en", "de", TextConfig(words="raw"), own_models=True)
LACKING = "▁the"
"""A piece without an entry in the vocabulary."""


MODELS = {
    side: {"model": spm_train(lines, vocab_size=30, hard_vocab_limit=False)} for side, lines in TEXTS.items()
}
PROCESSORS = {
    side: sentencepiece.SentencePieceProcessor(model_proto=files["model"]) for side, files in MODELS.items()
}


def shared() -> Vocabulary:
    """Return a vocabulary like Marian's: pieces of both sides mixed, end token not first, padding last."""
    pieces = {p.id_to_piece(i) for p in PROCESSORS.values() for i in range(3, p.get_piece_size())}
    entries = ["<unk>", *sorted(pieces - {LACKING}), "</s>", "<pad>"]
    size = len(entries)
    return Vocabulary(tuple(entries), end=size - 2, start=None, unknown=0, never=(size - 1,))


def marian() -> Tokenizers:
    return numbered_tokenizers(RECIPE, MODELS, dict.fromkeys(SIDES, shared()))


def test_half_of_a_surrogate_pair_is_not_an_entry() -> None:
    with pytest.raises(UserError, match=r"has 'a.ud800', which is not Unicode text"):
        Vocabulary(("</s>", "<unk>", "a\ud800"), end=0, start=None, unknown=1)


@pytest.mark.parametrize("side", SIDES)
def test_two_models_share_a_vocabulary(side: Side) -> None:
    tokenizer = marian().side(side)
    entries = list(shared().entries)
    for line in TEXTS[side][:1]:
        pieces = PROCESSORS[side].encode(line, out_type=str)
        ids = [entries.index(piece) if piece in entries else 0 for piece in pieces]
        assert tokenizer.encode(line) == ids
        if LACKING not in pieces:
            assert tokenizer.decode(ids) == line
        else:
            assert 0 in ids and "\u2047" in tokenizer.decode(ids)


def test_special_tokens_written_in_the_text_never_become_special() -> None:
    vocabulary = shared()
    ids = marian().target.encode("</s> <pad> <unk> die")
    assert not {vocabulary.end, *vocabulary.never} & {*ids}


@pytest.mark.parametrize("start", [None, 0, 5])
def test_special_tokens_of_every_kind_come_back_from_a_folder(tmp_path: Path, start: int | None) -> None:
    vocabulary = shared()
    vocabulary = Vocabulary(vocabulary.entries, vocabulary.end, start, vocabulary.unknown, vocabulary.never)
    saved = numbered_tokenizers(RECIPE, MODELS, dict.fromkeys(SIDES, vocabulary))
    saved.save(tmp_path / "tokenizer")
    again = load_tokenizers(tmp_path / "tokenizer")
    assert again.recipe == RECIPE and again.fingerprint == saved.fingerprint
    assert again.source.vocabulary == again.target.vocabulary == vocabulary
    for side in SIDES:
        line = TEXTS[side][0]
        assert saved.side(side).encode(line) == again.side(side).encode(line)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [*lines[:2], lines[1], *lines[3:]], "twice"),
        (lambda lines: lines[:-1], "the never token is"),
        (lambda lines: [f"word{i}" for i in range(len(lines))], "no piece of the subword model"),
    ],
)
def test_a_vocabulary_file_that_does_not_fit_is_refused(
    tmp_path: Path, change: Callable[[list[str]], list[str]], message: str
) -> None:
    marian().save(tmp_path / "tokenizer")
    path = tmp_path / "tokenizer" / "joint.vocabulary.txt"
    entries = change(path.read_text("utf-8").splitlines())
    path.write_text("".join(f"{entry}\n" for entry in entries), "utf-8")
    with pytest.raises(UserError, match=message):
        load_tokenizers(tmp_path / "tokenizer")


def test_fields_for_other_toolkits_are_left_out_of_new_folders() -> None:
    described = json.loads(marian().files["tokenizer.json"])
    assert described["own_models"] and described["marks"]["joint"]["start"] is None
    assert "own_models" not in Recipe("char", True, "en", "de", TextConfig()).described()


def test_a_new_vocabulary_is_special_tokens_symbols_pieces_and_padding() -> None:
    numbering = Numbering.new(["<2de>"], ["a", None, "b"])
    assert numbering.vocabulary == Vocabulary(
        ("</s>", "<unk>", "<2de>", "a", "b", "", "", ""), end=0, start=0, unknown=1, never=(5, 6, 7)
    )
    assert [*numbering.ids] == [3, 1, 4, 1]
    assert read_vocabulary(numbering.vocabulary.file(), numbering.vocabulary.marks) == numbering.vocabulary


@pytest.mark.parametrize("marks", [(9, 0, 1, ()), (0, 9, 1, ()), (0, 0, 0, ()), (0, 0, 1, (0,))])
def test_invalid_special_tokens_are_errors(marks: tuple[int, int, int, tuple[int, ...]]) -> None:
    with pytest.raises(UserError):
        Vocabulary(("",) * 8, *marks)
