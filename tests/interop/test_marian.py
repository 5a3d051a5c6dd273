"""Marian's own files: what transformers computes with Marian's positions, and Marian itself where it is."""

import importlib.util
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.checkpoints.model_folder import Model, read_model, weights
from nmt_cli.errors import UserError
from nmt_cli.interop import marian_yaml
from nmt_cli.interop.exporting import export
from nmt_cli.interop.foreign import Wanted, write
from nmt_cli.interop.importing import read
from nmt_cli.ragged import Layout
from tests.interop.conftest import marian_folder, sentences

if TYPE_CHECKING:
    from transformers import MarianMTModel

HAS_MARIAN = importlib.util.find_spec("pymarian") is not None

MARIAN = """
import sys
from pymarian import Translator

model, vocabulary = sys.argv[1:]
translator = Translator(
    models=model, vocabs=[vocabulary] * 2, beam_size=3, normalize=0.0, n_best=True, cpu_threads=1,
    max_length=100, max_length_factor=3, quiet=True, quiet_translation=True, mini_batch=1,
)
found = translator.translate(sys.stdin.read().splitlines())
print(found if isinstance(found, str) else "\\n".join(found))
"""


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> "tuple[Path, MarianMTModel]":
    folder = tmp_path_factory.mktemp("marian") / "theirs"
    return folder, marian_folder(folder)


@pytest.fixture(scope="module")
def faithful(theirs: "tuple[Path, MarianMTModel]") -> Model:
    """What OPUS-MT's model was before transformers' converter."""
    out = theirs[0].parent / "ours"
    write(read(str(theirs[0]), Wanted(positions="marian")), out)
    return read_model(out)


@pytest.fixture
def npz(faithful: Model, tmp_path: Path) -> Path:
    export(faithful, "marian", tmp_path / "npz")
    return tmp_path / "npz"


def logits(model: Model, source: list[int], target: list[int]) -> torch.Tensor:
    with torch.no_grad():
        layouts = (Layout.of([len(each)]) for each in (source, target))
        decoded = model.transformer(torch.tensor(source), torch.tensor(target), *layouts)
        return model.transformer.logits(decoded)


def test_positions_of_marian_restore_what_a_model_was_trained_with(
    theirs: "tuple[Path, MarianMTModel]", faithful: Model
) -> None:
    """The padding that the converter added is gone too."""
    assert len(faithful.identity.tokenizers.target.vocabulary) == theirs[1].config.vocab_size - 1
    assert faithful.identity.config.positions == "marian"
    source, target = [5, 9, 30, 0], [7, 31, 12, 0]
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

    table = M2M100SinusoidalPositionalEmbedding.get_embedding(64, 32)
    changed: Any = theirs[1]
    kept = changed.model.encoder.embed_positions.weight.detach().clone()
    with torch.no_grad():
        for stack in (changed.model.encoder, changed.model.decoder):
            stack.embed_positions.weight.copy_(table)
        start = theirs[1].config.decoder_start_token_id
        inputs = torch.tensor([[start, *target[:-1]]])
        wanted = changed(input_ids=torch.tensor([source]), decoder_input_ids=inputs).logits[0, :, :-1]
        for stack in (changed.model.encoder, changed.model.decoder):
            stack.embed_positions.weight.copy_(kept)
    assert (logits(faithful, source, target) - wanted).abs().max() <= 1e-3
    assert wanted.std() > 0.5


def test_an_npz_comes_back_with_the_same_weights(faithful: Model, npz: Path, tmp_path: Path) -> None:
    assert {path.name for path in npz.iterdir()} == {
        "model.npz",
        "decoder.yml",
        "vocab.yml",
        "source.spm",
        "target.spm",
    }
    write(read(str(npz), Wanted("en", "fr")), tmp_path / "back")
    back = read_model(tmp_path / "back")
    assert back.identity.config == replace(
        faithful.identity.config, norm_epsilon=1e-6, residual_dropout=0.1, embedding_dropout=0.1
    )
    before, after = weights(faithful.transformer), weights(back.transformer)
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    text = f">>fra<< {sentences('source', 5)[4]}"
    sides = [each.identity.tokenizers.source for each in (faithful, back)]
    assert sides[0].encode(text) == sides[1].encode(text)
    assert back.description["search"]["beam"] == 4


