"""`nmt translate`: output, settings and errors."""

import gzip
import importlib
import io
import json
import random
import re
import shutil
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nmt_cli.api import load
from nmt_cli.checkpoints.verified_files import write_description
from nmt_cli.cli.reports.translation_output import TranslationReporter, as_json, as_text
from nmt_cli.decoding.config import TranslateConfig
from nmt_cli.decoding.search.hypotheses import Sentence
from nmt_cli.errors import UserError
from nmt_cli.runtime.processes import StartMethod
from nmt_cli.text.config import TextConfig
from nmt_cli.text.vocabulary import Numbering
from nmt_cli.translation.checks.output_checks import Flag
from nmt_cli.translation.lines import Candidate, Line, Translation
from nmt_cli.translation.workers import pool as workers
from nmt_cli.translation.workers.worker import Load
from tests.cli.conftest import Nmt, assert_one_line


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text("abc\nde\n")
    return path


@pytest.fixture
def run(nmt: Nmt, made_models: Path, text: Path) -> Nmt:
    """Run `nmt translate` with a model that copies on the CPU, in this process and one thread."""
    return lambda *arguments: nmt(
        *("translate", made_models / "copies", "--input", text, "--device", "cpu", "--threads", "1"),
        *arguments,
    )


def test_translations_go_to_stdout_and_the_rest_to_stderr_except_with_quiet(run: Nmt) -> None:
    loud, quiet = run(), run("--quiet")
    assert (loud.returncode, loud.stdout) == (0, "abc\nde\n")
    assert re.fullmatch(r"2 lines in .* lines/s\n", loud.stderr)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "abc\nde\n", "")


def test_an_option_chooses_the_target_language(nmt: Nmt, made_models: Path, text: Path) -> None:
    command = ("translate", made_models / "tagged", "--input", text, "--device", "cpu", "--threads", "1")
    french = nmt(*command, "--source-lang", "en", "--target-lang", "FR", "--quiet")
    assert (french.returncode, french.stdout, french.stderr) == (0, "<2fr> abc\n<2fr> de\n", "")
    without = nmt(*command)
    assert without.stdout == "abc\nde\n"
    hint = (
        "tagged translates into de, fr, es. Choose one with --target-lang, or begin each line with its symbol"
    )
    assert hint in without.stderr.splitlines()[0]


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("tagged", ("--target-lang", "german"), "does not translate into german: did you mean de?"),
        ("tagged", ("--target-lang", "ja"), "does not translate into ja: it has de, fr, es."),
        ("copies", ("--target-lang", "fr"), "copies: the model does not translate into fr: it has de."),
        ("copies", ("--source-lang", "fr"), "copies: the model does not translate from fr: it has en."),
    ],
)
def test_an_unknown_language_is_refused_before_the_model_is_loaded(
    nmt: Nmt,
    made_models: Path,
    text: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    options: Sequence[str],
    message: str,
) -> None:
    monkeypatch.setattr("nmt_cli.api.load", lambda *_, **__: pytest.fail("loaded"))
    result = nmt("translate", made_models / model, "--input", text, *options)
    assert_one_line(result, 1, message)


def test_an_empty_language_is_refused(run: Nmt) -> None:
    assert_one_line(run("--target-lang", ""), 2, "--target-lang")


def test_a_model_of_one_pair_takes_its_languages(run: Nmt) -> None:
    assert run("--source-lang", "en-GB", "--target-lang", "deu", "--quiet").stdout == "abc\nde\n"


@pytest.mark.usefixtures("cramped")
def test_a_line_that_does_not_fit_into_memory_makes_the_command_fail(run: Nmt) -> None:
    result = run("--quiet")
    assert (result.returncode, result.stdout) == (1, "\nde\n")
    assert "Error: 1 of 2 lines did not fit into memory and have empty translations: line 1." in (
        result.stderr
    )


