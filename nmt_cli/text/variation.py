"""Variations of training pairs: other case, no full stop, typos, placeholders, foreign signs.

A pair is a source and a target, raw or prepared. A variation is a list of edits, so that links between the
words can follow it. In prepared text, `symbols` are the words of the vocabulary
that never change, such as language codes, and `masks` are those symbols that replace placeholders. For raw
text, both are empty.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import groupby, takewhile
from random import Random
from typing import Literal, get_args

from nmt_cli.text.linked_words import Change, Edit, Edits, Link, Pair
from nmt_cli.text.placeholders import JOINED, MASKED, OURS
from nmt_cli.text.tag_placement import SPACELESS, units

Variation = Literal["upper", "title", "unended", "typos", "placeholders", "noise"]
VARIATIONS: tuple[Variation, ...] = get_args(Variation)

END_MARKS = ".!?…。！？।؟۔"
WORDS_PER_TYPO = 8
ESCAPE = re.compile("&(?:amp|apos|quot|lt|gt);", re.IGNORECASE)
"""An escaped character in text that Moses has split with escapes. A typo or another case must not break
it."""

SPACE_BEFORE = re.compile(rf"[\s{SPACELESS}]")
"""A character after which a new word can begin."""

SHORTEST_MISTYPED = 3
"""The minimum number of letters of a word that gets a typo. A shorter word would become another word."""

COUNTS = (1, 1, 2, 3)
"""The numbers of placeholders, or of pictures, that a pair may get. Each item has the same probability."""

BEFORE_END, JOINED_TO_WORD = 0.2, 0.1
"""The probability that a placeholder is put before the final punctuation, and that it is joined to a word."""

PICTURES = (
    range(0x1F600, 0x1F650),  # faces
    range(0x1F300, 0x1F400),  # weather, plants, food
    range(0x1F440, 0x1F500),  # hands, hearts, things
    range(0x1F680, 0x1F6C6),  # vehicles
    range(0x2600, 0x2700),  # stars, games, weights
    range(0x2190, 0x2200),  # arrows
)
LETTERS = (
    range(0x3B1, 0x3CA),  # Greek
    range(0x430, 0x450),  # Cyrillic
    range(0x561, 0x587),  # Armenian
    range(0x5D0, 0x5EB),  # Hebrew
    range(0x628, 0x63B),  # Arabic
    range(0x905, 0x93A),  # Devanagari
    range(0x10D0, 0x10FB),  # Georgian
    range(0x3042, 0x3095),  # Hiragana
    range(0x4E00, 0x9FA6),  # Han
    range(0xAC00, 0xD7A4),  # Hangul
)
"""Characters that the normal forms of Unicode leave as they are, by script. A word of noise has one
script."""

PICTURED, NOISE_AT_END = 0.5, 0.3
"""The probability that noise is pictures instead of letters, and that it is put at the end."""

NAMES = ("name", "user", "count", "date", "first_name", "order", "total", "file", "city", "link")
HOSTS = ("example.org", "www.example.com", "shop.example.net", "a.example")


def varied(
    kind: Variation, pair: Pair, random: Random, symbols: Collection[str] = (), masks: Sequence[str] = ()
) -> Pair:
    """Return a training pair after the variation `kind`. See `changes`."""
    for change in changes(kind, pair, random, symbols, masks):
        pair = change.of(pair)
    return pair


def changes(
    kind: Variation,
    pair: Pair,
    random: Random,
    symbols: Collection[str] = (),
    masks: Sequence[str] = (),
    links: Collection[Link] = (),
) -> Iterator[Change]:
    """Yield the changes that the variation `kind` makes of a training pair, one after another.

    - "upper" and "title" change the case of both texts. "unended" removes the final punctuation of both.
    - "typos" changes only the source.
    - "placeholders" inserts 1 to 3 placeholders into both texts. They are symbols from `masks`, or random
      texts such as URLs if `masks` is empty.
    - "noise" inserts emoji or a word of another script into both texts: before two words that one of the
      `links` joins, or at about the same position if there are none.

    `random` draws what is random. Words in `symbols` never change.
    """
    match kind:
        case "upper" | "title":
            source, target = (_by_word(text, CASES[kind], symbols) for text in pair)
            yield Change(source, target)
        case "unended":
            yield unended(pair)
        case "typos":
            yield Change(_by_word(pair[0], partial(mistyped, random=random), symbols))
        case "placeholders":
            for _ in range(random.choice(COUNTS)):
                change = with_placeholder(pair, random, symbols, masks)
                # The next placeholder is put into the text that has this one.
                pair = change.of(pair)
                yield change
        case "noise":
            yield with_noise(pair, random, symbols, links)


def _by_word(text: str, change: Callable[[str], str], symbols: Collection[str]) -> Edits:
    """Return an edit for each word that `change` changes in `text`. Symbols and placeholders stay.

    `change` is called with runs of words, and must keep the spaces between them.
    """
    edits = []
    for start, end in _runs(text, symbols):
        # An address in another case, or with a typo, would teach the model to change addresses.
        stays = [match.span() for match in MASKED.finditer(text, start, end)]
        starts, ends = [start, *(stop for _, stop in stays)], [*(begin for begin, _ in stays), end]
        for begin, stop in zip(starts, ends, strict=True):
            words, position = text[begin:stop].split(" "), begin
            for word, changed in zip(words, change(text[begin:stop]).split(" "), strict=True):
                if word != changed:
                    edits.append(Edit(position, position + len(word), changed))
                position += len(word) + 1
    return edits


def _runs(text: str, symbols: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last character + 1 of each run of words between symbols."""
    if not symbols:
        yield 0, len(text)
        return
    words = [*re.finditer(r"\S+", text)]
    for is_symbol, run in groupby(words, key=lambda word: word[0] in symbols):
        if not is_symbol:
            own = [*run]
            yield own[0].start(), own[-1].end()


