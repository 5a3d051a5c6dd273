"""Learning of subwords: vocabulary sizes, and errors for a size that the text does not support."""

import random
import re
from dataclasses import replace
from typing import Any

import pytest

from nmt_cli.text.config import TokenizerConfig
from nmt_cli.text.subword_models.learn import learn
from nmt_cli.text.subword_models.model_file import TRAINER, field
from nmt_cli.text.subword_models.pieces import learn_pieces
from nmt_cli.text.subword_models.subwords import BYTES, Subwords
from nmt_cli.text.vocabulary import Numbering, reserved
from tests.checks import refusal

SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstwz" for vowel in "aeiouäöü"]
LEXICON = ["".join(random.Random(seed).choices(SYLLABLES, k=2 + seed % 3)) for seed in range(400)]
LINES = [
    " ".join(random.Random(seed).choices(LEXICON, weights=range(400, 0, -1), k=8)) + " ∎"
    for seed in range(400)
]

SUBWORD_KINDS: list[dict[str, Any]] = [
    {"kind": "sentencepiece"},
    {"kind": "sentencepiece", "sentencepiece_model": "bpe"},
    {"kind": "bpe"},
]
UNIT_KINDS: list[dict[str, Any]] = [{"kind": "char"}, {"kind": "word"}]
EXTRAS: list[dict[str, Any]] = [{}, {"byte_fallback": True}, {"symbols": ("<2de>", "<BT>")}]


def named(options: dict[str, Any]) -> str:
    return " ".join(map(str, options.values())) or "plain"


def ids_of(model: Subwords, config: TokenizerConfig, line: str) -> list[int]:
    ids = Numbering.new(config.symbols, model.entries).ids
    return [ids[piece] for piece in model.encode(line)]


def size(model: Subwords, config: TokenizerConfig) -> int:
    numbering = Numbering.new(config.symbols, model.entries)
    return len(numbering.vocabulary) - len(numbering.vocabulary.never)


def number_to_take(message: str, pattern: str) -> int:
    match = re.search(pattern, message)
    assert match, message
    return int(match.group(1).replace(",", ""))


@pytest.mark.parametrize("extra", EXTRAS, ids=named)
@pytest.mark.parametrize("options", SUBWORD_KINDS, ids=named)
@pytest.mark.parametrize("entries", [120, 121, 200])
def test_subword_vocabularies_have_exactly_the_requested_size(
    options: dict[str, Any], extra: dict[str, Any], entries: int
) -> None:
    asked = entries + len(BYTES) * bool(extra.get("byte_fallback"))
    config = TokenizerConfig(vocab_size=asked, **options, **extra)
    assert size(learn(LINES, config), config) == asked


@pytest.mark.parametrize("extra", EXTRAS, ids=named)
@pytest.mark.parametrize("options", UNIT_KINDS, ids=named)
@pytest.mark.parametrize("room", [5, 20, 10_000])
def test_vocabularies_of_units_have_at_most_the_requested_size(
    options: dict[str, Any], extra: dict[str, Any], room: int
) -> None:
    config = TokenizerConfig(vocab_size=room + 4 + len(BYTES), **options, **extra)
    units = {"char": set("".join(LINES)), "word": set(" ".join(LINES).split())}[config.kind]
    model = learn(LINES, config)
    heads = len(BYTES) * config.byte_fallback + (config.byte_fallback and config.kind == "word")
    assert size(model, config) == min(config.vocab_size, reserved(config.symbols) + heads + len(units))


def test_a_capped_vocabulary_of_units_keeps_the_most_frequent() -> None:
    units = [letter for count, letter in enumerate("hgfedcba", start=1) for _ in range(count)]
    most_frequent = list("abcdefgh")[: 8 - reserved(())]
    for kind, line in (("word", " ".join(units)), ("char", "".join(units))):
        model = learn([line], TokenizerConfig(kind=kind, vocab_size=8))  # type: ignore[arg-type]
        assert list(model.entries) == most_frequent


@pytest.mark.parametrize("kind", ["sentencepiece", "bpe", "char"])
def test_the_rarest_characters_are_known(kind: Any) -> None:
    lines = [*LINES, "ξ ζ"]
    model = learn(lines, TokenizerConfig(kind=kind, vocab_size=140))
    numbering = Numbering.new((), model.entries)
    characters = {character for line in lines for character in line} - {" "}
    unknown = numbering.vocabulary.unknown
    assert not [c for c in characters if unknown in numbering.ids_of(model.encode(c))]


@pytest.mark.slow
@pytest.mark.parametrize("extra", EXTRAS, ids=named)
@pytest.mark.parametrize("options", SUBWORD_KINDS, ids=named)
def test_an_error_about_a_too_large_vocabulary_names_the_maximum(
    options: dict[str, Any], extra: dict[str, Any]
) -> None:
    message = refusal(learn, LINES, TokenizerConfig(vocab_size=5000, **options, **extra))
    assert "5,000" in message
    maximum = number_to_take(message, r"Take --vocab-size ([\d,]+) or less")
    config = TokenizerConfig(vocab_size=maximum, **options, **extra)
    assert size(learn(LINES, config), config) == maximum
    assert f"Take --vocab-size {maximum} or less" in refusal(
        learn, LINES, TokenizerConfig(vocab_size=maximum + 1, **options, **extra)
    )


