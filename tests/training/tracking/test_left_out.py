"""Pairs that are too long are reported at the end of an epoch, and the same number only once."""

import pytest

from nmt_cli.training.tracking.events import Event
from nmt_cli.training.tracking.left_out import LeftOut
from tests.training.runs import Tiny, warnings


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        ([(0, 0), (1, 0)], []),
        ([(0, 3), (0, 7)], ["7"]),
        ([(0, 3), (0, 7), (1, 2)], ["7"]),
        ([(0, 7), (1, 2), (1, 7), (2, 1)], ["7"]),
        ([(0, 7), (1, 9), (2, 1)], ["7", "9"]),
        ([(4, 2000)], ["2,000"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("sampled", [False, True])
def test_the_number_of_left_out_pairs_is_reported_once_at_the_end_of_an_epoch(
    tiny: Tiny, events: list[Event], seen: list[tuple[int, int]], message: list[str], sampled: bool
) -> None:
    config = tiny("batch.longest=20", *(["sampling.source_dropout=0.1"] if sampled else []))
    left_out = LeftOut(config, events.append)
    for epoch, count in seen:
        left_out.seen(epoch, count)
    left_out.end()
    texts = warnings(events)
    assert [text.split(" pairs")[0] for text in texts] == message
    assert all(("segments them" in text) is sampled for text in texts)
    assert all("more than 20 tokens on a side and are left out (batch.longest)" in text for text in texts)


@pytest.mark.parametrize(
    ("longest", "tokens", "message"),
    [
        (20, 30, "20 tokens on a side and are left out (batch.longest)"),
        (30, 20, "20 tokens on a side and are left out (batch.tokens)"),
    ],
)
def test_the_limit_that_left_them_out_is_named(
    tiny: Tiny, events: list[Event], longest: int, tokens: int, message: str
) -> None:
    left_out = LeftOut(tiny(f"batch.longest={longest}", f"batch.tokens={tokens}"), events.append)
    left_out.seen(0, 5)
    left_out.end()
    (text,) = warnings(events)
    assert text.endswith(message)
