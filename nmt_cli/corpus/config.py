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

    source_column: str = ""
    """The source's column in a table, or field in a record ("translation.en" for one inside another): its
    name, or its number in a .tsv without names; "" finds translation.LANG, LANG and source, src by itself."""

    target_column: str = ""
    """The same for the target side."""

    score_column: str = ""
    """The column or field with a number that says how good a pair is, for `filter.min_score` and the best of
    equal sides; "" where there is none."""
