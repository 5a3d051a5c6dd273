"""Commands of several toolkits that train the same model on the same subwords.

python -m recipes.benchmarks.training_peers DATASET PRESET     trains Hugging Face's Marian
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from nmt_cli.config import preset_path
from nmt_cli.data.batching.plan import Indices
from nmt_cli.data.batching.schedule import Batches
from nmt_cli.data.config import BatchConfig
from nmt_cli.data.dataset import TOKENIZERS, Dataset, Sentences, open_dataset
from nmt_cli.model.config import ModelConfig
from nmt_cli.text.tokenizers import load_tokenizers
from nmt_cli.text.vocabulary import NEW_MARKS
from recipes.benchmarks.machine import LANGUAGES, NMT, ROOT

TOKENS = 4096
"""Maximum tokens of a batch on either side. Most other toolkits count filler too."""

PRESETS = {"small": "small", "base": "vaswani2017-base"}
ENDLESS = "1000000"
SMOOTHING, PEAK, WARMUP, BETAS, EPSILON = 0.1, 7e-4, 4000, (0.9, 0.98), 1e-9
IGNORED = -100

FAIRSEQ_ON_NEW_NUMPY = "import numpy\nnumpy.float, numpy.int = float, int\n"
STUBS = {"fairseq": {"sitecustomize.py": FAIRSEQ_ON_NEW_NUMPY}, "onmt": {"spacy.py": "", "fasttext.py": ""}}
"""Modules without which these toolkits cannot be imported."""

Tokens = Callable[[str, float], float | None]
"""Return the real target tokens of the update that a log line reports, or None if it reports no update.
The second argument is the seconds since the update before."""


@dataclass(frozen=True)
class Contestant:
    """A command that trains in `Workload.window`, an empty folder, until it is killed."""

    name: str
    command: Sequence[object]
    log: Path
    tokens: Tokens
    python_path: Path = ROOT


@dataclass(frozen=True)
class Workload:
    """A folder with `dataset`, `train.en` and `train.de` in subwords, and `entries`, and a size."""

    folder: Path
    size: str

    @property
    def window(self) -> Path:
        """Return the folder that is emptied before each window."""
        return self.folder / "window"

    @property
    def printed(self) -> Path:
        """Return the path of the output of a window's command."""
        return self.window / "printed"

    @property
    def model(self) -> ModelConfig:
        """Return the architecture of the model."""
        return _architecture(PRESETS[self.size])


def write_pieces(folder: Path) -> None:
    """Write the pairs of `dataset` as subwords with spaces between, the vocabulary, and stub modules."""
    dataset = open_dataset(folder / "dataset")
    entries = load_tokenizers(dataset.folder / TOKENIZERS).target.vocabulary.entries
    for split in dataset.splits.values():
        for lang, side in zip(LANGUAGES, (split.source, split.target), strict=True):
            sentences = np.split(side.tokens, side.offsets[1:-1])
            text = "".join(" ".join(entries[i] for i in ids[:-1]) + "\n" for ids in sentences)
            (folder / f"{split.name}.{lang}").write_text(text, encoding="utf-8")
    named = [entry for entry in entries[len(NEW_MARKS) :] if entry]
    (folder / "entries").write_text("".join(f"{entry}\n" for entry in named), encoding="utf-8")
    for peer, files in STUBS.items():
        (folder / "stubs" / peer).mkdir(parents=True)
        for name, content in files.items():
            (folder / "stubs" / peer / name).write_text(content)


def ours(workload: Workload, precision: str = "fp32") -> Contestant:
    """Return the contestant `nmt train` with this precision."""
    run = workload.window / "run"
    command = [*NMT, "train", workload.folder / "dataset", "--out", run, "--quiet"]
    command += ["--preset", PRESETS[workload.size], "--batch-tokens", TOKENS, "--max-steps", ENDLESS]
    command += ["--validate-every", 0, "--set", "training.log_every=1"]
    command += ["--set", f"training.precision={precision}"]
    name = "nmt train" + f", {precision}" * (precision != "fp32")
    return Contestant(
        name, command, run / "log.jsonl", lambda line, _: float(json.loads(line)["target_tokens"])
    )


def marian(workload: Workload) -> Contestant:
    """Return the Marian model of `transformers` in a plain loop, on our batches."""
    command = [sys.executable, "-m", __spec__.name, workload.folder / "dataset", PRESETS[workload.size]]
    return Contestant("Hugging Face Marian", command, workload.printed, _number_after(r"update of (\d+)"))


