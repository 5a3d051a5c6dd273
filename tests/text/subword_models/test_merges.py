"""The learner of merges gives the codes of subword-nmt, byte for byte."""

import contextlib
import io
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from subword_nmt.learn_bpe import learn_bpe

from nmt_cli.text.subword_models.merges import learn_codes

# With few letters, pairs repeat and their counts overlap.
FEW_LETTERS = st.dictionaries(st.text("ab", min_size=1, max_size=12), st.integers(1, 9), min_size=1)
ANY_LETTERS = st.dictionaries(
    st.text(min_size=2, max_size=6).filter(lambda word: word.split() == [word]),
    st.integers(1, 99),
    min_size=1,
)


def codes_of_subword_nmt(counts: Counter[str], merges: int) -> str:
    codes = io.StringIO()
    with contextlib.redirect_stderr(io.StringIO()):
        learn_bpe([f"{word} {count}" for word, count in counts.items()], codes, merges, is_dict=True)
    return codes.getvalue()


@given(FEW_LETTERS | ANY_LETTERS)
def test_merges_of_any_words_are_those_of_subword_nmt(words: dict[str, int]) -> None:
    counts = Counter({"ab": 2, **words})
    assert learn_codes(counts, 40) == codes_of_subword_nmt(counts, 40)


@pytest.mark.slow
@pytest.mark.parametrize("letters", ["ab", "abcdefghij", "aäö€日\U0001f600"])
def test_hundreds_of_merges_are_those_of_subword_nmt_and_have_different_results(letters: str) -> None:
    """Learn enough merges that subword-nmt sets counts aside and restores them often."""
    chosen = random.Random(letters)
    lexicon = ["".join(chosen.choices(letters, k=chosen.randint(1, 12))) for _ in range(700)]
    counts = Counter(chosen.choices(lexicon, weights=[1 / n for n in range(1, 701)], k=20_000))
    codes = learn_codes(counts, 1500)
    assert codes == codes_of_subword_nmt(counts, 1500)
    results = [line.replace(" ", "") for line in codes.splitlines()[1:]]
    assert len(results) > 500
    assert len(set(results)) == len(results)
