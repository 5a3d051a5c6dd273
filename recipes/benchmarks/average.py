"""Times `nmt average-checkpoints` on checkpoints of the base model's size. Prints a table for README.md.

python recipes/benchmarks/average.py          5 and 20 of them: start-up, hashes and fsync included
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from multiprocessing import Process
from pathlib import Path

import click

COUNTS = (1, 5, 20)
VOCABULARY = 37_000


@click.command()
def main() -> None:
    """One model under many names: what is read is in the page cache, so no disk's speed is in the times."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writer = Process(target=_write, args=(folder / "0",))  # a small parent, for children inherit its peak
        writer.start()
        writer.join()
        size = (folder / "0/model.safetensors").stat().st_size
        print(f"| models of {size / 1e6:.0f} MB | seconds | peak MB |\n|---|---|---|")
        for number in range(1, max(COUNTS)):
            shutil.copytree(folder / "0", folder / str(number), copy_function=os.link)
        for count in COUNTS:
            models = [folder / str(number) for number in range(count)]
            start = time.perf_counter()
            words = ["average-checkpoints", *map(str, models), "--out", str(folder / "out"), "--quiet"]
            process = subprocess.Popen([sys.executable, "-m", "nmt_cli", *words])
            _, status, usage = os.wait4(process.pid, 0)
            if status:
                sys.exit("nmt average-checkpoints failed")
            print(f"| {count} | {time.perf_counter() - start:.1f} | {usage.ru_maxrss * 1024 / 1e6:.0f} |")


def _write(folder: Path) -> None:
    from nmt_cli.checkpoints.model_folder import Identity, weights, write_model
    from nmt_cli.model.config import ModelConfig
    from nmt_cli.model.transformer import Transformer
    from nmt_cli.text.config import TextConfig, TokenizerConfig
    from nmt_cli.text.tokenizer import Side
    from nmt_cli.text.tokenizers import Recipe, learn_tokenizers
    from nmt_cli.text.vocabulary import Vocabulary

    sample: dict[Side, list[str]] = {"source": ["a b"], "target": ["c d"]}
    recipe = Recipe("char", True, "en", "de", TextConfig())
    identity = Identity(ModelConfig(), learn_tokenizers(recipe, TokenizerConfig(kind="char"), sample), {})
    known = Vocabulary(("",) * VOCABULARY, end=0, start=0, unknown=1)
    folder.mkdir()
    write_model(folder, identity, weights(Transformer(ModelConfig(), known, known, joint=True)), {})


if __name__ == "__main__":
    main()
