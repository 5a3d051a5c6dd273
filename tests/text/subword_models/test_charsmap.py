"""A model with our normalisation segments raw text in the same way as normalised text."""

import unicodedata
from functools import cache

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.errors import UserError
from nmt_cli.text.config import TextConfig, TokenizerConfig
from nmt_cli.text.normalize import Normalizer
from nmt_cli.text.subword_models.charsmap import with_normalization
from nmt_cli.text.subword_models.pieces import learn_pieces

LINES = [f'a dog says "he\'s é ö ß" {i} times, fine.' for i in range(40)]
MODEL = learn_pieces(LINES, TokenizerConfig(vocab_size=36))
ODD = [
    "“He”\u00a0called",
    "Jose\u0301 a\tb",
    "  two   blanks\u2003",
    "\u1e69 s\u0323\u0307",
    "soft\u00adhyphen",
    "\u212b…",
    "l´a",  # NFKC makes a space and a combining accent of it
    "l\u00a8\u0342a",
    "a ▁b▁c",
]
CONFIGS = {
    "as usual": TextConfig(),
    "everything": TextConfig(
        unicode="nfkc", zero_width="remove", quotes=True, punctuation=True, lowercase=True
    ),
}


@cache
def travelling(name: str) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=with_normalization(MODEL, CONFIGS[name]))


PLAIN = sentencepiece.SentencePieceProcessor(model_proto=MODEL)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("text", [*ODD, *LINES[:2]])
def test_unusual_text_is_segmented_like_normalised_text(name: str, text: str) -> None:
    normalized = Normalizer(CONFIGS[name], fold_space_mark=True)(text)
    assert travelling(name).encode(text, out_type=str) == PLAIN.encode(normalized, out_type=str)


@pytest.mark.parametrize("name", CONFIGS)
@given(text=st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Z")), max_size=12))
def test_composed_letters_are_segmented_like_normalised_text(name: str, text: str) -> None:
    text = unicodedata.normalize("NFD", text) if len(text) % 2 else text
    normalized = Normalizer(CONFIGS[name], fold_space_mark=True)(text)
    ids = travelling(name).encode(text, out_type=int)
    assert ids == PLAIN.encode(normalized, out_type=int)


def test_a_file_that_is_not_a_model_is_an_error() -> None:
    with pytest.raises(UserError, match="not a SentencePiece model"):
        with_normalization(b"\x0f\x0f\x0f", TextConfig())