@pytest.mark.parametrize("extra", EXTRAS, ids=named)
@pytest.mark.parametrize("options", SUBWORD_KINDS, ids=named)
def test_an_error_about_a_vocabulary_too_small_for_the_characters_names_the_minimum(
    options: dict[str, Any], extra: dict[str, Any]
) -> None:
    message = refusal(learn, LINES, TokenizerConfig(vocab_size=9, **options, **extra))
    minimum = number_to_take(message, r"are ([\d,]+)\.")
    config = TokenizerConfig(vocab_size=minimum, **options, **extra)
    assert size(learn(LINES, config), config) == minimum
    refusal(learn, LINES, TokenizerConfig(vocab_size=minimum - 1, **options, **extra))


@pytest.mark.parametrize("options", UNIT_KINDS, ids=named)
def test_an_error_about_a_vocabulary_of_only_special_tokens_names_the_minimum(
    options: dict[str, Any],
) -> None:
    message = refusal(learn, LINES, TokenizerConfig(vocab_size=100, byte_fallback=True, **options))
    minimum = max(int(number) for number in re.findall(r"\d+", message.replace(",", "")))
    assert minimum > 100
    model = learn(LINES, TokenizerConfig(vocab_size=minimum, byte_fallback=True, **options))
    assert model.decode(model.encode(LINES[0])) == LINES[0]


def test_merges_count_the_merges_and_an_error_names_their_maximum() -> None:
    message = refusal(learn, LINES, TokenizerConfig(kind="bpe", merges=5000))
    for merges in (50, number_to_take(message, r"tokenizer\.merges=([\d,]+) or less")):
        codes = learn(LINES, TokenizerConfig(kind="bpe", merges=merges)).files()["codes"].decode()
        assert len(codes.splitlines()) == 1 + merges


@pytest.mark.parametrize("lines", [[], [""], ["", ""], ["a"]], ids=str)
@pytest.mark.parametrize("options", SUBWORD_KINDS, ids=named)
def test_too_little_text_to_learn_from_is_an_error(options: dict[str, Any], lines: list[str]) -> None:
    message = refusal(learn, lines, TokenizerConfig(vocab_size=500, **options))
    assert not re.search(r"\.cc|INTERNAL|CHECK", message)


@pytest.mark.parametrize("symbol", ["e", "▁", "<0x41>", "<s>", "ba", "▁ba", "<2de>"])
@pytest.mark.parametrize("options", SUBWORD_KINDS, ids=named)
def test_a_symbol_takes_no_entry_away_from_the_text(options: dict[str, Any], symbol: str) -> None:
    config = TokenizerConfig(vocab_size=150 + len(BYTES), byte_fallback=True, symbols=(symbol,), **options)
    model = learn(LINES, config)
    bytes_at = range(reserved(config.symbols), reserved(config.symbols) + len(BYTES))
    for line in LINES:
        ids = ids_of(model, config, line)
        assert min(ids) >= reserved(config.symbols)
        assert not set(ids).intersection(bytes_at)
        assert model.decode(model.encode(line)) == line


@pytest.mark.parametrize("options", [*SUBWORD_KINDS, *UNIT_KINDS], ids=named)
def test_learning_twice_gives_the_same_files(options: dict[str, Any]) -> None:
    config = TokenizerConfig(vocab_size=140, **options)
    assert learn(LINES, config).files() == learn(LINES, config).files()


NUMBERED = [f"{line} {1900 + number % 30} {number % 7}th" for number, line in enumerate(LINES)]
FULL_WIDTH, ARABIC = ({ord("0") + digit: zero + digit for digit in range(10)} for zero in (0xFF10, 0x660))
PIECE_KINDS = [options for options in SUBWORD_KINDS if options["kind"] == "sentencepiece"]


def entries_with_digits(lines: list[str], config: TokenizerConfig) -> list[str]:
    """Return the entries that have a digit of any script and another character."""
    entries = [entry for entry in learn(lines, config).entries if entry and len(entry) > 1]
    return [entry for entry in entries if any(map(str.isdecimal, entry))]


@pytest.mark.parametrize("options", PIECE_KINDS, ids=named)
def test_each_digit_is_a_token_on_request(options: dict[str, Any]) -> None:
    lines = [*NUMBERED, *(line.translate(FULL_WIDTH) for line in NUMBERED)]
    config = TokenizerConfig(vocab_size=200, **options)
    assert any(len(re.findall(r"\d", entry)) > 1 for entry in entries_with_digits(lines, config))
    config = replace(config, split_digits=True)
    assert entries_with_digits(lines, config) == []
    model = learn(lines, config)
    for number in ("2024", "３１", "7", "1900"):
        assert [entry for i in model.encode(number) if (entry := model.entries[i]) != "▁"] == [*number]


@pytest.mark.parametrize("options", PIECE_KINDS, ids=named)
def test_digits_of_other_scripts_are_not_split(options: dict[str, Any]) -> None:
    lines = [line.translate(ARABIC) for line in NUMBERED]
    config = TokenizerConfig(vocab_size=200, **options)
    joined = entries_with_digits(lines, config)
    assert entries_with_digits(lines, replace(config, split_digits=True)) == joined != []


@pytest.mark.parametrize("options", PIECE_KINDS, ids=named)
def test_without_that_request_the_file_is_that_of_earlier_versions(options: dict[str, Any]) -> None:
    number_of_split_digits = 25  # in sentencepiece_model.proto
    config = TokenizerConfig(vocab_size=200, **options)
    settings = [
        field(learn_pieces(LINES, one), TRAINER) for one in (config, replace(config, split_digits=True))
    ]
    assert [field(one, number_of_split_digits) for one in settings] == [b"", b"\x01"]
