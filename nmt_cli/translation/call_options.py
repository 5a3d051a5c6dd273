"""How to translate the lines of one call."""

from collections.abc import Sequence
from dataclasses import dataclass

from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import Rule
from nmt_cli.translation.text.model_glossary import Glossary


@dataclass(frozen=True, slots=True)
class CallOptions:
    """How to translate the lines of one call. `Translator.options` checks and makes them."""

    search: SearchConfig
    banned: Sequence[Sequence[int]] = ()
    """The token ids of each text of `search.ban`."""

    aligned: bool = False
    """Whether translations have the alignment of their words."""

    glossary: Glossary | None = None
    """Terms that translations must have."""

    rule: Rule | None = None
    """A rule of the search for the next tokens."""
