"""Tokenisation and detokenisation in the style of Moses, by the package sacremoses."""

import re
from functools import cached_property
from typing import Any

from nmt_cli.language import iso_code

STAND_IN = re.compile(r"((?:DOT)+MULTI)")
"""The text by which sacremoses replaces a run of dots. It would turn a word like this into dots."""


class Moses:
    """A tokeniser and detokeniser of one language.

    With `escape`, special characters such as `&` and `'` become entities in tokenised text, and are restored
    by `detokenize`. Without it, they do not change.
    """

    def __init__(self, lang: str, *, escape: bool = False) -> None:
        self._lang, self._escape = iso_code(lang), escape

    def tokenize(self, text: str) -> str:
        """Split `text` into words and punctuation marks, separated by single spaces. No other character
        changes, except for entities if `escape` is set."""
        parts = [
            part
            if STAND_IN.fullmatch(part)
            else self._tokenizer.tokenize(part, escape=self._escape, return_str=True)
            for part in STAND_IN.split(text)
        ]
        return " ".join(" ".join(parts).split())

    def detokenize(self, text: str) -> str:
        """Join words that are separated by spaces into running text. The rules guess the spaces, so the
        result may differ from the text before `tokenize`."""
        return str(self._detokenizer.detokenize(text.split(), unescape=self._escape))

    @cached_property
    def _tokenizer(self) -> Any:
        from sacremoses import MosesTokenizer  # imported late, because it takes half a second

        return MosesTokenizer(self._lang)

    @cached_property
    def _detokenizer(self) -> Any:
        from sacremoses import MosesDetokenizer

        return MosesDetokenizer(self._lang)
