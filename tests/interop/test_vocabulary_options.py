"""Models with a vocabulary that was fitted: translations are those of transformers with the whole model."""

import random
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch

from nmt_cli.checkpoints.model_folder import LoadedModel, read_model
from nmt_cli.interop.exporting import export
from nmt_cli.interop.foreign import Foreign, ImportOptions, write
from nmt_cli.interop.importing import read
from nmt_cli.interop.vocabulary_options import Comparison, Wishes, fit
from nmt_cli.text.normalize import SPACE_MARK
from tests.interop.conftest import (
    assert_logits_are_theirs,
    generated,
    m2m100_folder,
    sentences,
    translations,
)
from tests.interop.test_m2m100 import tokenizer_of

KEEP = {"nllb": ("eng_Latn", "fra_Latn"), "m2m100": ("en", "fr")}
ADD = {"nllb": {"tyv_Cyrl": "fra_Latn"}, "m2m100": {"tyv": "fr"}}


def text(folder: Path, name: str, lines: list[str]) -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with random models, and texts with a part of their words."""
    folder = tmp_path_factory.mktemp("fitting")
    for kind in KEEP:
        m2m100_folder(folder / kind, kind)
    draw = random.Random(1)
    for name, side in (("mine.en", "source"), ("mine.fr", "target")):
        words = draw.sample(sorted({word for line in sentences(side, 200) for word in line.split()}), 20)
        text(folder, name, [" ".join(draw.choices(words, k=6)) for _ in range(200)])
    letters = {ord(letter): 0x430 + i for i, letter in enumerate("nprstäöeu")}
    text(folder, "mine.tyv", [line.translate(letters) for line in sentences("target", 300)])
    return folder


def fitted(source: Path, wishes: Wishes, *pair: str) -> tuple[Foreign, list[Comparison]]:
    options = ImportOptions(*pair)  # type: ignore[arg-type]
    return fit(read(str(source), wishes.options(options), own=True), wishes, options)


def imported(folder: Path, kind: str, tmp_path: Path, wishes: Wishes) -> LoadedModel:
    foreign, _ = fitted(folder / kind, wishes)
    write(foreign, tmp_path / "model")
    return read_model(tmp_path / "model")


def texts(folder: Path, *names: str) -> tuple[Path, ...]:
    return tuple(folder / name for name in names)


@pytest.fixture(scope="module", params=KEEP)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def trimmed(folder: Path, kind: str, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    wishes = Wishes(KEEP[kind], texts=texts(folder, "mine.en", "mine.fr"))
    return imported(folder, kind, tmp_path_factory.mktemp("trimmed"), wishes)


def their_pieces(
    model: Any, folder: Path, kind: str, lines: list[str], beam: int = 1
) -> list[list[str] | None]:
    """Return the pieces of each line's translation by transformers, or None if it does not end."""
    tokenizer = tokenizer_of(kind, folder)
    code = KEEP[kind][1] if kind == "nllb" else f"__{KEEP[kind][1]}__"
    options = {"forced_bos_token_id": tokenizer.convert_tokens_to_ids(code), "length_penalty": 1.0}
    found: list[list[str] | None] = []
    for start in range(0, len(lines), 200):
        sources = [tokenizer(line).input_ids for line in lines[start : start + 200]]
        out = generated(model, sources, beam, min_new_tokens=7, max_length=40, **options)
        found += [tokenizer.convert_ids_to_tokens(ids) if ids else None for ids, _ in out]
    return found


def test_a_trimmed_model_translates_as_transformers_with_the_whole_model(
    folder: Path, kind: str, trimmed: LoadedModel
) -> None:
    from transformers import M2M100ForConditionalGeneration

    lines = (folder / "mine.en").read_text().splitlines()
    draw = random.Random(3)
    words = sorted({word for line in lines for word in line.split()})
    lines = [" ".join(draw.choices(words, k=1 + i % 7)) for i in range(200)]
    theirs: Any = M2M100ForConditionalGeneration.from_pretrained(folder / kind)
    expected = their_pieces(theirs, folder / kind, kind, lines)
    entries = trimmed.identity.tokenizers.target.vocabulary.entries
    assert len({*entries} - {""}) < 0.85 * len(theirs.model.shared.weight)
    equal = 0
    for translation, pieces in zip(translations(trimmed, lines, 1), expected, strict=True):
        if pieces and {*pieces} <= {*entries}:
            assert [entries[i] for i in translation.candidates[0].parts[0].tokens] == pieces
            equal += 1
    assert equal > 50


