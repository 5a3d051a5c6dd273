"""Training files of Marian and OpusTrainer become settings, and every key that does not is named."""

from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from nmt_cli.config import own_entries, resolved
from nmt_cli.errors import UserError
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.foreign_recipes import Translated, of_marian, of_opustrainer

# The keys of a student of Firefox: its architecture, its training and the end of it in 8 bits.
MODEL = """
dec-cell-base-depth: 2
dec-cell-high-depth: 1
dec-cell: ssru
dec-depth: 4 # deeper than usual
dim-emb: 384
enc-cell-depth: 1
enc-cell: gru
enc-depth: 6
enc-type: bidirectional
transformer-decoder-autoreg: rnn
transformer-dim-ffn: 1536
transformer-ffn-activation: relu
transformer-ffn-depth: 2
transformer-guided-alignment-layer: last
transformer-heads: 8
transformer-no-projection: false
transformer-postprocess-emb: d
transformer-postprocess: dan
transformer-preprocess: ""
transformer-tied-layers: []
transformer-train-position-embeddings: false
type: transformer
"""
TRAINING = """
beam-size: 1
clip-norm: 0
cost-type: ce-mean-words
disp-first: 10
disp-freq: 1000
early-stopping: 20
exponential-smoothing: True
learn-rate: 0.0003
lr-decay-inv-sqrt: 32000
lr-report: True
lr-warmup: 16000
max-length: 200
maxi-batch: 1000
mini-batch-fit: True
mini-batch: 1000
normalize: 1
optimizer-delay: 2
optimizer-params: [0.9, 0.98, 1e-09]
save-freq: 5000
valid-freq: 5000
valid-mini-batch: 64
sentencepiece-alphas: [0.5, 0.5]
guided-alignment: 2
"""
FINETUNING = TRAINING.replace("5000", "500").replace("delay: 2", "delay: 4") + "quantize-bits: 8\n"
OPUSTRAINER = """
datasets:
  original: {dataset0}
stages:
  - train
train:
  - original 1.0
  - until original inf
seed: 1111
num_fields: 3
modifiers:
  common:
    - Noise: 0.0005
      min_word_length: 2
    - Tags: 0.005
      augment: 1
      custom_detok_src: "icu:{src}"
      spm_vocab_src: {vocab_src}
    - RemoveEndPunct: 0.2
  bicameral_src:
    - UpperCase: 0.07
    - TitleCase: 0.05
  phonemic_src:
    - Typos: 0.05
"""
FILE = Path("student.yml")


def config_of(translated: Translated) -> TrainConfig:
    """Return the configuration with the translated settings alone."""

    def note(text: str) -> None:
        raise AssertionError(text)  # a removed setting

    return resolved(TrainConfig, own_entries(translated.settings), note)


def test_the_architecture_of_a_student() -> None:
    translated = of_marian(MODEL, FILE)
    model = config_of(translated).model
    assert (model.encoder_layers, model.decoder_layers, model.width) == (6, 4, 384)
    assert (model.feed_forward, model.heads, model.activation) == (1536, 8, "relu")
    assert (model.norm, model.decoder_history, model.positions) == ("post", "ssru", "marian")
    # Marian's default is no dropout, and ours is 0.1.
    assert (model.residual_dropout, model.start) == (0.0, "zeros")
    assert translated.left_out == []


def test_the_training_of_a_student() -> None:
    translated = of_marian(TRAINING, FILE)
    config = config_of(translated)
    schedule, optimizer = config.schedule, config.optimizer
    assert (schedule.kind, schedule.peak, schedule.warmup) == ("inverse-sqrt", 0.0003, 16000)
    assert schedule.decay_start == 32000
    assert (optimizer.beta2, optimizer.epsilon) == (0.98, 1e-9)
    assert (optimizer.ema, optimizer.clip_norm, config.loss.smoothing) == (0.9999, 0.0, 0.0)
    assert (config.sampling.source, config.sampling.target) == (0.5, 0.5)
    assert config.training.guided_alignment == 0.1
    assert (config.validation.every_steps, config.validation.patience) == (5000, 20)
    assert (config.checkpoints.every_steps, config.batch.longest) == (5000, 200)
    assert (config.search.beam, config.search.length_penalty) == (1, 1.0)
    assert translated.left_out == []


def test_the_end_of_the_training_in_8_bits_names_what_is_left_out() -> None:
    translated = of_marian(FINETUNING, FILE)
    assert config_of(translated).validation.every_steps == 500
    assert translated.left_out == ["quantize-bits"]
    assert (
        translated.notes(FILE)[-1] == "student.yml: left out, since they have no counterpart: quantize-bits"
    )


