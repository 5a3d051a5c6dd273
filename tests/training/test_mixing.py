"""Runs on mixed corpora: resumed at any step, with the epochs of one corpus."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nmt_cli.data.preprocessing.pipeline import Outcome
from nmt_cli.training.tracking.events import Progress
from tests.checks import differing
from tests.training.runs import Complaint, Go, lines_of, notes, tensors_of

Pairs = Sequence[tuple[str, str]]

LIMITS = ("training.max_steps=26", "batch.tokens=300", "checkpoints.every_steps=5")


@pytest.fixture(scope="module")
def two(
    tmp_path_factory: pytest.TempPathFactory,
    make: Callable[..., Outcome],
    write_pairs: Callable[[Path, Pairs], str],
    toy_pairs: Pairs,
) -> Path:
    """Return a dataset of two corpora: a third of `toy`, and the other pairs."""
    folder = tmp_path_factory.mktemp("two")
    first, second = write_pairs(folder / "a", toy_pairs[:100]), write_pairs(folder / "b", toy_pairs[100:])
    tables = f'{{name="bitext", path="{first}"}}, {{name="synthetic", path="{second}"}}'
    make(folder / "out", (), f"corpus.named=[{tables}]")
    return folder / "out"


@pytest.mark.slow
def test_a_run_stopped_at_any_step_ends_bit_for_bit_the_same(go: Go, two: Path, tmp_path: Path) -> None:
    settings = ("mixing.weights={bitext=3, synthetic=1}", *LIMITS)
    go(*settings, dataset=two, out=tmp_path / "whole")
    whole = lines_of(tmp_path / "whole")
    border = [line["epoch"] for line in whole].index(1)
    for step in (3, border, border + 1, 25):
        go(*settings, dataset=two, out=tmp_path / "parts", stop_at=step)
        assert len(lines_of(tmp_path / "parts")) == step
    go(*settings, dataset=two, out=tmp_path / "parts")
    for key in ("epoch", "corpus_pairs", "corpus_epochs", "pairs", "loss"):
        assert [line[key] for line in lines_of(tmp_path / "parts")] == [line[key] for line in whole]
    assert not differing(tensors_of(tmp_path / "parts"), tensors_of(tmp_path / "whole"))


@pytest.mark.slow
def test_epochs_count_for_the_corpus_that_is_named(go: Go, two: Path, run: Path) -> None:
    shares = ("mixing.weights={bitext=3, synthetic=1}", "batch.tokens=400")
    limits = ("training.max_epochs=2", "training.max_steps=1000", "training.log_every=1")
    complete, events = go(*shares, *limits, dataset=two)
    assert complete
    lines = lines_of(run)
    assert lines[-1]["epoch_of"] == "bitext" and {line["epoch"] for line in lines} == {0, 1}
    assert sum(line["corpus_pairs"]["bitext"] for line in lines) == 200
    assert lines[-1]["corpus_epochs"] == {"bitext": 2.0, "synthetic": pytest.approx(200 / 3 / 200, abs=0.01)}
    assert [event.epoch_of for event in events if isinstance(event, Progress)][-1] == "bitext"
    assert '"epoch_of":"bitext"' in (run / "report.html").read_text(encoding="utf-8").replace(": ", ":")
    assert "shares of the pairs: bitext 0.75, synthetic 0.25" in notes(events)


def test_the_epochs_of_a_run_are_those_of_the_named_corpus(go: Go, two: Path, run: Path) -> None:
    shares = ("mixing.weights={bitext=3, synthetic=1}", "batch.tokens=400", "training.max_steps=1000")
    go(*shares, "training.max_epochs=2", dataset=two)
    last = {line["epoch"]: line for line in lines_of(run)}
    assert [line["corpus_epochs"]["bitext"] for line in last.values()] == [1.0, 2.0]


def test_without_a_mixture_the_log_names_no_corpora(go: Go, two: Path, run: Path) -> None:
    go(dataset=two)
    assert not {"epoch_of", "corpus_pairs"} & set(lines_of(run)[0])


def test_a_mixture_that_does_not_fit_the_dataset_is_refused_at_once(
    complaint: Complaint, two: Path, toy_dataset: Path
) -> None:
    assert "weights names bitex" in complaint("mixing.weights={bitex=1}", dataset=two)
    message = complaint("mixing.weights={bitext=1}", dataset=toy_dataset)
    assert "which is not a corpus of the dataset: there are train." in message


@pytest.mark.slow
def test_a_run_does_not_resume_with_other_corpus_weights(
    go: Go, complaint: Complaint, two: Path, tmp_path: Path
) -> None:
    go(dataset=two)
    shutil.copytree(two, other := tmp_path / "other")
    manifest = json.loads((other / "dataset.json").read_bytes())
    for corpus in manifest["splits"]["train"]["corpora"]:
        corpus["weight"] = 1.0
    (other / "dataset.json").write_text(json.dumps(manifest))
    assert "was trained on another dataset" in complaint("training.max_steps=6", dataset=other)
