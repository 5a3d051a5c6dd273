"""Compute logits of a fairseq checkpoint for pairs of ids, and write the checkpoint in old formats.

It runs in a Python with fairseq. Arguments: the checkpoint, its data folder, and the folder for old formats.
Pairs are JSON on standard input.
"""

import argparse
import json
import sys
from functools import partial
from typing import Any

import torch

torch.load = partial(torch.load, weights_only=False)  # fairseq's own file, from a minute ago


def main(checkpoint: str, data: str, out: str) -> None:
    from fairseq import checkpoint_utils  # type: ignore[import-not-found]  # in an environment of its own

    models, _, _ = checkpoint_utils.load_model_ensemble_and_task([checkpoint], arg_overrides={"data": data})
    found = []
    for source, target in json.load(sys.stdin):
        inputs = torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[2, *target[:-1]]])
        with torch.no_grad():
            found.append(models[0].eval()(*inputs)[0][0].tolist())
    print(json.dumps(found))
    whole: dict[str, Any] = torch.load(checkpoint)
    torch.save(whole, f"{out}/legacy.pt", _use_new_zipfile_serialization=False)
    settings: dict[str, Any] = {}
    for part in (whole["cfg"]["task"], whole["cfg"]["model"]):
        settings |= part if isinstance(part, dict) else vars(part)
    torch.save({**whole, "cfg": None, "args": argparse.Namespace(**settings)}, f"{out}/namespace.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
