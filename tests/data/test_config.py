"""Settings of corpora and mixtures are read, and impossible ones are refused."""

from pathlib import Path

import pytest

from nmt_cli.config import read
from nmt_cli.data.config import FilterConfig, PreprocessConfig
from nmt_cli.errors import UserError
from nmt_cli.training.config import TrainConfig

CORPORA = """
[filter]
max_words = 100
[[corpus]]
name = "bitext"
path = "data/train"
[[corpus]]
name = "back-translated"
path = "news.en:news.de"
tag = "<BT>"
filters = { max_ratio = 2, duplicates = true }
"""


def test_a_corpus_can_override_the_general_filters(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(CORPORA)
    config = read(PreprocessConfig, file, ["corpus.invalid_utf8=skip"])
    bitext, back = config.corpus.named
    assert bitext.filter(config.filter) == config.filter == FilterConfig(max_words=100)
    assert back.filter(config.filter) == FilterConfig(max_words=100, max_ratio=2, duplicates=True)
    assert (back.path, back.tag, config.corpus.invalid_utf8) == ("news.en:news.de", "<BT>", "skip")


@pytest.mark.parametrize(
    ("corpora", "message"),
    [
        ('{name="a", path="x"}, {name="a", path="y"}', "Two corpora are named a"),
        (
            '{name="a", path="x", weight=1}',
            "corpus.named: weight was removed. Set mixing.weights",
        ),
        ('{name="", path="x"}', "name is ''. Give one line of text"),
        ('{name="a", path="x", tag="2 de"}', "tag is '2 de'. A symbol is one word"),
        ('{name="a", path="x", filters={max_word=3}}', "filters of a: it has no setting max_word"),
        ('{name="a", path="x", filters={max_ratio=0.5}}', "filters of a: max_ratio must be 0, or at least 1"),
    ],
)
def test_invalid_corpora_are_refused(corpora: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(PreprocessConfig, None, [f"corpus.named=[{corpora}]"])


@pytest.mark.parametrize(
    ("mixing", "message"),
    [
        ("weights={a=-1}", "weights has a = -1.0, but the minimum is 0"),
        ('stage=[{until="1 epoch of a"}]', "mixing.stage = .* was removed: a run has one mixture"),
        ('over="tag"', "mixing.over has no effect without mixing.temperature"),
    ],
)
def test_invalid_mixtures_are_refused(mixing: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(TrainConfig, None, [f"mixing.{mixing}"])
