"""The validation loss against float64 pair by pair, and the scores against `scoring`."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Barrier
from typing import Any, cast, get_args

import numpy as np
import pytest
import sacrebleu
import torch

from nmt_cli.checkpoints.model_folder import Identity
from nmt_cli.data.batching.batch import assemble
from nmt_cli.data.dataset import Dataset, Split, open_dataset
from nmt_cli.data.preprocessing.pipeline import Outcome
from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from nmt_cli.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.scoring.config import Metric
from nmt_cli.scoring.lengths import Length
from nmt_cli.scoring.measures import score
from nmt_cli.text.subword_models.subwords import UNKNOWN_TEXT
from nmt_cli.training.config import ValidationConfig
from nmt_cli.training.step.distributed import Group, Process
from nmt_cli.training.step.trainer import MixedPrecision
from nmt_cli.training.validation import judge as validation
from nmt_cli.training.validation.judge import Judge, Judgement, LengthScores, validation_score
from tests.searching import translate_ids

NewJudge = Callable[..., Judge]

CPU = torch.device("cpu")
ALONE = Group(Process(), CPU, 1.0)
ALL = ValidationConfig()
SEARCH = SearchConfig(beam=1)
TRANSLATE = TranslateConfig(search=SEARCH)


@pytest.fixture(scope="module", autouse=True)
def several_micro_batches() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(validation, "MAX_TOKENS", 150)
        yield


@pytest.fixture(scope="module")
def model(identity: Identity) -> Transformer:
    torch.manual_seed(4)
    return identity.build().eval()


@pytest.fixture(scope="module")
def valid(dataset: Dataset) -> Split:
    return dataset.splits["dev"]


@pytest.fixture(scope="module")
def references(toy_dataset: Path) -> list[str]:
    return (toy_dataset / "dev.target.raw.txt").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def judge(dataset: Dataset, identity: Identity) -> NewJudge:
    """Return a judge of the validation set of `toy_dataset`."""

    def judge(config: ValidationConfig = ALL, group: Group = ALONE) -> Judge:
        return Judge(dataset, identity.tokenizers, config, TRANSLATE, group, MixedPrecision("fp32", CPU))

    return judge


@pytest.fixture(scope="module")
def judgement(judge: NewJudge, model: Transformer, valid: Split) -> Judgement:
    actual: Judgement = judge().judge(model, valid)
    return actual


def brute_force(model: Transformer, split: Split, pairs: Sequence[int]) -> float:
    """Return the NLL of all target tokens of `pairs`, computed one pair at a time."""
    exact, total = deepcopy(model).double(), 0.0
    for pair in pairs:
        part = assemble(split, np.array([pair]))
        with torch.no_grad():
            decoded = exact(part.source_tokens, part.target_tokens, part.source, part.target)
            log_p = exact.logits(decoded).log_softmax(-1)
        total -= log_p.gather(1, part.target_tokens[:, None]).sum().item()
    return total


def test_the_loss_is_that_of_all_target_tokens_with_end_tokens_also_per_word_of_the_raw_text(
    judgement: Judgement, model: Transformer, valid: Split, references: list[str]
) -> None:
    total = brute_force(model, valid, range(len(valid)))
    nll, words = total / len(valid.target.tokens), sum(len(line.split()) + 1 for line in references)
    assert judgement.nll == pytest.approx(nll, rel=1e-6)
    assert judgement.perplexity == pytest.approx(math.exp(nll), rel=1e-5)
    assert judgement.word_perplexity == pytest.approx(math.exp(total / words), rel=1e-5)


def test_scores_are_those_of_the_translations_against_the_raw_lines(
    judgement: Judgement, references: list[str]
) -> None:
    assert judgement.name == "dev"
    assert list(judgement.scores) == score(list(judgement.translations), [references])
    assert [actual.metric for actual in judgement.scores] == ["bleu", "chrf"]
    assert all("version:" in actual.signature for actual in judgement.scores)


def judging_in(judge: Judge, lang: str) -> Judge:
    """Return the judge for translations into another language."""
    recipe = replace(judge.tokenizers.recipe, target_lang=lang)
    return replace(judge, tokenizers=replace(judge.tokenizers, recipe=recipe))


def test_scores_are_those_that_nmt_score_gives_for_the_language(
    judge: NewJudge, model: Transformer, valid: Split
) -> None:
    assert "tok:zh" in judging_in(judge(), "zh-CN").judge(model, valid).scores[0].signature


def test_each_length_has_the_scores_of_its_lines_alone(
    judge: NewJudge, judgement: Judgement, model: Transformer, valid: Split, references: list[str]
) -> None:
    ranges = [(0, 5), (6, 10), (11, 20), (21, 40), (41, None)]
    expected = []
    for least, most in ranges:
        own = [n for n, line in enumerate(references) if least <= len(line.split()) <= (most or 1000)]
        hypotheses, reference = [judgement.translations[n] for n in own], [references[n] for n in own]
        if own:
            bleu = sacrebleu.corpus_bleu(hypotheses, [reference], force=True).score
            chrf = sacrebleu.corpus_chrf(hypotheses, [reference]).score
            logged = {"least": least, "most": most, "lines": len(own), "bleu": bleu, "chrf": chrf}
            expected.append(pytest.approx(logged))
    assert judgement.line()["by_length"] == expected
    assert len(expected) > 1
    some = judge(ValidationConfig(sentences=7)).judge(model, valid)
    assert sum(one.length.lines for one in some.lengths) == 7


def lengths(*ranges: tuple[int, int | None, int]) -> list[LengthScores]:
    return [LengthScores(Length(*one), []) for one in ranges]


@pytest.mark.parametrize(
    ("ranges", "shown"),
    [
        ([(0, 5, 20), (6, 10, 1)], True),
        ([(0, 5, 19), (6, 10, 1000)], False),
        ([(6, 10, 20), (11, 20, 20)], False),
        ([(0, 5, 20)], False),
        ([], False),
    ],
    ids=["enough", "too few", "none", "all are short", "no lengths"],
)
def test_scores_of_short_lines_are_shown_if_there_are_enough_and_longer_ones(
    judgement: Judgement, ranges: list[tuple[int, int | None, int]], shown: bool
) -> None:
    short = replace(judgement, lengths=lengths(*ranges)).short
    assert (short.length == Length(*ranges[0]) if short else False) == shown


@pytest.mark.parametrize("metric", get_args(Metric))
def test_every_metric_of_nmt_score_can_choose_the_best_checkpoint(
    judge: NewJudge, model: Transformer, valid: Split, references: list[str], metric: Metric
) -> None:
    judgement = judge(replace(ALL, metric=metric)).judge(model, valid)
    metrics = [*dict.fromkeys((*("bleu", "chrf"), metric))]
    assert [one.metric for one in judgement.scores] == metrics
    (expected,) = score(list(judgement.translations), [references], [metric], lang="de")
    value = validation_score(judgement, metric)
    assert abs(value) == expected.value == judgement.metrics[metric]
    assert metric in judgement.line()["signatures"]
    assert all(metric in one for one in judgement.line()["by_length"])
    same = replace(judgement, scores=score(references, [references], [metric], lang="de"))
    assert validation_score(same, metric) > value


def test_the_papers_bleu_is_refused_for_a_language_that_it_can_not_split(judge: NewJudge) -> None:
    with pytest.raises(
        UserError, match=r"validation\.metric=paper-bleu can't be computed: .* can't split zh"
    ):
        judging_in(judge(replace(ALL, metric="paper-bleu")), "zh")


def test_translations_are_in_the_order_of_the_lines(
    judgement: Judgement, model: Transformer, valid: Split, identity: Identity
) -> None:
    target = identity.tokenizers.target
    alone = []
    for pair in range(len(valid)):
        part = assemble(valid, np.array([pair]))
        source = part.source_tokens[:-1].tolist()
        ((actual, *_),) = translate_ids([model], [source], SEARCH)
        alone.append(target.decode(actual.tokens))
    assert list(judgement.translations) == alone
    assert len(set(alone)) > 5


def test_the_number_of_translated_sentences_does_not_limit_the_loss(
    judge: NewJudge, judgement: Judgement, model: Transformer, valid: Split, references: list[str]
) -> None:
    some = judge(ValidationConfig(sentences=7)).judge(model, valid)
    assert list(some.translations) == list(judgement.translations)[:7]
    assert list(some.scores) == score(list(some.translations), [references[:7]])
    assert some.nll == pytest.approx(judgement.nll, rel=1e-6)
    assert some.word_perplexity == pytest.approx(judgement.word_perplexity, rel=1e-5)


def test_a_translation_never_contains_the_unknown_token(
    judge: NewJudge, model: Transformer, valid: Split
) -> None:
    eager = deepcopy(model)
    unknown = model.target_vocabulary.unknown
    torch.manual_seed(1)
    with torch.no_grad():
        eager.output_matrix[unknown] = 20 * torch.randn(16)
    sources = [assemble(valid, np.array([pair])).source_tokens[:-1].tolist() for pair in range(len(valid))]
    searched = translate_ids([eager], sources, replace(SEARCH, unknown=True))
    assert unknown in {token for actual in searched for token in actual[0].tokens}
    assert UNKNOWN_TEXT not in "".join(judge().judge(eager, valid).translations)


@pytest.mark.parametrize("sentences", [20, 1000])
def test_a_number_larger_than_the_set_means_all_sentences(
    judge: NewJudge, judgement: Judgement, model: Transformer, valid: Split, sentences: int
) -> None:
    config = ValidationConfig(sentences=sentences)
    assert judge(config).judge(model, valid).translations == judgement.translations


@dataclass
class Thread:
    """A rank that is a thread, with the methods `gather` and `meet` of `Group`."""

    process: Process
    values: list[Any]
    barrier: Barrier
    device: torch.device = CPU

    def gather(self, value: Any) -> list[Any]:
        self.values[self.process.rank] = value
        self.barrier.wait(300)
        return list(self.values)

    def meet(self, doing: str) -> None:
        self.barrier.wait(300)


@pytest.mark.parametrize("world", [2, 3, 40], ids="{} ranks".format)
def test_ranks_share_the_work_and_all_get_the_result_of_one(
    judge: NewJudge, judgement: Judgement, model: Transformer, valid: Split, world: int
) -> None:
    values, barrier = [None] * world, Barrier(world)
    ranks = [cast(Group, Thread(Process(rank, world), values, barrier)) for rank in range(world)]
    with ThreadPoolExecutor(world) as threads:
        actual = list(threads.map(lambda group: judge(ALL, group).judge(model, valid), ranks))
    assert all(result.translations == judgement.translations for result in actual)
    assert all(result.scores == judgement.scores for result in actual)
    assert {result.nll for result in actual} == {actual[0].nll}
    assert actual[0].nll == pytest.approx(judgement.nll, rel=1e-12)
    shares = [sum(tokens for _, tokens in losses) for losses, _ in cast(list[Any], values)]
    assert sum(shares) == len(valid.target.tokens)
    assert max(shares) < sum(shares)


@pytest.mark.parametrize("training", [True, False])
def test_validation_is_without_dropout_and_restores_the_mode_of_the_model(
    judge: NewJudge, judgement: Judgement, model: Transformer, valid: Split, training: bool
) -> None:
    dropping = deepcopy(model).train(training)
    for module in dropping.modules():
        if hasattr(module, "drop"):
            setattr(module, "drop", 0.5)  # noqa: B010  # to mypy, what a module has is another module
    assert judge().judge(dropping, valid) == judgement
    assert dropping.training is training
    assert not any(parameter.requires_grad is False for parameter in dropping.parameters())


def test_the_sets_are_the_validation_sets_in_order_and_no_others(
    tmp_path: Path, make: Callable[..., Outcome], toy: str, dev: str, judge: NewJudge
) -> None:
    second = tmp_path / "second"
    for side in ("en", "de"):
        Path(f"{second}.{side}").write_bytes(Path(f"{dev}.{side}").read_bytes())
    make(tmp_path / "out", [toy], valid=[str(second), dev])
    two_sets = replace(judge(), dataset=open_dataset(tmp_path / "out"))
    assert [split.name for split in two_sets.dataset.valid_sets] == ["second", "dev"]


def test_some_lines_are_judged_as_they_are_among_all(
    judge: NewJudge, judgement: Judgement, model: Transformer, valid: Split
) -> None:
    lines = validation.longest_lines(valid, 3, among=20)
    some = judge().judge(model, valid, lines)
    assert list(some.translations) == [judgement.translations[line] for line in lines]
    tokens = int(np.diff(valid.target.offsets)[lines].sum())
    assert some.nll == pytest.approx(brute_force(model, valid, lines) / tokens)


@pytest.mark.parametrize("lang", ["ja", "ko"])
def test_without_the_tokeniser_of_a_language_bleu_counts_characters_with_a_warning(
    judge: NewJudge, model: Transformer, valid: Split, monkeypatch: pytest.MonkeyPatch, lang: str
) -> None:
    for package in ("MeCab", "mecab_ko"):
        monkeypatch.setitem(sys.modules, package, None)
    without = judging_in(judge(), lang)
    assert without.in_characters and f"pip install '.[{lang}]'" in without.in_characters
    (bleu, _) = without.judge(model, valid).scores
    assert "|tok:char|" in bleu.signature
