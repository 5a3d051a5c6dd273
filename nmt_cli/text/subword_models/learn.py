"""Learning of a subword model from a sample of prepared text: normalised words with single spaces in
between."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from nmt_cli.errors import UserError
from nmt_cli.text.config import TokenizerConfig
from nmt_cli.text.subword_models.bpe import Bpe, parse_codes
from nmt_cli.text.subword_models.characters_and_words import Characters, Words
from nmt_cli.text.subword_models.merges import learn_codes
from nmt_cli.text.subword_models.pieces import Pieces, learn_pieces
from nmt_cli.text.subword_models.subwords import BYTES, Subwords
from nmt_cli.text.vocabulary import reserved


def learn(lines: Sequence[str], config: TokenizerConfig) -> Subwords:
    """Learn a subword model of the kind `config.kind` from prepared lines.

    `lines` must not contain symbols. The kinds "char" and "word" keep the most frequent entries that fit.
    Raise `UserError` if there is no text, or the vocabulary size is too small or too large for it.
    """
    if not any(lines):
        raise UserError("there is no text to learn subwords from. Check the corpus and the filters.")
    available = config.vocab_size - reserved(config.all_symbols) - (len(BYTES) if config.byte_fallback else 0)
    match config.kind:
        case "sentencepiece":
            return Pieces(learn_pieces(lines, config))
        case "bpe":
            counts = Counter(chain.from_iterable(lines))
            del counts[" "]  # BPE learns from words, which contain no spaces
            alphabet = "".join(_by_count(counts))
            return Bpe(_codes(lines, alphabet, available, config), alphabet, config.byte_fallback)
        case "char":
            counts = Counter(chain.from_iterable(lines))
            frequent = _by_count(counts)
            return Characters("".join(frequent[: _checked(available, config)]), config.byte_fallback)
        case "word":
            counts = Counter(word for line in lines for word in line.split())
            frequent = _by_count(counts)
            return Words(frequent[: _checked(available - config.byte_fallback, config)], config.byte_fallback)


def _codes(lines: Sequence[str], alphabet: str, available: int, config: TokenizerConfig) -> str:
    """Learn as many merges as fill the vocabulary, or `config.merges` if set. Return the content of a codes
    file.

    `available` is the number of vocabulary entries besides special tokens, symbols and bytes. Raise
    `UserError` if `alphabet` does not fit, or the text does not support the requested number.
    """
    # Each character is two pieces: inside a word and at its end. Byte fallback has one that ends words.
    left = available - 2 * len(alphabet) - config.byte_fallback
    if left < 0 and not config.merges:
        raise UserError(
            f"a vocabulary of {config.vocab_size:,} is too small: special tokens and {len(alphabet):,} "
            f"characters, inside and at the end of words, are {config.vocab_size - left:,}. "
            "Raise --vocab-size, or drop lines in other scripts (filter.source_script)."
        )
    codes = learn_codes(Counter(word for line in lines for word in line.split()), config.merges or left)
    merges = len(parse_codes(codes))
    if config.merges:
        _enough(merges, config.merges, "merges", "--set tokenizer.merges=")
    else:
        maximum = config.vocab_size - left + merges
        _enough(maximum, config.vocab_size, "vocabulary entries", "--vocab-size ")
    return codes


def _enough(maximum: int, requested: int, unit: str, option: str) -> None:
    """Raise `UserError` if the text supports only `maximum` of the `requested` number. The message suggests
    `option` with the maximum. `unit` names what is counted."""
    if maximum < requested:
        raise UserError(
            f"{requested:,} {unit} are more than the text supports (no other pair of pieces occurs twice). "
            f"Take {option}{maximum} or less."
        )


def _checked(available: int, config: TokenizerConfig) -> int:
    """Return `available`, a number of vocabulary entries. Raise `UserError` if it is less than 1."""
    if available < 1:
        minimum = config.vocab_size - available + 1
        raise UserError(
            f"--vocab-size must be at least {minimum}, besides special tokens (got {config.vocab_size})."
        )
    return available


def _by_count(counts: Counter[str]) -> list[str]:
    """Return what was counted, the most frequent first."""
    # Equal counts are sorted by name, so that the same text gives the same vocabulary.
    return sorted(counts, key=lambda unit: (-counts[unit], unit))
