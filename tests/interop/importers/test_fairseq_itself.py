"""Checkpoints written by fairseq, in each of its formats: nmt has the logits of fairseq."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import sentencepiece
import torch

from nmt_cli.checkpoints.model_folder import read_model
from nmt_cli.interop.foreign import ImportOptions, write
from nmt_cli.interop.importers.importing import read
from tests.interop.conftest import logits, sentences, spm

TRAIN = shutil.which("fairseq-train")
ARCHITECTURES = {
    "transformer_tiny": "--share-decoder-input-output-embed",
    "transformer_wmt_en_de": "--encoder-normalize-before --decoder-normalize-before --encoder-learned-pos "
    "--decoder-learned-pos --encoder-layers 2 --decoder-layers 1 --encoder-embed-dim 32 "
    "--decoder-embed-dim 32 --encoder-ffn-embed-dim 48 --decoder-ffn-embed-dim 48 "
    "--encoder-attention-heads 4 --decoder-attention-heads 4",
}
COMMON = (
    "--criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam --lr 0.001 "
    "--max-tokens 300 --max-source-positions 64 --max-target-positions 64 --max-update 1 --cpu "
    "--save-dir kept --num-workers 0"
)


def text_of(folder: Path) -> None:
    for side, lang in (("source", "en"), ("target", "de")):
        path = spm(folder, side).rename(folder / f"spm.{lang}.model")
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        for split, count in (("train", 60), ("valid", 8)):
            lines = (
                " ".join(processor.encode(line, out_type=str)) for line in sentences(side, count, seed=count)
            )
            (folder / f"{split}.{lang}").write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.slow
@pytest.mark.skipif(not TRAIN, reason="needs fairseq itself: fairseq-train on the PATH")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_logits_of_a_checkpoint_that_fairseq_wrote_are_fairseqs(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text_of(tmp_path)
    there = Path(TRAIN or "").parent
    prefixes = "-s en -t de --trainpref train --validpref valid --destdir . --workers 1"
    subprocess.run([there / "fairseq-preprocess", *prefixes.split()], check=True, capture_output=True)
    options = f". --arch {architecture} {ARCHITECTURES[architecture]} {COMMON}"
    subprocess.run([there / "fairseq-train", *options.split()], check=True, capture_output=True)
    shutil.copy("kept/checkpoint_best.pt", "best.pt")
    source, target = (sentences(side, 6, seed=4) for side in ("source", "target"))
    sides = read("best.pt", ImportOptions("en", "de")).tokenizers
    pairs = [
        ([*sides.source.encode(one), 2], [*sides.target.encode(other), 2])
        for one, other in zip(source, target, strict=True)
    ]
    helper = str(Path(__file__).with_name("fairseq_itself.py"))
    command = [str(there / "python"), helper, "best.pt", ".", "."]
    output = subprocess.run(
        command, input=json.dumps(pairs), capture_output=True, text=True, check=True
    ).stdout
    expected = torch.cat([torch.tensor(rows) for rows in json.loads(output.strip().split("\n")[-1])])
    assert expected.std() > 0.3
    for name in ("best", "legacy", "namespace"):
        write(read(f"{name}.pt", ImportOptions("en", "de")), tmp_path / name)
        model = read_model(tmp_path / name)
        assert (logits(model.transformer, *zip(*pairs, strict=True)) - expected).abs().max() <= 1e-4