def prepare_fairseq(bin_folder: Path, folder: Path, *workload: object) -> None:
    """Make fairseq's dataset of the segmented pairs."""
    command = [bin_folder / "fairseq-preprocess", "--source-lang", "en", "--target-lang", "de", *workload]
    command += ["--trainpref", folder / "train", "--joined-dictionary", "--destdir", folder / "fairseq"]
    environment = os.environ | {"PYTHONPATH": str(folder / "stubs" / "fairseq")}
    subprocess.run(list(map(str, command)), check=True, capture_output=True, env=environment)


def fairseq(workload: Workload, bin_folder: Path) -> Contestant:
    """Return fairseq-train, which pads batches of similar lengths."""
    model = workload.model
    command: list[object] = [bin_folder / "fairseq-train", workload.folder / "fairseq", "--cpu"]
    command += ["--arch", "transformer", "--share-all-embeddings", "--dropout", model.residual_dropout]
    command += ["--encoder-layers", model.encoder_layers, "--decoder-layers", model.decoder_layers]
    for side in ("encoder", "decoder"):
        command += [f"--{side}-embed-dim", model.width, f"--{side}-ffn-embed-dim", model.feed_forward]
        command += [f"--{side}-attention-heads", model.heads]
    command += ["--criterion", "label_smoothed_cross_entropy", "--label-smoothing", SMOOTHING]
    command += ["--optimizer", "adam", "--adam-betas", str(BETAS), "--adam-eps", EPSILON, "--lr", PEAK]
    command += ["--lr-scheduler", "inverse_sqrt", "--warmup-updates", WARMUP, "--max-update", ENDLESS]
    command += ["--max-tokens", TOKENS, "--no-save", "--disable-validation", "--seed", 1]
    command += ["--log-interval", 1, "--log-format", "json", "--save-dir", workload.window / "run"]
    path = workload.folder / "stubs" / "fairseq"
    return Contestant("fairseq", command, workload.printed, _number_after(r'"wpb": "([\d.]+)"'), path)


def opennmt(workload: Workload, bin_folder: Path) -> Contestant:
    """Return OpenNMT-py, which pads batches cut from sorted pools."""
    model = workload.model
    sides = list(zip(("src", "tgt"), LANGUAGES, strict=True))
    settings = {
        "save_data": workload.window / "run",
        "save_model": workload.window / "model",
        "data": {"corpus": {f"path_{side}": workload.folder / f"train.{lang}" for side, lang in sides}},
        **{f"{side}_vocab": workload.folder / "entries" for side, _ in sides},
        **{"share_vocab": True, "share_embeddings": True, "share_decoder_embeddings": True},
        **{"encoder_type": "transformer", "decoder_type": "transformer", "position_encoding": True},
        **{"enc_layers": model.encoder_layers, "dec_layers": model.decoder_layers, "heads": model.heads},
        **{"hidden_size": model.width, "word_vec_size": model.width, "transformer_ff": model.feed_forward},
        **{"dropout": [model.residual_dropout], "attention_dropout": [0.0], "dropout_steps": [0]},
        **{"optim": "adam", "adam_beta1": BETAS[0], "adam_beta2": BETAS[1], "max_grad_norm": 0},
        **{"learning_rate": 1.0, "decay_method": "noam", "warmup_steps": WARMUP, "param_init": 0.0},
        **{"param_init_glorot": True, "label_smoothing": SMOOTHING, "normalization": "tokens"},
        **{"batch_type": "tokens", "batch_size": TOKENS, "accum_count": [1], "report_every": 1},
        # The corpus size. Otherwise it reads nine epochs first.
        **{"bucket_size": 29_000, "num_workers": 1, "prefetch_factor": 4},
        **{"train_steps": int(ENDLESS), "save_checkpoint_steps": int(ENDLESS), "seed": 1},
    }
    command = _configured(workload, settings, '"$3" --config "$2"', bin_folder / "onmt_train")
    path = workload.folder / "stubs" / "onmt"
    return Contestant("OpenNMT-py", command, workload.printed, _number_after(r"bsz: *\d+/ *(\d+)/"), path)


