"""Each placeholder of a source comes into its translation exactly once, and no other one does."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class PlaceholdersWanted:
    """Which symbols stand for placeholders, as ids, and those that a translation shall have."""

    symbols: tuple[int, ...]
    wanted: tuple[int, ...] = ()
    join: int | None = None
    """What says that a symbol has no blank beside it."""

    joins: int = 0
    """How often a translation may have that: as often as its source."""


def heed_placeholders(
    log_probs_RV: Tensor,
    tokens_R: Sequence[Sequence[int]],
    wanted_R: Sequence[PlaceholdersWanted | None],
    room_R: Sequence[int],
    end: int,
) -> None:
    """Forbid, in place, symbols that a row has not to write (any more), and the end before it has all.

    `tokens_R` is what each row has written, `room_R` how many tokens there may still be before the end mark.
    A row that would rather end than go on writes what it lacks first.
    """
    newest = log_probs_RV.argmax(1).tolist()
    for row, (tokens, each, room) in enumerate(zip(tokens_R, wanted_R, room_R, strict=True)):
        if each is None:
            continue
        lacking = [symbol for symbol in each.wanted if symbol not in tokens]
        kept = log_probs_RV[row, lacking].clone()
        if lacking and (newest[row] == end or room <= len(lacking)):
            log_probs_RV[row] = -float("inf")
        log_probs_RV[row, list(each.symbols)] = -float("inf")
        if each.join is not None and tokens.count(each.join) >= each.joins:
            log_probs_RV[row, each.join] = -float("inf")
        if lacking:
            log_probs_RV[row, end] = -float("inf")
            log_probs_RV[row, lacking] = kept
