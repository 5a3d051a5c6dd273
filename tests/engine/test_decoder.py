"""The engine applies a rule, or leaves it to the plain search. No rule is ignored."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from nmt_cli.decoding.batch import ListQueue
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.search.hypotheses import PlaceholdersWanted, Sentence
from nmt_cli.decoding.search.search import Search
from nmt_cli.engine import decoder, packing
from nmt_cli.engine.decoder import Decoder, Divided, knows, unknown
from nmt_cli.engine.search import EngineSearch
from nmt_cli.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.runtime.devices import Precision
from tests.model.models import model_of
from tests.model.test_variants import SMALL
from tests.searching import SEARCHES, Prepare, plain, translate_sentences

ENTRIES = 12
PLAIN = Sentence(0, [5, 3, 8])
CONFIG = SearchConfig(beam=3, n_best=3, cap_extra=9)


def small_model() -> Transformer:
    torch.manual_seed(5)
    return model_of(SMALL, ENTRIES).eval()


@dataclass(frozen=True, kw_only=True, slots=True)
class NewConfig(SearchConfig):
    """Settings with a rule of the future."""

    new_rule: int = 0


@dataclass(frozen=True, slots=True)
class NewSentence(Sentence):
    """A sentence with a rule of the future."""

    new_rule: tuple[int, ...] = field(default=())


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each search that sentences join."""
    names: list[str] = []
    for kind in (EngineSearch, Search):
        join = kind.join

        def noted(search: Any, sentences: Sequence[Sentence], join: Any = join) -> None:
            names.append(type(search).__name__)
            join(search, sentences)

        monkeypatch.setattr(kind, "join", noted)
    return names


BY_ENGINE: dict[str, tuple[SearchConfig, Sentence]] = {
    "nothing": (CONFIG, PLAIN),
    "empty lists": (CONFIG, Sentence(0, [5, 3], [], [], terms=())),
    "a prefix": (CONFIG, replace(PLAIN, prefix=[4, 7], certain=1)),
    "a minimum length": (replace(CONFIG, min_length=9), PLAIN),
    "a new rule that is not set": (NewConfig(beam=3), NewSentence(0, [5])),
    "a request": (CONFIG, replace(PLAIN, request=3, deaths=1)),
    "a text": (CONFIG, replace(PLAIN, raw="a", values={"b": "c"}, spaces=" ")),
}
BY_PLAIN_SEARCH: dict[str, tuple[SearchConfig, Sentence]] = {
    "no repeated n-grams": (replace(CONFIG, no_repeat_ngram=1), PLAIN),
    "banned sequences": (CONFIG, replace(PLAIN, banned=[[4], [5, 3]])),
    "placeholders": (CONFIG, replace(PLAIN, placeholders=PlaceholdersWanted((8, 9), (8,), join=10))),
    "terms": (CONFIG, replace(PLAIN, terms=(((4,),),))),
    "sampling": (SearchConfig(sample=True, n_best=3, cap_extra=9), PLAIN),
    "a new setting": (NewConfig(beam=3, new_rule=1), PLAIN),
    "a new rule of a sentence": (CONFIG, NewSentence(0, [5, 3], new_rule=(1,))),
}


@pytest.mark.parametrize("case", [*BY_ENGINE, *BY_PLAIN_SEARCH])
def test_a_rule_that_the_engine_does_not_know_goes_to_the_plain_search(case: str, used: list[str]) -> None:
    config, sentence = (BY_ENGINE | BY_PLAIN_SEARCH)[case]
    assert (not unknown(config) and knows(sentence)) == (case in BY_ENGINE)
    actual = translate_sentences([small_model()], [sentence], config)
    assert used == ["EngineSearch" if case in BY_ENGINE else "Search"]
    (expected,) = translate_sentences([small_model()], [sentence], config, plain).values()
    for one, other in zip(actual[0] or [], expected or [], strict=True):
        assert one.tokens == other.tokens and one.score == pytest.approx(other.score, rel=1e-4)


@pytest.mark.parametrize("prepare", SEARCHES.values(), ids=SEARCHES)
def test_a_prefix_that_is_longer_than_learned_positions_is_refused(prepare: Prepare) -> None:
    model = model_of(replace(SMALL, positions="learned", longest=20), ENTRIES).eval()
    fits, longer = (replace(PLAIN, prefix=[5] * count) for count in (19, 20))
    (found,) = translate_sentences([model], [fits], CONFIG, prepare).values()
    assert found
    with pytest.raises(UserError, match="a sentence has 21 tokens, but the model has only 20 positions"):
        translate_sentences([model], [longer], CONFIG, prepare)


