"""BLEU as in 'Attention Is All You Need', without the Perl scripts.

Unicode punctuation is replaced in hypotheses, and quotes are straightened in references. Both are then
tokenised like Moses, and compound words are split at hyphens. multi-bleu counts the result, case-sensitively.
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
"""The replacements of Moses's script replace-unicode-punctuation. Low quotes are not among them."""

QUOTES = str.maketrans({**dict.fromkeys("“”„‟", '"'), **dict.fromkeys("‘’‚‛", "'")})

COMPOUND = re.compile(rb"(\S)-(\S)")


class PaperProtocol:
    """The preparation of lines in one language for this BLEU."""

    def __init__(self, lang: str) -> None:
        self._moses = Moses(lang)

    def hypothesis(self, line: str) -> str:
        """Prepare a line of a system's output. Return its words with single spaces in between."""
        # The original also escapes `&` as `&amp;`. It does so on both sides, which changes no score.
        return split_compounds(self._moses.tokenize(replace_punctuation(line)))

    def reference(self, line: str) -> str:
        """Prepare a line of a reference. Return its words with single spaces in between."""
        return split_compounds(self._moses.tokenize(straighten_quotes(line)))


def replace_punctuation(line: str) -> str:
    """Replace full-width and typographic punctuation and digits by ASCII. Low quotes do not change."""
    return WIDE_STOP.sub(". ", line).translate(PUNCTUATION)


def straighten_quotes(line: str) -> str:
    """Replace low and curly quotes by " and '. Angle quotes such as « do not change."""
    return line.translate(QUOTES)


def split_compounds(line: str) -> str:
    """Split words at hyphens: `rich-text` becomes `rich ##AT##-##AT## text`.

    As in the original script, a hyphen needs a byte on each side, and matches do not overlap. So `a-b-c` is
    split only once. A letter outside ASCII has several bytes, so such a one-letter part is split off on both
    sides.
    """
    return COMPOUND.sub(rb"\1 ##AT##-##AT## \2", line.encode()).decode()
