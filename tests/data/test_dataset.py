"""A dataset folder has the documented files, opens without reading them, and reports damage clearly."""

import json
import re
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nmt_cli.data.dataset import (
    Sentences,
    Split,
    open_dataset,
    open_sentences,
    raw_lines,
    side_path,
)
from nmt_cli.errors import UserError
from nmt_cli.text.tokenizer import SIDES, Tokenizer
from nmt_cli.text.tokenizers import load_tokenizers
from tests.checks import refusal
from tests.data.corpora import Digests, Make, Pairs, WritePairs


def test_a_dataset_folder_has_exactly_the_documented_files(toy_dataset: Path) -> None:
    names = {str(path.relative_to(toy_dataset)) for path in toy_dataset.rglob("*") if path.is_file()}
    train = [f"train.{side}.{content}" for side in SIDES for content in ("txt", "lines.npy")]
    valid = [f"dev.{side}.raw.txt" for side in SIDES]
    ids = [
        f"{split}.{side}.{content}.npy"
        for split in ("train", "dev")
        for side in SIDES
        for content in ("tokens", "offsets")
    ]
    tokenizer = ["tokenizer.json", "joint.characters.txt", "joint.vocabulary.txt"]
    expected = [*ids, *train, *valid, *(f"tokenizer/{name}" for name in tokenizer)]
    assert names == {*expected, "dataset.json", "filter-report.json", "filter-report.html"}


def test_the_manifest_lists_every_other_file_with_size_and_hash(toy_dataset: Path, digests: Digests) -> None:
    listed = json.loads((toy_dataset / "dataset.json").read_text())["files"]
    hashes = digests(toy_dataset)
    del hashes["dataset.json"]
    assert {name: entry["sha256"] for name, entry in listed.items()} == hashes
    assert all((toy_dataset / name).stat().st_size == entry["bytes"] for name, entry in listed.items())


def test_the_manifest_describes_inputs_and_outputs(toy_dataset: Path, toy: str) -> None:
    manifest = json.loads((toy_dataset / "dataset.json").read_text())
    assert (manifest["format"], manifest["source_lang"], manifest["target_lang"]) == (1, "en", "de")
    assert manifest["settings"]["tokenizer"]["kind"] == "char"
    train, valid = manifest["inputs"]
    assert (train["role"], train["name"], train["pairs"]) == ("train", "toy", 300)
    assert [file["path"] for file in train["files"]] == [f"{toy}.en", f"{toy}.de"]
    assert (valid["role"], valid["name"], valid["pairs"]) == ("valid", "dev", 20)
    assert manifest["tokenizer"]["fingerprint"] == load_tokenizers(toy_dataset / "tokenizer").fingerprint


def test_tokens_decode_back_to_the_text(toy_dataset: Path, toy_pairs: Pairs) -> None:
    dataset = open_dataset(toy_dataset)
    tokenizers = load_tokenizers(toy_dataset / "tokenizer")
    train = dataset.splits["train"]
    decoded = zip(
        decode(train.source, tokenizers.source), decode(train.target, tokenizers.target), strict=True
    )
    assert list(decoded) == list(toy_pairs)


@pytest.mark.parametrize("name", ["train", "dev"])
def test_every_sentence_has_one_end_token_and_offsets_cover_all_tokens(toy_dataset: Path, name: str) -> None:
    dataset = open_dataset(toy_dataset)
    split, described = dataset.splits[name], dataset.manifest["splits"][name]
    assert len(split) == described["pairs"]
    for side, sentences in zip(SIDES, (split.source, split.target), strict=True):
        assert sentences.tokens.dtype == np.uint16
        assert sentences.offsets.dtype == np.int64
        assert len(sentences) == len(split)
        assert sentences.offsets[0] == 0
        assert sentences.offsets[-1] == len(sentences.tokens) == described[f"{side}_tokens"]
        assert (np.flatnonzero(sentences.tokens == 0) == sentences.offsets[1:] - 1).all()


def test_roles_names_and_order_of_the_splits_are_kept(toy_dataset: Path) -> None:
    splits = open_dataset(toy_dataset).splits
    assert [(split.name, split.role) for split in splits.values()] == [("train", "train"), ("dev", "valid")]


@pytest.mark.parametrize(("words", "dtype"), [(65_528, np.uint16), (65_537, np.uint32)])
def test_ids_are_stored_in_the_smallest_type_that_holds_the_vocabulary(
    tmp_path: Path, write_pairs: WritePairs, make: Make, words: int, dtype: type[np.integer]
) -> None:
    lines = [" ".join(f"w{n}" for n in range(i, min(i + 200, words))) for i in range(0, words, 200)]
    corpus = write_pairs(tmp_path / "words", [(line, line) for line in lines])
    assignments = ("tokenizer.kind=word", "tokenizer.vocab_size=100000", "text.words=raw")
    make(tmp_path / "out", [corpus], *assignments, "filter.max_subwords=0")
    tokens = open_dataset(tmp_path / "out").splits["train"].source.tokens
    assert tokens.dtype == dtype
    assert len(set(tokens.tolist())) == words + 1


