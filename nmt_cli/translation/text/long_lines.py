"""Sentence splitting, the splitting of sentences that are too long for a model, and joining.

A leading symbol is a word at the start of a text with its own token, such as a tag. Each part repeats it.
"""

import re
from collections.abc import Iterator, Sequence

from nmt_cli.data.config import BatchConfig
from nmt_cli.language import iso_code
from nmt_cli.model.config import ModelConfig
from nmt_cli.text.languages.sentence_splitting import sentences
from nmt_cli.text.placeholders import apart
from nmt_cli.text.tokenizer import Tokenizer

CLOSING = "[\"'”’»)\\]」』）]*"
SENTENCE_END = re.compile(rf"[.!?…؟۔।॥։]{CLOSING}(?= )|[。！？｡]{CLOSING}")
CLAUSE_END = re.compile(rf"[;:,،؛–—]{CLOSING}(?= )|[、，；：]{CLOSING}")

WITHOUT_SPACES = ("zh", "ja")
"""Languages without spaces between sentences."""

FIRST_GUESS = 8
"""Characters per token assumed for the first part of a line. It is more than usual: a part that is too long
is shortened later, while a short part stays short."""

AIM, MAX_GROWTH = 0.9, 4.0
"""The first attempt at the next part aims at this fraction of `longest` tokens, judging by the previous part.
It has at most `MAX_GROWTH` times the characters of the previous part."""


def longest_source(model: ModelConfig, trained: int | None = None) -> int:
    """Return the maximum number of source tokens of a sentence, without the end token.

    It is that of training, and at most the positions of the model. `trained` is batch.longest of training, or
    None for the default, and counts the end token.
    """
    longest = trained or BatchConfig().longest
    return (min(longest, model.limit) if model.limit else longest) - 1


def split(text: str, symbols: Sequence[str], lang: str) -> list[tuple[str, str]]:
    """Split a raw `text` in language `lang` into pairs of a sentence and the whitespace after it.

    Leading symbols of the text, those in `symbols`, are repeated before each sentence. If the text begins
    with whitespace, the first pair has an empty sentence.
    """
    begins = len(text) - len(text.lstrip())
    head, body = _leading_symbols(text[begins:], symbols, limit=len(text))
    parts = [(head + sentence if sentence else "", spaces) for sentence, spaces in sentences(body, lang)]
    return [("", text[:begins]), *parts] if begins else parts


def joined(translations: Sequence[str], spaces: Sequence[str], lang: str) -> str:
    """Return the translations of consecutive sentences as one text in language `lang`.

    `spaces` has the whitespace after each source sentence, which is kept. The exception is no whitespace or a
    single space between two texts. It becomes a space, or nothing in Chinese and Japanese.
    """
    separator = "" if iso_code(lang) in WITHOUT_SPACES else " "
    text = []
    for translation, after, following in zip(translations, spaces, [*translations[1:], ""], strict=False):
        text += [translation, separator if translation and following and after in ("", " ") else after]
    return "".join(text)


def parts(text: str, longest: int, tokenizer: Tokenizer) -> Iterator[str]:
    """Yield the parts of a prepared `text`, each with at most `longest` tokens, in linear time.

    A part ends at the last place that fits: the end of a sentence, else another punctuation mark, else a
    space, else anywhere. Punctuation in the first quarter of a part does not count, so that no part is tiny.

    Each part repeats the leading symbols. Spaces between parts are dropped, and so is a character that alone
    has too many tokens.
    """
    head, body = _leading_symbols(text, tokenizer.symbols, limit=longest // 4)

    def count_tokens(start: int, end: int) -> int:
        return len(tokenizer.encode(head + body[start:end]))

    start, width = 0, FIRST_GUESS * longest
    while start < len(body):
        end = _best_end(body, start, start + width)
        # Shortened step by step: fewer characters may have more tokens, so the end cannot be calculated.
        while (count := count_tokens(start, end)) > longest and end > start + 1:
            end = _best_end(body, start, start + max(1, (end - start) * 9 // 10))
        # The estimated width may have ended inside a word that would fit.
        word_end = _word_end(body, end, start + FIRST_GUESS * longest)
        if word_end > end and (longer := count_tokens(start, word_end)) <= longest:
            end, count = word_end, longer
        if count <= longest:
            yield head + body[start:end]
        width = 1 + int((end - start) * min(MAX_GROWTH, AIM * longest / max(1, count)))
        start = end + (body[end : end + 1] == " ")


def _leading_symbols(text: str, symbols: Sequence[str], limit: int) -> tuple[str, str]:
    """Return the leading symbols of `text` with the space after each, and the rest. Placeholders are not
    leading symbols.

    The first part is empty if there are more than `limit` symbols, or if nothing would be left as the rest.
    """
    words, symbols = text.split(" ", limit + 1), apart(symbols)[1]
    count = next((i for i, word in enumerate(words) if word not in symbols), len(words))
    if count > limit or count == len(words):
        return "", text
    head = "".join(f"{word} " for word in words[:count])
    return head, text[len(head) :]


def _best_end(body: str, start: int, end: int) -> int:
    """Return where to end the part of `body` from `start`, at most `end`: after a sentence, else after a
    clause, else at a space, else at `end`. Punctuation in the first quarter does not count."""
    if end >= len(body):
        return len(body)
    early = start + max(1, (end - start) // 4)
    for pattern in (SENTENCE_END, CLAUSE_END):
        # One more character, since a pattern may need the space after a full stop.
        ends = [match.end() for match in pattern.finditer(body, start, end + 1)]
        if ends := [position for position in ends if early <= position <= end]:
            return ends[-1]
    space = body.rfind(" ", start + 1, end + 1)
    return space if space > 0 else end


def _word_end(body: str, position: int, last: int) -> int:
    """Return the index of the first space from `position` to before `last`. Without one, return the length of
    `body` if it is at most `last`, and else 0."""
    space = body.find(" ", position, last)
    if space < 0 and len(body) <= last:
        return len(body)
    return max(0, space)
