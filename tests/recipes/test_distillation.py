"""The distillation recipe: its choice of targets, its table, its settings, and a run on a few pairs."""

import copy
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.config import preset_path, read
from nmt_cli.demo import corpus as grammar
from nmt_cli.training.config import TrainConfig
from nmt_cli.translation.text.consensus import chrf
from recipes.distillation import choose, measure, results
from tests.recipes.conftest import RECIPES, Recipe, text_lines

RECIPE = RECIPES / "distillation"
TEXTS = st.text("abcd |\t\u2028.", max_size=12)
LONGEST = 63
"""Maximum number of characters that the teacher translates at a time."""

SCORES = st.lists(st.floats(-50, 0) | st.just(math.nan), max_size=30)


def similarities(reference: str, hypotheses: Sequence[str]) -> list[float]:
    """Return the chrF of each hypothesis, as minimum Bayes risk computes it."""
    rows = [[*map(ord, "".join(text.split()))] for text in (*hypotheses, reference)]
    return [float(score) for score in chrf(rows)[:-1, -1]]


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=5), st.integers(1, 4))
def test_no_other_hypotheses_are_closer_to_the_reference(
    reference: str, hypotheses: list[str], number: int
) -> None:
    chosen = choose.closest(reference, hypotheses, number)
    assert len(chosen) == number
    candidates = [*dict.fromkeys(text for text in hypotheses if text.strip())]
    if not candidates:
        assert {*chosen} == {""}
    elif not reference.strip():
        assert chosen == [candidates[place % len(candidates)] for place in range(number)]
    else:
        closeness = dict(zip(candidates, similarities(reference, candidates), strict=True))
        highest = sorted(closeness.values(), reverse=True)
        expected = [highest[place % len(highest)] for place in range(number)]
        assert [closeness[text] for text in chosen] == pytest.approx(expected, abs=1e-9)
        assert len({*chosen}) == min(number, len(candidates))


def test_of_equally_close_hypotheses_the_first_is_chosen() -> None:
    assert choose.closest("a dog", ["a cat", "a d og", "a dog", "ad og"], 1) == ["a d og"]
    assert choose.closest("xyz", ["b", "a"], 1) == ["b"]


def test_without_enough_hypotheses_the_best_one_comes_again() -> None:
    assert choose.closest("a dog", ["cat", "a dog", "", "cat"], 3) == ["a dog", "cat", "a dog"]


@given(st.lists(st.lists(TEXTS.filter(lambda text: "\n" not in text), min_size=1, max_size=3), max_size=4))
def test_lists_of_translations_are_read_as_they_were_written(lists: list[list[str]]) -> None:
    lines = [
        f"{number} ||| {text} ||| logprob= -1.5 ||| -0.5"
        for number, texts in enumerate(lists)
        for text in texts
    ]
    assert [*choose.from_n_best(lines)] == lists


@pytest.mark.parametrize("numbers", [(1,), (0, 2), (0, 1, 0)])
def test_lists_of_other_sentences_are_refused(numbers: Sequence[int]) -> None:
    lines = [f"{number} ||| a ||| logprob= -1 ||| -1" for number in numbers]
    with pytest.raises(ValueError, match=rf"'{numbers[-1]} \|\|\| a .* is not a translation of sentence"):
        [*choose.from_n_best(lines)]


@given(SCORES, st.floats(0, 100))
def test_the_worst_scores_and_no_others_are_dropped(values: list[float], percent: float) -> None:
    scores = np.array(values, float)
    keeps = choose.kept(scores, percent)
    missing = np.isnan(scores)
    dropped = ~keeps & ~missing
    assert not keeps[missing].any()
    assert dropped.sum() <= (~missing).sum() * percent / 100
    assert scores[dropped].max(initial=-math.inf) < scores[keeps].min(initial=math.inf)


@given(st.lists(st.floats(-50, 0), unique=True, max_size=30), st.integers(0, 100))
def test_the_share_of_dropped_scores_is_the_percentage(values: list[float], percent: int) -> None:
    kept = choose.kept(np.array(values, float), percent).sum()
    assert kept == len(values) - len(values) * percent // 100


