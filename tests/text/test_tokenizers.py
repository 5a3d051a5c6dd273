"""The tokenisers of both languages restore any text, and load from a folder unchanged."""

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nmt_cli.text.config import TextConfig, TokenizerConfig
from nmt_cli.text.tokenizer import SIDES, Side, Tokenizer
from nmt_cli.text.tokenizers import (
    DESCRIPTION,
    Preparer,
    Recipe,
    Tokenizers,
    learn_tokenizers,
    load_tokenizers,
)
from nmt_cli.text.vocabulary import NEW_MARKS as MARKS
from tests.checks import refusal
from tests.text.rare import too_rare

SYMBOLS = ("<2de>", "<BT>")
MARKED = [
    "</s>",
    "<unk>",
    "<s>",
    "@@",
    "low@@",
    "</w>",
    "er</w>",
    "\u2581",
    "a\u2581b",
    "\u2047",
    "\u2585",
    "<0x41>",
    "<2de>.",
]
ODD = ["DOTMULTI", "...", "&amp;", "@-@", "'", "\u0301", "\u200b", "\ufeff", "字", "\x00", *SYMBOLS]
SYLLABLES: dict[Side, list[str]] = {
    "source": [consonant + vowel for consonant in "bdfghlm" for vowel in "aeio"],
    "target": [consonant + vowel for consonant in "nprstwz" for vowel in "aeäöü"],
}
LEXICON: dict[Side, list[str]] = {
    side: ["".join(random.Random(seed).choices(SYLLABLES[side], k=1 + seed % 4)) for seed in range(200)]
    for side in SIDES
}

KINDS: dict[str, dict[str, Any]] = {
    "unigram": {"kind": "sentencepiece"},
    "sentencepiece-bpe": {"kind": "sentencepiece", "sentencepiece_model": "bpe"},
    "bpe": {"kind": "bpe"},
    "char": {"kind": "char"},
    "word": {"kind": "word"},
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in KINDS},
    **{f"{name}, with symbols": (name, {"symbols": SYMBOLS}) for name in KINDS},
    **{f"{name}, rare ones split": (name, {"rare": 30}) for name in list(KINDS)[:3]},
    **{f"{name}, of Moses words": (name, {"words": "moses", "symbols": SYMBOLS}) for name in ("bpe", "word")},
}


@cache
def raw_lines(side: Side) -> list[str]:
    chosen = random.Random(side)
    weights = range(200, 0, -1)
    return [
        " ".join(chosen.choices(LEXICON[side], weights, k=6) + chosen.choices(MARKED, k=1))
        for _ in range(200)
    ]


def sample(recipe: Recipe) -> dict[Side, list[str]]:
    prepare = Preparer(recipe)
    return {side: [prepare(side, line) for line in raw_lines(side)] for side in SIDES}


@cache
def learnt(variant: str, byte_fallback: bool = False, joint: bool = True) -> Tokenizers:
    """Learn 90 entries and the bytes. For words learn 900, enough for all words."""
    name, options = VARIANTS[variant]
    words = options.get("words", "raw")
    config = TokenizerConfig(
        vocab_size=(900 if name == "word" else 90) + 256 * byte_fallback,
        byte_fallback=byte_fallback,
        joint=joint,
        **KINDS[name],
        **{key: value for key, value in options.items() if key not in ("words", "rare")},
    )
    recipe = Recipe(
        config.kind, joint, "en", "de", TextConfig(words=words), config.symbols, config.byte_fallback
    )
    tokenizers = learn_tokenizers(recipe, config, sample(recipe))
    return of_an_older_version(tokenizers, options["rare"]) if "rare" in options else tokenizers


def of_an_older_version(tokenizers: Tokenizers, min_count: int) -> Tokenizers:
    """Return the tokenisers as an older version learned them: they split pieces that are rarer on a side."""
    lines, sides = sample(tokenizers.recipe), {side: tokenizers.side(side) for side in SIDES}
    rare = {
        side: [one.numbering.ids[piece] for piece in too_rare(one.subwords, lines[side], min_count)]
        for side, one in sides.items()
    }
    with TemporaryDirectory() as folder:
        tokenizers.save(Path(folder, "tokenizer"))
        description = Path(folder, "tokenizer", DESCRIPTION)
        content = json.loads(description.read_text(encoding="utf-8")) | {"too_rare": rare}
        description.write_text(json.dumps(content), encoding="utf-8")
        return load_tokenizers(description.parent)


