"""Sentence splitting, the splitting of sentences that are too long for a model, and joining.

A leading symbol is a word at the start of a text with its own token, such as a tag. Each part repeats it.
"""

import re
from collections.abc import Iterator, Sequence

from nmt_cli.data.config import BatchConfig
from nmt_cli.decoding.config import InputConfig
from nmt_cli.errors import UserError
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


def longest_source(config: InputConfig, model: ModelConfig, trained: int | None = None) -> int:
    """Return the maximum number of source tokens of a sentence, without the end token: `input.longest`, or
    else `trained` - 1, at most the positions of the model - 1. `trained` is the `batch.longest` of training,
    None for its default. Raise `UserError` if `input.longest` does not fit the positions."""
    limit = model.limit or None
    if config.longest:
        if limit and config.longest >= limit:
            raise UserError(
                f"input.longest must be at most {limit - 1} (got {config.longest}): the model has {limit} "
                "positions, and the end token takes one."
            )
        return config.longest
    longest = trained or BatchConfig().longest
    return (min(longest, limit) if limit else longest) - 1


def split(text: str, symbols: Sequence[str], lang: str) -> list[tuple[str, str]]:
    """Split a raw `text` in language `lang` into pairs of a sentence and the whitespace after it. Repeat
    leading `symbols` before each sentence. Whitespace at the start follows an empty sentence."""
    begins = len(text) - len(text.lstrip())
    head, body = _leading_symbols(text[begins:], symbols, limit=len(text))
    parts = [(head + sentence if sentence else "", spaces) for sentence, spaces in sentences(body, lang)]
    return [("", text[:begins]), *parts] if begins else parts


def joined(translations: Sequence[str], spaces: Sequence[str], lang: str) -> str:
    """Return translations of consecutive sentences, or parts of sentences, as one text in language `lang`.
    Keep `spaces`, the whitespace after each source sentence. But replace a single space or none between two
    texts by a separator: a space, or nothing in Chinese and Japanese."""
    separator = "" if iso_code(lang) in WITHOUT_SPACES else " "
    text = []
    for translation, after, following in zip(translations, spaces, [*translations[1:], ""], strict=False):
        text += [translation, separator if translation and following and after in ("", " ") else after]
    return "".join(text)


def parts(text: str, longest: int, tokenizer: Tokenizer) -> Iterator[str]:
    """Yield parts of a prepared `text` of at most `longest` tokens each, in linear time. A part ends at the
    last end of a sentence that fits, else at other punctuation, else between words, else anywhere.
    Punctuation in the first quarter of a part does not count. Each part repeats the leading symbols. Drop
    spaces between parts, and a character that alone has too many tokens."""
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
    """Split `text` into its leading symbols, without placeholders, and the rest. Return "" as the first part
    for more than `limit` leading symbols, or an empty rest."""
    words, symbols = text.split(" ", limit + 1), apart(symbols)[1]
    count = next((i for i, word in enumerate(words) if word not in symbols), len(words))
    if count > limit or count == len(words):
        return "", text
    head = "".join(f"{word} " for word in words[:count])
    return head, text[len(head) :]


def _best_end(body: str, start: int, end: int) -> int:
    """Return the index, at most `end`, to end the part of `body` from `start`: after a sentence, else after a
    clause, else at a space, else `end`. Ignore punctuation in the first quarter."""
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
    """Return the first space's index in `body[position:last]`, else `len(body)` if at most `last`, else 0."""
    space = body.find(" ", position, last)
    if space < 0 and len(body) <= last:
        return len(body)
    return max(0, space)
