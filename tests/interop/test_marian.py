"""Marian files: logits are those of transformers with Marian's positions, and of Marian if installed."""

import importlib.util
import re
import subprocess
import sys
import zipfile
from copy import deepcopy
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import pytest
import torch

from nmt_cli.checkpoints.model_folder import LoadedModel, read_model, weights
from nmt_cli.errors import UserError
from nmt_cli.interop.exporting import export, losses
from nmt_cli.interop.foreign import ImportOptions, write
from nmt_cli.interop.importing import read
from nmt_cli.interop.weights import channel_order
from tests.interop.conftest import (
    assert_equal_tensors,
    assert_refused,
    logits,
    marian_folder,
    sentences,
    spm,
)
from tests.interop.oracle import PostNorm

if TYPE_CHECKING:
    from transformers import MarianMTModel

NEEDS_MARIAN = pytest.mark.skipif(
    importlib.util.find_spec("pymarian") is None, reason="needs Marian itself: pip install pymarian (600 MB)"
)

MARIAN = """
import sys
from pymarian import Translator

model, *vocabularies = (argument for argument in sys.argv[1:] if "=" not in argument)
translator = Translator(
    models=model, vocabs=vocabularies, beam_size=3, normalize=0.0, n_best=True, cpu_threads=1, max_length=100,
    max_length_factor=3, quiet=True, quiet_translation=True, mini_batch=1,
    **{argument.split("=")[0]: True for argument in sys.argv if "=" in argument},
)
output = translator.translate(sys.stdin.read().splitlines())
print(output if isinstance(output, str) else "\\n".join(output))
"""


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> "tuple[Path, MarianMTModel]":
    folder = tmp_path_factory.mktemp("marian") / "theirs"
    return folder, marian_folder(folder)


@pytest.fixture(scope="module")
def faithful(theirs: "tuple[Path, MarianMTModel]") -> LoadedModel:
    """Return an OPUS-MT model as before the conversion for transformers."""
    out = theirs[0].parent / "ours"
    write(read(str(theirs[0]), ImportOptions(positions="marian")), out)
    return read_model(out)


def test_positions_of_transformers_are_refused_with_the_import_that_marian_supports(
    theirs: "tuple[Path, MarianMTModel]", faithful: LoadedModel, tmp_path: Path
) -> None:
    write(read(str(theirs[0]), ImportOptions()), tmp_path / "ours")
    with pytest.raises(UserError) as error:
        export(read_model(tmp_path / "ours"), "marian", tmp_path / "npz")
    assert "model.positions is sinusoidal. Use --format" in error.value.message
    assert "or import the original model again with --positions marian." in error.value.message
    assert losses(faithful, "marian") == []


@pytest.fixture
def npz(faithful: LoadedModel, tmp_path: Path) -> Path:
    export(faithful, "marian", tmp_path / "npz")
    return tmp_path / "npz"


def test_positions_of_marian_restore_what_a_model_was_trained_with(
    theirs: "tuple[Path, MarianMTModel]", faithful: LoadedModel
) -> None:
    """The padding that the converter to transformers added is removed, too."""
    assert len(faithful.identity.tokenizers.target.vocabulary) == theirs[1].config.vocab_size - 1
    assert faithful.identity.config.positions == "marian"
    source, target = [5, 9, 30, 0], [7, 31, 12, 0]
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

    table = M2M100SinusoidalPositionalEmbedding.get_embedding(64, 32)
    changed: Any = deepcopy(theirs[1])
    with torch.no_grad():
        for stack in (changed.model.encoder, changed.model.decoder):
            stack.embed_positions.weight.copy_(table)
        inputs = torch.tensor([[changed.config.decoder_start_token_id, *target[:-1]]])
        expected = changed(input_ids=torch.tensor([source]), decoder_input_ids=inputs).logits[0, :, :-1]
    assert (logits(faithful.transformer, [source], [target]) - expected).abs().max() <= 1e-3
    assert expected.std() > 0.5