def test_sentences_of_both_searches_share_a_batch(used: list[str]) -> None:
    sentences = [case[1] for case in (BY_ENGINE | BY_PLAIN_SEARCH).values() if case[0] is CONFIG] * 3
    sentences = [replace(sentence, key=key) for key, sentence in enumerate(sentences)]
    actual = translate_sentences([small_model()], sentences, replace(CONFIG, rows=15))
    assert {*used} == {"EngineSearch", "Search"}
    expected = translate_sentences([small_model()], sentences, CONFIG, plain)
    assert {key: [[*one.tokens] for one in found or []] for key, found in actual.items()} == {
        key: [[*one.tokens] for one in found or []] for key, found in expected.items()
    }


@pytest.mark.parametrize("sentences", [[0, 1, 2, 3], [1, 3], [0, 2]], ids=str)
def test_a_sentence_is_dropped_by_its_number_in_the_whole_batch(sentences: list[int]) -> None:
    cases = [
        PLAIN,
        replace(PLAIN, key=1, banned=[[4]]),
        replace(PLAIN, key=2),
        replace(PLAIN, key=3, banned=[[5]]),
    ]
    dropped = list[int]()

    class Left(ListQueue):
        """A queue from which the last sentence of the first batch leaves."""

        def gone(self, running: Sequence[Sentence]) -> list[int]:
            if dropped:
                return []
            dropped.append(running[-1].key)
            return [len(running) - 1]

    waiting = Left([cases[key] for key in sentences])
    done = {one.key for one, _ in Decoder.of([small_model()]).translated(CONFIG, waiting)}
    assert done == {*sentences} - {*dropped}


@pytest.mark.parametrize("changed", [{"window": 4}], ids=str)
def test_a_model_with_windows_takes_the_plain_search(changed: dict[str, Any], used: list[str]) -> None:
    model = model_of(replace(SMALL, **changed), ENTRIES).eval()
    assert translate_sentences([model], [PLAIN], CONFIG)[0] and used == ["Search"]


def test_an_ensemble_takes_the_plain_search(used: list[str]) -> None:
    assert translate_sentences([small_model()] * 2, [PLAIN], CONFIG)[0] and used == ["Search"]


def test_without_kernels_the_plain_search_translates(
    used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "compiled_kernels", lambda name: None)
    prepared = Decoder.of([small_model()])
    found = [*prepared.translated(CONFIG, ListQueue([PLAIN]))]
    assert found[0][1] and used == ["Search"]


def test_int8_without_the_engine_is_refused() -> None:
    with pytest.raises(UserError, match=r"an ensemble can't be computed in int8\."):
        Decoder.of([small_model()] * 2, "int8")


@pytest.mark.parametrize(
    ("requested", "supported", "choice"),
    [
        ("fp16", ["fp32"], "fp32"),
        ("fp16", ["fp32", "bf16", "int8"], "fp32 or bf16 or int8"),
        ("int8", ["fp32", "bf16"], "fp32 or bf16"),
    ],
)
def test_an_unsupported_precision_is_an_error_that_names_the_supported_ones(
    requested: Precision, supported: list[Precision], choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder, "translating_precisions", lambda device: supported)
    with pytest.raises(UserError) as caught:
        Decoder.of([small_model()], requested)
    assert caught.value.args[0] == f"this CPU can't compute in {requested}. Choose --precision {choice}."


def test_the_models_of_a_decoder_can_be_trained() -> None:
    model = Decoder.of([small_model()], "int8").models[0]
    assert all(
        parameter.requires_grad and parameter.dtype == torch.float32 for parameter in model.parameters()
    )


class Failing:
    """A search of which a method fails."""

    def __init__(self, method: str = "") -> None:
        self.sentences: list[Sentence] = []
        self._method = method

    def join(self, sentences: Sequence[Sentence]) -> None:
        if self._method == "join":
            raise MemoryError
        self.sentences += sentences

    def drop(self, numbers: Collection[int]) -> None:
        self.sentences = [one for i, one in enumerate(self.sentences) if i not in numbers]

    def step(self) -> list[Any]:
        if self._method == "step":
            raise MemoryError
        done, self.sentences = self.sentences, []
        return [(one, []) for one in done]


WITH_BANS = Sentence(1, [5], banned=[[3]])


def test_what_one_search_finished_is_not_lost_if_the_other_runs_out_of_memory() -> None:
    both = Divided(Failing(), Failing("step"))
    both.join([PLAIN, WITH_BANS])
    with pytest.raises(MemoryError):
        both.step()
    assert {one.key for one in both.sentences} == {PLAIN.key, WITH_BANS.key}


def test_no_sentence_joins_if_one_of_them_has_no_memory() -> None:
    both = Divided(Failing(), Failing("join"))
    with pytest.raises(MemoryError):
        both.join([PLAIN, WITH_BANS])
    assert both.sentences == []