def chosen(folder: Path, *arguments: str, **files: str) -> subprocess.CompletedProcess[str]:
    """Write `files` into a folder, and run choose.py there."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    command = [sys.executable, str(RECIPE / "choose.py"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False)


def test_each_line_gets_its_closest_translation_or_stays_empty(tmp_path: Path) -> None:
    done = chosen(
        tmp_path,
        *("best", "source", "table", "--form", "tsv", "--reference", "reference"),
        source="one\ntwo\n\nfour\nfive",
        table="eine\teins\n\tzwo\tzwei\ndrei\n\nfünf\u2028",
        reference="eins\n\ndrei\nvier\nfünf",
    )
    assert (done.stdout, done.stderr) == ("eins\nzwo\n\n\nfünf\u2028\n", "")


def test_files_of_different_lengths_are_refused_before_output(tmp_path: Path) -> None:
    arguments = ("best", "source", "table", "--form", "tsv")
    done = chosen(tmp_path, *arguments, source="one\ntwo\n", table="eins\n")
    error = "Error: table has 1 lines, but source has more. Make both files from the same text.\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", error)


def test_dropped_pairs_leave_an_empty_line(tmp_path: Path) -> None:
    done = chosen(
        tmp_path,
        *("drop", "source", "targets", "scores", "--percent", "34"),
        source="one\ntwo\na longer line\nfour\n",
        targets="eins\nzwei\nlänger\n\n",
        scores="-4.0\n-9.0\n-14.0\n-99.0\n",
    )
    assert (done.stdout, done.stderr) == ("eins\n\nlänger\n\n", "")


def test_a_share_beyond_100_percent_is_refused(tmp_path: Path) -> None:
    done = chosen(tmp_path, "drop", "source", "targets", "scores", "--percent", "101")
    assert "'101' is not a percentage. Give a number from 0 to 100." in done.stderr


def sections(config: TrainConfig) -> tuple[object, ...]:
    return config.model, config.batch, config.optimizer, config.schedule, config.loss


def test_the_students_of_multi30k_differ_from_the_strong_model_in_their_decoder_only() -> None:
    strong = RECIPES / "multi30k" / "tok" / "tiny-strong.toml"
    with_preset = partial(read, TrainConfig, strong, preset=preset_path("tiny"))
    tiny = with_preset(assignments=["loss.r_drop=0"])
    assert sections(read(TrainConfig, RECIPE / "tok" / "tiny.toml")) == sections(tiny)
    for layers in (1, 2):
        light = [f"model.decoder_layers={layers}", "model.decoder_history=ssru", "loss.r_drop=0"]
        expected = with_preset(assignments=light)
        assert sections(read(TrainConfig, RECIPE / "tok" / f"ssru-{layers}.toml")) == sections(expected)


def test_the_student_in_the_form_of_marian_differs_in_form_and_dropout() -> None:
    plain, marian = (read(TrainConfig, RECIPE / "tok" / f"{name}.toml") for name in ("ssru-1", "marian-1"))
    form = {"norm_epsilon": 1e-6, "positions": "marian", "attention_bias": True, "output_bias": True}
    back = {name: getattr(plain.model, name) for name in (*form, "start", "residual_dropout")}
    assert {name: getattr(marian.model, name) for name in form} == form
    assert sections(replace(marian, model=replace(marian.model, **back))) == sections(plain)


@pytest.mark.parametrize(("name", "encoder"), [("deep-12-1", 12), ("ssru-6-1", 6), ("demo", 2)])
def test_other_students_have_one_decoder_layer(name: str, encoder: int) -> None:
    model = read(TrainConfig, RECIPE / f"{name}.toml").model
    assert (model.encoder_layers, model.decoder_layers) == (encoder, 1)


@pytest.fixture
def result() -> dict[str, Any]:
    """Return a result as the recipe records it."""
    speeds = {"teacher": 100.0, "alone": 400.0, "student": 400.0, "int8": 600.0, "greedy": 1250.4}
    systems = {
        name: {
            **{"models": 2 if name == "teacher" else 1, "beam": 1 if name == "greedy" else 5},
            **{"precision": "fp32", "bytes": 10_449_999, "start_up": 1.234, "processor": "A CPU"},
            **{"lines_per_second": speed, "bleu": {"test_2016.tok": 40.0 + number, "test_2017": 30.0}},
            "p": {"test_2016.tok": None if name == "alone" else 0.01, "test_2017": None},
        }
        for number, (name, speed) in enumerate(speeds.items())
    }
    return {
        **{"student": "tok/ssru-1", "languages": "en-de", "seed": 1, "updates": 4000, "hours": 1.5},
        **{"pairs": {"original": 29000, "distilled": 28000}, "systems": systems, "device": "A GPU"},
        **{"devices": 1, "date": "2030-01-01", "signature": "tok:none|version:2"},
    }


def test_a_table_has_quality_size_and_speed_of_each_system(result: dict[str, Any]) -> None:
    heading, empty, columns, _, *rows = results.table([result]).splitlines()
    assert "29,000 original and 28,000 distilled pairs" in heading and empty == ""
    assert columns.split(" | ")[2:4] == ["BLEU test_2016", "BLEU test_2017"]
    assert rows[0] == "| teacher (2 models) | 5 | 40.00 (p 0.010) | 30.00 | 10.4 | 100 | 1.23 |"
    assert rows[1] == "| student without a teacher | 5 | 41.00 | 30.00 | 10.4 | 400 | 1.23 |"
    assert rows[4] == "| student, int8, greedy | 1 | 44.00 (p 0.010) | 30.00 | 10.4 | 1,250 | 1.23 |"
    assert rows[5:] == [
        "",
        "In int8, the student is 6.0 times as fast as its teacher and loses so much BLEU: "
        "-3.00 (test_2016), 0.00 (test_2017).",
    ]


def test_the_seeds_of_a_student_share_a_table_and_those_of_another_do_not(result: dict[str, Any]) -> None:
    second, other = copy.deepcopy(result), {**result, "student": "tok/zero"}
    second |= {"seed": 2, "hours": 2.5}
    second["systems"]["int8"] |= {
        "bleu": {"test_2016.tok": 45.0, "test_2017": 32.0},
        "lines_per_second": 700.0,
    }
    second["systems"]["engine"] = second["systems"]["greedy"]
    both, alone = results.table([second, other, result]).split("\n`tok/zero`")
    assert both.startswith("`tok/ssru-1`, en-de, seeds 1, 2, 4,000 updates") and "2.00 ± 0.71 h" in both
    assert "| teacher (2 models) | 5 | 40.00 | 30.00 |" in both
    assert "| student, int8 | 5 | 44.00 ± 1.41 | 31.00 ± 1.41 | 10.4 | 650 | 1.23 |" in both
    assert "Bergamot" not in both
    assert "6.5 times" in both and "-4.00 ± 1.41 (test_2016), -1.00 ± 1.41 (test_2017)." in both
    assert alone in results.table([other])


def test_the_summary_has_the_speed_of_the_fastest_student_relative_to_the_teacher(
    result: dict[str, Any],
) -> None:
    origin = "(seed 1; 1.5 h of 1 x A GPU; 2030-01-01)"
    scores = "40.00 teacher; 44.00 student, int8, greedy; 41.00 student without a teacher"
    assert results.score([result]) == f"{scores}. 12.5 x the teacher's sentences per second {origin}"


def test_the_summary_is_of_all_seeds_of_the_newest_student(result: dict[str, Any]) -> None:
    second = copy.deepcopy(result) | {"seed": 2, "date": "2030-01-02"}
    second["systems"]["greedy"]["bleu"]["test_2016.tok"] = 46.0
    summary = results.score([result, second, {**result, "student": "tok/zero"}])
    assert summary.startswith("40.00 teacher; 45.00 ± 1.41 student, int8, greedy; 41.00 student without")
    assert "(seeds 1, 2; 3.0 h of" in summary


def test_systems_that_a_run_does_not_have_are_left_out(result: dict[str, Any]) -> None:
    del result["systems"]["teacher"], result["systems"]["alone"]
    assert [line[:10] for line in results.table([result]).splitlines()[4:]] == ["| student "] + [
        "| student,"
    ] * 2
    assert results.score([result]).startswith("44.00 student, int8, greedy (seed 1;")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with pairs of the demo grammar that are short enough for the teacher."""
    folder = tmp_path_factory.mktemp("distillation") / "text"
    folder.mkdir()
    for name, size in {"train": 25, "valid": 3, "test_a": 4}.items():
        pairs = grammar.corpus(name.partition("_")[0], 500, seed=1)
        short = [pair for pair in pairs if max(len(pair.en), len(pair.de)) < LONGEST][:size]
        for language in ("en", "de"):
            lines = [f"{getattr(pair, language)}\n" for pair in short]
            (folder / f"{name}.{language}").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def student(text: Path, tiny_settings: str) -> Path:
    """Return a settings file of a very small student."""
    path = text.parent / "small.toml"
    path.write_text(f"{tiny_settings}training.max_steps = 2\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def stand_in_commands(text: Path, nmt_script: Path) -> Path:
    """Return a folder with an `nmt` that fails to train if STOP is set, a `bergamot`, and a `python`. That
    does not measure, which takes seconds, but prints its arguments. As the Python of Bergamot it copies."""
    folder = text.parent / "bin"
    folder.mkdir()
    speed = '{"arguments": "%s", "models": 2, "beam": 5, "bytes": 1, "lines_per_second": 1, "start_up": 1}'
    prints = f"printf '{speed}' \"$*\""
    copies_or_runs = f'-I) cat ;;\n*) exec "{sys.executable}" "$@" ;;'
    scripts = {
        "nmt": f'[ "$1" != train ] || [ -z "$STOP" ] || exit 3\nexec "{nmt_script}" "$@"\n',
        "python": f"case $1 in\n*/measure.py) {prints} ;;\n{copies_or_runs}\nesac\n",
        "bergamot": "",
    }
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}", encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


