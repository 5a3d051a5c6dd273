"""The protocol behind the BLEU of 'Attention Is All You Need', without the Perl scripts it was made of.

Output has its Unicode punctuation replaced and is tokenised as by Moses; references are tokenised as well; in
both, hyphens inside words are split off; what is left is counted by multi-bleu, cased.
"""

import re

from nmt_cli.text.languages.moses import Moses

LANGUAGES = frozenset(
    "as bn ca cs de el en es et fi fr ga gu hi hu is it kn lt lv ml mni mr nl or pa pl pt ro ru sk sl sv ta "
    "te tdt".split()
)
"""The languages that the Moses tokeniser splits into words; Chinese it would leave in one piece."""

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
"""What Moses's replace-unicode-punctuation replaces, nothing more: low quotes stay."""

QUOTES = str.maketrans({**dict.fromkeys("“”„‟", '"'), **dict.fromkeys("‘’‚‛", "'")})

COMPOUND = re.compile(rb"(\S)-(\S)")


class PaperProtocol:
    """Makes lines of one language ready for multi-bleu."""

    def __init__(self, lang: str) -> None:
        self._moses = Moses(lang)

    def hypothesis(self, line: str) -> str:
        """A line of a system's output, words between blanks."""
        return self._words(replace_punctuation(line))

    def reference(self, line: str) -> str:
        """A line of a reference, words between blanks."""
        return self._words(straighten_quotes(line))

    def _words(self, line: str) -> str:
        # The original also escapes: `&` becomes `&amp;`. That renames words alike on both sides and changes
        # no score.
        return split_compounds(self._moses.tokenize(line))


def replace_punctuation(line: str) -> str:
    """Replace full-width and typographic punctuation by ASCII, as Moses's replace-unicode-punctuation
    does."""
    return WIDE_STOP.sub(". ", line).translate(PUNCTUATION)


def straighten_quotes(line: str) -> str:
    """Low and curly quotes as " and '."""
    return line.translate(QUOTES)


def split_compounds(line: str) -> str:
    """`rich-text` as `rich ##AT##-##AT## text`; matches don't overlap, so `a-b-c` is split only once.

    Works on bytes like the original: a one-letter part outside ASCII is two bytes, and is split twice.
    """
    return COMPOUND.sub(rb"\1 ##AT##-##AT## \2", line.encode()).decode()
