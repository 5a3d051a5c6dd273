"""Bergamot's models: the bytes of a file, the way there and back, damaged files, and Bergamot itself."""

import os
import random
import shutil
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy
import pytest

from nmt_cli.api import SearchConfig, TranslateConfig, load
from nmt_cli.checkpoints.finding import own_search
from nmt_cli.checkpoints.model_folder import LoadedModel, read_model, weights, write_shortlist
from nmt_cli.errors import UserError
from nmt_cli.interop import bergamot, marian, shortlists
from nmt_cli.interop.conventions import made_up
from nmt_cli.interop.exporting import export
from nmt_cli.interop.foreign import ImportOptions, write
from nmt_cli.interop.importing import read
from nmt_cli.model.config import ModelConfig
from nmt_cli.text.shortlist import shortlist_of, with_copies
from nmt_cli.text.tokenizer import Tokenizer
from nmt_cli.text.tokenizers import Tokenizers
from tests.interop.conftest import assert_equal_tensors, assert_refused
from tests.interop.test_exporting import random_model

NEEDS_BERGAMOT = pytest.mark.skipif(
    not shutil.which("bergamot"),
    reason="needs Bergamot: python3.10 -m venv berg, berg/bin/pip install --no-deps bergamot==0.4.5, "
    "and PATH=$PATH:berg/bin",
)

STUDENT = ModelConfig(
    encoder_layers=1,
    decoder_layers=2,
    width=64,
    feed_forward=128,
    heads=4,
    norm_epsilon=1e-6,
    decoder_history="ssru",
    positions="marian",
    start="zeros",
    attention_bias=True,
    output_bias=True,
)
MODELS = {
    "ssru": STUDENT,
    "attention": replace(STUDENT, decoder_history="attention", attention_bias=False, output_bias=False),
    "ssru, tied decoder": replace(STUDENT, tie="decoder", activation="swish"),
    "attention, untied": replace(STUDENT, decoder_history="attention", tie="none"),
}
INT8_NAME = "model.ende.intgemm.alphas.bin"
FLOAT32, INT8, INTGEMM8, INTGEMM16 = 0x0404, 0x0101, 0x4101, 0x4102


@pytest.fixture(params=MODELS)
def model(
    request: pytest.FixtureRequest, tmp_path: Path, toy_tokenizers: Callable[..., Tokenizers]
) -> LoadedModel:
    joint = MODELS[request.param].tie == "all"
    return random_model(tmp_path / "ours", MODELS[request.param], toy_tokenizers(joint=joint))


@pytest.fixture
def student(tmp_path: Path, toy_tokenizers: Callable[..., Tokenizers]) -> LoadedModel:
    return random_model(tmp_path / "ours", STUDENT, toy_tokenizers())


def items_of(path: Path) -> dict[str, tuple[int, tuple[int, ...], bytes, int]]:
    """Return (type, shape, data, offset) of each item, as Marian reads a file."""
    content = path.read_bytes()
    version, count = struct.unpack_from("<QQ", content)
    assert version == 1
    headers = [struct.unpack_from("<4Q", content, 16 + 32 * i) for i in range(count)]
    at, names, shapes = 16 + 32 * count, [], []
    for length, *_ in headers:
        names.append(content[at : at + length - 1].decode())
        assert content[at + length - 1] == 0
        at += length
    for _, _, dimensions, _ in headers:
        shapes.append(struct.unpack_from(f"<{dimensions}i", content, at))
        at += 4 * dimensions
    at += 8 + struct.unpack_from("<Q", content, at)[0]
    items = {}
    for name, shape, (_, kind, _, length) in zip(names, shapes, headers, strict=True):
        items[name] = (kind, shape, content[at : at + length], at)
        at += length
    assert at == len(content)
    return items


def matrix(name: str, kind: int, shape: tuple[int, ...], data: bytes) -> Any:
    """Return the values of an item, of a rounded matrix those that its integers stand for."""
    size = int(numpy.prod(shape))
    if kind == FLOAT32:
        return numpy.frombuffer(data, "<f4", size).reshape(shape)
    levels = numpy.frombuffer(data, "i1", size)
    values = levels / numpy.frombuffer(data, "<f4", 1, size)[0]
    return values.reshape(shape) if "Wemb" in name else values.reshape(shape[::-1]).T