def test_a_measurement_counts_the_weights_of_all_models(text: Path, made_models: Path) -> None:
    model = made_models / "copies"
    measured = measure.measured(text / "test_a.en", [model, model], "fp32", 2, shortlist=False)
    assert measured["models"] == measured["beam"] == 2
    assert measured["bytes"] == 2 * (model / "model.safetensors").stat().st_size
    assert measured["start_up"] > 0 and measured["lines_per_second"] > 0


@pytest.mark.slow
def test_a_stopped_run_is_resumed_up_to_the_table(
    recipe: Recipe, text: Path, student: Path, stand_in_commands: Path, made_models: Path
) -> None:
    out, teacher = text.parent / "main.out", made_models / "copies"
    options = ("-d", text, "-o", out, "-n", 3, "-m", 2, "-c", 10, "-a")
    command = ("distillation", *options, student, "en", "de", teacher, teacher)
    stopped = recipe(*command, FIRST=stand_in_commands, STOP=1)
    assert stopped.returncode == 3, stopped.stderr
    (out / "chunks" / "out.00001").unlink()
    before = {path: path.stat().st_mtime_ns for path in out.glob("c*/out.*")}
    done = recipe(*command, FIRST=stand_in_commands)
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before
    _check_targets(out, text)
    result = json.loads((out / "small-1" / "result.json").read_bytes())
    report = results.table([result])
    assert (out / "small-1" / "report.md").read_text("utf-8") == report and report in done.stdout
    assert [*result["systems"]] == ["teacher", "alone", "student", "int8", "greedy"]
    measured = {name: system["arguments"].split() for name, system in result["systems"].items()}
    whole_vocabulary = ["--shortlist", "false"]
    assert measured["teacher"][2:4] == [str(teacher)] * 2
    assert measured["teacher"][4:] == ["--precision", "fp32", "--beam", "5", *whole_vocabulary]
    model = str(out / "small-1" / "student" / "model")
    assert measured["greedy"][2:] == [model, "--precision", "int8", "--beam", "1", *whole_vocabulary]
    assert result["pairs"] == {"original": 25, "distilled": 50} and result["updates"] == 2
    logs = {name: out / "small-1" / name / "training" / "log.jsonl" for name in ("alone", "student")}
    epochs = {name: json.loads(text_lines(log)[0]).get("corpus_epochs", {}) for name, log in logs.items()}
    assert {name: {*of_corpus} for name, of_corpus in epochs.items()} == {
        "alone": {"original"},
        "student": {"original", "distilled"},
    }
    # There are twice as many distilled pairs, and both kinds come equally often.
    assert epochs["student"]["original"] == pytest.approx(2 * epochs["student"]["distilled"], abs=0.08)
    _check_that_nothing_changes(out, lambda: recipe(*command, FIRST=stand_in_commands).stdout, report)