def test_sizes_are_printed_before_and_after_and_segmentation_stays(folder: Path, kind: str) -> None:
    foreign, compared = fitted(folder / kind, Wishes(KEEP[kind], texts=texts(folder, "mine.en", "mine.fr")))
    entries, parameters = compared[0], compared[1]
    assert int(entries.after) == len(foreign.tokenizers.target.vocabulary) < int(entries.before)
    rows = int(entries.before) - int(entries.after)
    numbers = [int(count.replace(",", "")) for count in (parameters.before, parameters.after)]
    assert numbers[0] - numbers[1] == rows * foreign.config.width  # one matrix for both sides and the output
    for row in compared[4:]:
        assert row.before == row.after
    assert [row.name for row in compared[4:]] == [
        f"{name}, {path}" for path in ("mine.en", "mine.fr") for name in ("pieces per word", "unknown pieces")
    ]


def test_only_the_kept_languages_are_left(trimmed: LoadedModel, kind: str) -> None:
    languages = trimmed.identity.tokenizers.recipe.own_languages
    assert (*languages.sources,) == (*languages.targets,) == KEEP[kind]
    assert {*languages.symbols} == {*trimmed.identity.tokenizers.recipe.symbols}
    entries = trimmed.identity.tokenizers.target.vocabulary.entries
    assert not {"ace_Arab", "__af__"} & {*entries}


@pytest.fixture(scope="module")
def grown(folder: Path, kind: str) -> tuple[Foreign, Foreign]:
    """Return the whole model, and the model with a language in a new script."""
    new = next(iter(ADD[kind]))
    wishes = Wishes((), ADD[kind], texts(folder, "mine.tyv"), 60)
    options = ImportOptions(KEEP[kind][0], new)
    whole = read(str(folder / kind), wishes.options(options))
    return whole, fit(whole, wishes, options)[0]


def test_a_new_language_starts_as_another_one(grown: tuple[Foreign, Foreign], kind: str) -> None:
    whole, large = grown
    (new, old), recipe = next(iter(ADD[kind].items())), large.tokenizers.recipe
    assert recipe.target_lang == new
    assert new in recipe.own_languages.sources and new in recipe.own_languages.targets
    symbols = recipe.own_languages.targets
    assert recipe.begins == (symbols[KEEP[kind][0]], symbols[new])
    rows = [one.tensors["output_matrix"] for one in (large, whole)]
    ids = [
        one.tokenizers.target.vocabulary.entries.index(symbols[name])
        for one, name in ((large, new), (whole, old))
    ]
    assert torch.equal(rows[0][ids[0]], rows[1][ids[1]])


def test_a_new_piece_starts_as_the_mean_of_its_old_pieces(folder: Path, kind: str) -> None:
    words = [line.replace(" ", "") for line in sentences("source", 150)]
    long = text(folder, "long.en", [f"{word} {word}" for word in words])
    foreign, compared = fitted(folder / kind, Wishes((), {}, (long,), 40), *KEEP[kind])
    whole = read(str(folder / kind), ImportOptions(*KEEP[kind]))
    before, after = (one.tokenizers.target.vocabulary.entries for one in (whole, foreign))
    new = [piece for piece in after if piece not in before]
    assert 5 < len(new) <= 40
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / kind / "sentencepiece.bpe.model"))
    checked = 0
    for piece in new:
        # As a part of a longer text, so that no space is added before it.
        parts = model.encode("a" + piece.replace(SPACE_MARK, " "), out_type=str)
        if parts[0] != f"{SPACE_MARK}a":
            continue  # the first letter merged with "a"
        rows = [whole.tensors["output_matrix"][before.index(part)] for part in parts[1:]]
        row = foreign.tensors["output_matrix"][after.index(piece)]
        torch.testing.assert_close(row, torch.stack(rows).mean(0), rtol=0, atol=1e-6)
        checked += 1
    assert checked > 3
    assert float(compared[4].after) < float(compared[4].before)
    kept = [i for i, piece in enumerate(after) if piece and piece in before]
    old_rows = whole.tensors["output_matrix"][[before.index(after[i]) for i in kept]]
    assert torch.equal(foreign.tensors["output_matrix"][kept], old_rows)


