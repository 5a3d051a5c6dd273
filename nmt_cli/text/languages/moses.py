"""Tokenisation and detokenisation in the style of Moses."""

import re
from functools import cached_property
from typing import Any

from nmt_cli.language import iso_code

STAND_IN = re.compile(r"((?:DOT)+MULTI)")
"""The text by which sacremoses replaces a run of dots. It would turn a word like this into dots."""


class Moses:
    """Tokenisation and detokenisation of one language. Unless `escape` is set, `&` stays `&`."""

    def __init__(self, lang: str, *, escape: bool = False) -> None:
        self._lang, self._escape = iso_code(lang), escape

    def tokenize(self, text: str) -> str:
        """Return the words and punctuation of `text` with single spaces between. Change only whitespace, and
        characters to escape."""
        parts = [
            part
            if STAND_IN.fullmatch(part)
            else self._tokenizer.tokenize(part, escape=self._escape, return_str=True)
            for part in STAND_IN.split(text)
        ]
        return " ".join(" ".join(parts).split())

    def detokenize(self, text: str) -> str:
        """Return `text`, words with spaces between, as running text. The original may have been different."""
        return str(self._detokenizer.detokenize(text.split(), unescape=self._escape))

    @cached_property
    def _tokenizer(self) -> Any:
        from sacremoses import MosesTokenizer  # imported late, because it takes half a second

        return MosesTokenizer(self._lang)

    @cached_property
    def _detokenizer(self) -> Any:
        from sacremoses import MosesDetokenizer

        return MosesDetokenizer(self._lang)