def _check_that_nothing_changes(out: Path, command: Callable[[], str], printed: str) -> None:
    """Check that a command changes no result below `out`, and that its output has `printed`."""
    paths = [
        path
        for path in out.rglob("*")
        if path.is_file() and path.name not in ("arguments.txt", "corpora.toml")
    ]
    before = {path: path.stat().st_mtime_ns for path in paths}
    assert printed in command()
    assert {path: path.stat().st_mtime_ns for path in paths} == before


def _check_targets(out: Path, text: Path) -> None:
    """Check that each source has two targets, which are translations of it, and the two closest ones to the
    reference."""
    chunks = sorted((out / "chunks").glob("out.*"))
    assert len(chunks) == 3
    lists = [texts for chunk in chunks for texts in choose.from_n_best(text_lines(chunk))]
    references, targets = text_lines(text / "train.de"), text_lines(out / "distilled.de")
    sources = text_lines(text / "train.en")
    assert text_lines(out / "distilled.en") == [source for source in sources for _ in range(2)]
    assert len(lists) == 25 and len(targets) == 50
    pairs = zip(targets[::2], targets[1::2], strict=True)
    for reference, chosen_ones, hypotheses in zip(references, pairs, lists, strict=True):
        scores = similarities(reference, hypotheses)
        chosen_scores = [scores[hypotheses.index(target)] for target in chosen_ones]
        assert chosen_scores == pytest.approx(sorted(scores, reverse=True)[:2])


