"""The small experiments of `recipes/claims`: their parts against independent computations, and resuming."""

import copy
import json
import math
import random
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from nmt_cli.model.config import ModelConfig
from nmt_cli.model.embedding import sinusoids
from nmt_cli.ragged import Layout
from nmt_cli.text.vocabulary import Vocabulary
from recipes.claims import figures, lengths, positions
from recipes.claims.other_scores import Kind, change, query_key_gradient, scores
from recipes.claims.results import Runs, write_table
from recipes.claims.small_training import (
    Corpus,
    Pair,
    batches,
    new_model,
    read_corpus,
    train,
    valid_loss,
)

CONFIG = ModelConfig(
    encoder_layers=1, decoder_layers=1, width=16, heads=2, feed_forward=16, norm="pre", tie="none"
)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """Pairs of 1 to 6 numbers, each translated as itself."""
    draws = random.Random(1)
    words = Vocabulary(tuple("</s> <unk> a b c d e f".split()), end=0, start=0, unknown=1)
    pairs: list[Pair] = []
    for _ in range(600):
        ids = [*(draws.randint(2, 7) for _ in range(draws.randint(1, 6))), 0]
        pairs.append((ids, ids))
    return Corpus(pairs[:500], pairs[500:560], words, words)


def test_scaled_scores_from_outside_give_the_loss_of_the_package(corpus: Corpus) -> None:
    model, plain = new_model(corpus, CONFIG, 1), new_model(corpus, CONFIG, 2)
    change(model, "scaled")
    plain.load_state_dict({name.replace(".own.", "."): x for name, x in model.state_dict().items()})
    assert valid_loss(model, corpus.valid) == pytest.approx(valid_loss(plain, corpus.valid), abs=1e-5)


def test_scores_without_scaling_are_larger_by_the_root_of_d_k() -> None:
    q, k = torch.randn(2, 1, 1, 3, 64).unbind()
    assert torch.allclose(scores("dot", q, k), 8 * scores("scaled", q, k), atol=1e-4)


@pytest.mark.parametrize("kind", ["scaled", "dot", "additive"])
def test_a_model_with_other_scores_learns(corpus: Corpus, kind: Kind) -> None:
    model = new_model(corpus, CONFIG, 1)
    modules = change(model, kind)
    before = valid_loss(model, corpus.valid)
    train(model, corpus.train, 20, 1, peak=0.03)
    assert valid_loss(model, corpus.valid) < 0.9 * before
    assert all(module.entropy > 0 and 0 < module.slope < 1 for module in modules)
    assert query_key_gradient(modules) > 0


def test_additive_scores_are_trained(corpus: Corpus) -> None:
    model = new_model(corpus, CONFIG, 1)
    before = [copy.deepcopy(module.score_HK) for module in change(model, "additive")]
    train(model, corpus.train, 2, 1)
    after = [x for name, x in model.named_parameters() if name.endswith("score_HK")]
    assert all(x is not None and not torch.equal(x, y) for x, y in zip(before, after, strict=True))


@torch.no_grad()
def test_no_later_token_changes_the_prediction_of_a_changed_model(corpus: Corpus) -> None:
    model = new_model(corpus, CONFIG, 1).eval()
    change(model, "dot")
    outputs = []
    for target in ([2, 3, 0], [2, 5, 0]):
        tokens, layout = torch.tensor(target), Layout.of([3])
        outputs.append(model(torch.tensor([2, 3, 0]), tokens, layout, layout))
    assert torch.allclose(outputs[0][:2], outputs[1][:2], atol=1e-6)
    assert not torch.allclose(outputs[0][2], outputs[1][2], atol=1e-3)


def test_all_pairs_of_an_epoch_are_in_a_batch_of_similar_lengths(corpus: Corpus) -> None:
    epoch, count = [], 0
    for batch in batches(corpus.train, 1):
        epoch += batch
        count += len(batch)
        if count >= len(corpus.train) - 300:
            break
    assert {*map(str, epoch)} <= {*map(str, corpus.train)}


