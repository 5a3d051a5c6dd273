"""The compiled learner of merges gives the codes of subword-nmt, byte for byte."""

import random
from collections import Counter
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.runtime.kernels.loading import compiled_kernels
from nmt_cli.text.subword_models import merges
from nmt_cli.text.subword_models.merges import learn_codes, learn_compiled, learn_plain

# With few letters, pairs repeat and their counts overlap.
FEW_LETTERS = st.dictionaries(st.text("ab", min_size=1, max_size=12), st.integers(1, 9), min_size=1)
ANY_LETTERS = st.dictionaries(
    st.text(min_size=2, max_size=6).filter(lambda word: word.split() == [word]),
    st.integers(1, 99),
    min_size=1,
)


@pytest.fixture(scope="module")
def learner() -> ModuleType:
    name = "nmt_cli.text.subword_models.compiled"
    kernels: ModuleType = pytest.importorskip(name, reason="Numba is not installed")
    return kernels


@pytest.mark.slow
@given(FEW_LETTERS | ANY_LETTERS)
def test_both_learners_give_the_same_merges(learner: ModuleType, words: dict[str, int]) -> None:
    words["ab"] = words.get("ab", 2)
    assert learn_compiled(learner, words, 40) == learn_plain(words, 40)


@pytest.mark.slow
@pytest.mark.parametrize("letters", ["ab", "abcdefghij", "aäö€日\U0001f600"])
def test_both_learners_give_the_same_hundreds_of_merges(learner: ModuleType, letters: str) -> None:
    """Learn enough merges that counts are set aside and restored often."""
    chosen = random.Random(letters)
    lexicon = ["".join(chosen.choices(letters, k=chosen.randint(1, 12))) for _ in range(700)]
    words = dict(Counter(chosen.choices(lexicon, weights=[1 / n for n in range(1, 701)], k=20_000)))
    codes = learn_compiled(learner, words, 1500)
    assert codes == learn_plain(words, 1500)
    assert codes.count("\n") > 500


def test_the_compiled_learner_is_used_for_many_words(monkeypatch: pytest.MonkeyPatch) -> None:
    words = Counter({"low": 5, "lower": 2, "newest": 6, "widest": 3})
    plain = learn_codes(words, 5)
    monkeypatch.setattr(merges, "MANY_WORDS", 4)
    monkeypatch.setattr(merges, "learn_plain", None)
    if compiled_kernels("text.subword_models"):
        assert learn_codes(words, 5) == plain