def test_the_modifiers_of_opustrainer() -> None:
    translated = of_opustrainer(OPUSTRAINER, FILE)
    augment = config_of(translated).augment
    assert (augment.upper, augment.title, augment.typos, augment.unended) == (0.07, 0.05, 0.05, 0.2)
    assert config_of(translated).training.seed == 1111
    assert augment.noise == 0.005  # Tags with augment
    assert translated.left_out == ["datasets", "stages", "train", "Noise"]
    terms = of_opustrainer("modifiers: [{Tags: 0.1, template: '{src} {trg}'}]", FILE)
    assert (terms.settings, terms.left_out) == ({}, ["Tags"])


@pytest.mark.parametrize("text", [MODEL, TRAINING, FINETUNING])
def test_each_key_becomes_a_setting_is_demanded_or_is_named(text: str) -> None:
    whole = of_marian(text, FILE)
    for key, value in yaml.safe_load(text).items():
        # Without the key, something differs, or its value is the only one that is supported.
        rest = "\n".join(line for line in text.split("\n") if not line.startswith(f"{key}:"))
        if key == "dec-cell":  # Marian's default is a GRU, which nmt does not have
            with pytest.raises(UserError, match="dec-cell must be 'ssru'"):
                of_marian(rest, FILE)
            continue
        without = of_marian(rest, FILE)
        named = key in whole.needless + whole.of_batch + whole.left_out
        if not named and without.settings == whole.settings:
            other = text.replace(f"\n{key}: ", f"\n{key}: other-than-")
            with pytest.raises(UserError, match=key):
                of_marian(other, FILE)
            assert value is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task: transformer-big\ntype: transformer\n", "task: transformer-big stands for many settings"),
        ("type: amun\n", "type must be 'transformer' (got 'amun')"),
        (
            "type: transformer\ntransformer-preprocess: n\n",
            "transformer-preprocess must be '' or 'd' (got 'n')",
        ),
        (
            "learn-rate: 0.1\nvalid-freq: 2e\n",
            "valid-freq must be a number of updates, such as 16000 (got '2e')",
        ),
        ("learn-rate: fast\n", 'learn-rate must be a number (got "fast")'),
        ("optimizer-params: [0.8, 0.9]\n", "optimizer-params must begin with 0.9"),
        ("type: transformer\ntransformer-decoder-autoreg: rnn\n", "dec-cell must be 'ssru'"),
        ("valid-metrics: [translation, chrf]\n", "valid-metrics must begin with chrf or"),
        ("after: soon\n", "after must be a number of updates"),
        ("optimizer-params: 0.9\n", "optimizer-params must be a list of numbers (got 0.9)"),
        ("a: [1\n", "is not YAML"),
        ("- a\n", "the content must be a table of values"),
    ],
)
def test_a_value_that_means_something_else_here_is_an_error(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        of_marian(text, FILE)
    assert str(FILE) in str(error.value) and message in str(error.value)


def test_what_sizes_a_batch_is_named_apart() -> None:
    translated = of_marian(TRAINING, FILE)
    assert translated.of_batch == ["maxi-batch", "mini-batch-fit", "mini-batch", "optimizer-delay"]
    words = of_marian("mini-batch-words: 3000\noptimizer-delay: 2\n", FILE)
    assert (words.settings, words.of_batch) == ({"batch.tokens": 6000}, [])


def test_a_training_without_an_end_and_with_epochs() -> None:
    settings = of_marian("learn-rate: 0.1\n", FILE).settings
    assert settings["training.max_steps"] == 1_000_000
    assert (settings["validation.every_steps"], settings["validation.metric"]) == (10_000, "nll")
    assert of_marian("learn-rate: 0.1\nafter: 20e\n", FILE).settings["training.max_epochs"] == 20
    assert of_marian("after: 300u\n", FILE).settings == {"training.max_steps": 300}


def test_a_key_that_is_left_out_keeps_marians_default_and_a_part_keeps_ours() -> None:
    assert "model.width" not in of_marian("learn-rate: 0.1\n", FILE).settings
    assert of_marian("type: transformer\n", FILE).settings["model.width"] == 512
    assert of_marian("beam-size: 6\n", FILE).settings == {"search.beam": 6}
    assert of_marian("learn-rate: 0.1\nlr-warmup: 20u\n", FILE).settings["schedule.warmup"] == 20
    assert (
        of_marian("lr-decay-inv-sqrt: [20]\nlearn-rate: 0.1\n", FILE).settings["schedule.decay_start"] == 20
    )
