"""What the corpus room needs to be told."""

from dataclasses import dataclass
from typing import Literal

from nmt_cli.config import setting


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusConfig:
    """How raw files are read."""

    invalid_utf8: Literal["error", "replace", "skip"] = setting("error", everyday=True)
    """A line that is not UTF-8 ends the command ("error"), has its bad bytes replaced by U+FFFD ("replace"),
    or is left out with its partner ("skip"; in valid and test sets it is replaced, they keep every line)."""