def test_a_line_on_stdin_that_is_too_long_makes_the_command_fail(
    nmt: Nmt, made_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = importlib.import_module("nmt_cli.cli.commands.translate")
    monkeypatch.setattr(command, "LONGEST_HELD", 10)
    text = io.BytesIO(b"abc\n" + b"x" * 50 + b"\nde\n")
    monkeypatch.setattr(command, "_reader", lambda file: lambda most: text.read(8))
    result = nmt("translate", made_models / "copies", "--device", "cpu", "--quiet")
    assert (result.returncode, result.stdout) == (1, "abc\n\nde\n")
    assert result.stderr.startswith("Error: line 2 is longer than 10 bytes, the limit on stdin.")


def test_a_dash_is_stdin_and_stdout(
    run: Nmt, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with text.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        result = run("--input", "-", "--output", "-", "--quiet")
    assert (result.returncode, result.stdout, result.stderr) == (0, "abc\nde\n", "")
    assert run("--output", "./-", "--quiet").stdout == ""
    assert Path("-").read_text() == "abc\nde\n"


@pytest.mark.parametrize("name", ["text.gz", "text.tsv.gz"])
def test_all_lines_before_damage_are_translated(run: Nmt, tmp_path: Path, name: str) -> None:
    chosen = random.Random(1)
    content = "".join(f"{''.join(chosen.choices('abcdef', k=8))}\n" for _ in range(300)).encode()
    file = tmp_path / name
    file.write_bytes(gzip.compress(content)[:-300])
    intact = zlib.decompressobj(wbits=31).decompress(file.read_bytes()).decode()
    assert 10 < intact.count("\n") < 300
    result = run("--input", file, "--beam", "1", "--quiet")
    error = f"Error: {file} is cut off: its compressed data ends too early. Copy it again.\n"
    assert (result.returncode, result.stderr) == (1, error)
    assert result.stdout == intact[: intact.rindex("\n") + 1]


@pytest.fixture
def with_own_beam(made_models: Path, tmp_path: Path) -> Callable[[int], Path]:
    """Return a function that returns the copying model with a beam size of its own."""

    def with_own_beam(beam: int) -> Path:
        folder = tmp_path / "model"
        shutil.copytree(made_models / "copies", folder)
        described = json.loads((folder / "config.json").read_text())
        described = {**described, "search": {"beam": beam}}
        del described["sha256"]
        write_description(folder, "config.json", described, [*described["files"]])
        return folder

    return with_own_beam


def test_search_settings_of_a_model_have_the_same_bounds(
    with_own_beam: Callable[[int], Path], nmt: Nmt, text: Path
) -> None:
    folder = with_own_beam(1_000_000)
    expected = "search.beam must be 1 to 1024 (got 1000000), in the model's own settings"
    assert_one_line(nmt("translate", folder, "--input", text, "--quiet"), 1, expected)
    with pytest.raises(UserError, match="beam must be 1 to 1024"):
        load(folder)


def test_a_model_with_a_wide_beam_of_its_own_has_as_many_translations(
    with_own_beam: Callable[[int], Path], nmt: Nmt, text: Path
) -> None:
    command = ("translate", with_own_beam(6), "--input", text, "--device", "cpu", "--threads", "1", "--quiet")
    result = nmt(*command, "--n-best", "6")
    assert (result.returncode, result.stdout.count("\n"), result.stderr) == (0, 12, "")
    message = "--n-best is 7, but a beam of 6 finds no more than 6. Raise --beam, or set search.sample"
    assert_one_line(nmt(*command, "--n-best", "7"), 1, message)
    result = nmt(*command, "--set", "search.sample=true", "--n-best", "7")
    assert (result.returncode, result.stdout.count("\n"), result.stderr) == (0, 14, "")


def test_an_error_about_the_default_beam_names_its_option(run: Nmt) -> None:
    message = "--n-best is 8, but a beam of 4 finds no more than 4. Raise --beam, or set search.sample"
    assert_one_line(run("--n-best", "8"), 1, message)


@pytest.mark.parametrize("arguments", [("--beam", "3"), ("--set", "search.beam=3")], ids=["flag", "setting"])
def test_beam_sets_the_number_of_hypotheses(run: Nmt, arguments: Sequence[str]) -> None:
    assert run(*arguments, "--n-best", "3").stdout.count("\n") == 6
    beam = "--beam" if arguments[0] == "--beam" else "search.beam"
    message = f"n-best is 4, but a beam of 3 finds no more than 3. Raise {beam}, or set search.sample to true"
    assert_one_line(run(*arguments, "--n-best", "4"), 1, message)


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_the_length_penalty_is_the_exponent_of_the_rule(run: Nmt, penalty: float) -> None:
    out = run("--length-penalty", penalty, "--set", "search.length_rule=power", "--format", "json").stdout
    for line, length in zip(out.splitlines(), (4, 3), strict=True):
        best = json.loads(line)["hypotheses"][0]
        assert best["score"] == pytest.approx(best["log_probability"] / length**penalty, abs=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_an_available_precision_is_used(run: Nmt, precision: str) -> None:
    result = run("--precision", precision)
    if "can't compute in" in result.stderr:
        pytest.skip(f"this CPU has no {precision}")
    assert (result.returncode, result.stdout) == (0, "abc\nde\n")


@pytest.mark.parametrize("expected", [1, 3])
def test_threads_sets_the_number_of_workers(run: Nmt, monkeypatch: pytest.MonkeyPatch, expected: int) -> None:
    seen: list[int] = []
    original = workers.Workers

    def counted(loads: Sequence[Load], start: StartMethod | None) -> workers.Workers:
        seen.append(len(loads))
        return original(loads, start)

    monkeypatch.setattr(workers, "Workers", counted)
    assert run("--threads", str(expected)).returncode == 0
    assert seen == [expected]


def test_options_override_assignments_which_override_the_file(run: Nmt, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[search]\nbeam = 2\nn_best = 2\nmin_length = 1\n")
    assert run("--config", file).stdout.count("\n") == 4
    assert run("--config", file, "--set", "search.n_best=1").stdout == "abc\nde\n"
    assert run("--config", file, "--set", "search.n_best=2", "--n-best", "1").stdout == "abc\nde\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--precision", "fp8"), "'fp8' is not one of"),
        (("--format", "xml"), "'xml' is not one of"),
        (("--device", "tpu"), "--device must be auto, cpu, cuda or cuda:N"),
        (("--threads", "0"), "--threads must be at least 1 (got 0)"),
        (("--devices", "0"), "--devices must be at least 1 (got 0)"),
        (("--beam", "many"), "'many' is not a valid integer"),
        (("--beams", "4"), "No such option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_exits_with_2(run: Nmt, arguments: tuple[str, ...], expected: str) -> None:
    assert_one_line(run(*arguments), 2, expected)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--beam", "0"), "Error: --beam must be 1 to 1024 (got 0)"),
        (("--config", "nowhere.toml"), "nowhere.toml does not exist. Check the path."),
        (("--length-penalty", "-0.5"), "--length-penalty must be at least 0 (got -0.5)"),
        (("--set", "search.top_k=5"), "search.top_k has no effect without sampling. Set search.sample to"),
        (("--set", "search.sample=true", "--beam", "7"), "--beam has no effect on sampling. Leave it out"),
        (("--set", "search.mbr=chrf", "--beam", "1"), "mbr chooses among the translations of a beam"),
        (("--set", "search.mbr=chrf", "--set", "search.sample=true", "--n-best", "9"), "Raise --beam"),
        (("--set", "search.sample=true", "--set", "search.stop_early=true"), "stop_early has no effect on"),
        (("--set", "search.mbr=bleu"), 'search.mbr must be "off" or "chrf" or "comet" or "comet-aggregated"'),
        (("--set", "search.mbr=bleu"), "did you mean chrf?"),
        (("--set", "search.diversity=1"), "search.diversity = 1 was removed: a beam has its best hypotheses"),
        (("--set", "search.min_length=9", "--set", "search.max_length=5"), "search.min_length is 9, but"),
        (("--precision", "fp16"), "this CPU can't compute in fp16. Choose --precision fp32"),
        (("--devices", "2"), "--devices 2 needs 2 GPUs. On a CPU, use --threads instead."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_invalid_settings_are_reported_in_one_line(
    run: Nmt, tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    assert_one_line(run(*arguments, "--output", tmp_path / "out"), 1, expected)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_a_page_and_translations_need_two_files(run: Nmt, tmp_path: Path) -> None:
    page = ("--attention", tmp_path / "same", "--output", tmp_path / "x" / ".." / "same")
    (tmp_path / "x").mkdir()
    assert_one_line(run(*page), 2, f"--attention and --output are both {tmp_path / 'same'}. Use two files.")


@pytest.mark.parametrize("ending", [".bz2", ".xz", ".zst"])
def test_an_output_that_ends_as_if_compressed_is_refused(run: Nmt, tmp_path: Path, ending: str) -> None:
    name = f"{tmp_path / 'out'}{ending}"
    assert_one_line(run("--output", name), 2, f"--output {name}: only .gz files are compressed. Use .gz.")


def test_a_page_in_a_missing_folder_is_reported_before_translating(run: Nmt, tmp_path: Path) -> None:
    result = run("--attention", tmp_path / "missing" / "page.html")
    assert_one_line(result, 1, "page.html can't be written: No such file or directory. Choose another path.")
    assert not result.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_page_without_disk_space_loses_no_translation(run: Nmt, tmp_path: Path) -> None:
    result = run("--attention", "/dev/full", "--output", tmp_path / "out", "--quiet")
    assert_one_line(result, 1, "/dev/full can't be written: No space left on device. Free some space")
    assert (tmp_path / "out").read_text() == "abc\nde\n"


SGM = """<srcset setid="t" srclang="any">
<doc docid="News/1"><hl><seg id="1">abc</seg></hl><p><seg id="2">de</seg></p></doc>
<doc docid="B&amp;B"><p><seg id="1"></seg><seg id="2">fg</seg></p></doc>
</srcset>
"""
XML = """<?xml version="1.0" encoding="utf-8"?>
<dataset id="t"><doc id="a"><src lang="en"><p><seg id="1">abc</seg></p></src>
<ref lang="de" translator="A"><p><seg id="1">cba</seg></p></ref></doc></dataset>
"""


@pytest.mark.parametrize(
    ("name", "content", "lines"), [("set.sgm", SGM, "abc\nde\n\nfg\n"), ("set.xml", XML, "abc\n")]
)
def test_segments_of_a_test_set_are_translated_to_lines_that_nmt_score_compares_with_the_set(
    run: Nmt, nmt: Nmt, tmp_path: Path, name: str, content: str, lines: str
) -> None:
    source, out = tmp_path / name, tmp_path / "out.txt"
    source.write_text(content)
    assert run("--input", source, "--output", out).returncode == 0
    assert out.read_text() == lines
    result = nmt("score", "--reference", source, "--target-lang", "de", "--json", out)
    assert (result.returncode, result.stderr) == (0, "")
    assert len(json.loads(result.stdout)["systems"]) == 1


def test_an_output_that_ends_like_a_test_set_is_refused(run: Nmt, tmp_path: Path) -> None:
    result = run("--output", tmp_path / "out.sgm.gz")
    assert_one_line(result, 2, "out.sgm.gz: the output is lines of text. Name a .txt file.")


DOCUMENTS = {
    "page.html": "<p>abc <b>de</b>\n f</p><p>g h</p><code>no</code>\n",
    "site.htm": '<html lang="en"><p>abc</p></html>\n',
    "page.xml": "<page><title>abc</title><p>de <x>f</x></p></page>\n",
    "manual.xml": "<manual><segment>abc</segment><seg>de</seg></manual>\n",
    "film.srt": "1\r\n00:00:01,000 --> 00:00:02,000\r\nabc\r\nde\r\n",
    "app.po": 'msgid ""\nmsgstr "x"\n\nmsgid "abc"\nmsgstr ""\n',
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_keeps_everything_but_its_text(run: Nmt, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(DOCUMENTS[name], newline="")
    output = tmp_path / f"out-{name}"
    assert run("--input", tmp_path / name, "--output", output).returncode == 0
    # The model copies its input.
    expected = DOCUMENTS[name].replace("abc <b>de</b>\n f", "abc <b>de</b> f").replace('"en"', '"de"')
    assert output.read_bytes().decode() == expected.replace('abc"\nmsgstr ""', 'abc"\nmsgstr "abc"')


@pytest.mark.parametrize(
    "option", ["--format json", "--attention page.html", "--n-best 2", "--set output.alignments=true"]
)
def test_options_for_lines_are_refused_for_a_document(run: Nmt, tmp_path: Path, option: str) -> None:
    (tmp_path / "page.html").write_text("<p>abc</p>")
    result = run("--input", tmp_path / "page.html", *option.split())
    assert_one_line(result, 2, "needs lines of text, but", "page.html is a document. Leave it out.")


def test_a_document_must_be_utf8(run: Nmt, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_bytes(b"<p>ab\xe4</p>")
    assert_one_line(run("--input", tmp_path / "page.html"), 1, "page.html is not UTF-8 (byte 6). Convert it.")


def test_a_document_that_declares_another_encoding_is_reported(run: Nmt, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<meta charset=latin1><p>abc – abc</p>")
    result = run("--input", tmp_path / "page.html")
    assert result.stdout.startswith("<meta charset=UTF-8><p>abc ")
    assert "page.html declares latin1. The translation is UTF-8, and declares it." in result.stderr


def test_a_document_without_text_is_refused(run: Nmt, tmp_path: Path) -> None:
    (tmp_path / "a.xliff").write_text("not xliff")
    message = "a.xliff: the file does not contain '<source'. Check the file and its ending."
    assert_one_line(run("--input", tmp_path / "a.xliff"), 1, message)


def test_the_first_column_of_a_tsv_is_translated(run: Nmt, tmp_path: Path) -> None:
    source = tmp_path / "pairs.tsv"
    source.write_text("abc\tignored\t0.5\nde\n\n")
    assert run("--input", source).stdout == "abc\nde\n\n"
    assert run("--input", source, "--set", "input.prefix=true", "--format", "json").returncode == 0


def test_a_test_set_on_stdin_causes_a_warning(run: Nmt, nmt: Nmt, made_models: Path, tmp_path: Path) -> None:
    (tmp_path / "set").write_text(SGM)
    result = nmt("translate", made_models / "copies", "--device", "cpu", "--input", tmp_path / "set")
    assert "looks like a WMT test set. Name the .sgm or .xml file with --input." in result.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_reported(nmt: Nmt, made_models: Path, text: Path) -> None:
    result = nmt("translate", made_models / "copies", "--input", text, "--device", "cuda")
    assert_one_line(result, 1, "this machine has no GPU that PyTorch can use. Use --device cpu.")


@pytest.mark.parametrize(
    ("model", "arguments", "code", "expected"),
    [
        ("nowhere", (), 1, "nowhere does not exist. Check the path."),
        (".", (), 1, "is not a model: it has no config.json and no checkpoint. Name a model, checkpoint or "),
        ("copies", ("--input", "nowhere"), 1, "nowhere does not exist. Check the path."),
        ("copies", ("--output", "nowhere/out"), 1, "nowhere/out can't be written: No such file or directory"),
    ],
    ids=["no model", "another folder", "no input", "no folder for output"],
)
def test_missing_files_are_reported(
    nmt: Nmt, made_models: Path, text: Path, model: str, arguments: tuple[str, ...], code: int, expected: str
) -> None:
    result = nmt("translate", made_models / model, "--device", "cpu", "--input", text, *arguments)
    assert_one_line(result, code, expected)


def test_a_missing_file_of_the_model_is_named(
    run: Nmt, made_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "model/part")

    monkeypatch.setattr("nmt_cli.translation.loading.read_model", missing)
    assert_one_line(run(), 1, "Error: model does not exist. Check the path.")


def a_line(number: int = 1, raw: str = "a b", *, pieces: int = 2, too_long: bool = False) -> Line:
    return Line(number, raw, [Sentence(number, [2] * pieces)], pieces, too_long, prefix_unknown=False)


def a_candidate(text: str, *token_scores: float) -> Candidate:
    tokens = [*text.split(), "</s>"]
    return Candidate(
        text=text, score=sum(token_scores) / 2, tokens=tokens, token_scores=token_scores, parts=()
    )


GOOD = Translation(a_line(7), [a_candidate("c ä", -0.5, -1.0, -0.5), a_candidate("d", -3.0, -1.0)], (), False)
NOTHING = Translation(Line(8, "", (), 0, too_long=False, prefix_unknown=False), (), (), False)


def test_text_is_the_best_translation_alone() -> None:
    assert (as_text(GOOD, 1), as_text(NOTHING, 1)) == ("c ä\n".encode(), b"\n")


def test_n_best_lists_number_lines_from_zero() -> None:
    assert as_text(GOOD, 2).decode() == (
        "6 ||| c ä ||| logprob= -2.000000 ||| -1.000000\n6 ||| d ||| logprob= -4.000000 ||| -2.000000\n"
    )
    assert as_text(NOTHING, 2) == b"7 |||  ||| logprob= 0 ||| 0\n"


def test_alignments_are_a_last_column() -> None:
    assert as_text(GOOD, 1, ["0-0 1-1", "0-0"]) == "c ä ||| 0-0 1-1\n".encode()
    assert as_text(NOTHING, 1, []) == b" ||| \n"
    several = as_text(GOOD, 2, ["0-0 1-1", "0-0"]).decode().splitlines()
    assert [line.split(" ||| ")[-1] for line in several] == ["0-0 1-1", "0-0"]
    assert as_text(NOTHING, 2, []) == b"7 |||  ||| logprob= 0 ||| 0 ||| \n"


def test_a_model_that_copies_aligns_each_word_with_itself(run: Nmt, text: Path) -> None:
    text.write_text("abc de f\n\ng\n")
    result = run("--set", "output.alignments=true")
    assert result.stdout == "abc de f ||| 0-0 1-1 2-2\n ||| \ng ||| 0-0\n"


def test_json_is_one_object_per_line() -> None:
    written = as_json(GOOD, None)
    assert written.count(b"\n") == 1
    assert json.loads(written)["hypotheses"][1] == {
        "text": "d",
        "score": -2.0,
        "log_probability": -4.0,
        "tokens": ["d", "</s>"],
        "token_scores": [-3.0, -1.0],
    }
    assert "ä".encode() in written
    assert json.loads(as_json(GOOD, [0, 1]))["alignment"] == [0, 1]


SOURCE = SimpleNamespace(vocabulary=Numbering.new((), []).vocabulary)
TOKENIZERS = SimpleNamespace(recipe=SimpleNamespace(kind="char", text=TextConfig()), source=SOURCE)
MODEL: Any = SimpleNamespace(restarts=0, tokenizers=TOKENIZERS, config=TranslateConfig())


def warnings_about(capsys: pytest.CaptureFixture[str], *translations: Translation) -> list[str]:
    with TranslationReporter(MODEL, quiet=True, prompt=False) as report:
        for translation in translations:
            report.line(translation)
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def test_a_line_that_does_not_fit_into_memory_is_an_error_at_once_and_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = Translation(a_line(1234, pieces=5000), (), (), failed=True)
    assert warnings_about(capsys, GOOD, failed) == [
        "Error: line 1,234 (5,000 tokens) does not fit into memory.",
        "Error: 1 of 2 lines did not fit into memory and have empty translations: line 1,234. "
        "Use a smaller --beam or shorter lines.",
    ]
    assert (as_text(failed, 1), json.loads(as_json(failed, None))["failed"]) == (b"\n", True)


def test_odd_translations_are_reported_with_line_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    flags: dict[int, list[Flag]] = {2: ["empty"], 3: [], 4: ["looping", "length"], 5: ["looping"]}
    odd = [
        Translation(a_line(number, too_long=number % 2 == 0), [a_candidate("x", -1.0, -1.0)], some, False)
        for number, some in flags.items()
    ]
    assert warnings_about(capsys, *odd) == [
        "Warning: 1 of 4 translations is empty (search.min_length=1 prevents this): line 2",
        "Warning: 2 of 4 translations loop (search.second_attempt=true tries again): lines 4, 5",
        "Warning: 1 of 4 translations is far longer or shorter than its source: line 4",
        "Warning: lines 2, 4: too long, translated in parts.",
    ]


def test_an_interrupted_command_prints_no_summary(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), TranslationReporter(MODEL, quiet=False, prompt=False) as report:
        report.line(GOOD)
        raise KeyboardInterrupt
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("quiet", "shown"), [(False, True), (True, False)])
def test_a_prompt_explains_the_input(capsys: pytest.CaptureFixture[str], quiet: bool, shown: bool) -> None:
    with TranslationReporter(MODEL, quiet, prompt=True) as report:
        report.line(GOOD)
    expected = "Type a sentence and press Enter to translate it. Ctrl-D ends.\n"
    assert capsys.readouterr().err == (expected if shown else "")


def test_a_glossary_requires_its_terms_in_lines_and_documents(run: Nmt, tmp_path: Path) -> None:
    glossary, page = tmp_path / "terms.tsv", tmp_path / "page.html"
    glossary.write_text("Abc\txy\tyx\n")
    page.write_text("<p>abc</p>")
    first, second = run("--glossary", glossary, "--quiet").stdout.splitlines()
    assert re.search("xy|yx", first) and second == "de"
    assert re.search("xy|yx", run("--glossary", glossary, "--input", page).stdout)


def test_a_glossary_that_cannot_be_used_is_reported_in_one_line(run: Nmt, tmp_path: Path) -> None:
    glossary = tmp_path / "terms.tsv"
    glossary.write_text("abc\txy\nde\n")
    assert_one_line(run("--glossary", glossary), 1, "terms.tsv line 2 needs a source and a translation")
    glossary.write_text("abc\txy\nde\té\n")
    assert_one_line(run("--glossary", glossary), 1, "terms.tsv line 2: the model cannot write 'é'")
    glossary.write_text("abc\txy\n")
    assert_one_line(run("--glossary", glossary, "--beam", "1"), 1, "a glossary needs beam search (beam=1")