def test_a_rounded_matrix_is_the_nearest_int8_with_its_multiplier_behind_it(
    model: LoadedModel, tmp_path: Path
) -> None:
    for precision in bergamot.PRECISIONS:
        export(model, "bergamot", tmp_path / precision, precision)
    exact, rounded = items_of(tmp_path / "fp32/model.ende.bin"), items_of(tmp_path / "int8" / INT8_NAME)
    assert all(offset % 256 == 0 for items in (exact, rounded) for _, _, _, offset in items.values())
    counts = {INTGEMM8: 0, FLOAT32: 0}
    for name, (kind, shape, data, _) in exact.items():
        if name == "special:model.yml":
            assert (kind, data) == (INT8, rounded[name][2])
            continue
        assert (kind, rounded[name][1]) == (FLOAT32, shape)
        values, counts[rounded[name][0]] = matrix(name, kind, shape, data), counts[rounded[name][0]] + 1
        assert (rounded[name][0] == INTGEMM8) == (shape[0] > 1)
        if shape[0] > 1:
            step = abs(values).max() / 127
            difference = abs(matrix(name, *rounded[name][:3]) - values).max()
            assert 0 < difference <= step / 2 * 1.001
    assert min(counts.values()) > 10
    scales = {name.removesuffix("_QuantMultA"): item for name, item in rounded.items() if name not in exact}
    matrices = {name for name, (kind, *_) in rounded.items() if kind == INTGEMM8}
    inputs_only = {"encoder_Wemb"} | ({"decoder_Wemb"} if model.identity.config.tie == "none" else set())
    assert {*scales} == matrices - inputs_only | {"none"}
    assert all(0 < matrix(name, *scale[:3])[0] < 1000 for name, scale in scales.items())


def test_a_model_comes_back_from_fp32_bit_for_bit(model: LoadedModel, tmp_path: Path) -> None:
    assert "no lexical shortlist" in export(model, "bergamot", tmp_path / "theirs")[0]
    write(read(str(tmp_path / "theirs"), ImportOptions()), tmp_path / "back")
    back = read_model(tmp_path / "back")
    assert replace(back.identity.config, start="zeros") == model.identity.config
    assert (back.identity.tokenizers.recipe.source_lang, own_search(tmp_path / "back")["beam"]) == ("en", 1)
    assert_equal_tensors(weights(model.transformer), weights(back.transformer))


def test_int8_comes_back_as_its_numbers_and_goes_out_again_unchanged(
    student: LoadedModel, tmp_path: Path
) -> None:
    export(student, "bergamot", tmp_path / "int8", "int8")
    imported = read(str(tmp_path / "int8" / INT8_NAME), ImportOptions())
    assert imported.notes == []
    write(imported, tmp_path / "back")
    export(read_model(tmp_path / "back"), "bergamot", tmp_path / "again", "int8")
    first, again = (items_of(tmp_path / folder / INT8_NAME) for folder in ("int8", "again"))
    size = {name: int(numpy.prod(shape)) for name, (_, shape, _, _) in first.items()}
    for name in [name for name, (kind, *_) in first.items() if kind == INTGEMM8]:
        assert first[name][2][: size[name]] == again[name][2][: size[name]]


def test_marian_gets_an_ssru_as_well(student: LoadedModel, tmp_path: Path) -> None:
    export(student, "marian", tmp_path / "npz")
    back = read(str(tmp_path / "npz"), ImportOptions("en", "de"))
    assert replace(back.config, start="zeros") == student.identity.config
    assert_equal_tensors(weights(student.transformer), back.tensors)


def test_unused_entries_fill_the_vocabulary_up_to_a_multiple_of_8(
    toy_tokenizers: Callable[..., Tokenizers], tmp_path: Path
) -> None:
    tokenizers = toy_tokenizers()
    student = random_model(tmp_path / "ours", STUDENT, tokenizers)
    pieces = [61, 61]
    padded = marian.arrays(student, pieces, 8)
    assert padded["Wemb"].shape == (64, 64)
    assert not padded["Wemb"][61:].any()
    assert (padded["decoder_ff_logit_out_b"][0, 61:] == -1e4).all()
    assert b"  - 64\n  - 64\n" in bytes(padded["special:model.yml"])


