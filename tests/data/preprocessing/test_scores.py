"""Scores of training pairs by a command: the same as scores in a column, for any number of workers."""

import json
import shlex
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from nmt_cli import api
from nmt_cli.config import read
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.data.preprocessing import training_set
from nmt_cli.data.preprocessing.parts import work_folder
from nmt_cli.errors import UserError
from nmt_cli.scoring.command import score_by_command
from tests.data.corpora import Digests, named_corpora, report_on, train_lines

PAIRS = [(f"s{n} " * (1 + n % 7), f"t{n} " * (1 + n % 5)) for n in range(200)]


def score_of(source: str, target: str) -> float:
    return (3 * len(source) + len(target)) % 10 / 10


SCORER = shlex.join(
    [
        sys.executable,
        "-c",
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    row = json.loads(line)\n"
        "    print((3 * len(row['src']) + len(row['mt'])) % 10 / 10)",
    ]
)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_set, "BLOCK_PAIRS", 20)
    monkeypatch.setattr(training_set, "BLOCKS_A_PART", 4)


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    path = tmp_path / "plain.jsonl"
    path.write_text("".join(json.dumps({"en": s, "de": t}) + "\n" for s, t in PAIRS))
    return str(path)


def make(
    out: Path, corpus: str, *settings: str, workers: int = 1, progress: Callable[..., None] = lambda *_: None
) -> Path:
    config = read(PreprocessConfig, assignments=["tokenizer.kind=char", *settings])
    api.preprocess("en", "de", [corpus], out, config=config, workers=workers, progress=progress)
    return out


@pytest.mark.parametrize("workers", [1, 3])
def test_they_are_used_as_scores_in_a_column(
    tmp_path: Path, corpus: str, digests: Digests, workers: int
) -> None:
    scored = tmp_path / "scored.jsonl"
    rows = ({"en": s, "de": t, "score": score_of(s, t)} for s, t in PAIRS)
    scored.write_text("".join(json.dumps(row) + "\n" for row in rows))
    expected = make(tmp_path / "expected", str(scored), "corpus.score_column=score", "filter.min_score=0.7")
    out = make(tmp_path / "out", corpus, f"filter.scorer={SCORER}", "filter.min_score=0.7", workers=workers)
    assert train_lines(out, "target") == [
        target.strip() for source, target in PAIRS if score_of(source, target) >= 0.7
    ]
    ours, theirs = ({n: d for n, d in digests(each).items() if "train" in n} for each in (out, expected))
    assert ours == theirs
    reports = [[{**each, "name": ""} for each in report_on(folder)] for folder in (out, expected)]
    assert reports[0] == reports[1]


def test_an_interrupted_run_does_not_score_again(tmp_path: Path, corpus: str, digests: Digests) -> None:
    counted = f"tee -a {tmp_path / 'read'} | {SCORER}"
    settings = f"filter.scorer={counted}", "filter.min_score=0.5"

    def stop(stage: str, done: int, total: int) -> None:
        if stage == "cleaning":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "out", corpus, *settings, progress=stop)
    make(tmp_path / "out", corpus, *settings)
    assert len((tmp_path / "read").read_text().splitlines()) == len(PAIRS)
    assert digests(make(tmp_path / "again", corpus, *settings)) == digests(tmp_path / "out")


def test_a_corpus_may_have_its_own_scorer(tmp_path: Path, corpus: str) -> None:
    own = f"filters={{scorer={json.dumps(SCORER)}, min_score=0.7}}"
    listed = named_corpora(("a", corpus, own), ("b", corpus, ""))
    config = read(PreprocessConfig, assignments=["tokenizer.kind=char", listed])
    outcome = api.preprocess("en", "de", [], tmp_path / "out", config=config, workers=1)
    assert outcome.report
    first, second = (corpus.kept for corpus in outcome.report.corpora)
    assert (first, second) == (sum(score_of(*pair) >= 0.7 for pair in PAIRS), len(PAIRS))


@pytest.mark.parametrize(
    ("command", "settings", "message"),
    [
        ("exit 3", [], "filter.scorer 'exit 3' failed with exit code 3 after 0 of 200 scores."),
        ("head -n 5 | grep -c ''", [], r"ended after 1 of 200 scores."),
        ("cat", [], "which is not a finite number."),
        ("cat", ["corpus.score_column=s"], "plain.jsonl has a corpus.score_column. Leave one of both out."),
        ("cat", ["corpus.valid_size=5"], "filter.scorer can't score drawn sets. Name a validation set with"),
    ],
)
def test_a_scorer_that_fails_is_one_error(
    tmp_path: Path, corpus: str, command: str, settings: list[str], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        make(tmp_path / "out", corpus, f"filter.scorer={command}", *settings)
    assert message in caught.value.args[0]
    assert not (tmp_path / "out").exists()
    assert not work_folder(tmp_path / "out").exists()


def test_an_error_while_the_pairs_are_read_is_raised() -> None:
    def rows() -> Generator[dict[str, str]]:
        yield {"src": "a", "mt": "b"}
        raise UserError("damaged")

    with pytest.raises(UserError, match="damaged"):
        list(score_by_command(SCORER, rows(), 2))
