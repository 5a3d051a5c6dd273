"""The choice of continuations, against an exhaustive search."""

from itertools import product

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nmt_cli.decoding.search.expansion import best

END = 3


@pytest.mark.slow
@given(
    sentences=st.integers(1, 4),
    slots=st.integers(1, 6),
    entries=st.one_of(st.integers(2, 40), st.integers(500, 3000)),
    peaks=st.booleans(),
    seed=st.integers(0, 10_000),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_the_likeliest_continuations_are_chosen(
    sentences: int, slots: int, entries: int, peaks: bool, seed: int, data: st.DataObject
) -> None:
    each = list(product(range(sentences), range(slots)))
    chosen = data.draw(st.lists(st.sampled_from(each), unique=True, min_size=1))
    in_use = sorted({*chosen, *((sentence, 0) for sentence in range(sentences))})
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(in_use), entries, generator=generator)
    if peaks:  # all good candidates side by side, in any block
        start = int(torch.randint(entries, (), generator=generator))
        logits[:, start : start + 9] += 20
    log_probs = logits.log_softmax(-1)
    totals = torch.full((sentences, slots), -torch.inf)
    for sentence, slot in in_use:
        totals[sentence, slot] = -torch.rand((), generator=generator)
    rows = torch.tensor([sentence * slots + slot for sentence, slot in in_use])
    choice = best(log_probs, rows, totals, END)
    for sentence in range(sentences):
        mine = [(row, slot) for row, (its, slot) in enumerate(in_use) if its == sentence]
        sums = {
            (float(log_prob + totals[sentence, slot]), slot, token)
            for row, slot in mine
            for token, log_prob in enumerate(log_probs[row])
        }
        continuations = sorted(sums, reverse=True)
        assume(
            len({total for total, _, _ in continuations[: 2 * slots + 1]})
            == len(continuations[: 2 * slots + 1])
        )
        live = [continuation for continuation in continuations if continuation[2] != END][:slots]
        if slots == 1 and continuations[0][2] == END:
            live = []
        tensors = (choice.live_totals, choice.live_parents, choice.live_tokens)
        actual = zip(*(x[sentence].tolist() for x in tensors), strict=True)
        assert [continuation for continuation in actual if continuation[0] > -torch.inf] == live
        ended = [continuation[:2] for continuation in continuations[:slots] if continuation[2] == END]
        ends = zip(
            choice.ended_totals[sentence].tolist(), choice.ended_parents[sentence].tolist(), strict=True
        )
        assert [continuation for continuation in ends if continuation[0] > -torch.inf] == ended