def listing(model: LoadedModel) -> LoadedModel:
    """Return a model with a random shortlist: one to five target tokens for each source token."""
    draws, tokenizers = random.Random(1), model.identity.tokenizers
    source, target = tokenizers.source.vocabulary, tokenizers.target.vocabulary
    lists = (draws.sample(range(len(target)), draws.randint(1, 5)) for _ in source.entries)
    every = with_copies(lists, source, target) if tokenizers.recipe.joint else lists
    return replace(model, shortlist=shortlist_of(every))


def test_a_shortlist_comes_back_and_settings_beside_a_model_are_used(
    student: LoadedModel, tmp_path: Path, nmt: Callable[..., CompletedProcess[str]]
) -> None:
    student = listing(student)
    assert export(student, "bergamot", tmp_path / "theirs", "int8") == []
    settings = tmp_path / "theirs" / "config.intgemm8bitalpha.yml"
    assert "shortlist:\n  - lex.ende.s2t.bin\n  - false\n" in settings.read_text()
    settings.write_text(settings.read_text().replace("beam-size: 1", "beam-size: 3"))
    result = nmt("import", tmp_path / "theirs", "--out", tmp_path / "back")
    assert result.returncode == 0, result.stderr
    assert "Marian, en-de" in result.stderr
    assert "beam 3, length_rule power, length_penalty 1.0, cap_ratio 2.0" in result.stderr
    back = read_model(tmp_path / "back").shortlist
    assert student.shortlist and back
    numpy.testing.assert_array_equal(back.offsets, student.shortlist.offsets)
    numpy.testing.assert_array_equal(back.targets, student.shortlist.targets)
    (tmp_path / "theirs" / INT8_NAME).rename(tmp_path / "theirs" / "model.bin")
    assert_refused(tmp_path / "theirs", "does not record its languages")


def test_the_first_tokens_of_a_shortlist_are_for_every_sentence(student: LoadedModel, tmp_path: Path) -> None:
    export(student, "bergamot", tmp_path / "theirs")
    entries = len(student.identity.tokenizers.source.vocabulary)
    numbers = [0xF11A48D5013417F5, 0, 7, 1, entries + 1, 2]
    offsets = [0, *[1] * (entries - 1), 2]  # the first source token and the last have a list
    lex = tmp_path / "theirs" / "lex.50.50.ende.s2t.bin"
    lex.write_bytes(struct.pack(f"<{6 + len(offsets)}Q2I", *numbers, *offsets, 9, 8))
    shortlist = read(str(tmp_path / "theirs"), ImportOptions()).shortlist
    end = student.identity.tokenizers.source.vocabulary.end
    assert shortlist
    assert {*range(7)} <= {*shortlist.list_of(end).tolist()}
    assert shortlist.list_of(entries - 1).tolist() in ([8], sorted({8, entries - 1}))


@pytest.mark.parametrize(
    "numbers",
    [
        [],
        [0, 0, 1, 1],  # cut
        [0, 0, 1, 1, 4, 1, 0, 1, 0, 1],  # offsets that descend
        [0, 0, 1, 1, 3, 9, 0, 1, 2],  # fewer tokens than offsets
        [0, 0, 1, 1, 3, 1, 0, 1, 1, 10**6],  # a token that does not exist
        [0, 0, 10**6, 1, 3, 1, 0, 1, 1, 1],  # more frequent tokens than the vocabulary
    ],
)
def test_a_damaged_shortlist_is_refused(student: LoadedModel, tmp_path: Path, numbers: list[int]) -> None:
    export(student, "bergamot", tmp_path / "theirs")
    content = struct.pack(f"<{len(numbers)}Q", *numbers)
    (tmp_path / "theirs" / "lex.ende.s2t.bin").write_bytes(struct.pack("<Q", 0xF11A48D5013417F5) + content)
    assert_refused(tmp_path / "theirs", "lex.ende.s2t.bin is damaged, or belongs to another model")