def joeynmt(workload: Workload, bin_folder: Path) -> Contestant:
    """Return JoeyNMT, which pads batches in random order and reports only tokens per second."""
    model, corpus = workload.model, workload.folder / "train"
    side = {"level": "word", "lowercase": False, "max_length": 250, "voc_file": workload.folder / "entries"}
    embeddings = {"embedding_dim": model.width, "scale": True, "dropout": model.embedding_dropout}
    stack = {"type": "transformer", "num_heads": model.heads, "hidden_size": model.width}
    stack |= {"ff_size": model.feed_forward, "dropout": model.residual_dropout, "embeddings": embeddings}
    stack |= {"layer_norm": "post"}
    settings = {
        **{"name": "benchmark", "joeynmt_version": "2.3.0", "model_dir": workload.window / "run"},
        **{"use_cuda": False, "fp16": False, "random_seed": 1},
        "data": {
            **{"train": corpus, "dev": corpus, "dataset_type": "plain", "sample_dev_subset": 10},
            **{name: {"lang": lang, **side} for name, lang in (("src", "en"), ("trg", "de"))},
        },
        "testing": {"eval_metrics": []},
        "training": {
            **{"optimizer": "adam", "adam_betas": BETAS, "learning_rate": PEAK, "loss": "crossentropy"},
            **{"scheduling": "warmupinversesquareroot", "learning_rate_warmup": WARMUP},
            **{"label_smoothing": SMOOTHING, "normalization": "tokens", "batch_type": "token"},
            **{"batch_size": TOKENS, "logging_freq": 1, "validation_freq": int(ENDLESS), "epochs": 1000},
        },
        "model": {
            **{"initializer": "xavier_uniform", "embed_initializer": "xavier_uniform"},
            **{"tied_embeddings": True, "tied_softmax": True},
            "encoder": {**stack, "num_layers": model.encoder_layers},
            "decoder": {**stack, "num_layers": model.decoder_layers},
        },
    }
    command = _configured(workload, settings, '"$3" -m joeynmt train "$2" --skip-test', bin_folder / "python")
    rate = _number_after(r"Tokens per Sec: *(\d+)")

    def tokens(line: str, seconds: float) -> float | None:
        per_second = rate(line, seconds)
        return None if per_second is None else per_second * seconds

    return Contestant("JoeyNMT", command, workload.printed, tokens)


OTHERS = {"fairseq": fairseq, "opennmt": opennmt, "joeynmt": joeynmt}
"""Toolkits that have their own virtual environment."""


def _configured(workload: Workload, settings: object, command: str, program: Path) -> list[object]:
    """Return a shell command that writes the settings ("$2") and then runs the program ("$3") with them."""
    written = json.dumps(settings, default=str)
    script = f'printf %s "$1" > "$2"; exec {command}'
    return ["sh", "-c", script, "sh", written, workload.window / "config.yaml", program]


def _number_after(pattern: str) -> Tokens:
    """Return a function that returns the number in the one group of `pattern`, or None."""
    compiled = re.compile(pattern)

    def read(line: str, _: float) -> float | None:
        match = compiled.search(line)
        return float(match[1]) if match else None

    return read


def _architecture(preset: str) -> ModelConfig:
    return ModelConfig(**tomllib.loads(preset_path(preset).read_text())["model"])


def train_marian(dataset: Dataset, preset: str) -> None:
    """Train Marian of `transformers` until killed. Print the target tokens of each update."""
    from transformers import MarianConfig, MarianMTModel

    config = _architecture(preset)
    vocabulary = load_tokenizers(dataset.folder / TOKENIZERS).target.vocabulary
    entries = len(vocabulary)
    both = {"layers": config.encoder_layers, "attention_heads": config.heads, "ffn_dim": config.feed_forward}
    settings: dict[str, Any] = {
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in both.items()},
        **{"d_model": config.width, "vocab_size": entries + 1, "dropout": config.residual_dropout},
        **{"attention_dropout": 0.0, "activation_dropout": 0.0, "activation_function": "relu"},
        **{"scale_embedding": True, "max_position_embeddings": 512, "use_cache": False},
        **{"pad_token_id": entries, "decoder_start_token_id": entries, "eos_token_id": vocabulary.end},
    }
    model = MarianMTModel(MarianConfig(**settings)).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=BETAS, eps=EPSILON, fused=True)
    train = dataset.splits["train"]
    with tempfile.TemporaryDirectory() as folder:
        batches = Batches(train, BatchConfig(tokens=TOKENS), 1, Path(folder), planner=True)
        for batch in batches.starting():
            source = _padded(train.source, batch.pairs, entries)
            target = _padded(train.target, batch.pairs, IGNORED)
            inputs = target.roll(1, 1).where(target.roll(1, 1) != IGNORED, entries)
            inputs[:, 0] = entries
            mask = (source != entries).long()
            logits = model(input_ids=source, attention_mask=mask, decoder_input_ids=inputs).logits
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), label_smoothing=SMOOTHING)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            print(f"update of {int((target != IGNORED).sum())}, loss {loss.item():.3f}", flush=True)


def _padded(side: Sentences, pairs: Indices, filler: int) -> Tensor:
    """Return the ids of one side, [pairs, longest], padded with `filler`."""
    ids = [torch.from_numpy(side.tokens[side.offsets[i] : side.offsets[i + 1]].astype(int)) for i in pairs]
    return pad_sequence(ids, batch_first=True, padding_value=filler)


if __name__ == "__main__":
    train_marian(open_dataset(Path(sys.argv[1])), sys.argv[2])