@pytest.mark.slow
def test_a_table_of_translations_replaces_the_teacher(
    recipe: Recipe, text: Path, student: Path, stand_in_commands: Path, made_models: Path
) -> None:
    table, out = text.parent / "llm.tsv", text.parent / "table"
    english, german = text_lines(text / "train.en"), text_lines(text / "train.de")
    rows = [f"{source}\t{target}\n" for source, target in zip(english, german, strict=True)]
    table.write_text("".join(rows), encoding="utf-8")
    options = ("-d", text, "-o", out, "-m", 1, "-c", 10, "-b", made_models / "copies", "-w", 20)
    command = ("distillation", *options, student, "en", "de", table)
    stopped = recipe(*command, FIRST=stand_in_commands, STOP=1, PREPROCESS="--tokenizer char")
    assert stopped.returncode == 3, stopped.stderr
    targets = text_lines(out / "distilled.de")
    assert [target for target in targets if target] == [
        new for new, old in zip(german, targets, strict=True) if old
    ]
    assert targets.count("") == 5
    scores = [
        float(score) / (len(source) + 1)
        for score, source in zip(text_lines(out / "scores.txt"), english, strict=True)
    ]
    assert {n for n, target in enumerate(targets) if not target} == {*np.argsort(scores)[:5]}
    corpora = json.loads((out / "dataset" / "dataset.json").read_bytes())["splits"]["train"]["corpora"]
    assert [corpus["pairs"] for corpus in corpora] == [25, 20]
    table.write_text("".join(rows[:-1]), encoding="utf-8")
    refused = recipe(*command[:4], text.parent / "short", *command[5:])
    assert "teacher.tsv has 24 lines, but" in refused.stderr and refused.returncode == 1


