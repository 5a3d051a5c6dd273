"""Both searches against brute force and full forward passes."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nmt_cli.attention import attention
from nmt_cli.decoding import batch
from nmt_cli.decoding.config import SearchConfig
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.search.hypotheses import Sentence
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.transformer import Transformer
from nmt_cli.ragged import Layout
from nmt_cli.text.vocabulary import Vocabulary
from tests.searching import Prepare, plain, translate_ids, translate_sentences

TINY = ModelConfig(
    encoder_layers=1, decoder_layers=1, width=8, heads=2, feed_forward=16, norm="pre", tie="none"
)
VOCABULARY = 5
CONFIG = SearchConfig()
Ranked = list[tuple[float, tuple[int, ...]]]


END = 0


def model_of(
    seed: int, vocabulary: int = VOCABULARY, config: ModelConfig = TINY, never: Sequence[int] = ()
) -> Transformer:
    """Return a model with large weights, so that its predictions are uneven."""
    torch.manual_seed(seed)
    entries = Vocabulary(("",) * vocabulary, end=END, start=END, unknown=1, never=tuple(never))
    model = Transformer(config, entries, entries, joint=True).eval()
    with torch.no_grad():
        model.output_matrix.mul_(3.0)
    return model


@torch.no_grad()
def log_probs(model: Transformer, source: Sequence[int], target: Sequence[int]) -> torch.Tensor:
    """Return [tokens and end token, V]: log-probabilities by a full forward pass."""
    tokens = torch.tensor([*source, END])
    expected = torch.tensor([*target, END])
    decoded = model(tokens, expected, Layout.of([len(tokens)]), Layout.of([len(expected)]))
    return model.logits(decoded).double().log_softmax(-1)


@torch.no_grad()
def log_probs_of_all(
    model: Transformer, source: Sequence[int], targets: Sequence[Sequence[int]]
) -> list[torch.Tensor]:
    """Return the log-probabilities of each translation, by one forward pass of all."""
    tokens = torch.tensor([*source, END] * len(targets))
    expected = torch.tensor([token for target in targets for token in (*target, END)])
    lengths = [len(target) + 1 for target in targets]
    sources = Layout.of([len(source) + 1] * len(targets))
    decoded = model(tokens, expected, sources, Layout.of(lengths))
    return list(torch.split(model.logits(decoded).double().log_softmax(-1), lengths))


def total(rows: torch.Tensor, target: Sequence[int]) -> float:
    return sum(float(row[token]) for row, token in zip(rows, [*target, END], strict=True))


def brute_force(
    rows_of: Callable[[Sequence[Sequence[int]]], Sequence[torch.Tensor]],
    allowed: Sequence[int],
    config: SearchConfig,
    cap: int,
) -> Ranked:
    """Return all possible translations, best first."""

    def score(target: Sequence[int], rows: torch.Tensor) -> float:
        n = len(target) + 1
        base = (5 + n) / 6 if config.length_rule == "gnmt" else n
        value: float = total(rows, target) / float(base) ** config.length_penalty
        return value

    everything = [
        target
        for count in range(config.min_length, cap + 1)
        for target in itertools.product(allowed, repeat=count)
    ]
    rows = zip(everything, rows_of(everything), strict=True)
    return sorted(((score(target, each), target) for target, each in rows), reverse=True)


RULES: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    length_rule=st.sampled_from(["gnmt", "power"]),
    length_penalty=st.sampled_from([0.0, 0.6, 1.0, 2.5]),
    min_length=st.integers(0, 2),
    cap_extra=st.integers(2, 3),
    n_best=st.integers(1, 3),
)


@given(rules=RULES, seed=st.integers(0, 200))
@settings(max_examples=30)
def test_a_wide_beam_returns_exactly_the_best_translations(
    prepare: Prepare, rules: dict[str, Any], seed: int
) -> None:
    """Check that no search stops too early, for any length rule, minimum length and cap."""
    model = model_of(seed)
    config = SearchConfig(beam=4**3, reach=1000, unknown=True, cap_ratio=0.0, **rules)
    source = [2, 4, 3]
    expected = brute_force(
        lambda targets: log_probs_of_all(model, source, targets),
        range(1, VOCABULARY),
        config,
        config.cap_extra,
    )
    actual = translate_ids([model], [source], config, prepare)[0]
    best = expected[: config.n_best]
    assert [tuple(each.tokens) for each in actual] == [target for _, target in best]
    assert [each.score for each in actual] == pytest.approx([score for score, _ in best], abs=1e-4)


def patient(model: Transformer, source: Sequence[int], config: SearchConfig, cap: int) -> Ranked:
    """Return the best hypotheses of a plain beam search by full forward passes, without pruning."""
    power = 1.0 if config.length_rule == "power" else 6.0
    offset = 0 if config.length_rule == "power" else 5
    live: Ranked = [(0.0, ())]
    ended: Ranked = []
    for age in range(cap + 1):
        rows = log_probs_of_all(model, source, [target for _, target in live])
        tokens = [END] if age == cap else range(VOCABULARY)
        continuations = [
            (total + float(row[-1][token]), (*target, token))
            for (total, target), row in zip(live, rows, strict=True)
            for token in tokens
        ]
        continuations.sort(reverse=True)
        penalty = ((offset + age + 1) / power) ** config.length_penalty
        ended += [
            (total / penalty, continuation[:-1])
            for total, continuation in continuations[: config.beam]
            if continuation[-1] == END
        ]
        live = [continuation for continuation in continuations if continuation[1][-1] != END][: config.beam]
    return sorted(ended, reverse=True)[: config.n_best]


@given(
    seed=st.integers(0, 200),
    rule=st.sampled_from(["gnmt", "power"]),
    penalty=st.sampled_from([0.0, 0.6, 1.0, 1.5, 2.5]),
    beam=st.integers(2, 4),
    n_best=st.integers(1, 2),
)
@settings(max_examples=20)
def test_pruning_changes_no_result(
    prepare: Prepare, seed: int, rule: Literal["gnmt", "power"], penalty: float, beam: int, n_best: int
) -> None:
    """Check that pruned hypotheses of a narrow beam, and those that replace them, do not matter."""
    model, source, cap = model_of(seed), [2, 4, 3], 12
    config = SearchConfig(
        beam=beam,
        n_best=n_best,
        reach=1000,
        length_rule=rule,
        length_penalty=penalty,
        unknown=True,
        cap_ratio=0.0,
        cap_extra=cap,
    )
    expected = patient(model, source, config, cap)
    actual = translate_ids([model], [source], config, prepare)[0]
    assert [tuple(each.tokens) for each in actual] == [target for _, target in expected]
    assert [each.score for each in actual] == pytest.approx([score for score, _ in expected], abs=1e-4)


def test_an_ensemble_returns_the_best_translation_of_its_mean() -> None:
    models = [model_of(seed) for seed in (1, 2, 3)]
    config = SearchConfig(beam=64, unknown=True, cap_ratio=0.0, cap_extra=3)
    source = [2, 4, 3]

    def mean(*each: torch.Tensor) -> torch.Tensor:
        return torch.stack(each).exp().mean(0).log()

    def rows_of(targets: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        return list(map(mean, *(log_probs_of_all(model, source, targets) for model in models)))

    score, target = brute_force(rows_of, range(1, VOCABULARY), config, 3)[0]
    actual = translate_ids(models, [source], config)[0][0]
    assert tuple(actual.tokens) == target
    assert actual.score == pytest.approx(score, abs=1e-4)


def greedy(model: Transformer, source: Sequence[int], cap: int, allowed: Sequence[int]) -> list[int]:
    """Check each token against the likeliest one after its prefix, by full forward passes."""
    target: list[int] = []
    while len(target) < cap:
        last = log_probs(model, source, target)[-1]
        token = max([END, *allowed], key=lambda i: float(last[i]))
        if token == END:
            break
        target.append(token)
    return target


@given(seed=st.integers(0, 500), source=st.lists(st.integers(1, 11), max_size=9))
@settings(max_examples=20)
def test_a_beam_of_one_is_greedy_search(prepare: Prepare, seed: int, source: list[int]) -> None:
    model = model_of(seed, 12, never=[4])
    config = SearchConfig(beam=1, cap_extra=6)
    actual = translate_ids([model], [source], config, prepare)[0]
    assert list(actual[0].tokens) == greedy(model, source, len(source) + 6, [2, 3, *range(5, 12)])


SOURCES = [[5, 3, 8], [2], [], [7, 7, 4, 9, 10, 11, 3], [6, 1], [3, 9, 9, 9, 2, 5, 6, 7, 8, 10, 4]]
SEARCHES = {
    "beam": SearchConfig(beam=4, n_best=3),
    "greedy": SearchConfig(beam=1),
    "sampling": SearchConfig(sample=True, n_best=4, top_k=7),
    "at least four": SearchConfig(beam=3, min_length=4),
}
WITH_RULES = SEARCHES | {
    "n-grams": SearchConfig(beam=3, n_best=3, no_repeat_ngram=2),
}


@pytest.mark.parametrize("name", SEARCHES)
@given(seed=st.integers(0, 100))
@settings(max_examples=10)
def test_scores_are_those_of_teacher_forcing(prepare: Prepare, name: str, seed: int) -> None:
    model, config = model_of(seed, 12), SEARCHES[name]
    for source, actual in zip(SOURCES, translate_ids([model], SOURCES, config, prepare), strict=True):
        assert len(actual) == config.n_best
        for each in actual:
            rows = log_probs(model, source, each.tokens)
            expected = [float(row[token]) for row, token in zip(rows, [*each.tokens, END], strict=True)]
            assert list(each.token_scores) == pytest.approx(expected, abs=1e-4)
            length = len(each.tokens) + 1
            assert each.score == pytest.approx(sum(expected) / ((5 + length) / 6) ** 0.6, abs=1e-4)
            assert config.min_length <= len(each.tokens) <= len(source) + 50


@cache
def found_alone(name: str, prepare: Prepare) -> list[list[Sequence[int]]]:
    """Return translations of `SOURCES`, each alone after empty ones: draws depend on the position."""
    actual = (
        translate_ids([model_of(5, 12)], [[]] * key + [source], WITH_RULES[name], prepare)[key]
        for key, source in enumerate(SOURCES)
    )
    return [[each.tokens for each in hypotheses] for hypotheses in actual]


@pytest.mark.parametrize("name", WITH_RULES)
@pytest.mark.parametrize("rows", [1, 3, 256])
def test_a_translation_does_not_depend_on_the_rest_of_the_batch(
    prepare: Prepare, name: str, rows: int
) -> None:
    config = replace(WITH_RULES[name], rows=rows)
    together = translate_ids([model_of(5, 12)], SOURCES, config, prepare)
    assert [[each.tokens for each in actual] for actual in together] == found_alone(name, prepare)


def test_samples_follow_the_probabilities_of_the_model() -> None:
    """Draw a first token 2,000 times. 4.9 standard deviations is one failure in a million for each token."""
    model, source = model_of(3, 12), [5, 3]
    config = SearchConfig(sample=True, n_best=1000, max_length=1, rows=4096, unknown=True)
    actual = [
        hypothesis for found in translate_ids([model], [source, source], config) for hypothesis in found
    ]
    count = len(actual)
    assert count == 2000
    shares = log_probs(model, source, [])[0].exp()
    for token in range(12):
        drawn = sum((list(each.tokens) or [END])[0] == token for each in actual)
        share = float(shares[token])
        assert abs(drawn - count * share) <= 4.9 * math.sqrt(count * share * (1 - share)) + 1


def test_top_k_excludes_unlikely_tokens() -> None:
    model, source = model_of(3, 12), [5, 3]
    shares = log_probs(model, source, [])[0].exp().sort(descending=True)
    config = SearchConfig(sample=True, n_best=400, max_length=1, rows=400, unknown=True, top_k=3)
    actual = translate_ids([model], [source], config)[0]
    assert {(list(each.tokens) or [END])[0] for each in actual} == set(shares.indices[:3].tolist())


def test_samples_differ_between_seeds_and_between_lines() -> None:
    model = model_of(3, 12)
    config = SearchConfig(sample=True, n_best=5)
    first, second = translate_ids([model], [[5, 3], [5, 3]], config)
    other = translate_ids([model], [[5, 3]], replace(config, seed=2))[0]
    assert len({tuple(tuple(each.tokens) for each in actual) for actual in (first, second, other)}) == 3


def test_tokens_that_the_vocabulary_excludes_are_never_produced(prepare: Prepare) -> None:
    found = translate_ids([model_of(4, 12)], SOURCES, SearchConfig(), prepare)
    said = {token for actual in found for token in actual[0].tokens}
    assert len(said) > 1
    silent = model_of(4, 12, never=sorted(said))
    rest = translate_ids([silent], SOURCES, SearchConfig(unknown=True), prepare)
    assert not said & {token for actual in rest for token in actual[0].tokens}


def test_a_model_with_learned_positions_stops_where_they_end(prepare: Prepare) -> None:
    model = model_of(4, 12, replace(TINY, positions="learned", longest=9))
    with torch.no_grad():
        model.output_matrix[END] = -100 * model.output_matrix[END].abs()
    assert Ensemble([model]).longest == 9
    found = translate_ids([model], SOURCES[:3], SearchConfig(), prepare)
    assert max(len(actual[0].tokens) for actual in found) <= 8


def test_stopping_early_ends_sooner_and_finds_as_good_or_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop as other toolkits do: once `beam` hypotheses have finished."""
    rows = {True: 0, False: 0}
    actual = {}
    for early in rows:
        config = SearchConfig(beam=3, length_penalty=1.5, reach=1000, stop_early=early)
        for seed in range(12):
            model = model_of(seed, 12)
            step = model.step

            def counted(tokens: Tensor, *rest: Any, early: bool = early, step: Any = step) -> Tensor:
                rows[early] += len(tokens)
                out: Tensor = step(tokens, *rest)
                return out

            monkeypatch.setattr(model, "step", counted)
            actual[early, seed] = [each[0].score for each in translate_ids([model], SOURCES, config, plain)]
    assert rows[True] < 0.8 * rows[False]
    pairs = [(actual[True, seed], actual[False, seed]) for seed in range(12)]
    assert all(one <= other + 1e-5 for early, late in pairs for one, other in zip(early, late, strict=True))
    assert any(early != late for early, late in pairs)


