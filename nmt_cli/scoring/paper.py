"""BLEU as in 'Attention Is All You Need', without the Perl scripts.

Unicode punctuation is replaced in hypotheses, and quotes are straightened in references. Both are then
tokenised like Moses, and hyphens inside words are split off. multi-bleu counts the result, case-sensitively.
"""

import re

from nmt_cli.text.languages.moses import Moses

LANGUAGES = frozenset(
    "as bn ca cs de el en es et fi fr ga gu hi hu is it kn lt lv ml mni mr nl or pa pl pt ro ru sk sl sv ta "
    "te tdt".split()
)
"""The languages that the Moses tokeniser splits into words. It does not split Chinese."""

WIDE_STOP = re.compile("[。．] *")
PUNCTUATION = str.maketrans(
    {
        **dict.fromkeys("，、", ","),
        **dict.fromkeys("”“《》」「", '"'),
        **dict.fromkeys("∶：", ":"),
        **dict(zip("？）！（；～’━〈〉【】％", "?)!(;~'-<>[]%", strict=True)),
        **dict(zip("０１２３４５６７８９", "0123456789", strict=True)),
        "…": "...",
    }
)
"""The replacements of Moses's replace-unicode-punctuation. Low quotes are not among them."""

QUOTES = str.maketrans({**dict.fromkeys("“”„‟", '"'), **dict.fromkeys("‘’‚‛", "'")})

COMPOUND = re.compile(rb"(\S)-(\S)")


class PaperProtocol:
    """The preparation of lines of one language for BLEU as multi-bleu counts it."""

    def __init__(self, lang: str) -> None:
        self._moses = Moses(lang)

    def hypothesis(self, line: str) -> str:
        """Return a line of a system's output as words with spaces between, after `replace_punctuation`."""
        # The original also escapes `&` as `&amp;`. It does so on both sides, which changes no score.
        return split_compounds(self._moses.tokenize(replace_punctuation(line)))

    def reference(self, line: str) -> str:
        """Return a line of a reference as words with spaces between, after `straighten_quotes`."""
        return split_compounds(self._moses.tokenize(straighten_quotes(line)))


def replace_punctuation(line: str) -> str:
    """Return `line` with full-width or typographic punctuation and digits as ASCII, except low quotes."""
    return WIDE_STOP.sub(". ", line).translate(PUNCTUATION)


def straighten_quotes(line: str) -> str:
    """Return `line` with low and curly quotes replaced by " and '. Angle quotes such as « stay."""
    return line.translate(QUOTES)


def split_compounds(line: str) -> str:
    """Return `line` with hyphens between characters split off: `rich ##AT##-##AT## text` for `rich-text`.
    Matches do not overlap, so `a-b-c` is split once. Match bytes, as the original does, to split one-letter
    parts outside ASCII on both sides."""
    return COMPOUND.sub(rb"\1 ##AT##-##AT## \2", line.encode()).decode()