def assert_comes_back(tokenizer: Tokenizer, raw: str) -> None:
    text = tokenizer.prepare(raw)
    ids = tokenizer.encode(text)
    symbols = range(len(MARKS), len(MARKS) + len(tokenizer.symbols))
    assert tokenizer.decode(ids) == text
    assert not set(ids).intersection(range(len(MARKS)))
    assert sum(i in symbols for i in ids) == sum(word in tokenizer.symbols for word in text.split())
    assert all(i < len(tokenizer.vocabulary.entries) for i in ids)


TEXTS = st.one_of(
    st.text(), st.lists(st.sampled_from([*MARKED, *ODD, "ba", "a", " "]) | st.text()).map("".join)
)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@example(raw=" ".join([*MARKED, *ODD]))
@given(raw=TEXTS)
def test_with_bytes_any_normalised_text_comes_back(variant: str, raw: str) -> None:
    assert_comes_back(learnt(variant, byte_fallback=True).source, raw)


COVERED = sorted(set("".join(line for side in SIDES for line in raw_lines(side))))


@pytest.mark.parametrize("variant", [name for name in VARIANTS if not name.startswith("word")])
@given(
    raw=st.text(st.sampled_from(COVERED))
    | st.lists(st.sampled_from([*MARKED, *LEXICON["target"]])).map(" ".join)
)
def test_without_bytes_text_of_covered_characters_comes_back(variant: str, raw: str) -> None:
    assert_comes_back(learnt(variant).source, raw)


@given(words=st.lists(st.sampled_from(raw_lines("source")[0].split() + raw_lines("target")[1].split())))
def test_without_bytes_text_of_covered_words_comes_back(words: list[str]) -> None:
    assert_comes_back(learnt("word").source, " ".join(words))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_the_text_learnt_from_has_no_unknowns_on_either_side(variant: str, byte_fallback: bool) -> None:
    tokenizers = learnt(variant, byte_fallback)
    for side in SIDES:
        for line in raw_lines(side):
            assert_comes_back(tokenizers.side(side), line)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_joint_vocabulary_is_shared_and_separate_ones_cover_their_side(variant: str) -> None:
    joint, separate = learnt(variant), learnt(variant, joint=False)
    assert joint.source.vocabulary.entries == joint.target.vocabulary.entries
    assert separate.source.vocabulary.entries != separate.target.vocabulary.entries
    assert not any("ü" in entry for entry in separate.source.vocabulary.entries)
    for side in SIDES:
        for line in raw_lines(side)[:50]:
            assert_comes_back(separate.side(side), line)


def test_each_side_splits_its_rare_pieces() -> None:
    plain, split = learnt("bpe"), learnt("bpe, rare ones split")
    text = " ".join(SYLLABLES["target"])
    assert plain.source.encode(text) == plain.target.encode(text)
    assert len(split.source.encode(text)) > len(split.target.encode(text))
    assert split.source.decode(split.source.encode(text)) == text


