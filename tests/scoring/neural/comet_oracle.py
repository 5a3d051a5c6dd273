"""Run unbabel-comet in an environment of its own. It makes random models and scores pairs with them.

PYTHON comet_oracle.py make FOLDER       reads FOLDER/encoder and FOLDER/NAME.json, writes FOLDER/NAME
PYTHON comet_oracle.py score FOLDER PAIRS [BATCH]    prints scores, ids, seconds and peak memory as JSON
"""

import json
import logging
import resource
import sys
import time
import warnings
from pathlib import Path

import pytorch_lightning  # type: ignore[import-not-found]
import torch
import yaml  # type: ignore[import-untyped]
from comet.models import load_from_checkpoint, str2model  # type: ignore[import-not-found]

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)


def make(folder: Path) -> None:
    """Write a COMET folder with random weights for each file of options in `folder`."""
    for file in sorted(folder.glob("*.json")):
        options = json.loads(file.read_text())
        kind, patched = options.pop("class_identifier"), options.pop("patched", False)
        torch.manual_seed(len(file.name))
        model = str2model[kind](**options, load_pretrained_weights=False)
        for name, tensor in model.named_parameters():
            # Else layer norms are ones, biases zeros, and the mix of the layers even.
            size = 0.3 * (32 / model.encoder.output_units) ** 0.5
            tensor.data = torch.randn_like(tensor) * size + (1.0 if "Norm.weight" in name else 0.0)
        place = file.with_suffix("")
        (place / "checkpoints").mkdir(parents=True)
        trainer = pytorch_lightning.Trainer(
            accelerator="cpu", logger=False, max_epochs=1, enable_progress_bar=False, default_root_dir=place
        )
        trainer.strategy.connect(model)
        trainer.save_checkpoint(place / "checkpoints/model.ckpt")
        written = {**options, "class_identifier": kind}
        if patched:
            written["layer_transformation"] = "sparsemax_patch"
        (place / "hparams.yaml").write_text(yaml.safe_dump(written))


def score(folder: Path, pairs: Path, batch: int) -> None:
    """Print the scores of the pairs in a JSON file, and the token ids of their translations."""
    model = load_from_checkpoint(folder / "checkpoints/model.ckpt", local_files_only=True)
    samples = json.loads(pairs.read_text())
    started, worked = time.monotonic(), time.process_time()
    scores = model.predict(samples, batch_size=batch, gpus=0, progress_bar=False).scores
    seconds = {"seconds": time.monotonic() - started, "cpu": time.process_time() - worked}
    longest = model.encoder.max_positions - 2
    ids = model.encoder.tokenizer([s["mt"] for s in samples], truncation=True, max_length=longest)[
        "input_ids"
    ]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"scores": scores, "ids": ids, **seconds, "peak": peak}))


if __name__ == "__main__":
    command, folder, *rest = sys.argv[1:]
    if command == "make":
        make(Path(folder))
    else:
        score(Path(folder), Path(rest[0]), int(rest[1]) if rest[1:] else 16)
