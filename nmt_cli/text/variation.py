"""Pairs as other people write them: another case, no full stop, typos, copies, placeholders.

Each variation is a function of a pair and a source of random numbers. A text may be raw or prepared; the
symbols of a vocabulary stay as they are.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import takewhile
from random import Random
from typing import Literal, get_args

from nmt_cli.text.placeholders import JOINED, MASKED, OURS
from nmt_cli.text.tokenizer import apart_from

Variation = Literal["upper", "lower", "title", "unended", "typos", "copies", "placeholders"]
VARIATIONS: tuple[Variation, ...] = get_args(Variation)

Pair = tuple[str, str]

END_MARKS = ".!?…。！？।؟۔"
WORDS_A_TYPO = 8
SHORTEST_MISTYPED = 3
"""Letters of a word; shorter ones would become other words."""

HOW_MANY = (1, 1, 2, 3)
"""Placeholders that a pair gets, by lot."""

BEFORE_END, TO_WORD = 0.2, 0.1
"""How often a placeholder is put before the mark at the end, or joined to a word."""

NAMES = ("name", "user", "count", "date", "first_name", "order", "total", "file", "city", "link")
HOSTS = ("example.org", "www.example.com", "shop.example.net", "a.example")


def varied(
    kind: Variation, pair: Pair, random: Random, symbols: Collection[str] = (), masks: Sequence[str] = ()
) -> Pair:
    """`pair` in another form, on both sides where it shows on both.

    `symbols` are words that stay as they are; `masks` are those of them that stand for placeholders: with
    these, a prepared text gets symbols, and without any a raw one gets placeholders.
    """
    match kind:
        case "upper" | "lower" | "title":
            source, target = (_changed(text, CASES[kind], symbols) for text in pair)
            return source, target
        case "unended":
            return unended(pair)
        case "typos":
            return _changed(pair[0], partial(mistyped, random=random), symbols), pair[1]
        case "copies":
            return copied(pair, symbols)
        case "placeholders":
            for _ in range(random.choice(HOW_MANY)):
                pair = with_placeholder(pair, random, symbols, masks)
            return pair


def _changed(text: str, change: Callable[[str], str], symbols: Collection[str]) -> str:
    """`text` with `change` applied to all but symbols and placeholders."""
    if symbols:
        return apart_from(symbols, lambda run: _changed(run, change, ()), text)
    parts, end = [], 0
    for match in MASKED.finditer(text):
        parts += [change(text[end : match.start()]), match[0]]
        end = match.end()
    return "".join([*parts, change(text[end:])])


def titled(text: str) -> str:
    """Each Word Begins With A Capital."""
    return " ".join(word[:1].upper() + word[1:] for word in text.split(" "))


CASES: dict[str, Callable[[str], str]] = {"upper": str.upper, "lower": str.lower, "title": titled}


def unended(pair: Pair) -> Pair:
    """Without the mark at the end, where both have one and something before it."""
    if all(len(text) > 1 and text[-1] in END_MARKS for text in pair):
        bare = (text.rstrip(END_MARKS).rstrip().removesuffix(JOINED).rstrip() for text in pair)
        source, target = (short or text for short, text in zip(bare, pair, strict=True))
        return source, target
    return pair


def copied(pair: Pair, symbols: Collection[str]) -> Pair:
    """The target on both sides; the tags that the source begins with stay."""
    tags, target = _tags(pair[0], symbols), _tags(pair[1], symbols)
    return " ".join([*tags, *pair[1].split(" ")[len(target) :]]), pair[1]


def _tags(text: str, symbols: Collection[str]) -> list[str]:
    """The symbols that a text begins with, such as the code of a language."""
    return [*takewhile(lambda word: word in symbols and not OURS.fullmatch(word), text.split(" "))]


def mistyped(text: str, random: Random) -> str:
    """With a typo in about every `WORDS_A_TYPO`-th word, and one at least where a word is long enough."""
    words = text.split(" ")
    long = [i for i, word in enumerate(words) if sum(map(str.isalpha, word)) >= SHORTEST_MISTYPED]
    for i in random.sample(long, min(len(long), 1 + len(words) // WORDS_A_TYPO)):
        words[i] = _mistyped_word(words[i], random)
    return " ".join(words)


def _mistyped_word(word: str, random: Random) -> str:
    """A letter left out, doubled, swapped with the next, or in place of another of the word."""
    place = random.choice([i for i, letter in enumerate(word) if letter.isalpha()])
    before, letter, after = word[:place], word[place], word[place + 1 :]
    match random.randrange(4):
        case 0:
            return before + after
        case 1:
            return before + letter + letter + after
        case 2:
            return before + after[:1] + letter + after[1:]
        case _:
            return before + random.choice([each for each in word if each.isalpha()]) + after


def with_placeholder(pair: Pair, random: Random, symbols: Collection[str], masks: Sequence[str]) -> Pair:
    """With one placeholder more, at about the same place of both sides; now and then without a blank."""
    unused = [mask for mask in masks if mask not in pair[0].split() and mask not in pair[1].split()]
    if masks and not unused:
        return pair
    shown = random.choice(unused) if masks else random_placeholder(random)
    join = f" {JOINED} " if masks else ""
    place, way = random.random(), random.random()
    if way < BEFORE_END and all(text[-1:] in END_MARKS for text in pair if text):
        source, target = (_before_end(text, shown, join) for text in pair)
    else:
        apart = way < 1 - TO_WORD or not (masks or shown[0] in "{$%")
        between = " " if apart else join
        source, target = (_inserted(text, shown, between, place, len(_tags(text, symbols))) for text in pair)
    return source, target


def _before_end(text: str, shown: str, join: str) -> str:
    bare = text.rstrip(END_MARKS)
    return f"{bare.rstrip()} {shown}{join}{text[len(bare) :]}"


def _inserted(text: str, shown: str, between: str, place: float, first: int) -> str:
    words = text.split(" ")
    at = first + int(place * (len(words) + 1 - first))
    before, after = " ".join(words[:at]), " ".join(words[at:])
    begin = f"{before}{between if at > first else ' '}{shown}" if before else shown
    return f"{begin} {after}" if after else begin


def random_placeholder(random: Random) -> str:
    """One such as people's texts have."""
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