def titled(text: str) -> str:
    """Return `text` with the first character of each word in upper case. Other characters do not change."""
    return " ".join(word[:1].upper() + word[1:] for word in text.split(" "))


def capitals(text: str) -> str:
    """Return `text` in upper case, except for escapes such as &apos;."""
    return ESCAPE.sub(lambda escape: escape[0].lower(), text.upper())


CASES: dict[str, Callable[[str], str]] = {"upper": capitals, "title": titled}


def unended(pair: Pair) -> Change:
    """Remove the final punctuation of both texts, with spaces and `JOINED` before it.

    If one of the texts has no final punctuation or only one character, the pair does not change. A text that
    consists of punctuation does not change either.
    """
    if not all(len(text) > 1 and text[-1] in END_MARKS for text in pair):
        return Change()
    stripped = (text.rstrip(END_MARKS).rstrip().removesuffix(JOINED).rstrip() for text in pair)
    source, target = (
        [Edit(len(short), len(text), "")] if short else [] for short, text in zip(stripped, pair, strict=True)
    )
    return Change(source, target)


def _tags(text: str, symbols: Collection[str]) -> list[str]:
    """Return the symbols at the start of a text, such as a language code. Symbols of placeholders do not
    count."""
    return [*takewhile(lambda word: word in symbols and not OURS.fullmatch(word), text.split(" "))]


