"""Fitting of a SentencePiece model to texts: new pieces are learnt, and pieces without a use are removed.

The result is again one file that any program with SentencePiece reads. It segments the texts exactly as the
model did before pieces were removed.
"""

import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from nmt_cli.errors import UserError
from nmt_cli.text.config import TokenizerConfig
from nmt_cli.text.normalize import SPACE_MARK
from nmt_cli.text.subword_models.model_file import defined, with_pieces
from nmt_cli.text.subword_models.pieces import Pieces, learn_pieces

LEARNT = b""
"""The kind of an ordinary piece."""


def grown(pieces: Pieces, lines: Sequence[str], count: int, taken: Collection[str]) -> Pieces:
    """Return the model with up to `count` more pieces, learnt from prepared `lines`. Characters that the
    model lacks come first, and all of them are added.

    taken: texts that cannot become pieces, such as those of special tokens.

    In a model with merges, the new merges come after the old ones. In a unigram model, new pieces have the
    probabilities that were learnt from `lines`.
    """
    merges = pieces.draws_by == "dropout"
    texts = [pieces.processor.normalize(line).replace(SPACE_MARK, " ").strip() for line in lines]
    # Twice the number, because the model has some of the pieces already.
    size = 2 * count + len({*chain.from_iterable(texts)}) + len(SPACE_MARK) + 8
    config = TokenizerConfig(vocab_size=size, sentencepiece_model="bpe" if merges else "unigram")
    learnt = Pieces(learn_pieces(texts, config, exact=False))
    old = {*pieces.written, *taken}
    new = [(piece, i) for i, piece in enumerate(learnt.entries) if piece is not None and piece not in old]
    characters = [one for one in new if len(one[0]) == 1]
    longer = [one for one in new if len(one[0]) > 1]
    chosen = [*characters, *longer[: max(0, count - len(characters))]]
    lowest = min(map(pieces.processor.get_score, range(len(pieces.entries))))
    added = [
        # A higher score is an earlier merge.
        (piece, lowest - 1 - rank if merges else learnt.processor.get_score(number), LEARNT)
        for rank, (piece, number) in enumerate(chosen)
    ]
    return with_new_pieces(pieces, added)


def with_new_pieces(pieces: Pieces, added: Iterable[tuple[str, float, bytes]]) -> Pieces:
    """Return the model with more pieces. Each has a text, a score and a kind."""
    return Pieces(with_pieces(pieces.files()["model"], {*range(len(pieces.entries))}, added))


def trimmed(pieces: Pieces, lines: Sequence[str], also: Collection[int], without: Collection[str]) -> Pieces:
    """Return the model with only the pieces that prepared `lines` and their scripts need.

    also: the numbers of more pieces to keep.
    without: the texts of pieces that are removed in any case, such as language codes.

    Raise `UserError` if `lines` would not be segmented as before.
    """
    left_out = {i for i, piece in enumerate(pieces.written) if piece in without}
    kept = (needed(pieces, lines) | {*also}) - left_out
    small = Pieces(with_pieces(pieces.files()["model"], kept, ()))
    written = pieces.written, small.written
    for line in lines:
        # By their numbers, since SentencePiece shows an unknown piece as its text.
        before, after = pieces.processor.encode(line), small.processor.encode(line)
        if [written[0][i] for i in before] != [written[1][i] for i in after]:
            raise UserError(
                f"this vocabulary cannot be trimmed: {line[:60]!r} would be cut into other pieces. "
                "Omit --keep, or import the whole model."
            )
    return small


def needed(pieces: Pieces, lines: Iterable[str]) -> set[int]:
    """Return the numbers of all pieces that a model must keep to segment prepared `lines` as before.

    These are the pieces in `lines`, and in a model with merges the shorter pieces that become them. Special
    tokens, bytes, pieces that the user defined, and single characters in the scripts of `lines` are also
    included, so that a text of the same language has no new unknown characters.
    """
    written, processor = pieces.written, pieces.processor
    used = {i for line in lines for i in processor.encode(line)}
    ordinary = [i for i, piece in enumerate(pieces.entries) if piece is not None and not processor.is_byte(i)]
    scripts = {script_of(character) for i in used.intersection(ordinary) for character in written[i]} | {""}
    kept = used | defined(pieces.files()["model"]) | ({*range(len(written))} - {*ordinary})
    for i in ordinary:
        character = written[i].replace(SPACE_MARK, "")
        if len(character) <= 1 and script_of(character) in scripts:
            kept.add(i)
    if pieces.draws_by == "dropout":
        numbers = {written[i]: i for i in ordinary}
        scores = {piece: processor.get_score(i) for piece, i in numbers.items()}
        return kept | {numbers[part] for i in used for part in _merged(written[i], scores)}
    # The score of an unknown character, and of a piece that the user defined, depends on these two.
    return kept | {choose(ordinary, key=processor.get_score) for choose in (min, max) if ordinary}


def _merged(piece: str, scores: Mapping[str, float]) -> set[str]:
    """Return all pieces that merges make on the way from single characters to `piece`. `scores` has the
    score of each piece. The pair with the highest score is merged first, and of equal ones the left one."""
    parts, made = [*piece], set[str]()
    while len(parts) > 1:
        pairs = [
            (scores[pair], -i) for i in range(len(parts) - 1) if (pair := parts[i] + parts[i + 1]) in scores
        ]
        if not pairs:
            break
        i = -max(pairs)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
        made.add(parts[i])
    return made


def script_of(character: str) -> str:
    """Return the script of a letter or a mark, such as "LATIN", and "" for what all scripts share."""
    if not character or unicodedata.category(character)[0] not in "LM":
        return ""
    # The first word of the Unicode name is the script, in all alphabets and syllabaries.
    script = unicodedata.name(character, "").partition(" ")[0]
    return "" if script in ("COMBINING", "MODIFIER") else script