@pytest.mark.slow
def test_a_table_of_translations_becomes_a_package(
    recipe: Recipe, text: Path, stand_in_commands: Path, tmp_path: Path
) -> None:
    table, settings, out = tmp_path / "table.tsv", tmp_path / "student.toml", tmp_path / "out"
    table.write_text("".join(f"{line}\n" for line in text_lines(text / "train.de")), encoding="utf-8")
    demo = (RECIPE / "demo.toml").read_text("utf-8")
    settings.write_text(demo.replace("max_steps = 600", "max_steps = 2"), encoding="utf-8")
    options, student = ("-d", text, "-o", out), (settings, "en", "de", table)
    variables = {"FIRST": stand_in_commands, "PREPROCESS": "--vocab-size 90"}
    without = recipe("distillation", *options, *student, **variables)
    assert without.returncode == 0, without.stderr
    # The same student is packed later.
    done = recipe("distillation", *options, "-p", "bergamot", *student, **variables)
    assert done.returncode == 0, done.stderr
    run = out / "student-1"
    assert "student in Bergamot" not in without.stdout and "student in Bergamot" in done.stdout
    assert (run / "bergamot" / "lex.ende.s2t.bin").exists()
    assert f"{run / 'bergamot'} is the package for bergamot" in done.stdout
    systems = json.loads((run / "result.json").read_bytes())["systems"]
    assert [*systems] == ["student", "int8", "greedy", "shortlist", "engine"]
    assert systems["shortlist"]["arguments"].endswith("--beam 1 --shortlist true")
    assert systems["engine"]["arguments"].endswith(f"{run / 'bergamot'} --engine bergamot")
    # The stand-in of Bergamot copies its input.
    assert text_lines(run / "engine" / "test_a.de") == text_lines(text / "test_a.en")


@pytest.mark.slow
def test_text_without_references_gets_the_translations_in_their_order(
    recipe: Recipe, text: Path, student: Path, stand_in_commands: Path, tmp_path: Path
) -> None:
    data, out, english = tmp_path / "data", tmp_path / "out", text_lines(text / "train.en")
    shutil.copytree(text, data, ignore=shutil.ignore_patterns("train.de"))
    table = tmp_path / "targets.tsv"
    table.write_text("".join(f"{line[::-1]}\t{line}\n" for line in english), encoding="utf-8")
    command = ("distillation", "-d", data, "-o", out, student, "en", "de", table)
    stopped = recipe(*command, FIRST=stand_in_commands, STOP=1, PREPROCESS="--tokenizer char")
    assert stopped.returncode == 3, stopped.stderr
    # Both columns of the table, the best one first.
    assert text_lines(out / "distilled.de") == [text for line in english for text in (line[::-1], line)]
    corpora = json.loads((out / "dataset" / "dataset.json").read_bytes())["splits"]["train"]["corpora"]
    assert [(corpus["name"], corpus["pairs"]) for corpus in corpora] == [("distilled", 50)]


def test_an_empty_table_is_refused(recipe: Recipe, text: Path, student: Path, tmp_path: Path) -> None:
    (table := tmp_path / "empty.tsv").touch()
    refused = recipe("distillation", "-d", text, "-o", tmp_path / "out", student, "en", "de", table)
    assert "teacher.tsv has 0 lines, but" in refused.stderr and refused.returncode == 1


def test_a_folder_of_another_command_is_refused(
    recipe: Recipe, text: Path, student: Path, tmp_path: Path
) -> None:
    (tmp_path / "teacher").mkdir()
    command = ("distillation", "-d", text, "-o", tmp_path / "out")
    assert "teacher is not a model" in recipe(*command, student, "en", "de", tmp_path / "teacher").stderr
    refused = recipe(*command, "-n", 9, student, "en", "de", tmp_path / "teacher")
    remedy = f"delete {tmp_path / 'out'}, or choose another folder with -o.\n"
    assert "< candidates: 8" in refused.stderr and refused.stderr.endswith(remedy)
    assert refused.returncode == 1