def test_a_shortlist_in_text_has_the_most_probable_tokens(student: LoadedModel, tmp_path: Path) -> None:
    """A file of extract-lex has "NULL" for words without a link, which Marian skips."""
    export(student, "bergamot", tmp_path / "theirs")
    tokenizers = student.identity.tokenizers
    source, target = tokenizers.source.vocabulary, tokenizers.target.vocabulary
    # The second source token has three targets more than are used, the least probable ones.
    tokens = [*range(2, len(target))][: shortlists.BEST + 3]
    random.Random(1).shuffle(tokens)
    lines = [f"{target.entries[one]} {source.entries[1]} {1 / (n + 2)}\n" for n, one in enumerate(tokens)]
    text = "NULL NULL 0.5\n" + "".join(reversed(lines)) + f"{target.entries[0]} nowhere 1\n"
    (tmp_path / "theirs" / "lex.s2t").write_text(text, "utf-8")
    shortlist = read(str(tmp_path / "theirs"), ImportOptions()).shortlist
    assert shortlist
    joint = tokenizers.recipe.joint
    copies = [target.entries.index(source.entries[1])] if joint else []
    assert shortlist.list_of(1).tolist() == sorted({*tokens[: shortlists.BEST], *copies})
    end = source.end
    first = [*range(min(shortlists.FIRST, len(target)))]
    assert shortlist.list_of(end).tolist() == sorted({*first, *([end] if joint else [])})


def lists_of_marian(
    text: str, tokenizers: Tokenizers, first: int, best: int, threshold: float
) -> list[set[int]]:
    """Return the list of each source token as Marian's LexicalShortlistGenerator makes it of a file.

    The list of the end token has those of every sentence.
    """
    source, target = (side.vocabulary.entries for side in (tokenizers.source, tokenizers.target))
    fields = text.translate(dict.fromkeys(map(ord, "\t\v\f\r\n"), " ")).split(" ")
    words = [field for field in fields if field]
    data: list[dict[int, float]] = [{} for _ in source]
    for other, token, probability in zip(words[::3], words[1::3], words[2::3], strict=True):
        if "NULL" not in (other, token) and token in source and other in target:
            data[source.index(token)][target.index(other)] = float(probability)
    lists = []
    for own in data:
        ranked = sorted(((probability, i) for i, probability in own.items()), reverse=True)
        lists.append({i for probability, i in ranked[:best] if probability > threshold})
    lists[tokenizers.source.vocabulary.end] |= {*range(min(first, len(target)))}
    if tokenizers.recipe.joint:
        lists = [{*own, i} if source[i] else own for i, own in enumerate(lists)]
    return lists


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("numbers", [(), (7,), (0, 3), (200, 2, 0.25), (5, 0), (5, 40, 0.9)])
def test_a_shortlist_in_text_is_that_of_marian(
    toy_tokenizers: Callable[..., Tokenizers], tmp_path: Path, joint: bool, numbers: tuple[float, ...]
) -> None:
    tokenizers = toy_tokenizers(joint=joint)
    draws = random.Random(len(numbers))

    def renamed(tokenizer: Tokenizer) -> Tokenizer:
        """Return a tokenizer with entries as other toolkits may have them."""
        entries = tokenizer.vocabulary.entries
        entries = (*entries[:9], "NULL", "a\u3000b", "\u2028", *entries[12:])
        vocabulary = replace(tokenizer.vocabulary, entries=entries)
        return replace(tokenizer, numbering=replace(tokenizer.numbering, vocabulary=vocabulary))

    tokenizers = replace(tokenizers, source=renamed(tokenizers.source), target=renamed(tokenizers.target))
    sides = [[*side.vocabulary.entries[2:60], "nowhere"] for side in (tokenizers.target, tokenizers.source)]
    lines = []
    for _ in range(900):
        other, token = map(draws.choice, sides)
        if other and token:
            probability = draws.choice(["0", "0.25", "0.5", "1e-3", str(draws.random())])
            lines.append(draws.choice([" ", "\t", "  "]).join([other, token, probability]))
    text = draws.choice(["\n", "\r\n", "\n\n"]).join(lines)
    (tmp_path / "lex.s2t").write_bytes(text.encode())
    shortlist = shortlists.read_marian_text(tmp_path / "lex.s2t", tokenizers, *numbers)
    first, best, threshold = [*numbers, *[100, 100, 0.0][len(numbers) :]]
    expected = lists_of_marian(text, tokenizers, int(first), int(best), threshold)
    assert [{*shortlist.list_of(token).tolist()} for token in range(len(expected))] == expected