def test_a_prefix_may_have_tokens_that_are_banned_elsewhere(prepare: Prepare) -> None:
    model = model_of(4, 12, never=[7])
    sentences = [Sentence(0, [5, 3], prefix=[1, 7]), Sentence(1, [5, 3])]
    found = translate_sentences([model], sentences, CONFIG, prepare)
    actual = {key: [*(hypotheses or [])[0].tokens] for key, hypotheses in found.items()}
    assert actual[0][:2] == [1, 7]
    assert not {1, 7} & {*actual[0][2:], *actual[1]}


def test_the_maximum_length_has_precedence_over_the_minimum(prepare: Prepare) -> None:
    config = SearchConfig(min_length=8, cap_ratio=0.0, cap_extra=5)
    ((actual,),) = translate_ids([model_of(4, 12)], [[5, 3]], config, prepare)
    assert len(actual.tokens) == 5


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search as on a GPU: check rarely."""
    monkeypatch.setattr(batch, "is_gpu", lambda _: True)
    monkeypatch.setattr(attention, "PART", {})


STATIC = SEARCHES | {
    "short": SearchConfig(beam=4, max_length=3),
    "stopping early": SearchConfig(beam=4, stop_early=True),
    "rules": SearchConfig(beam=4, no_repeat_ngram=2, ban=("any",)),
    "banned": SearchConfig(beam=4, ban=("any",)),
}


@pytest.mark.parametrize("name", STATIC)
def test_checking_rarely_for_finished_sentences_changes_no_result(
    name: str, request: pytest.FixtureRequest
) -> None:
    """Check it also for sentences that join later, prefixes and banned words."""
    config = replace(STATIC[name], rows=12, cap_extra=9)
    banned = [[9], [3, 5]] if config.ban else []
    given = [
        Sentence(
            key,
            tokens,
            prefix=[1, 7] if key % 3 == 1 else (),
            banned=banned if key % 2 else (),
            certain=key % 2 if key % 3 == 1 else 0,
        )
        for key, tokens in enumerate(SOURCES * 2)
    ]
    model = model_of(5, 12, replace(TINY, positions="learned", longest=70))
    expected = translate_sentences([model], given, config, plain)
    request.getfixturevalue("as_on_a_gpu")
    actual = translate_sentences([model], given, config, plain)
    assert actual.keys() == expected.keys() == set(range(len(given)))
    for key, hypotheses in expected.items():
        for one, other in zip(hypotheses or [], actual[key] or [], strict=True):
            assert other.tokens == one.tokens
            assert other.score == pytest.approx(one.score, abs=1e-4)
            assert list(other.token_scores) == pytest.approx(list(one.token_scores), abs=1e-4)