def mistyped(text: str, random: Random) -> str:
    """Return `text` with random typos: one, and one more for every `WORDS_PER_TYPO` words.

    A word gets at most one typo. Words with less than `SHORTEST_MISTYPED` letters, or with an escape such as
    &apos;, get none. So there may be fewer typos in a text of short words.
    """
    words = text.split(" ")
    long = [
        i
        for i, word in enumerate(words)
        if sum(map(str.isalpha, word)) >= SHORTEST_MISTYPED and not ESCAPE.search(word)
    ]
    for i in random.sample(long, min(len(long), 1 + len(words) // WORDS_PER_TYPO)):
        words[i] = _mistyped_word(words[i], random)
    return " ".join(words)


def _mistyped_word(word: str, random: Random) -> str:
    """Return `word` with a typo in a random letter. The letter is dropped, doubled, swapped with the next
    character, or replaced by another letter of the word, with equal probability."""
    index = random.choice([i for i, letter in enumerate(word) if letter.isalpha()])
    before, letter, after = word[:index], word[index], word[index + 1 :]
    match random.randrange(4):
        case 0:
            return before + after
        case 1:
            return before + letter + letter + after
        case 2:
            return before + after[:1] + letter + after[1:]
        case _:
            return before + random.choice([letter for letter in word if letter.isalpha()]) + after


def with_placeholder(pair: Pair, random: Random, symbols: Collection[str], masks: Sequence[str]) -> Change:
    """Insert a placeholder into both texts, at about the same position, after symbols at the start.

    It is a random item of `masks` that neither text has, or a random text if `masks` is empty. If all masks
    are used, the pair does not change. Sometimes the placeholder is put before the final punctuation, or
    joined to a word.
    """
    unused = [mask for mask in masks if mask not in pair[0].split() and mask not in pair[1].split()]
    if masks and not unused:
        return Change()
    placeholder = random.choice(unused) if masks else random_placeholder(random)
    join = f" {JOINED} " if masks else ""
    position, choice = random.random(), random.random()
    if choice < BEFORE_END and all(text[-1:] in END_MARKS for text in pair if text):
        source, target = (_before_end(text, placeholder, join) for text in pair)
    else:
        spaced = choice < 1 - JOINED_TO_WORD or not (masks or placeholder[0] in "{$%")
        separator = " " if spaced else join
        source, target = (
            _inserted(text, placeholder, separator, position, len(_tags(text, symbols))) for text in pair
        )
    return Change([source], [target], equal=placeholder)


def with_noise(pair: Pair, random: Random, symbols: Collection[str], links: Collection[Link]) -> Change:
    """Insert the same noise into both texts, after symbols at the start. See `changes`."""
    noise, position, is_at_end = random_noise(random), random.random(), random.random() < NOISE_AT_END
    first = [len(_tags(text, symbols)) for text in pair]
    starts = [*map(_word_starts, pair, first)]
    linked = sorted((s, t) for s, t in links if s in starts[0] and t in starts[1])
    if linked and not is_at_end:
        edits = [
            Edit(start := own[unit], start, f"{noise} ")
            for own, unit in zip(starts, linked[int(position * len(linked))], strict=True)
        ]
    else:
        place = 1.0 if is_at_end else position
        edits = [_inserted(text, noise, " ", place, tags) for text, tags in zip(pair, first, strict=True)]
    source, target = edits
    return Change([source], [target], equal=noise)


def _word_starts(text: str, first: int) -> dict[int, int]:
    """Return the position of each unit of `text`, by its number, before which a text can be put. The unit
    follows a space, or a character of a script without spaces, and not the first `first` words."""
    begin = len(" ".join(text.split(" ")[:first])) + bool(first)
    return {
        number: start
        for number, (start, _) in enumerate(units(text))
        if start >= begin
        and (start == 0 or SPACE_BEFORE.match(text, start - 1))
        and not text.startswith(JOINED, start)
        and not text.endswith(f"{JOINED} ", 0, start)
    }


def random_noise(random: Random) -> str:
    """Return one to three random pictures, such as emoji, or a word of two to five letters of a random
    script."""
    if random.random() < PICTURED:
        return "".join(chr(random.choice(random.choice(PICTURES))) for _ in range(random.choice(COUNTS)))
    script = random.choice(LETTERS)
    return "".join(chr(random.choice(script)) for _ in range(random.randint(2, 5)))


def _before_end(text: str, placeholder: str, join: str) -> Edit:
    """Insert a placeholder and then `join` before the final punctuation of `text`."""
    end = len(text.rstrip(END_MARKS))
    return Edit(len(text[:end].rstrip()), end, f" {placeholder}{join}")


def _inserted(text: str, placeholder: str, separator: str, position: float, first: int) -> Edit:
    """Insert a placeholder before a word of `text`.

    - `separator`: put between the placeholder and the word before it.
    - `position`: 0 for the position before word number `first`, up to 1 for the end.
    - `first`: the number of symbols at the start of `text`, after which a space is put, never `separator`.
    """
    words = text.split(" ")
    index = first + int(position * (len(words) + 1 - first))
    before, after = " ".join(words[:index]), " ".join(words[index:])
    begin = (separator if index > first else " ") if before else ""
    # The space between both parts is replaced too.
    return Edit(len(before), len(text) - len(after), f"{begin}{placeholder}{' ' if after else ''}")


def random_placeholder(random: Random) -> str:
    """Return a random placeholder such as {{name_5}}, {0} or %s, a random URL, or an e-mail address."""
    name, number = random.choice(NAMES), random.randrange(1, 10**6)
    return random.choice(
        [
            f"{{{{{name}_{number}}}}}",
            f"{{{{ {name}.{number} }}}}",
            f"{{{name}{number}}}",
            f"{{{number % 10}}}",
            f"${{{name}_{number}}}",
            f"%{number % 9 + 1}${random.choice('sd')}",
            f"%{random.choice('sd')}",
            f"%({name})s",
            f"https://{random.choice(HOSTS)}/{name}/{number}?q={number % 97}&x=%20#{name}",
            f"http://{random.choice(HOSTS)}/{name}_({number})/",
            f"{name}.{number}@{random.choice(HOSTS[:1])}",
            f"{name}+{number}@mail.example.co.uk",
        ]
    )
