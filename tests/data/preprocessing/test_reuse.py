"""A tokenizer is reused from a dataset folder, or built from files."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nmt_cli.data.dataset import open_dataset
from nmt_cli.errors import UserError
from nmt_cli.text.tokenizers import load_tokenizers
from tests.data.corpora import Make

Learned = Callable[..., Path]

SIZES = {"sentencepiece": 48, "bpe": 60, "char": 64, "word": 400}


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory, make: Make, toy: str) -> Learned:
    """Return a function that makes a dataset of `toy` with a kind of tokenizer, once per module."""
    folder = tmp_path_factory.mktemp("learned")

    def dataset(kind: str, joint: bool = True) -> Path:
        out = folder / f"{kind}-{joint}"
        settings = (f"tokenizer.kind={kind}", f"tokenizer.vocab_size={SIZES[kind]}")
        if not out.exists():
            make(out, [toy], *settings, f"tokenizer.joint={str(joint).lower()}", "text.lowercase=true")
        return out

    return dataset


def pieces(folder: Path) -> list[str]:
    """Return the vocabulary entries of all tokens on both sides of the training set."""
    train, tokenizers = open_dataset(folder).splits["train"], load_tokenizers(folder / "tokenizer")
    sides = ((train.source, tokenizers.source), (train.target, tokenizers.target))
    return [tokenizer.vocabulary.entries[i] for side, tokenizer in sides for i in side.tokens.tolist()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("joint", [True, False], ids=["joint", "separate"])
def test_a_dataset_folder_provides_its_tokenizer_with_all_settings(
    tmp_path: Path, make: Make, learned: Learned, toy: str, dev: str, kind: str, joint: bool
) -> None:
    reused_dataset = learned(kind, joint)
    make(tmp_path / "out", [toy], valid=[dev], reuse=reused_dataset)
    for path in (reused_dataset / "tokenizer").iterdir():
        assert (tmp_path / "out" / "tokenizer" / path.name).read_bytes() == path.read_bytes()
    for name in ("train.source.tokens.npy", "train.target.tokens.npy", "train.source.txt"):
        assert (tmp_path / "out" / name).read_bytes() == (reused_dataset / name).read_bytes()


@pytest.mark.parametrize(("kind", "ending"), [("sentencepiece", "model"), ("bpe", "codes")])
@pytest.mark.parametrize("joint", [True, False], ids=["joint", "separate"])
def test_subword_files_give_the_same_segmentation(
    tmp_path: Path, make: Make, learned: Learned, toy: str, kind: str, ending: str, joint: bool
) -> None:
    reused_dataset = learned(kind, joint)
    names = ["joint"] if joint else ["source", "target"]
    for name in names:
        shutil.copy(reused_dataset / "tokenizer" / f"{name}.{ending}", tmp_path / f"{name}.any")
    files = ":".join(str(tmp_path / f"{name}.any") for name in names)
    make(tmp_path / "out", [toy], "text.lowercase=true", reuse=files)
    recipe = load_tokenizers(tmp_path / "out" / "tokenizer").recipe
    assert (recipe.kind, recipe.joint) == (kind, joint)
    assert pieces(tmp_path / "out") == pieces(reused_dataset)


def test_another_tokenizer_is_a_named_difference(
    tmp_path: Path, make: Make, learned: Learned, toy: str
) -> None:
    make(tmp_path / "out", [toy], reuse=learned("char"))
    with pytest.raises(UserError, match=r"reused tokeniser: \w+ -> \w+"):
        make(tmp_path / "out", [toy], reuse=learned("word"))
    assert make(tmp_path / "out", [toy], reuse=learned("char")).report is None


BY_ALL = ("tokenizer.joint=false", "tokenizer.vocab_size=100")
BY_FOLDER = (
    *BY_ALL,
    "tokenizer.kind=bpe",
    'tokenizer.symbols=["<BT>"]',
    "text.unicode=nfkc",
    "text.words=moses",
)
BY_FILE = (*BY_ALL, "tokenizer.kind=char")


@pytest.mark.parametrize(
    ("kind", "file", "assignments"),
    [("char", "", BY_FOLDER), ("sentencepiece", "joint.model", BY_FILE), ("bpe", "joint.codes", BY_FILE)],
)
def test_settings_that_the_reused_folder_or_file_decides_are_refused(
    tmp_path: Path, make: Make, learned: Learned, toy: str, kind: str, file: str, assignments: Sequence[str]
) -> None:
    reused = learned(kind) / "tokenizer" / file if file else learned(kind)
    for assignment in assignments:
        name = assignment.partition("=")[0]
        with pytest.raises(UserError, match=rf"{name} has no effect because .* decides it"):
            make(tmp_path / "out", [toy], assignment, reuse=reused)


def test_terms_need_one_file(tmp_path: Path, make: Make, learned: Learned, toy: str) -> None:
    codes = learned("bpe") / "tokenizer" / "joint.codes"
    with pytest.raises(UserError, match=r"tokenizer\.terms needs one vocabulary, not .*Remove the setting"):
        make(tmp_path / "out", [toy], "tokenizer.terms=true", reuse=f"{codes}:{codes}")


def test_unusable_files_are_named(tmp_path: Path, make: Make, learned: Learned, toy: str) -> None:
    model = learned("sentencepiece") / "tokenizer" / "joint.model"
    codes = learned("bpe") / "tokenizer" / "joint.codes"
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("just text\n")
    (tmp_path / "codes").write_text("#version: 0.2\na b c\n")
    (tmp_path / "old").write_text("#version: 0.1\na b\n")
    (tmp_path / "bare").write_text("a b\n")
    refused = {
        tmp_path / "none": "none can't be read: No such file",
        tmp_path / "empty": "empty has no tokenizer.json",
        tmp_path / "text": "text: this is not a SentencePiece model",
        tmp_path / "bare": "bare: this is not a Sent.* Codes of subword-nmt must begin with '#version: 0.2'.",
        tmp_path / "codes": "codes: .*line 2 of the codes is 'a b c'",
        tmp_path / "old": "old: .*must start with '#version: 0.2'",
        f"{model}:{codes}": "are of different kinds",
    }
    for reuse, message in refused.items():
        with pytest.raises(UserError, match=message):
            make(tmp_path / "out", [toy], reuse=reuse)
        assert not (tmp_path / "out").exists()


def test_a_tokenizer_for_other_languages_is_refused(
    tmp_path: Path, make: Make, learned: Learned, toy: str
) -> None:
    shutil.copytree(learned("char"), tmp_path / "reused_dataset")
    description = tmp_path / "reused_dataset" / "tokenizer" / "tokenizer.json"
    description.write_text(description.read_text().replace('"source_lang": "en"', '"source_lang": "fr"'))
    (tmp_path / "reused_dataset" / "dataset.json").unlink()  # it has the fingerprint
    with pytest.raises(UserError, match=r"is for fr-de, not for en-de"):
        make(tmp_path / "out", [toy], reuse=tmp_path / "reused_dataset")


@pytest.mark.parametrize("reused", ["dataset", "tokenizer", "tokenizer/joint.codes"])
def test_a_changed_tokenizer_is_refused(
    tmp_path: Path, make: Make, learned: Learned, toy: str, reused: str
) -> None:
    reused_dataset = tmp_path / "reused_dataset"
    shutil.copytree(learned("bpe"), reused_dataset)
    description = reused_dataset / "tokenizer" / "tokenizer.json"
    description.write_text(description.read_text().replace('"lowercase": true', '"lowercase": false'))
    with pytest.raises(UserError, match=r"is not the tokenizer that .*dataset\.json names"):
        make(
            tmp_path / "out", [toy], reuse=reused_dataset if reused == "dataset" else reused_dataset / reused
        )


def test_the_name_of_a_file_may_contain_a_colon(
    tmp_path: Path, make: Make, learned: Learned, toy: str
) -> None:
    (tmp_path / "x:y").mkdir()
    model = shutil.copy(learned("sentencepiece") / "tokenizer" / "joint.model", tmp_path / "x:y" / "m.model")
    make(tmp_path / "out", [toy], "text.lowercase=true", reuse=model)
    assert load_tokenizers(tmp_path / "out" / "tokenizer").recipe.joint
