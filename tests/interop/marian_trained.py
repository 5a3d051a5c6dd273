"""Train a small student with Marian in a separate process. Arguments have the form name=value."""

import sys

from pymarian import Trainer

SHAPE = {
    "type": "transformer",
    "enc_depth": 2,
    "dec_depth": 2,
    "dim_emb": 32,
    "transformer_dim_ffn": 48,
    "transformer_heads": 4,
    "transformer_ffn_activation": "relu",
    "transformer_decoder_autoreg": "rnn",
    "dec_cell": "ssru",
}
HOW = {
    "label_smoothing": 0.1,
    "learn_rate": 0.005,
    "mini_batch": 16,
    "max_length": 50,
    "cpu_threads": 1,
    "workspace": 200,
    "seed": 1,
    "quiet": True,
}

if __name__ == "__main__":
    model, updates, *tied = sys.argv[1:]
    layers = {"transformer_tied_layers": [int(number) for number in tied]} if tied else {}
    files = {"train_sets": ["text.source", "text.target"], "vocabs": ["source.spm", "target.spm"]}
    Trainer(**SHAPE, **HOW, **files, **layers, dim_vocabs=[90, 90], after=f"{updates}u", model=model).train()