def test_rotating_pairs_of_channels_moves_sinusoids() -> None:
    table = sinusoids(50, positions.WIDTH).double()
    assert torch.allclose(table[:-7] @ positions.rotation(7), table[7:], atol=1e-6)
    assert positions.png([[0, 255]]).startswith(b"\x89PNG")
    assert "data:image/png" in positions.picture()


def test_held_out_pairs_are_grouped_by_their_longer_side(corpus: Corpus) -> None:
    groups = lengths.scored_groups(corpus)
    assert {*groups} == {"1 to 12", "13 to 16", "17 to 20", "21 to 25", "26 to 60"}
    assert groups["1 to 12"] == corpus.train[::10] and not groups["13 to 16"]


def test_a_finished_run_is_not_repeated_and_the_table_has_all(tmp_path: Path) -> None:
    file, calls = tmp_path / "results.jsonl", []

    def compute() -> dict[str, float]:
        calls.append(1)
        return {"perplexity": 2.0 * len(calls)}

    for _ in range(2):
        runs = Runs("scale", file)
        runs.run("dot 4", 1, compute)
        runs.run("dot 4", 2, compute)
    assert len(calls) == len(file.read_text(encoding="utf-8").splitlines()) == 2
    assert json.loads(file.read_text(encoding="utf-8").splitlines()[0])["experiment"] == "scale"
    assert Runs("scale", file).cell("dot 4", "perplexity") == "3.00 (2.00 to 4.00)"
    assert Runs("lengths", file).cell("dot 4", "perplexity") == ""
    (tmp_path / "README.md").write_text("a\n<!-- scale -->\nold\n<!-- end -->\nz\n", encoding="utf-8")
    write_table("scale", ("x",), [("3",)], runs.origin(), tmp_path)
    assert "old" not in (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| 3 |" in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_words_of_the_corpus_beyond_the_vocabulary_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "tok").mkdir()
    for name in ("train", "valid"):
        for language in ("en", "de"):
            path = tmp_path / "tok" / f"{name}.lc.norm.tok.{language}"
            path.write_text("a a b\n" if name == "train" else "b a c\n", encoding="utf-8")
    read = read_corpus(tmp_path, entries=3)
    assert read.valid == [([1, 2, 1, 0], [1, 2, 1, 0])]
    assert math.isfinite(valid_loss(new_model(read, CONFIG, 1), read.valid))


def test_each_figure_has_the_lines_of_its_heads_and_tokens() -> None:
    weights = torch.full((3, 2, 2), 0.5)
    weights[0] = torch.eye(2)
    tokens = ["<a>", "</s>"]
    drawn = figures.figures(tokens, weights, token=0, heads=[1, 2])
    counts = {"figure-3": 1 + 2 + 2, "figure-4": 8 + 4, "figure-5": 4 + 4}
    for name, svg in drawn.items():
        elements = [one.tag.rpartition("}")[2] for one in ElementTree.fromstring(svg).iter()]
        assert elements.count("line") == counts[name]
        assert "&lt;a&gt;" in svg


def test_the_chosen_heads_attend_least_to_the_token_itself_and_to_the_end() -> None:
    weights = torch.zeros(3, 3, 3)
    weights[0, 1, 1], weights[1, 1, 0], weights[2, 1, 2] = 1.0, 1.0, 0.5
    assert figures.chosen_heads(weights, 1) == [1, 2]


@pytest.mark.parametrize("kind", lengths.KINDS)
def test_each_kind_of_positions_is_trained_on_short_pairs_and_scored_on_all(kind: str) -> None:
    words = Vocabulary(("</s>", "<unk>", "a"), end=0, start=0, unknown=1)
    pairs: list[Pair] = [([2] * (count % 41 + 1), [2] * (count % 41) + [0]) for count in range(410)]
    values = lengths.measured(Corpus(pairs, pairs[:5], words, words), kind, steps=1, seed=1)
    assert all(value > 1 for value in values.values()) and len(values) == len(lengths.GROUPS)
