"""Lines too long for a model, split where sentences end, or else at the next best places."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from nmt_cli.data.config import BatchConfig
from nmt_cli.decoding.config import InputConfig, TooLong
from nmt_cli.errors import UserError
from nmt_cli.language import without_region
from nmt_cli.model.config import ModelConfig
from nmt_cli.text.languages.sentences import sentences
from nmt_cli.text.placeholders import apart
from nmt_cli.text.tokenizer import Tokenizer

CLOSING = "[\"'”’»)\\]」』）]*"
SENTENCE_END = re.compile(rf"[.!?…؟۔।॥։]{CLOSING}(?= )|[。！？｡]{CLOSING}")
CLAUSE_END = re.compile(rf"[;:,،؛–—]{CLOSING}(?= )|[、，；：]{CLOSING}")

WITHOUT_BLANKS = ("zh", "ja")
"""Languages that put no blank between sentences."""

FIRST_GUESS = 8
"""Characters assumed for each piece before the first part of a line has been tried. More than most pieces
have: a part that is tried too long is made shorter, one that is too short would stay so."""

AIM, MOST_GROWTH = 0.9, 4.0
"""The first try at a part aims at this share of the pieces that fit, by the characters for each piece of the
part before, and at `MOST_GROWTH` times its characters at most."""


def longest_source(config: InputConfig, model: ModelConfig, trained: int | None = None) -> int:
    """The most pieces of one source, end mark not counted.

    `trained` is the `batch.longest` that the model was trained with; None where that is not known.
    """
    most = model.limit or None
    if config.longest:
        if most and config.longest >= most:
            raise UserError(
                f"[input]: longest is {config.longest}, but the model has {most} positions, one of them for "
                f"the end mark; take at most {most - 1}."
            )
        return config.longest
    known = trained or BatchConfig().longest
    return (min(known, most) if most else known) - 1


def split(text: str, symbols: Sequence[str], lang: str) -> list[tuple[str, str]]:
    """The sentences of a raw `text`, each with the blanks behind it; symbols that it starts with start each
    of them."""
    begins = len(text) - len(text.lstrip())
    head, body = _apart(text[begins:], symbols, most=len(text))
    found = [(head + sentence if sentence else "", blanks) for sentence, blanks in sentences(body, lang)]
    return [("", text[:begins]), *found] if begins else found


def shortened(text: str, longest: int, rule: TooLong, tokenizer: Tokenizer) -> list[str]:
    """The parts of a prepared `text` of more than `longest` pieces that are to be translated, in order."""
    match rule:
        case "split":
            return list(parts(text, longest, tokenizer))
        case "cut":
            return list(islice(parts(text, longest, tokenizer), 1))
        case "skip":
            return []


def joined(translations: Sequence[str], blanks: Sequence[str], lang: str) -> str:
    """The translations of sentences, or of parts of them, as one text of `lang`.

    `blanks` stand behind each of them in the source, and behind its translation too; but between two on a
    line is one blank, or none, as the language has it.
    """
    usual = "" if without_region(lang) in WITHOUT_BLANKS else " "
    text = []
    for here, after, following in zip(translations, blanks, [*translations[1:], ""], strict=False):
        text += [here, usual if here and following and after in ("", " ") else after]
    return "".join(text)


def parts(text: str, longest: int, tokenizer: Tokenizer) -> Iterator[str]:
    """Prepared `text` in parts of at most `longest` pieces, in time linear in its length.

    A part ends at the last end of a sentence in as much as fits, else at other punctuation, else between
    words, else anywhere; places before the first quarter of what fits count only where a word would be
    broken. Each part is prepared text; the blanks between parts are left out. Symbols that the text starts
    with start every part. A character that alone has too many pieces is left out.
    """
    head, body = _apart(text, tokenizer.symbols, most=longest // 4)

    def pieces(start: int, end: int) -> int:
        return len(tokenizer.encode(head + body[start:end]))

    start, width = 0, FIRST_GUESS * longest
    while start < len(body):
        end = _best_place(body, start, start + width)
        # Shortened bit by bit: fewer characters may have more pieces, so the place can't be calculated.
        while (count := pieces(start, end)) > longest and end > start + 1:
            end = _best_place(body, start, start + max(1, (end - start) * 9 // 10))
        # The guess of a width may have ended inside of a word that would fit as a whole.
        word_end = _word_end(body, end, start + FIRST_GUESS * longest)
        if word_end > end and (whole := pieces(start, word_end)) <= longest:
            end, count = word_end, whole
        if count <= longest:
            yield head + body[start:end]
        width = 1 + int((end - start) * min(MOST_GROWTH, AIM * longest / max(1, count)))
        start = end + (body[end : end + 1] == " ")


def _apart(text: str, symbols: Sequence[str], most: int) -> tuple[str, str]:
    """The symbols that `text` starts with, but for placeholders, and the rest; all is rest if there are more
    than `most` symbols."""
    words, symbols = text.split(" ", most + 1), apart(symbols)[1]
    count = next((i for i, word in enumerate(words) if word not in symbols), len(words))
    if count > most or count == len(words):
        return "", text
    head = "".join(f"{word} " for word in words[:count])
    return head, text[len(head) :]


def _best_place(body: str, start: int, end: int) -> int:
    """Where to end the part that begins at `start`, no later than at `end`."""
    if end >= len(body):
        return len(body)
    early = start + max(1, (end - start) // 4)
    for pattern in (SENTENCE_END, CLAUSE_END):
        # One character more, since a pattern may need to see the blank behind a full stop.
        found = [match.end() for match in pattern.finditer(body, start, end + 1)]
        if places := [place for place in found if early <= place <= end]:
            return places[-1]
    blank = body.rfind(" ", start + 1, end + 1)
    return blank if blank > 0 else end


def _word_end(body: str, place: int, last: int) -> int:
    """Where the word around `place` ends; 0 if that is behind `last`."""
    blank = body.find(" ", place, last)
    if blank < 0 and len(body) <= last:
        return len(body)
    return max(0, blank)