def test_the_settings_of_a_model_choose_its_shortlist(student: LoadedModel, tmp_path: Path) -> None:
    """Both directions of two languages may have their lists in one folder."""
    theirs = tmp_path / "theirs"
    export(listing(student), "bergamot", theirs)
    expected = read(str(theirs), ImportOptions()).shortlist
    source = student.identity.tokenizers.source.vocabulary
    other = replace(student, shortlist=shortlist_of([[5]] * len(source)))
    export(other, "bergamot", tmp_path / "other")
    shutil.copy(tmp_path / "other" / "lex.ende.s2t.bin", theirs / "lex.deen.s2t.bin")
    actual = read(str(theirs), ImportOptions()).shortlist
    assert expected and actual
    numpy.testing.assert_array_equal(actual.targets, expected.targets)
    (theirs / "my.s2t").write_text(f"{source.entries[9]} {source.entries[9]} 0.5\n", "utf-8")
    settings = theirs / bergamot.SETTINGS
    text = settings.read_text().replace("- lex.ende.s2t.bin\n  - false", "- my.s2t\n  - 3\n  - 50\n  - 0.6")
    settings.write_text(text)
    chosen = read(str(theirs), ImportOptions()).shortlist
    assert chosen and chosen.list_of(source.end).tolist() == [0, 1, 2]


def test_a_shortlist_of_another_kind_is_left_out_with_a_note(student: LoadedModel, tmp_path: Path) -> None:
    export(student, "bergamot", tmp_path / "theirs")
    (tmp_path / "theirs" / "lex.s2t.gz").write_bytes(b"\x1f\x8b")
    (note,) = read(str(tmp_path / "theirs"), ImportOptions()).notes
    assert note.startswith("lex.s2t.gz is left out, because it is no .s2t.bin or .s2t")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("der the 0.5\nder the\n", "lex.s2t line 2 is not TARGET SOURCE PROBABILITY, so it is damaged"),
        ("der the much\n", "lex.s2t line 1 is not TARGET SOURCE PROBABILITY"),
        ("nobody nowhere 0.5\n", "lex.s2t has no token of this model"),
    ],
)
def test_a_damaged_shortlist_in_text_is_refused(
    student: LoadedModel, tmp_path: Path, text: str, error: str
) -> None:
    export(student, "bergamot", tmp_path / "theirs")
    (tmp_path / "theirs" / "lex.s2t").write_text(text)
    assert_refused(tmp_path / "theirs", error)


def test_a_size_that_int8_products_cannot_have_is_refused(
    toy_tokenizers: Callable[..., Tokenizers], tmp_path: Path
) -> None:
    odd = random_model(tmp_path / "ours", replace(STUDENT, width=32), toy_tokenizers())
    message = r"precision int8 for Bergamot needs multiples of 64.*got 32 and 128.*precision fp32"
    with pytest.raises(UserError, match=message):
        export(odd, "bergamot", tmp_path / "theirs", "int8")
    assert not (tmp_path / "theirs").exists()
    with pytest.raises(UserError, match=r"support only precision fp32 or int8 \(got fp16\)"):
        export(odd, "bergamot", tmp_path / "theirs", "fp16")
    export(odd, "bergamot", tmp_path / "theirs")


