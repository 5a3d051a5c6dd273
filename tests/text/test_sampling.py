"""Random segmentation depends only on the seed and follows its probabilities, and bad settings are errors."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from nmt_cli.config import read
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.errors import UserError
from nmt_cli.text.config import SamplingConfig, TextConfig, TokenizerConfig
from nmt_cli.text.sampling import sampler
from nmt_cli.text.subword_models.pieces import Pieces
from nmt_cli.text.subword_models.unigram import UnigramSampling
from nmt_cli.text.tokenizer import Tokenizer
from nmt_cli.text.tokenizers import Recipe, Tokenizers, learn_tokenizers
from nmt_cli.training.config import TrainConfig

ENDINGS = ["", "er", "est", "ly", "ness", "s", "ed", "ing"]
WORDS = [stem + ending for stem in "low new wide strong warm help talk play".split() for ending in ENDINGS]
LINES = ["lower lowest talking", *(" ".join(random.Random(n).choices(WORDS, k=6)) for n in range(300))]
KINDS = {
    "unigram": TokenizerConfig(kind="sentencepiece", vocab_size=56),
    "pieces of bpe": TokenizerConfig(kind="sentencepiece", vocab_size=56, sentencepiece_model="bpe"),
    "bpe": TokenizerConfig(kind="bpe", vocab_size=64),
    "char": TokenizerConfig(kind="char", vocab_size=56),
    "word": TokenizerConfig(kind="word", vocab_size=56),
}
STRONG, EVEN = SamplingConfig(source=0.3), SamplingConfig(source=0.1)


def learnt_tokenizers(kind: str, symbols: tuple[str, ...] = ()) -> Tokenizers:
    config = KINDS[kind]
    recipe = Recipe(config.kind, True, "en", "en", TextConfig(), symbols)
    return learn_tokenizers(recipe, config, {"source": LINES, "target": LINES})


def learnt(kind: str, symbols: tuple[str, ...] = ()) -> Tokenizer:
    return learnt_tokenizers(kind, symbols).source


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "config"), [("unigram", EVEN), ("pieces of bpe", STRONG), ("bpe", STRONG)])
def test_draws_depend_only_on_the_seed_and_keep_the_text(kind: str, config: SamplingConfig) -> None:
    tokenizer = learnt(kind)
    draw = sampler(tokenizer, "source", config)
    before = tokenizer.encode(LINES[0])
    drawn = [draw(LINES[0], seed) for seed in range(2**63, 2**63 + 50)]
    assert drawn == [sampler(learnt(kind), "source", config)(LINES[0], 2**63 + seed) for seed in range(50)]
    assert len({tuple(ids) for ids in drawn}) > 5
    assert {tokenizer.decode(ids) for ids in drawn} == {LINES[0]}
    assert tokenizer.encode(LINES[0]) == before


DRAW = """
import sys
from pathlib import Path
from nmt_cli.text.config import SamplingConfig
from nmt_cli.text.sampling import sampler
from nmt_cli.text.tokenizers import load_tokenizers

for folder in sys.argv[1:]:
    config = SamplingConfig(source=0.3)
    draw = sampler(load_tokenizers(Path(folder)).source, "source", config)
    print([draw("lower lowest talking", seed) for seed in range(30)])
"""


@pytest.mark.slow
def test_another_process_draws_the_same(tmp_path: Path) -> None:
    arguments = []
    for kind in ("unigram", "pieces of bpe", "bpe"):
        learnt_tokenizers(kind).save(folder := tmp_path / kind)
        arguments.append(str(folder))
    processes = [
        subprocess.run([sys.executable, "-c", DRAW, *arguments], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert len(set(processes[0].stdout.splitlines())) == 3
    assert processes[0].stdout == processes[1].stdout


def test_a_side_is_drawn_with_its_own_strength() -> None:
    tokenizer = learnt("unigram")
    assert isinstance(tokenizer.subwords, Pieces)
    draw = sampler(tokenizer, "target", SamplingConfig(source=9.0, target=0.1))
    expected = UnigramSampling(tokenizer.subwords, 0.1)
    for seed in range(50):
        assert draw(LINES[0], seed) == tokenizer.numbering.ids_of(expected.encode(LINES[0], seed))


@pytest.mark.parametrize(
    ("kind", "strength", "message"),
    [
        ("char", 0.3, "sampling.source has no effect on a vocabulary of characters or words. Leave it out."),
        ("word", 0.3, "sampling.source has no effect on a vocabulary of characters or words. Leave it out."),
        (
            "bpe",
            1.0,
            "sampling.source is 1, but it must be less than 1, usually 0.1: the dataset's ",
        ),
        ("pieces of bpe", 1.5, "sampling.source is 1.5, but it must be less than 1"),
    ],
)
def test_a_strength_that_does_not_suit_the_subwords_is_an_error(
    kind: str, strength: float, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        sampler(learnt(kind), "source", SamplingConfig(source=strength))


@pytest.mark.parametrize(("name", "value"), [("source", -0.1), ("target", -1.0)])
def test_settings_out_of_bounds_are_errors(name: str, value: float) -> None:
    with pytest.raises(UserError, match=rf"{name} must be at least 0.* \(got {value:g}\)"):
        SamplingConfig(**{name: value})


@pytest.mark.parametrize(
    ("config", "default", "other", "remedy"),
    [
        (TrainConfig, "sampling.nbest=0", "sampling.nbest=64", "Set a larger alpha instead"),
        (PreprocessConfig, "tokenizer.seed=1", "tokenizer.seed=2", "Shuffle the corpus"),
    ],
)
def test_removed_settings_are_ignored_at_their_default_and_refused_otherwise(
    config: type[TrainConfig | PreprocessConfig], default: str, other: str, remedy: str
) -> None:
    notes: list[str] = []
    assert read(config, None, [default], note=notes.append) == config()
    assert default.partition("=")[0] in notes[0]
    with pytest.raises(UserError, match=remedy):
        read(config, None, [other])


def test_symbols_stay_whole_and_text_between_them_is_drawn_independently() -> None:
    tokenizer = learnt("bpe", symbols=("<sep>",))
    draw = sampler(tokenizer, "source", SamplingConfig(source=0.5))
    symbol = tokenizer.encode("<sep>")
    halves = []
    for seed in range(20):
        ids = draw("lowest <sep> lowest", seed)
        assert ids.count(symbol[0]) == 1
        halves.append((ids[: ids.index(symbol[0])], ids[ids.index(symbol[0]) + 1 :]))
    assert any(left != right for left, right in halves)