def test_opus_mts_zip_is_the_folder_in_it(npz: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "opus.zip", "w") as packed:
        for path in npz.iterdir():
            packed.write(path, path.name)
        packed.writestr("../outside.txt", "no")
    zipped, plain = (read(str(path), Wanted("en", "fr")) for path in (tmp_path / "opus.zip", npz))
    assert all(torch.equal(tensor, zipped.tensors[name]) for name, tensor in plain.tensors.items())
    assert zipped.tokenizers.fingerprint == plain.tokenizers.fingerprint
    assert not (tmp_path / "outside.txt").exists()
    (tmp_path / "opus.zip").write_bytes((tmp_path / "opus.zip").read_bytes()[:3000])
    with pytest.raises(UserError, match="is damaged"):
        read(str(tmp_path / "opus.zip"), Wanted("en", "fr"))


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("transformer-decoder-autoreg", "rnn", "transformer-decoder-autoreg is 'rnn'"),
        ("type", "amun", "type is 'amun'"),
        ("transformer-ffn-activation", "gelu", "transformer-ffn-activation is 'gelu'"),
        ("enc-depth", "many", "enc-depth is 'many', not a whole number"),
    ],
)
def test_what_our_transformer_cannot_do_is_refused_by_name(
    npz: Path, name: str, value: str, told: str
) -> None:
    arrays = dict(numpy.load(npz / "model.npz"))
    text = bytes(arrays["special:model.yml"].astype(numpy.uint8)).rstrip(b"\0").decode()
    lines = [f"{name}: {value}" if line.startswith(f"{name}:") else line for line in text.split("\n")]
    arrays["special:model.yml"] = numpy.frombuffer("\n".join(lines).encode() + b"\0", numpy.int8)
    numpy.savez(npz / "model.npz", **arrays)
    with pytest.raises(UserError, match=told):
        read(str(npz), Wanted("en", "fr"))


def test_a_model_that_starts_with_a_mark_is_not_marians(tmp_path: Path, faithful: Model) -> None:
    folder = tmp_path / "theirs"
    marian_folder(folder, decoder_start_token_id=3)
    write(read(str(folder), Wanted(positions="marian")), tmp_path / "ours")
    with pytest.raises(UserError, match=r"model\.start is mark"):
        export(read_model(tmp_path / "ours"), "marian", tmp_path / "npz")


def test_mutated_files_are_refused_in_a_line(npz: Path) -> None:
    chosen = numpy.random.default_rng(1)
    for name in ("model.npz", "vocab.yml", "decoder.yml"):
        whole = (npz / name).read_bytes()
        for number in range(40):
            bad = bytearray(whole)
            at = int(chosen.integers(len(bad)))
            bad[at] = int(chosen.integers(256))
            if number % 4 == 0:
                del bad[at:]
            (npz / name).write_bytes(bad)
            try:
                read(str(npz), Wanted("en", "fr"))
            except UserError as error:
                assert "\n" not in str(error)
        (npz / name).write_bytes(whole)


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=6), unique=True, max_size=9))
def test_a_vocabulary_of_any_pieces_is_read_as_it_was_written(pieces: list[str]) -> None:
    text = "".join(f"{marian_yaml.quoted(piece)}: {i}\n" for i, piece in enumerate(pieces))
    assert marian_yaml.vocabulary(text, "it") == {piece: i for i, piece in enumerate(pieces)}


def test_every_way_to_write_a_key_is_read() -> None:
    text = '</s>: 0\n"\\x41\\u2581\\"": 1\n\'it\'\'s\': 2\n::: 3\n? "long"\n: 4\n\u2581a: 5\n"#": 6\n'
    found = marian_yaml.vocabulary(text, "it")
    assert found == {"</s>": 0, 'A\u2581"': 1, "it's": 2, "::": 3, "long": 4, "\u2581a": 5, "#": 6}


@pytest.mark.skipif(not HAS_MARIAN, reason="needs Marian itself: pip install pymarian (600 MB)")
def test_marian_itself_gives_the_same_scores(faithful: Model, npz: Path) -> None:
    lines = sentences("source", 6, seed=9)
    source = faithful.identity.tokenizers.source
    shown = [" ".join(source.vocabulary.entries[i] for i in source.encode(line)) for line in lines]
    # In a process of its own, which Marian ends where it does not like a file.
    command = [sys.executable, "-c", MARIAN, str(npz / "model.npz"), str(npz / "vocab.yml")]
    found = subprocess.run(command, input="\n".join(shown), capture_output=True, text=True, check=True).stdout
    ids = {entry: i for i, entry in enumerate(source.vocabulary.entries)}
    compared = 0
    for line in found.split("\n"):
        if not line.strip():
            continue
        number, words, _, score = line.split(" ||| ")
        target = [*(ids[word] for word in words.split()), 0]
        sent = [*source.encode(lines[int(number)]), 0]
        each = logits(faithful, sent, target).log_softmax(1).gather(1, torch.tensor(target)[:, None])
        near = min(abs(float(each.sum()) - float(score)), abs(float(each[:-1].sum()) - float(score)))
        assert near <= 1e-3
        compared += 1
    assert compared >= 12