def test_an_npz_comes_back_with_the_same_weights(faithful: LoadedModel, npz: Path, tmp_path: Path) -> None:
    names = sorted(path.name for path in npz.iterdir())
    assert names == ["README.md", "decoder.yml", "model.npz", "source.spm", "target.spm", "vocab.yml"]
    write(read(str(npz), ImportOptions("en", "fr")), tmp_path / "back")
    back = read_model(tmp_path / "back")
    assert back.identity.config == replace(faithful.identity.config, norm_epsilon=1e-6, residual_dropout=0.1)
    assert_equal_tensors(weights(faithful.transformer), weights(back.transformer))
    text = f">>fra<< {sentences('source', 5)[4]}"
    assert back.identity.tokenizers.source.encode(text) == faithful.identity.tokenizers.source.encode(text)
    assert back.description["search"]["beam"] == 4


def by_fairseqs_names(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return Marian's tensors of layers by fairseq's names. Marian multiplies by matrices from the right."""
    named = {}
    for stack, number in product(("encoder", "decoder"), (1, 2, 3)):
        theirs, ours = f"{stack}_l{number}", f"{stack}.layers.{number - 1}"
        for part, module in (("self", "self_attn"), ("context", "encoder_attn")):
            if f"{theirs}_{part}_Wq" not in arrays:
                continue
            for kind in "qkvo":
                name = f"{ours}.{module}.{'out' if kind == 'o' else kind}_proj"
                named[f"{name}.weight"] = arrays[f"{theirs}_{part}_W{kind}"].T
                named[f"{name}.bias"] = arrays[f"{theirs}_{part}_b{kind}"][0]
            named[f"{ours}.{module}_layer_norm.weight"] = arrays[f"{theirs}_{part}_Wo_ln_scale"][0]
            named[f"{ours}.{module}_layer_norm.bias"] = arrays[f"{theirs}_{part}_Wo_ln_bias"][0]
        if f"{theirs}_ffn_W1" in arrays:
            for i in (1, 2):
                named[f"{ours}.fc{i}.weight"] = arrays[f"{theirs}_ffn_W{i}"].T
                named[f"{ours}.fc{i}.bias"] = arrays[f"{theirs}_ffn_b{i}"][0]
            named[f"{ours}.final_layer_norm.weight"] = arrays[f"{theirs}_ffn_ffn_ln_scale"][0]
            named[f"{ours}.final_layer_norm.bias"] = arrays[f"{theirs}_ffn_ffn_ln_bias"][0]
    return named


def test_probabilities_of_given_pairs_are_those_of_marians_formulas(npz: Path, tmp_path: Path) -> None:
    """Marian starts with zeros, and its sinusoids are sines and then cosines."""
    write(read(str(npz), ImportOptions("en", "fr")), tmp_path / "back")
    stored = numpy.load(npz / "model.npz")
    arrays = {name: stored[name].astype(float) for name in stored if not name.startswith("special")}
    source, target = [5, 9, 30, 0], [7, 31, 12, 44, 0]
    angles = numpy.arange(5)[:, None] * 10000.0 ** (-numpy.arange(16) / 15)
    positions = numpy.concatenate([numpy.sin(angles), numpy.cos(angles)], 1)
    embedded = arrays["Wemb"] * 32**0.5
    inputs = numpy.concatenate([numpy.zeros((1, 32)), embedded[target[:-1]]])
    theirs = PostNorm(by_fairseqs_names(arrays), 4, 1e-6, lambda x: x / (1 + numpy.exp(-x)))
    scores = theirs.log_probabilities(
        embedded[source] + positions[:4], inputs + positions, arrays["Wemb"], arrays["decoder_ff_logit_out_b"]
    )
    found = logits(read_model(tmp_path / "back").transformer, [source], [target]).log_softmax(1)
    assert scores.std() > 0.5
    assert numpy.abs(found.numpy() - scores).max() < 1e-3


def test_the_shortlist_that_its_settings_name_is_used_or_noted(npz: Path) -> None:
    (npz / "lex.s2t").write_text("no shortlist of this model\n", "utf-8")
    plain = read(str(npz), ImportOptions("en", "fr"))
    assert plain.shortlist is None and not plain.notes
    source, target = (side.vocabulary for side in (plain.tokenizers.source, plain.tokenizers.target))
    (npz / "my.s2t").write_text(f"{target.entries[7]} {source.entries[5]} 0.5\n", "utf-8")
    (npz / "my.s2t.gz").write_bytes(b"\x1f\x8b")
    settings = (npz / "decoder.yml").read_text("utf-8")
    (npz / "decoder.yml").write_text(
        f"{settings}\nshortlist:\n  - /their/path/my.s2t\n  - 3\n  - 50\n", "utf-8"
    )
    shortlist = read(str(npz), ImportOptions("en", "fr")).shortlist
    assert shortlist and 7 in shortlist.list_of(5) and {0, 1, 2} <= {*shortlist.list_of(source.end).tolist()}
    (npz / "decoder.yml").write_text(f"{settings}\nshortlist:\n  - my.s2t.gz\n  - 3\n  - 50\n", "utf-8")
    (note,) = read(str(npz), ImportOptions("en", "fr")).notes
    assert note.startswith("my.s2t.gz is left out")


def zipped(npz: Path, path: Path, method: int, **more: bytes) -> Path:
    with zipfile.ZipFile(path, "w", method) as packed:
        for name, content in {**{file.name: file.read_bytes() for file in npz.iterdir()}, **more}.items():
            packed.writestr(name, content)
    return path


def test_needed_files_of_opus_mts_zip_are_the_folder_in_it(npz: Path, tmp_path: Path) -> None:
    """Other files are not unpacked, so that they may be a bomb or outside the folder."""
    more = {"../outside.txt": b"no", "zeros": bytes(5_000_000)}
    path = zipped(npz, tmp_path / "opus.zip", zipfile.ZIP_DEFLATED, **more)
    packed, plain = (read(str(path), ImportOptions("en", "fr")) for path in (path, npz))
    assert_equal_tensors(plain.tensors, packed.tensors)
    assert packed.tokenizers.fingerprint == plain.tokenizers.fingerprint
    assert not (tmp_path / "outside.txt").exists()
    path.write_bytes(path.read_bytes()[:3000])
    assert_refused(path, "is not a complete zip archive")
    zipped(npz, path, zipfile.ZIP_DEFLATED, **{"b.npz": bytes(5_000_000)})
    assert_refused(path, r"b\.npz would grow from [\d,]+ to 5,000,000 bytes")


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=str
)
def test_a_zip_with_damaged_data_is_refused_in_a_line(npz: Path, tmp_path: Path, method: int) -> None:
    path = zipped(npz, tmp_path / "a.zip", method)
    whole = path.read_bytes()
    for at in range(200, len(whole), len(whole) // 40):
        path.write_bytes(whole[:at] + bytes(byte ^ 0x55 for byte in whole[at : at + 40]) + whole[at + 40 :])
        assert_refused(path)


ODD: dict[str, tuple[str, Any, str]] = {
    "complex": ("Wemb", lambda array: array.astype(numpy.complex64), "Wemb is complex64"),
    "integers": ("Wemb", lambda array: array.astype(numpy.int8), "Wemb is int8"),
    "texts": ("Wemb", lambda array: array.astype("U3"), "is damaged"),
    "no dimension": ("Wemb", lambda array: array.reshape(-1)[0], r"Wemb is \[\], not a vector or matrix"),
    "a vector": ("Wemb", lambda array: array[0], r"is \[32\], not a matrix"),
    "no such layer": (f"decoder_l{9:9<5000}_self_Wq", lambda array: numpy.ones((4, 4)), "Transformer lacks"),
}


@pytest.mark.parametrize(("name", "change", "message"), ODD.values(), ids=ODD)
def test_odd_arrays_are_refused_by_name(npz: Path, name: str, change: Any, message: str) -> None:
    arrays = dict(numpy.load(npz / "model.npz"))
    arrays[name] = change(arrays.get(name))
    numpy.savez(npz / "model.npz", **arrays)
    assert_refused(npz, message, ImportOptions("en", "fr"))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("transformer-decoder-autoreg", "rnn", "dec-cell is 'gru'"),
        ("transformer-decoder-autoreg", "average-attention", "transformer-decoder-autoreg is 'average"),
        ("transformer-tied-layers", "x", "transformer-tied-layers must be a list"),
        ("type", "amun", "type is 'amun'"),
        (
            "transformer-ffn-activation",
            "gelu",
            r"transformer-ffn-activation is gelu\. nmt supports swish, relu",
        ),
        ("transformer-preprocess", "n", "transformer-preprocess is 'n', but nmt supports only '' or 'd'"),
        ("enc-depth", "many", 'enc-depth must be a whole number .got "many"'),
    ],
)
def test_an_unsupported_setting_is_refused_by_name(npz: Path, name: str, value: str, message: str) -> None:
    arrays = dict(numpy.load(npz / "model.npz"))
    text = bytes(arrays["special:model.yml"].astype(numpy.uint8)).rstrip(b"\0").decode()
    lines = [f"{name}: {value}" if line.startswith(f"{name}:") else line for line in text.split("\n")]
    lines = [line for line in lines if line != "  []"]
    arrays["special:model.yml"] = numpy.frombuffer("\n".join(lines).encode() + b"\0", numpy.int8)
    numpy.savez(npz / "model.npz", **arrays)
    assert_refused(npz, message, ImportOptions("en", "fr"))


@pytest.mark.parametrize("name", ["a\\0.yml", "a\\ud800.yml"])
def test_a_vocabulary_with_a_name_that_no_file_can_have_is_ignored(npz: Path, name: str) -> None:
    text = (npz / "decoder.yml").read_text()
    (npz / "decoder.yml").write_text(text.replace("  - vocab.yml", f'  - "{name}"'))
    foreign = read(str(npz), ImportOptions("en", "fr"))  # it takes the only vocabulary in the folder
    assert len(foreign.tokenizers.source.vocabulary) > 50


def with_ssru(npz: Path, *tied: int) -> dict[str, Any]:
    """Replace self-attention in the decoder by an SSRU. Return the tensors of the SSRU."""
    chosen = numpy.random.default_rng(3)
    before: dict[str, Any] = dict(numpy.load(npz / "model.npz"))
    text = bytes(before.pop("special:model.yml").astype(numpy.uint8)).rstrip(b"\0").decode()
    arrays = {re.sub("(decoder.*)self_Wo(_ln)", r"\1rnn_ffn\2", name): before[name] for name in before}
    arrays = {name: array for name, array in arrays.items() if "decoder" not in name or "_self_" not in name}
    for number in (1, 2):
        for name, rows in (("W", 32), ("Wf", 32), ("bf", 1)):
            arrays[f"decoder_l{number}_rnn_{name}"] = chosen.normal(size=(rows, 32)).astype(numpy.float32)
    for old, new in (("autoreg: self-attention", "autoreg: rnn"), ("dec-cell: gru", "dec-cell: ssru")):
        text = text.replace(old, new)
    if tied:
        items = "".join(f"  - {number}\n" for number in tied)
        text = text.replace("transformer-tied-layers:\n  []\n", f"transformer-tied-layers:\n{items}")
        arrays = {name: array for name, array in arrays.items() if not name.startswith("decoder_l2_")}
    special: Any = numpy.frombuffer(text.encode() + b"\0", numpy.int8)
    numpy.savez(npz / "model.npz", **{**arrays, "special:model.yml": special})
    return arrays


def test_an_ssru_replaces_self_attention(npz: Path) -> None:
    arrays = with_ssru(npz)
    model = read(str(npz), ImportOptions("en", "fr"))
    assert (model.config.decoder_history, model.config.decoder_layers) == ("ssru", 2)
    order = channel_order(32)
    for number in range(2):
        for theirs, ours in (("W", "value.weight"), ("Wf", "forget.weight"), ("bf", "forget.bias")):
            expected = torch.from_numpy(arrays[f"decoder_l{number + 1}_rnn_{theirs}"]).T.squeeze(1)
            expected = expected[order] if theirs == "bf" else expected[order][:, order]
            assert torch.equal(model.tensors[f"decoder.{number}.attention.{ours}"], expected)


def test_each_layer_gets_a_copy_of_shared_weights(npz: Path) -> None:
    with_ssru(npz, 1, 1)
    (npz / "model.npz.optimizer.npz").write_bytes(b"what training left there")
    tensors = read(str(npz), ImportOptions("en", "fr")).tensors
    first = {name: tensor for name, tensor in tensors.items() if name.startswith("decoder.0.")}
    assert len(first) > 10
    assert all(torch.equal(tensor, tensors[name.replace(".0.", ".1.")]) for name, tensor in first.items())


def assert_scores_are_marians(model: LoadedModel, lines: list[str], output: str) -> None:
    """Compare with Marian's n-best list of subwords. A sentence that Marian cut has no end token."""
    source, target = model.identity.tokenizers.source, model.identity.tokenizers.target
    ids = {entry: i for i, entry in enumerate(target.vocabulary.entries)}
    compared = 0
    for line in filter(str.strip, output.split("\n")):
        number, words, _, score = line.split(" ||| ")
        target_ids = target.vocabulary.ended([ids[word] for word in words.split()])
        source_ids = source.vocabulary.ended(source.encode(lines[int(number)]))
        log_softmax = logits(model.transformer, [source_ids], [target_ids]).log_softmax(1)
        tokens = log_softmax.gather(1, torch.tensor(target_ids)[:, None])
        sums = float(tokens.sum()), float(tokens[:-1].sum())
        assert min(abs(total - float(score)) for total in sums) <= 1e-3
        compared += 1
    assert compared >= 12


def by_marian(text: list[str], *command: str, **settings: Any) -> str:
    """Return the output of a program that calls Marian, in a separate process because Marian may exit."""
    whole = [sys.executable, *command, *(f"{name}={value}" for name, value in settings.items())]
    return subprocess.run(whole, input="\n".join(text), capture_output=True, text=True, check=True).stdout


@NEEDS_MARIAN
@pytest.mark.slow
def test_marian_itself_gives_the_same_scores(faithful: LoadedModel, npz: Path) -> None:
    lines = sentences("source", 6, seed=9)
    source = faithful.identity.tokenizers.source
    shown = [" ".join(source.vocabulary.entries[i] for i in source.encode(line)) for line in lines]
    output = by_marian(shown, "-c", MARIAN, str(npz / "model.npz"), *[str(npz / "vocab.yml")] * 2)
    assert_scores_are_marians(faithful, lines, output)


@NEEDS_MARIAN
@pytest.mark.slow
@pytest.mark.parametrize("tied", [(), ("1", "1")], ids=["", "tied layers"])
def test_a_student_that_marian_itself_trained_has_the_same_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tied: tuple[str, ...]
) -> None:
    """Its decoder has an SSRU, and each side has its own vocabulary."""
    monkeypatch.chdir(tmp_path)
    for side in ("source", "target"):
        spm(tmp_path, side)
        (tmp_path / f"text.{side}").write_text("".join(f"{line}\n" for line in sentences(side, 200)))
    by_marian([], str(Path(__file__).with_name("marian_trained.py")), "model.npz", "60", *tied)
    write(read(str(tmp_path), ImportOptions("en", "fr")), tmp_path / "ours")
    model, lines = read_model(tmp_path / "ours"), sentences("source", 12, seed=9)
    assert model.identity.config.decoder_history == "ssru"
    files = ("model.npz", "source.spm", "target.spm")
    assert_scores_are_marians(model, lines, by_marian(lines, "-c", MARIAN, *files, no_spm_decode="1"))
