"""`nmt score --model`: log-probabilities of translations."""

import json
import math
import re
from pathlib import Path

import pytest
import torch

from nmt_cli.checkpoints.model_folder import Identity, read_model, write_model
from nmt_cli.data.dataset import TOKENIZERS
from nmt_cli.model.config import ModelConfig
from nmt_cli.ragged import Layout
from nmt_cli.text.tokenizers import load_tokenizers
from tests.cli.conftest import Nmt, assert_one_line

CONFIG = ModelConfig(encoder_layers=1, decoder_layers=1, width=16, feed_forward=32, heads=2, norm="pre")


LONGEST = 12
"""The longest sentence in training, in tokens with the end token."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, toy_dataset: Path) -> Path:
    """A model with random weights, which prefers some tokens."""
    identity = Identity(CONFIG, load_tokenizers(toy_dataset / TOKENIZERS), {"longest": LONGEST})
    torch.manual_seed(7)
    folder = tmp_path_factory.mktemp("scoring") / "model"
    folder.mkdir()
    tensors = {name: 2 * tensor.detach() for name, tensor in identity.build().named_parameters()}
    write_model(folder, identity, tensors, {"step": 1})
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_text("abc de\n\nfed cab\nab\n", encoding="utf-8")
    return path


@pytest.fixture
def hypotheses(tmp_path: Path) -> Path:
    path = tmp_path / "hypotheses"
    path.write_text("cba ed\nab\n\nba ba ba\n", encoding="utf-8")
    return path


@torch.no_grad()
def scores(folder: Path, source: str, target: str) -> list[float]:
    """Return the log-probabilities of a translation, computed in one pass in float64."""
    model = read_model(folder)
    tokenizers, transformer = model.identity.tokenizers, model.transformer.double()
    ids = [
        [*side.encode(side.prepare(text)), side.vocabulary.end]
        for side, text in ((tokenizers.source, source), (tokenizers.target, target))
    ]
    tokens = [torch.tensor(sequence) for sequence in ids]
    decoded = transformer(tokens[0], tokens[1], *(Layout.of([len(sequence)]) for sequence in ids))
    return list(transformer.logits(decoded).log_softmax(-1).gather(1, tokens[1][:, None])[:, 0].tolist())


def test_a_model_scores_lines_with_log_probabilities_and_the_text_with_perplexities(
    nmt: Nmt, model: Path, source: Path, hypotheses: Path
) -> None:
    result = nmt("score", "--model", model, "--source", source, hypotheses)
    assert result.returncode == 0
    pairs = list(zip(source.read_text().splitlines(), hypotheses.read_text().splitlines(), strict=True))
    expected = [scores(model, *pair) for pair in pairs]
    assert [float(line) for line in result.stdout.splitlines()] == pytest.approx(
        [sum(values) for values in expected], abs=1e-4
    )
    everything = [score for values in expected for score in values]
    pieces, words = (math.exp(-sum(everything) / count) for count in (len(everything), 2 + 1 + 0 + 3 + 4))
    message = re.search(r"perplexity ([\d,.]+) per token, ([\d,.]+) per word", result.stderr)
    assert message
    assert [float(one.replace(",", "")) for one in message.groups()] == pytest.approx(
        [pieces, words], rel=1e-3
    )


def test_json_contains_the_score_of_each_token(nmt: Nmt, model: Path, source: Path, hypotheses: Path) -> None:
    result = nmt("score", "--model", model, "--source", source, "--json", hypotheses)
    content = json.loads(result.stdout)
    first = content["lines"][0]
    assert first["token_scores"] == pytest.approx(scores(model, "abc de", "cba ed"), abs=1e-4)
    assert first["log_probability"] == pytest.approx(sum(first["token_scores"]))
    assert len(first["tokens"]) == len(first["token_scores"])
    assert first["tokens"][-1] == "</s>"
    assert set(content) == {"perplexity", "word_perplexity", "lines"}


def test_translations_get_the_score_that_the_search_reported(
    nmt: Nmt, model: Path, source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    # Tokens are characters, so a text has the tokens of its translation, except for spaces at its ends.
    nmt("translate", model, "--format", "json", "--input", source, "--output", out)
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    best = [line["hypotheses"][0] for line in lines if line["hypotheses"]]
    numbers = [number for number, one in enumerate(best) if "".join(one["tokens"][:-1]) == one["text"]]
    assert numbers
    words = [line for line in source.read_text(encoding="utf-8").splitlines() if line]
    (tmp_path / "some.source").write_text("".join(f"{words[i]}\n" for i in numbers), encoding="utf-8")
    (tmp_path / "some").write_text("".join(f"{best[i]['text']}\n" for i in numbers), encoding="utf-8")
    result = nmt("score", "--model", model, "--source", tmp_path / "some.source", tmp_path / "some")
    assert [float(line) for line in result.stdout.splitlines()] == pytest.approx(
        [best[i]["log_probability"] for i in numbers], abs=1e-4
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "MODEL", "SOURCE"), "--model and --source work only together"),
        (("--source", "SOURCE", "SOURCE"), "--model and --source work only together"),
        (("--model", "MODEL", "--source", "SOURCE", "--metric", "bleu", "SOURCE"), "Remove the others"),
        (("SOURCE",), "Give --reference FILE"),
    ],
    ids=["no source", "no model", "a metric too", "neither"],
)
def test_model_without_source_is_wrong_usage(
    nmt: Nmt, model: Path, source: Path, arguments: tuple[str, ...], message: str
) -> None:
    names = {"MODEL": str(model), "SOURCE": str(source)}
    result = nmt("score", *(names.get(word, word) for word in arguments))
    assert_one_line(result, 2, message)


def test_the_direction_of_a_model_of_several_is_chosen_as_in_nmt_translate(
    nmt: Nmt, made_models: Path, tmp_path: Path
) -> None:
    plain, tagged, target = (tmp_path / name for name in ("plain", "tagged", "target"))
    plain.write_text("abc\nde\n")
    tagged.write_text("<2fr> abc\n<2fr> de\n")
    target.write_text("<2fr> abc\n<2fr> de\n")
    command = ("score", target, "--model", made_models / "tagged")
    french = nmt(
        *command, "--source", plain, "--source-lang", "en", "--target-lang", "FR", "--json", "--quiet"
    )
    assert (french.returncode, french.stderr) == (0, "")
    by_tags = nmt(*command, "--source", tagged, "--json")
    assert json.loads(french.stdout) == json.loads(by_tags.stdout)
    spanish = nmt(*command, "--source", plain, "--target-lang", "es", "--json", "--quiet")
    assert json.loads(spanish.stdout)["lines"][0]["log_probability"] < -5
    assert "tagged translates into de, fr, es. Choose one with --target-lang" in by_tags.stderr
    assert_one_line(
        nmt(*command, "--source", plain, "--target-lang", "ja"),
        1,
        "does not translate into ja: it has de, fr, es.",
    )
    wrong = nmt("score", target, "--reference", target, "--source-lang", "en")
    assert_one_line(wrong, 2, "--source-lang chooses a direction of --model. Remove it.")


@pytest.mark.parametrize("texts", [("--source", "-", "-"), ("--source", "-")], ids=" ".join)
def test_both_texts_from_stdin_are_one_line_of_error(nmt: Nmt, model: Path, texts: tuple[str, ...]) -> None:
    result = nmt("score", "--model", model, *texts)
    assert_one_line(result, 1, "Error: stdin can be read only once. Give files for ")


@pytest.mark.parametrize("form", [(), ("--json", "--quiet")], ids=["text", "json"])
def test_long_lines_are_scored_without_splitting_and_cause_a_warning(
    nmt: Nmt, model: Path, tmp_path: Path, form: tuple[str, ...]
) -> None:
    for name in ("source", "hypotheses"):
        (tmp_path / name).write_text("abcdeabcdea\nabcdeabcdeab\nab\nabc abc abc abc\n")
    texts = ("--source", tmp_path / "source", tmp_path / "hypotheses")
    result = nmt("score", "--model", model, *texts, *form)
    assert result.returncode == 0
    (warning,) = (line for line in result.stderr.splitlines() if line.startswith("Warning: "))
    assert warning.startswith(
        "Warning: 2 of 4 sources have more than the 11 tokens that nmt translate takes at once (the first is "
        "line 2). "
    )
    if not form:
        total = sum(scores(model, "abc abc abc abc", "abc abc abc abc"))
        assert float(result.stdout.splitlines()[3]) == pytest.approx(total, abs=1e-4)
    translated = nmt("translate", model, "--input", tmp_path / "source", "--output", tmp_path / "out")
    assert "Warning: lines 2, 4: too long" in translated.stderr


def test_texts_of_different_lengths_are_one_line_of_error(
    nmt: Nmt, model: Path, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "short").write_text("ab\n")
    result = nmt("score", "--model", model, "--source", source, tmp_path / "short")
    assert_one_line(result, 1, "1 lines", "4")
