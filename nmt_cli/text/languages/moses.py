"""Moses-style words: splitting punctuation off, and putting it back."""

import re
from functools import cached_property
from typing import Any

from nmt_cli.language import without_region

STAND_IN = re.compile(r"((?:DOT)+MULTI)")
"""What sacremoses writes in place of a run of dots while it works, and turns back into dots; words that look
so are kept from it."""


class Moses:
    """Tokenises and detokenises one language; nothing is escaped, so `&` stays `&`."""

    def __init__(self, lang: str) -> None:
        self._lang = without_region(lang)

    def tokenize(self, text: str) -> str:
        """Words and punctuation with single blanks between; no character but blanks comes or goes."""
        parts = [
            part
            if STAND_IN.fullmatch(part)
            else self._tokenizer.tokenize(part, escape=False, return_str=True)
            for part in STAND_IN.split(text)
        ]
        return " ".join(" ".join(parts).split())

    def detokenize(self, text: str) -> str:
        """Running text again, as far as rules can tell."""
        return str(self._detokenizer.detokenize(text.split(), unescape=False))

    @cached_property
    def _tokenizer(self) -> Any:
        from sacremoses import MosesTokenizer  # half a second, for those who need it

        return MosesTokenizer(self._lang)

    @cached_property
    def _detokenizer(self) -> Any:
        from sacremoses import MosesDetokenizer

        return MosesDetokenizer(self._lang)
