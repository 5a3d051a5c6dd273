"""List the kernels that Triton would compile on a GPU, without one: python -m tests.record_kernels.

It prints a line of JSON per setting: the number of kernels that the trials of kernels compile, and the names
of those that the first steps of training compile in addition.
"""

import json
from dataclasses import replace
from typing import cast

import torch

from nmt_cli.data.batching.loader import Loader
from nmt_cli.model.config import ModelConfig
from nmt_cli.model.kernel_trials import TRIALS, Use
from recipes.benchmarks.gpu.host import as_on_a_gpu
from recipes.benchmarks.gpu.step import local_batch, micro_batches, trainer
from recipes.benchmarks.gpu.stubs import stubbed_triton

PLAIN = ModelConfig(encoder_layers=1, decoder_layers=1, width=64, feed_forward=128, heads=2)
SETTINGS = {"no dropout": PLAIN, "attention dropout": replace(PLAIN, attention_dropout=0.1)}
ENTRIES, TOKENS = 97, 2000
CPU = torch.device("cpu")


def main() -> None:
    """Print the kernels of trials and training for each setting."""
    for name, model in SETTINGS.items():
        with stubbed_triton() as compiled, as_on_a_gpu():
            use = Use(model, torch.bfloat16, ENTRIES, 0.1)
            for trials in TRIALS.values():
                for kernel, _ in trials(use, CPU):
                    kernel(use.dtype)
            tried = len(compiled)
            one = trainer(model, ENTRIES, device=CPU)
            for part in micro_batches(TOKENS, None, ENTRIES):
                one.step(1, 1e-4, local_batch(part), cast(Loader, None))
        print(json.dumps({"setting": name, "tried": tried, "new": [each for each, _ in compiled[tried:]]}))


if __name__ == "__main__":
    main()
