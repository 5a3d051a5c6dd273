"""A tokeniser turns text into ids and back, with symbols in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.text.config import TextConfig
from nmt_cli.text.languages.moses import Moses
from nmt_cli.text.normalize import Normalizer
from nmt_cli.text.subword_models.characters_and_words import Characters, Words
from nmt_cli.text.subword_models.subwords import Subwords
from nmt_cli.text.tokenizer import Tokenizer, apart_from
from nmt_cli.text.vocabulary import NEW_MARKS as MARKS
from nmt_cli.text.vocabulary import Numbering

SYMBOLS = ("<2de>", "<BT>", "Ⅳ!")
FIRST = len(MARKS) + len(SYMBOLS)
ALPHABET = "abcdefgh </>2BTTx@"


def tokenizer(config: TextConfig | None = None, moses: Moses | None = None) -> Tokenizer:
    normalizer = Normalizer(config or TextConfig(), fold_space_mark=False)
    return around(Characters(ALPHABET), normalizer, moses)


def around(model: Subwords, normalizer: Normalizer | None = None, moses: Moses | None = None) -> Tokenizer:
    numbering = Numbering.new(SYMBOLS, model.entries)
    return Tokenizer(normalizer or Normalizer(TextConfig(), False), moses, model, numbering)


@pytest.mark.parametrize(("words", "size"), [(0, 8), (2, 8), (3, 8), (4, 16), (11, 16)])
def test_the_size_is_rounded_up_only_if_necessary(words: int, size: int) -> None:
    model = Words([str(number) for number in range(words)])
    assert len(around(model).vocabulary) == size


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_a_symbol_is_one_id_at_any_position(symbol: str) -> None:
    ours = tokenizer(TextConfig(unicode="nfkc", lowercase=True), Moses("en"))
    own = len(MARKS) + SYMBOLS.index(symbol)
    for raw in [symbol, f"{symbol} abc", f"abc {symbol}", f"  ab \t{symbol}  c\n", f"{symbol} {symbol}"]:
        prepared = ours.prepare(raw)
        ids = ours.encode(prepared)
        assert ids.count(own) == raw.count(symbol)
        assert ours.decode(ids) == prepared == " ".join(raw.split())


@pytest.mark.parametrize("written", ["x<2de>", "<2de>x", "<BT><BT>", "<2", "de>"])
def test_text_similar_to_a_symbol_is_text(written: str) -> None:
    ours = tokenizer()
    ids = ours.encode(ours.prepare(written))
    assert min(ids) >= FIRST
    assert ours.decode(ids) == written


def test_text_around_symbols_is_prepared_and_the_symbols_are_not() -> None:
    ours = tokenizer(TextConfig(unicode="nfkc", lowercase=True), Moses("en"))
    assert ours.prepare("Ⅳ! ABC, Ⅳ <BT> <bt>") == "Ⅳ! abc , iv <BT> < bt >"


def test_words_are_restored_to_running_text() -> None:
    moses = Moses("en")
    assert tokenizer(moses=moses).restore("Well , it 's done .") == "Well, it's done."
    assert tokenizer().restore("Well , it 's done .") == "Well , it 's done ."


@given(words=st.lists(st.sampled_from(["a", "bc", "x", *SYMBOLS, "<2de>.", "</s>"])))
def test_text_comes_back_with_its_symbols(words: list[str]) -> None:
    ours = around(Characters("abcx</s>2de.", byte_fallback=True))
    text = " ".join(words)
    assert ours.decode(ours.encode(ours.prepare(text))) == text


def test_an_empty_line_has_no_ids() -> None:
    ours = tokenizer()
    assert ours.encode(ours.prepare(" \t ")) == []
    assert ours.decode([]) == ""


def test_a_change_keeps_symbols_and_drops_empty_parts() -> None:
    assert apart_from(["<BT>"], str.upper, "a b <BT> c") == "A B <BT> C"
    assert apart_from(["<BT>"], lambda text: "", "a <BT> b <BT>") == "<BT> <BT>"
