"""Settings of the reading of raw files."""

from dataclasses import dataclass
from typing import Literal

from nmt_cli.config import Section, setting


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusConfig(Section):
    """How raw files are read."""

    section = "corpus"

    invalid_utf8: Literal["error", "replace", "skip"] = setting("error", everyday=True)
    """Treatment of a line that is not UTF-8. "error" ends the command. "replace" turns invalid bytes into
    U+FFFD. "skip" drops the pair, but replaces bytes in validation and test sets, which keep every line."""

    source_column: str = ""
    """Column of the source in a table, or field in a record. Its name ("translation.en" for a field inside
    another), or its number in a .tsv without names. "" finds translation.LANG, LANG, source or src."""

    target_column: str = ""
    """Column or field of the target."""

    score_column: str = ""
    """Column or field with a quality score of the pair. `filter.min_score` and the choice among pairs with an
    equal side use it. "" means no scores."""

    alignment_column: str = ""
    """Column or field with the word alignment of a pair. Its format is that of `alignments`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names or numbers of all columns that are set."""
        names = self.source_column, self.target_column, self.score_column, self.alignment_column
        return tuple(filter(None, names))