@pytest.mark.parametrize("joint", [True, False], ids=["joint", "separate"])
@pytest.mark.parametrize("byte_fallback", [True, False], ids=["bytes", "plain"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_saved_folder_gives_the_same_tokenisers(
    tmp_path: Path, variant: str, byte_fallback: bool, joint: bool
) -> None:
    tokenizers = learnt(variant, byte_fallback, joint)
    tokenizers.save(tmp_path / "folder")
    again = load_tokenizers(tmp_path / "folder")
    assert again.recipe == tokenizers.recipe
    assert again.fingerprint == tokenizers.fingerprint
    assert again.files == tokenizers.files
    for side in SIDES:
        ours, theirs = tokenizers.side(side), again.side(side)
        assert ours.vocabulary == theirs.vocabulary
        listed = (tmp_path / "folder" / f"{'joint' if joint else side}.vocabulary.txt").read_text("utf-8")
        assert listed == "".join(f"{entry}\n" for entry in ours.vocabulary.entries)
        for raw in [*raw_lines(side)[:30], "neue Wörter: balo, wüta! <2de> </s>"]:
            text = ours.prepare(raw)
            assert theirs.prepare(raw) == text
            assert theirs.encode(text) == ours.encode(text)
            assert theirs.decode(ours.encode(text)) == ours.decode(ours.encode(text))


def test_fingerprints_differ_between_tokenisers() -> None:
    tokenizers = [
        learnt(variant, bytes_, joint)
        for variant in VARIANTS
        for bytes_ in (False, True)
        for joint in (False, True)
    ]
    assert len({tokenizers.fingerprint for tokenizers in tokenizers}) == len(tokenizers)


MODEL_FILES = [
    *(("unigram", file) for file in (DESCRIPTION, "joint.model")),
    *(("bpe", file) for file in (DESCRIPTION, "joint.codes", "joint.characters.txt")),
    ("char", "joint.characters.txt"),
    ("word", "joint.words.txt"),
]


DAMAGES: dict[str, Callable[[bytes], bytes] | None] = {
    "emptied": lambda content: b"",
    "cut in two": lambda content: content[: len(content) // 2],
    "not text": lambda content: b"\xff\xfe\xff" + content,
    "missing": None,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize(("variant", "file"), MODEL_FILES)
def test_a_damaged_or_missing_file_of_a_folder_is_a_readable_error(
    tmp_path: Path, variant: str, file: str, damage: Callable[[bytes], bytes] | None
) -> None:
    folder = tmp_path / "folder"
    learnt(variant).save(folder)
    if damage:
        (folder / file).write_bytes(damage((folder / file).read_bytes()))
    else:
        (folder / file).unlink()
    assert str(folder if damage else folder / file) in refusal(load_tokenizers, folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", 2),
        ("format", None),
        ("kind", "morphemes"),
        ("text", {"unicode": "nfx"}),
        ("text", {"colour": "red"}),
        ("text", None),
        ("symbols", None),
        ("files", ["nothing"]),
        ("files", ["codes", "/../../secret"]),
        ("files", [["codes"]]),
        ("too_rare", {"source": []}),
        ("source_lang", 3),
        ("target_lang", None),
        ("joint", "yes"),
    ],
)
def test_a_description_with_wrong_values_is_a_readable_error(tmp_path: Path, key: str, value: object) -> None:
    folder = tmp_path / "folder"
    learnt("bpe").save(folder)
    description = json.loads((folder / DESCRIPTION).read_bytes())
    (folder / DESCRIPTION).write_text(json.dumps(description | {key: value}))
    assert str(folder) in refusal(load_tokenizers, folder)


def test_a_folder_without_tokenisers_is_named(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert str(folder / DESCRIPTION) in refusal(load_tokenizers, folder)


def test_preparing_before_and_after_learning_is_the_same() -> None:
    tokenizers = learnt("bpe, of Moses words")
    prepare = Preparer(tokenizers.recipe)
    for side in SIDES:
        for raw in ["It's <2de> new, isn't it?", "a\x00\u00a0b <BT>", *raw_lines(side)[:20]]:
            assert prepare(side, raw) == tokenizers.side(side).prepare(raw)


def test_only_bpe_and_word_split_words_by_default() -> None:
    split = {
        kind: Recipe(kind, True, "en", "de", TextConfig()).moses("source") is not None
        for kind in ("sentencepiece", "bpe", "char", "word")
    }
    assert split == {"sentencepiece": False, "bpe": True, "char": False, "word": True}


def test_a_character_outside_the_vocabulary_is_unknown_without_bytes() -> None:
    for name in KINDS:
        tokenizer = learnt(name).source
        assert tokenizer.encode("字").count(tokenizer.vocabulary.unknown) == 1
        assert "\u2047" in tokenizer.decode(tokenizer.encode("字"))
