"""`nmt score`: its output and its errors."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from nmt_cli.scoring.neural.comet import Comet
from tests.cli.conftest import SHOW_MODULES, Nmt, assert_one_line, python
from tests.scoring.neural.conftest import write_comet
from tests.scoring.neural.models import OPTIONS, write_encoder

REFERENCE = [
    "Ein Mann fährt mit der U-Bahn nach Hause.",
    "Zwei Hunde spielen im Schnee.",
    "",
    "Eine Frau liest in einem Park ein Buch.",
]
WORSE = [
    "Ein Mann fährt mit der U-Bahn Hause.",
    "Zwei Hunde im Schnee.",
    "",
    "Frau liest in einem Park ein Buch.",
]


@pytest.fixture
def ref(tmp_path: Path) -> Path:
    path = tmp_path / "ref.de"
    path.write_text("\n".join(REFERENCE) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def worse(tmp_path: Path) -> Path:
    path = tmp_path / "worse"
    path.write_text("\n".join(WORSE) + "\n", encoding="utf-8")
    return path


def test_a_table_on_stdout_names_every_score_with_its_signature(nmt: Nmt, ref: Path, worse: Path) -> None:
    result = nmt("score", "--reference", ref, worse, ref)
    assert (result.returncode, result.stderr) == (0, "")
    rows = [line for line in result.stdout.splitlines() if line.startswith("│")]
    assert rows[1].split("│")[2:5] == [cell for cell in rows[1].split("│")[2:5] if "100.00" in cell]
    assert "100.00" not in rows[0]
    assert "BLEU (sacrebleu, detokenised, 13a): nrefs:1|case:mixed|eff:no|tok:13a|" in result.stdout
    assert "BLEU (paper protocol: tokenised, compounds split): nrefs:1|" in result.stdout
    assert "chrF2: nrefs:1|" in result.stdout
    assert "The two BLEU scores differ in kind" in result.stdout


def test_json_alone_is_on_stdout_in_full_precision(nmt: Nmt, ref: Path, worse: Path) -> None:
    result = nmt("score", "--reference", ref, worse, "--json", "--metric", "bleu", "--sentences")
    assert (result.returncode, result.stderr) == (0, "")
    content = json.loads(result.stdout)
    assert (content["references"], content["lines"], content["language"]) == ([str(ref)], 4, "de")
    (system,) = content["systems"]
    (score,) = system["scores"]
    assert (system["system"], score["metric"]) == (str(worse), "bleu")
    assert score["name"] == "BLEU (sacrebleu, detokenised, 13a)"
    assert len(str(score["score"]).partition(".")[2]) > 10
    assert score["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert score["detail"].startswith("100.0/")
    (sentences,) = system["sentences"]
    assert len(sentences["values"]) == 4


def test_scores_equal_those_of_the_sacrebleu_command(nmt: Nmt, ref: Path, worse: Path) -> None:
    command = [sys.executable, "-m", "sacrebleu", str(ref), "-i", str(worse), "-m", "bleu", "chrf", "ter"]
    printed = subprocess.run([*command, "-w", "12"], capture_output=True, check=True, text=True).stdout
    expected = {score["name"]: (score["score"], score["signature"]) for score in json.loads(printed)}
    metrics = ("--metric", "bleu", "--metric", "chrf", "--metric", "ter")
    (system,) = json.loads(nmt("score", "--reference", ref, worse, "--json", *metrics).stdout)["systems"]
    for score in system["scores"]:
        value, signature = expected[score["name"].split(" ")[0]]
        assert score["score"] == pytest.approx(value, abs=6e-13)
        assert score["signature"] == signature


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [(), ("-",)], ids=["no HYP", "-"])
def test_without_a_file_hypotheses_come_from_stdin(ref: Path, arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "nmt_cli", "score", "--reference", str(ref), "--json", *arguments]
    result = subprocess.run(command, input=ref.read_bytes(), capture_output=True, check=True)
    (system,) = json.loads(result.stdout)["systems"]
    assert system["system"] == "stdin"
    assert [round(score["score"], 9) for score in system["scores"]] == [100, 100, 100]


@pytest.mark.slow
def test_scoring_does_not_load_torch(ref: Path) -> None:
    metrics = [word for name in ("bleu", "paper-bleu", "chrf", "ter") for word in ("--metric", name)]
    loaded = set(python("-c", SHOW_MODULES, "score", "--reference", ref, ref, *metrics).stderr.split())
    assert {"sacrebleu", "sacremoses"} <= loaded
    assert "torch" not in loaded


def test_sentences_are_tab_separated_on_stdout_and_the_table_goes_to_stderr(
    nmt: Nmt, ref: Path, worse: Path
) -> None:
    arguments = ("--reference", ref, worse, "--sentences", "--metric", "bleu", "--metric", "ter")
    result = nmt("score", *arguments)
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert rows[0] == ["line", "BLEU", "TER"]
    assert [row[0] for row in rows[1:]] == ["1", "2", "3", "4"]
    assert rows[2][2] == "20.0000"
    assert "│" in result.stderr
    assert nmt("score", *arguments, "--quiet").stderr == ""


def test_columns_name_the_system_if_there_are_several(nmt: Nmt, ref: Path, worse: Path) -> None:
    result = nmt("score", "--reference", ref, ref, worse, "--sentences", "--metric", "chrf")
    assert result.stdout.splitlines()[0] == f"line\t{ref} chrF2\t{worse} chrF2"


SGM = '<{0} setid="s"><doc docid="BBC/News 12-A" sysid="x">{1}</doc></{0}>'


def as_sgm(kind: str, lines: list[str]) -> bytes:
    segments = (f'<seg id="{number}">{line}</seg>\n' for number, line in enumerate(lines, start=1))
    return SGM.format(kind, "".join(segments)).encode()


def test_sgm_and_compressed_text_score_as_plain_text(
    nmt: Nmt, ref: Path, worse: Path, tmp_path: Path
) -> None:
    (tmp_path / "ref.de.sgm").write_bytes(as_sgm("refset", REFERENCE))
    (tmp_path / "worse.sgm").write_bytes(as_sgm("tstset", WORSE))
    (tmp_path / "ref.de.gz").write_bytes(gzip.compress(ref.read_bytes()))

    def values(reference: Path, hypotheses: Path) -> list[float]:
        result = nmt("score", "--json", "--reference", reference, hypotheses)
        return [score["score"] for score in json.loads(result.stdout)["systems"][0]["scores"]]

    plain = values(ref, worse)
    assert len(plain) == 3
    assert values(tmp_path / "ref.de.gz", worse) == plain
    assert values(tmp_path / "ref.de.sgm", tmp_path / "worse.sgm") == plain


def test_several_references_count_together(nmt: Nmt, ref: Path, worse: Path) -> None:
    result = nmt("score", "--reference", ref, "--reference", worse, worse, "--json")
    content = json.loads(result.stdout)
    assert [score["score"] for score in content["systems"][0]["scores"]] == pytest.approx([100] * 3)
    assert content["systems"][0]["scores"][0]["signature"].startswith("nrefs:2|")


def test_significance_marks_differences_and_names_the_baseline(
    nmt: Nmt, ref: Path, worse: Path, tmp_path: Path
) -> None:
    (tmp_path / "ref40.de").write_bytes(ref.read_bytes() * 40)
    (tmp_path / "worse40").write_bytes(worse.read_bytes() * 40)
    (tmp_path / "same40").write_bytes(worse.read_bytes() * 40)
    systems = [tmp_path / name for name in ("worse40", "same40", "ref40.de")]
    few = ("--metric", "chrf")
    result = nmt(
        *("score", "--reference", tmp_path / "ref40.de", *systems, "--significance", "randomization", *few)
    )
    cells = [line.split("│")[2].strip() for line in result.stdout.splitlines() if line.startswith("│")]
    assert [cell for cell in cells if cell.startswith("p =")] == ["p = 1.0000", "p = 0.0001*"]
    assert f"p, compared with {systems[0]}: the probability" in result.stdout
    assert "ar:10000" in result.stdout


def test_json_contains_the_results_of_a_significance_test(nmt: Nmt, ref: Path, worse: Path) -> None:
    few = ("--metric", "bleu")
    arguments = ("--significance", "bootstrap", *few, "--json")
    first, second = json.loads(nmt("score", "--reference", ref, worse, ref, *arguments).stdout)["systems"]
    assert first["scores"][0]["significance"]["p_value"] is None
    score = second["scores"][0]["significance"]
    assert set(score) == {"p_value", "mean", "margin", "signature"}
    assert "bs:1000" in score["signature"]


def test_without_a_language_a_note_explains_the_missing_paper_bleu(
    nmt: Nmt, ref: Path, worse: Path, tmp_path: Path
) -> None:
    gold = ref.rename(tmp_path / "gold")
    result = nmt("score", "--reference", gold, worse)
    assert "paper protocol" not in result.stdout
    assert "Note: BLEU by the paper's protocol is left out: it needs the target language" in result.stderr
    assert nmt("score", "--reference", gold, worse, "--quiet").stderr == ""


def test_warnings_come_on_stderr_even_when_quiet(nmt: Nmt, ref: Path, tmp_path: Path) -> None:
    (tmp_path / "hyp").write_bytes(b"a\n\xff\nb\nc\n")
    result = nmt("score", "--reference", ref, tmp_path / "hyp", "--json", "--quiet")
    assert "Warning: " in result.stderr
    assert "1 of 4 lines are not UTF-8" in result.stderr
    assert json.loads(result.stdout)["lines"] == 4


def test_a_name_in_brackets_is_printed_unchanged(nmt: Nmt, ref: Path, worse: Path, tmp_path: Path) -> None:
    system = worse.rename(tmp_path / "[red]x")
    assert "[red]x" in "".join(nmt("score", "--reference", ref, system).stdout.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--significance", "bootstrap"), "--significance compares systems"),
        (("--set", "bleu.tokenizer=intl", "--metric", "chrf"), "bleu.tokenizer has no effect"),
        (("--set", "bleu.tokeniser=intl"), "did you mean bleu.tokenizer?"),
        (("--set", "bleu.tokenizer=moses"), "bleu.tokenizer must be "),
    ],
)
def test_an_error_of_the_user_is_one_line(
    nmt: Nmt, ref: Path, worse: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert_one_line(nmt("score", "--reference", ref, worse, *arguments), 1, message)


@pytest.mark.parametrize(
    "arguments", [(), ("--reference", "r", "--metric", "meteor"), ("--reference", "r", "--significance", "t")]
)
def test_wrong_usage_exits_with_2(nmt: Nmt, arguments: tuple[str, ...]) -> None:
    result = nmt("score", *arguments)
    assert (result.returncode, result.stdout) == (2, "")


def test_json_escapes_control_characters_in_names(nmt: Nmt, ref: Path, worse: Path) -> None:
    hostile = worse.rename(worse.with_name("a\x1b[2J\x9b2J\u202e\u2028\x7f"))
    result = nmt("score", "--reference", ref, hostile, "--json", "--metric", "bleu")
    assert not set("\x1b\x9b\u202e\u2028\x7f") & {*result.stdout}
    assert str(hostile) in json.loads(result.stdout)["systems"][0].values()


@pytest.fixture(scope="module")
def encoder_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    write_encoder(folder)
    return folder


def comet_folder(tmp_path: Path, encoder_files: Path, name: str) -> Path:
    write_comet(tmp_path / name, OPTIONS[name], encoder_files)
    return tmp_path / name


def test_comet_is_shown_with_its_model_and_signature(
    nmt: Nmt, ref: Path, worse: Path, tmp_path: Path, encoder_files: Path
) -> None:
    folder = comet_folder(tmp_path, encoder_files, "comet-22")
    options = ("--reference", ref, "--source", ref, "--metric", "comet", "--metric-model", folder, "--quiet")
    result = nmt("score", *options, worse, ref, "--json", "--sentences", "--metric", "chrf")
    assert (result.returncode, result.stderr) == (0, "")
    first, second = json.loads(result.stdout)["systems"]
    comet = Comet(folder, "cpu")
    for system, texts in ((first, WORSE), (second, REFERENCE)):
        chrf, score = system["scores"]
        values = comet.score(REFERENCE, texts, REFERENCE)
        assert (chrf["metric"], score["metric"], score["name"]) == ("chrf", "comet", "COMET (comet-22)")
        assert score["score"] == pytest.approx(sum(values) / 4, abs=1e-5)
        assert score["signature"] == comet.signature(1)
        assert system["sentences"][1]["values"] == pytest.approx(values, abs=1e-5)
    table = nmt("score", *options, worse)
    assert f" {first['scores'][1]['score']:.4f} " in table.stdout
    assert f"COMET (comet-22): {comet.signature(1)}" in table.stdout


def test_a_model_without_references_scores_by_the_source(
    nmt: Nmt, ref: Path, worse: Path, tmp_path: Path, encoder_files: Path
) -> None:
    folder = comet_folder(tmp_path, encoder_files, "kiwi-22")
    arguments = ("score", worse, "--metric", "comet", "--metric-model", folder)
    result = nmt(*arguments, "--source", ref)
    assert result.returncode == 0, result.stderr
    assert "comet:kiwi-22|refs:0|" in result.stdout
    assert_one_line(nmt(*arguments, "--reference", ref), 1, "--source")


def test_a_command_scores_lines(nmt: Nmt, ref: Path, worse: Path) -> None:
    command = "grep -o '\"mt\": \".*' | awk '{print length($0)}'"
    result = nmt("score", "--reference", ref, worse, ref, "--scorer", command, "--sentences", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    first, second = (system["sentences"][0]["values"] for system in json.loads(result.stdout)["systems"])
    lengths = [[len(json.dumps(line)) for line in text] for text in (REFERENCE, WORSE)]
    assert [a - b for a, b in zip(second, first, strict=True)] == [
        a - b for a, b in zip(*lengths, strict=True)
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--metric", "comet", "--reference", "REF"], 2, "--metric-model"),
        (["--metric-model", "REF", "--reference", "REF"], 2, "--metric-model needs --metric comet"),
        (["--device", "cpu", "--reference", "REF"], 2, "--device needs --metric comet"),
        (
            ["--metric", "comet", "--metric-model", "x", "--source", "REF"],
            1,
            "x does not exist",
        ),
        (["--scorer", "", "--reference", "REF"], 2, "--scorer is empty"),
        (["--scorer", "cat"], 2, "Give --reference FILE"),
        (["--scorer", "cat", "--source", "REF", "--metric", "bleu"], 1, "--metric bleu needs references"),
        (["--scorer", "cat", "--reference", "REF", "--reference", "REF"], 1, "Give --reference once"),
        (
            ["--scorer", "cat", "--reference", "REF", "--model", "m", "--source", "REF"],
            2,
            "--model works only",
        ),
        (["--scorer", "cat", "--source", "EMPTY"], 1, "must match line for line"),
    ],
)
def test_options_of_scorers_that_do_not_fit_are_refused(
    nmt: Nmt, ref: Path, worse: Path, arguments: list[str], code: int, message: str
) -> None:
    (ref.parent / "empty").touch()
    paths = {"REF": str(ref), "EMPTY": str(ref.parent / "empty")}
    assert_one_line(nmt("score", worse, *[paths.get(one, one) for one in arguments]), code, message)
