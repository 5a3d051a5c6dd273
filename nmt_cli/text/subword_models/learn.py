"""Learning a subword model from a sample of prepared text."""

from collections import Counter
from collections.abc import Iterable, Sequence

from nmt_cli.errors import UserError
from nmt_cli.text.config import TokenizerConfig
from nmt_cli.text.subword_models import bpe
from nmt_cli.text.subword_models.bpe import Bpe
from nmt_cli.text.subword_models.merges import learn_codes
from nmt_cli.text.subword_models.pieces import Pieces, learn_pieces
from nmt_cli.text.subword_models.subwords import BYTES, Subwords
from nmt_cli.text.subword_models.units import Characters, Words
from nmt_cli.text.vocabulary import reserved


def learn(lines: Sequence[str], config: TokenizerConfig) -> Subwords:
    """Learn a model as `config` says from `lines`, whose symbols were taken out before.

    `UserError` where the text is too small for the vocabulary that is asked for.
    """
    if not any(lines):
        raise UserError("there is no text to learn subwords from; look at the corpus and the filters.")
    room = config.vocab_size - reserved(config.all_symbols) - (len(BYTES) if config.byte_fallback else 0)
    match config.kind:
        case "sentencepiece":
            return Pieces(learn_pieces(lines, config))
        case "bpe":
            alphabet = "".join(_covering(_letters(lines), config.character_coverage))
            return Bpe(_codes(lines, alphabet, room, config), alphabet, config.byte_fallback)
        case "char":
            counts = Counter({c: n for c, n in _characters(lines).items() if n >= config.min_count})
            covering = _covering(counts, config.character_coverage)
            return Characters("".join(covering[: _checked(room, config)]), config.byte_fallback)
        case "word":
            counts = Counter(word for line in lines for word in line.split())
            frequent = [word for word, count in _by_count(counts) if count >= config.min_count]
            return Words(frequent[: _checked(room - config.byte_fallback, config)], config.byte_fallback)


def too_rare(subwords: Subwords, lines: Iterable[str], min_count: int) -> list[int]:
    """Numbers of the pieces that occur less than `min_count` times in the segmented `lines`."""
    counts = Counter(piece for line in lines for piece in subwords.encode(line))
    known = (piece for piece, entry in enumerate(subwords.entries) if entry is not None)
    return [piece for piece in known if counts[piece] < min_count]


def _codes(lines: Sequence[str], alphabet: str, room: int, config: TokenizerConfig) -> str:
    counts = Counter(word for line in lines for word in line.split())
    if config.merges:
        codes = learn_codes(counts, config.merges)
        _enough(len(bpe.parse_codes(codes)), config.merges, "merges", "--set tokenizer.merges=")
        return codes
    # Each character is two pieces, inside of words and at their end; byte fallback has one to end words.
    left = room - 2 * len(alphabet) - config.byte_fallback
    if left < 0:
        raise UserError(
            f"a vocabulary of {config.vocab_size:,} is too small: its marks and {len(alphabet):,} characters "
            f"inside and at the end of words, are {config.vocab_size - left:,}; "
            "raise --vocab-size or lower tokenizer.character_coverage."
        )
    # Different merges can give the same piece, so a few more are learnt than there is room for.
    codes = bpe.cut_codes(learn_codes(counts, config.vocab_size), alphabet, left)
    pieces = bpe.pieces_of(bpe.parse_codes(codes), alphabet)
    most = len(pieces) + config.vocab_size - room + config.byte_fallback
    _enough(most, config.vocab_size, "vocabulary entries", "--vocab-size ")
    return codes


def _enough(found: int, asked: int, what: str, option: str) -> None:
    if found < asked:
        raise UserError(
            f"{asked:,} {what} are more than the text supports (no pair of pieces occurs twice any more); "
            f"take {option}{found} or less."
        )


def _checked(room: int, config: TokenizerConfig) -> int:
    if room < 1:
        least = config.vocab_size - room + 1
        raise UserError(f"vocab_size leaves no room beside the marks; take --vocab-size {least} or more.")
    return room


def _characters(lines: Iterable[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line)
    return counts


def _letters(lines: Iterable[str]) -> Counter[str]:
    counts = _characters(lines)
    # BPE learns from words, which hold no blanks.
    del counts[" "]
    return counts


def _covering(counts: Counter[str], coverage: float) -> list[str]:
    """The most frequent characters that together make up `coverage` of the text."""
    needed = coverage * counts.total()
    chosen = []
    for character, count in _by_count(counts):
        if needed <= 0:
            break
        chosen.append(character)
        needed -= count
    return chosen


def _by_count(counts: Counter[str]) -> list[tuple[str, int]]:
    # Equal counts by name, so that the same text gives the same vocabulary.
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