def file_of(items: dict[str, tuple[int, list[int], bytes]], **changed: Any) -> bytes:
    """Return a file with `items`, (type, shape, data) by name. `changed` replaces numbers of the first."""
    headers = [[len(name) + 1, kind, len(shape), len(data)] for name, (kind, shape, data) in items.items()]
    for i, field in enumerate(("name", "kind", "dimensions", "length")):
        headers[0][i] = changed.get(field, headers[0][i])
    numbers = [changed.get("version", 1), changed.get("count", len(items)), *chain(*headers)]
    names = b"".join(name.encode() + b"\0" for name in items)
    shapes = b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, shape, _ in items.values())
    padding = struct.pack("<Q", changed.get("padding", 0))
    data = b"".join(data for _, _, data in items.values())
    return struct.pack(f"<{len(numbers)}Q", *numbers) + names + shapes + padding + data


HUGE = (1 << 64) - 1
VALID: tuple[int, list[int], bytes] = (INTGEMM8, [2, 2], bytes(4) + struct.pack("<f", 1.0))
HOSTILE: dict[str, tuple[str, dict[str, Any], str]] = {
    "version": ("Wemb", {"version": 2}, "its version is 2, not 1|not a model"),
    "items": ("Wemb", {"count": HUGE}, "it has 18,446,744,073,709,551,615 items"),
    "more items": ("Wemb", {"count": 60_000}, "it is cut"),
    "name": ("Wemb", {"name": HUGE}, "too long"),
    "dimensions": ("Wemb", {"dimensions": HUGE}, "too long"),
    "data": ("Wemb", {"length": HUGE}, "it is cut"),
    "much data": ("Wemb", {"length": 1 << 33}, "it is cut"),
    "padding": ("Wemb", {"padding": HUGE}, "it is cut"),
    "type": ("Wemb", {"kind": 0x1801}, "'Wemb' is of type 0x1801.*Import the .npz"),
    "line break": ("We\nmb", {}, "a name is not text"),
}
SHAPES: dict[str, tuple[int, list[int], bytes]] = {
    "huge": (FLOAT32, [2**31 - 1, 2**31 - 1], bytes(64)),
    "negative": (FLOAT32, [-4, -4], bytes(64)),
    "empty": (FLOAT32, [0, 4], bytes(64)),
    "no multiplier": (INTGEMM8, [4, 4], bytes(16)),
    "zero": (INTGEMM8, [2, 2], bytes(8)),
    "not a number": (INTGEMM8, [2, 2], bytes(4) + struct.pack("<f", float("nan"))),
    "infinite": (INTGEMM16, [2, 2], bytes(8) + struct.pack("<f", float("inf"))),
}


def test_an_activation_scale_may_be_rounded_without_a_value(student: LoadedModel, tmp_path: Path) -> None:
    """marian-conv rounds it if its name contains "Wemb", as in models with two vocabularies."""
    export(student, "bergamot", tmp_path / "theirs", "int8")
    path = tmp_path / "theirs" / INT8_NAME
    items = {name: (kind, [*shape], data) for name, (kind, shape, data, _) in items_of(path).items()}
    before = read(str(path), ImportOptions())
    path.write_bytes(file_of(items | {"Wemb_QuantMultA": (INTGEMM8, [1, 1], bytes(256))}))
    assert_equal_tensors(before.tensors, read(str(path), ImportOptions()).tensors)


def assert_file_refused(folder: Path, content: bytes, message: str) -> None:
    """Check that a file is refused within 32 MB of memory."""
    (folder / "model.bin").write_bytes(content + b"decoder_l1_context_Wq")
    tracemalloc.start()
    assert_refused(folder / "model.bin", message)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 25