def test_nothing_of_a_new_script_is_unknown(grown: tuple[Foreign, Foreign], folder: Path) -> None:
    whole, large = (one.tokenizers.target for one in grown)
    lines = (folder / "mine.tyv").read_text().splitlines()
    ids = [large.encode(large.prepare(line)) for line in lines]
    assert large.vocabulary.unknown not in {i for line in ids for i in line}
    assert [large.decode(line) for line in ids] == lines
    assert all(whole.vocabulary.unknown in whole.encode(whole.prepare(line)) for line in lines if line)
    # Other programs read the file.
    model = sentencepiece.SentencePieceProcessor(model_proto=large.subwords.files()["model"])
    entries = large.vocabulary.entries
    assert [model.id_to_piece(one) for one in model.encode(lines)] == [
        [entries[i] for i in line if i != large.numbering.symbols[large.begin]] for line in ids
    ]


def test_new_rows_without_old_pieces_are_random_but_the_same_each_time(
    grown: tuple[Foreign, Foreign], folder: Path, kind: str
) -> None:
    again, _ = fit(grown[0], Wishes((), ADD[kind], texts(folder, "mine.tyv"), 60), ImportOptions())
    assert torch.equal(again.tensors["output_matrix"], grown[1].tensors["output_matrix"])
    rows, entries = grown[1].tensors["output_matrix"], grown[1].tokenizers.target.vocabulary.entries
    new = rows[[i for i, entry in enumerate(entries) if entry and ord(entry[-1]) in range(0x430, 0x440)]]
    old = grown[0].tensors["output_matrix"]
    assert len(new) > 8 and not torch.equal(new[0], new[1])
    assert 0.7 < float(new.std() / old.std()) < 1.4
    assert not rows[[i for i, entry in enumerate(entries) if not entry]].any()


def test_transformers_translates_the_export_alike(
    trimmed: LoadedModel, grown: tuple[Foreign, Foreign], folder: Path, tmp_path: Path
) -> None:
    """Both have the same ids and logits, and the import of the export has the same vocabulary."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    write(grown[1], tmp_path / "grown")
    lines = [*sentences("source", 6, seed=9), "abba", "…?! 5"]
    for model, name in ((trimmed, "mine.fr"), (read_model(tmp_path / "grown"), "mine.tyv")):
        export(model, "huggingface", out := tmp_path / f"exported {name}")
        tokenizer: Any = AutoTokenizer.from_pretrained(out)
        theirs: Any = AutoModelForSeq2SeqLM.from_pretrained(out)
        ours = model.identity.tokenizers
        targets = (folder / name).read_text().splitlines()[: len(lines)]
        for line in lines:
            ids = ours.source.encode(ours.source.prepare(line))
            assert [ours.source.vocabulary.entries[i] for i in ids] == tokenizer.tokenize(
                line, add_special_tokens=True
            )[:-1]
        sources = [tokenizer(line).input_ids for line in lines]
        foreign = read(str(out), ImportOptions())
        write(foreign, tmp_path / f"again {name}")
        again = read_model(tmp_path / f"again {name}")
        assert again.identity.tokenizers.recipe.own_languages == ours.recipe.own_languages
        of_targets = [tokenizer(text_target=line).input_ids for line in targets]
        assert_logits_are_theirs(theirs, again, sources, of_targets)
        texts = [one.text for one in translations(model, lines, 4)]
        assert texts == [one.text for one in translations(again, lines, 4)]