def test_opening_maps_a_dataset_of_millions_of_pairs_without_reading_it(tmp_path: Path) -> None:
    pairs, tokens = 36_000_000, 900_000_000
    for side in SIDES:
        for content, dtype, length in (("tokens", np.uint16, tokens), ("offsets", np.int64, pairs + 1)):
            path = side_path(tmp_path, "train", side, f"{content}.npy")
            np.lib.format.open_memmap(
                path, "w+", dtype, (length,)
            )  # a sparse file, which takes no disk space
    files = {path.name: {"bytes": path.stat().st_size, "sha256": ""} for path in tmp_path.iterdir()}
    manifest = {"format": 1, "splits": {"train": {"role": "train"}}, "files": files}
    (tmp_path / "dataset.json").write_text(json.dumps(manifest))
    tracemalloc.start()
    train = open_dataset(tmp_path).splits["train"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(train) == pairs
    assert all(isinstance(array, np.memmap) for array in arrays(train))
    assert peak < 1 << 20


def without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def with_bytes(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def with_manifest(changes: dict[str, object]) -> Callable[[Path], object]:
    return with_bytes("dataset.json", lambda old: json.dumps(json.loads(old) | changes).encode())


MANIFESTS: list[dict[str, object]] = [
    {"files": {"/etc/passwd": {"bytes": 1, "sha256": "0"}}},
    {"files": {"train.source.txt": {"bytes": None, "sha256": "0"}}},
    {"files": []},
    {"splits": {}},
    {"splits": {"train": {"role": 3}}},
    {"splits": {"train": None}},
]
"""Entries that make a manifest invalid."""

DAMAGE = {
    "a missing file": (without("train.target.tokens.npy"), "train.target.tokens.npy is missing"),
    "a missing text": (without("train.source.txt"), "train.source.txt is missing"),
    "no manifest": (without("dataset.json"), "is not a dataset folder because it has no dataset.json"),
    "a cut file": (
        with_bytes("dev.source.tokens.npy", lambda old: old[:-1]),
        r"dev.source.tokens.npy has [\d,]+ bytes, but [\d,]+ were written",
    ),
    "a longer file": (
        with_bytes("dev.target.raw.txt", lambda old: old + b"x"),
        r"dev.target.raw.txt has [\d,]+ bytes, but [\d,]+ were written",
    ),
    "a cut manifest": (with_bytes("dataset.json", lambda old: old[:100]), "dataset.json is damaged"),
    "an empty manifest": (with_bytes("dataset.json", lambda old: b""), "dataset.json is damaged"),
    "a binary manifest": (with_bytes("dataset.json", lambda old: b"\xff\x00"), "dataset.json is damaged"),
    "a foreign manifest": (
        with_bytes("dataset.json", lambda old: b"[1]"),
        "dataset.json does not have format 1",
    ),
    "a newer manifest": (
        with_bytes("dataset.json", lambda old: b'{"format": 2}'),
        "dataset.json does not have format 1",
    ),
    "a bare manifest": (with_bytes("dataset.json", lambda old: b'{"format": 1}'), "dataset.json is damaged"),
    **{f"a manifest with {each}": (with_manifest(each), "dataset.json is damaged") for each in MANIFESTS},
    "a header of nonsense": (
        with_bytes("train.source.offsets.npy", lambda old: b"x" * len(old)),
        "train.source.offsets.npy is damaged",
    ),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_dataset_is_an_error_of_one_line(
    tmp_path: Path, toy_dataset: Path, damage: Callable[[Path], object], message: str
) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(toy_dataset, folder)
    damage(folder)
    assert re.search(message, refusal(open_dataset, folder))


def arrays(split: Split) -> list[object]:
    return [array for side in (split.source, split.target) for array in (side.tokens, side.offsets)]


def decode(sentences: Sentences, tokenizer: Tokenizer) -> list[str]:
    extents = zip(sentences.offsets, sentences.offsets[1:] - 1, strict=False)
    return [tokenizer.decode(sentences.tokens[start:end].tolist()) for start, end in extents]


@pytest.mark.parametrize(
    "header",
    [
        *(
            b"{'descr': '<u2', 'fortran_order': False, 'shape': (3,",
            b"{'descr': 0, }",
            b"{" * 118,
            b"(" * 118,
        ),
        b"{'descr': '<U9', 'fortran_order': False, 'shape': (0,), }",
        b"{'descr': '<u2', 'fortran_order': False, 'shape': (0, 2), }",
    ],
    ids=str,
)
def test_an_array_with_a_damaged_header_is_a_plain_error(tmp_path: Path, header: bytes) -> None:
    path = side_path(tmp_path, "train", "source", "tokens.npy")
    np.save(side_path(tmp_path, "train", "source", "offsets.npy"), np.zeros(1, np.int64))
    path.write_bytes(b"\x93NUMPY\x01\x00\x76\x00" + header.ljust(117) + b"\n")
    with pytest.raises(UserError, match=r"tokens\.npy (is damaged|holds \d axes)"):
        open_sentences(tmp_path, "train", "source")


def test_a_zip_archive_is_not_an_array(tmp_path: Path) -> None:
    path = side_path(tmp_path, "train", "source", "tokens.npy")
    with path.open("wb") as file:
        np.savez(file, np.zeros(3, np.uint16))
    with pytest.raises(UserError, match=r"tokens\.npy is damaged"):
        open_sentences(tmp_path, "train", "source")


def test_too_few_raw_lines_are_a_plain_error(toy_dataset: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dataset"
    shutil.copytree(toy_dataset, folder)
    dataset = open_dataset(folder)
    side_path(folder, "dev", "source", "raw.txt").write_bytes(b"one\n")
    with pytest.raises(UserError, match=r"dev\.source\.raw\.txt has 1 lines, but 20 were encoded"):
        raw_lines(dataset, dataset.splits["dev"], "source")