@pytest.mark.parametrize(("name", "changed", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_headers_are_refused(tmp_path: Path, name: str, changed: Any, message: str) -> None:
    assert_file_refused(tmp_path, file_of({name: VALID, "other": VALID}, **changed), message)


@pytest.mark.parametrize("item", SHAPES.values(), ids=SHAPES)
def test_hostile_shapes_are_refused(tmp_path: Path, item: tuple[int, list[int], bytes]) -> None:
    assert_file_refused(tmp_path, file_of({"Wemb": item}), "is damaged.*'Wemb' has")


def test_a_name_may_not_appear_twice(tmp_path: Path) -> None:
    content = file_of({"Wemb": VALID, "Wemc": VALID}).replace(b"Wemc", b"Wemb")
    assert_file_refused(tmp_path, content, "has 'Wemb' twice")


def install(folder: Path, program: str) -> None:
    """Write the command `bergamot` into a folder, and beside it a Python that is a program of the shell."""
    for name, content in (("bergamot", "exit 9"), ("python", program)):
        (folder / name).write_text(f"#!/bin/sh\n{content}\n")
        (folder / name).chmod(0o755)


def test_a_check_compares_with_the_bergamot_in_path(
    student: LoadedModel,
    tmp_path: Path,
    nmt: Callable[..., CompletedProcess[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "source.txt").write_text("one\n\nthree words here\n")
    command = ["export", tmp_path / "ours", "--format", "bergamot", "--precision", "int8"]
    source = ["--source", tmp_path / "source.txt"]
    install(tmp_path, 'test -f "$3" && sed "s/^/theirs: /"')
    result = nmt(*command, "--check", *source, "--out", tmp_path / "int8")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("3 of 3 lines differ; BLEU against nmt in int8: ")
    assert "\n  bergamot: theirs: one\n" in result.stdout
    assert "\n  bergamot: theirs: three words here\n" in result.stdout
    # The export has the shortlist of the model, so ours is used too.
    listed = listing(student).shortlist
    assert listed
    write_shortlist(tmp_path / "ours", listed, student.identity.tokenizers)
    assert nmt(*command, "--check", *source, "--out", tmp_path / "short").stdout != result.stdout
    install(tmp_path, "echo The model is damaged >&2; exit 3")
    result = nmt(*command, "--check", "--out", tmp_path / "again")
    assert result.returncode == 1
    assert "Bergamot ended with exit status 3: The model is damaged" in result.stderr
    result = nmt(*command, *source, "--out", tmp_path / "unchecked")
    assert result.returncode == 2
    assert "--source has no effect without --check" in result.stderr


@pytest.mark.slow
@NEEDS_BERGAMOT
def test_bergamot_itself_translates_alike(model: LoadedModel, tmp_path: Path) -> None:
    """The weights are random, so choices are close. A first word follows from fewer choices than a line.
    Bergamot aborts at an empty translation."""
    for precision in bergamot.PRECISIONS:
        export(model, "bergamot", tmp_path / precision, precision)
    search = SearchConfig(**bergamot.SEARCH)
    with load(tmp_path / "ours", device="cpu", threads=1, config=TranslateConfig(search=search)) as loaded:
        generated = [line.strip() for line in made_up(loaded.tokenizers.source, 500)]
        pairs = zip(generated, loaded.translate(generated), strict=True)
        lines, ours = zip(*[pair for pair in pairs if all(pair)][:200], strict=True)
    assert len({*ours}) > 20
    exact, rounded = (bergamot.translate(tmp_path / one, [*lines]) for one in bergamot.PRECISIONS)
    assert sum(map(str.__eq__, exact, ours)) >= 196
    first_words = [[line.split()[:1] for line in lines] for lines in (rounded, ours)]
    assert sum(map(list.__eq__, *first_words)) >= 120


@pytest.mark.slow
@NEEDS_BERGAMOT
def test_bergamot_itself_uses_the_shortlist(student: LoadedModel, tmp_path: Path) -> None:
    """Bergamot fills shortlists up to a multiple of 8 tokens, so a few translations differ."""
    student = listing(student)
    assert student.shortlist
    write_shortlist(tmp_path / "ours", student.shortlist, student.identity.tokenizers)
    export(student, "bergamot", tmp_path / "theirs")
    found = {}
    for shortlist in (True, False):
        search = SearchConfig(**bergamot.SEARCH, shortlist=shortlist)
        with load(tmp_path / "ours", device="cpu", config=TranslateConfig(search=search)) as loaded:
            lines = [line.strip() for line in made_up(loaded.tokenizers.source, 200)]
            found[shortlist] = dict(zip(lines, loaded.translate(lines), strict=True))
    lines = [line for line in lines if found[True][line]]
    theirs = bergamot.translate(tmp_path / "theirs", lines)
    alike = {key: sum(map(str.__eq__, theirs, map(ours.get, lines))) for key, ours in found.items()}
    assert alike[True] >= 0.7 * len(lines) > 2 * alike[False]
