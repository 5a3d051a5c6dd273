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
from nmt_cli.data.batching.planner import EveryPairOnce
from nmt_cli.data.batching.schedule import Batches
from nmt_cli.data.config import BatchConfig
from nmt_cli.data.dataset import TOKENIZERS, Dataset, Sentences, open_dataset
from nmt_cli.model.config import ModelConfig
from nmt_cli.text.tokenizers import load_tokenizers
from recipes.benchmarks.machine import LANGUAGES, NMT, ROOT

TOKENS = 4096
"""Maximum tokens of a batch on either side. Most other toolkits count filler too."""

PRESETS = {"tiny": "tiny", "small": "small", "base": "vaswani2017-base"}
ENDLESS = "1000000"
SMOOTHING, PEAK, WARMUP, BETAS, EPSILON = 0.1, 7e-4, 4000, (0.9, 0.98), 1e-9
IGNORED = -100

FAIRSEQ_ON_NEW_NUMPY = "import numpy\nnumpy.float, numpy.int = float, int\n"
"""The content of `sitecustomize.py`, without which fairseq cannot be imported."""

Tokens = Callable[[str], float | None]
"""Return the real target tokens of the update that a log line reports, or None if it reports no update."""


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
    """A folder with `dataset`, `train.en` and `train.de` in subwords, and a size."""

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
    """Write the pairs of `dataset` as subwords with spaces between, and the module that fairseq needs."""
    dataset = open_dataset(folder / "dataset")
    entries = load_tokenizers(dataset.folder / TOKENIZERS).target.vocabulary.entries
    for split in dataset.splits.values():
        for lang, side in zip(LANGUAGES, (split.source, split.target), strict=True):
            sentences = np.split(side.tokens, side.offsets[1:-1])
            text = "".join(" ".join(entries[i] for i in ids[:-1]) + "\n" for ids in sentences)
            (folder / f"{split.name}.{lang}").write_text(text, encoding="utf-8")
    (folder / "stubs").mkdir()
    (folder / "stubs" / "sitecustomize.py").write_text(FAIRSEQ_ON_NEW_NUMPY)


def ours(workload: Workload, precision: str = "fp32") -> Contestant:
    """Return the contestant `nmt train` with this precision."""
    run = workload.window / "run"
    command = [*NMT, "train", workload.folder / "dataset", "--out", run, "--quiet"]
    command += ["--preset", PRESETS[workload.size], "--batch-tokens", TOKENS, "--max-steps", ENDLESS]
    command += ["--validate-every", 0, "--set", "training.log_every=1"]
    command += ["--set", f"training.precision={precision}"]
    name = "nmt train" + f", {precision}" * (precision != "fp32")
    return Contestant(name, command, run / "log.jsonl", lambda line: float(json.loads(line)["target_tokens"]))


def marian(workload: Workload) -> Contestant:
    """Return the Marian model of `transformers` in a plain loop, on our batches."""
    command = [sys.executable, "-m", __spec__.name, workload.folder / "dataset", PRESETS[workload.size]]
    return Contestant("Hugging Face Marian", command, workload.printed, _number_after(r"update of (\d+)"))


def prepare_fairseq(bin_folder: Path, folder: Path, *workload: object) -> None:
    """Make fairseq's dataset of the segmented pairs."""
    command = [bin_folder / "fairseq-preprocess", "--source-lang", "en", "--target-lang", "de", *workload]
    command += ["--trainpref", folder / "train", "--joined-dictionary", "--destdir", folder / "fairseq"]
    environment = os.environ | {"PYTHONPATH": str(folder / "stubs")}
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
    tokens = _number_after(r'"wpb": "([\d.]+)"')
    return Contestant("fairseq", command, workload.printed, tokens, workload.folder / "stubs")


def _number_after(pattern: str) -> Tokens:
    """Return a function that returns the number in the one group of `pattern`, or None."""
    compiled = re.compile(pattern)

    def read(line: str) -> float | None:
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
        plan = EveryPairOnce(len(train), BatchConfig(tokens=TOKENS), seed=1)
        batches = Batches(train, plan, Path(folder), planner=True)
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
