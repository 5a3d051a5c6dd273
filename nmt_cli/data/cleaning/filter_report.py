"""The filter report: how many pairs of each input were kept and dropped, for what reasons, with a few
samples.

Its page also has histograms, which show the effect of other thresholds. A tally counts pairs by reason. A
noted pair is kept, but should be checked.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from nmt_cli.data.cleaning.clean import CleanBlock
from nmt_cli.data.cleaning.counts import MOST_RATIO, MOST_WORDS, RATIO_STEP, Shapes, Tally
from nmt_cli.data.cleaning.filters import in_order
from nmt_cli.data.config import FilterConfig
from nmt_cli.html.compose import compose

SCRIPTS = ("histograms.js", "page.js")


@dataclass(slots=True)
class CorpusReport:
    """The counts of one input: the pairs that were read, kept, dropped and noted."""

    role: str
    name: str
    read: int
    kept: int = 0
    dropped: Tally = field(default_factory=Tally)
    """The dropped pairs by reason. Only a training set has any."""

    noted: Tally = field(default_factory=Tally)
    """The noted pairs by reason. In validation and test sets, these are also the pairs that the filters would
    drop from a training set."""

    shapes: Shapes = field(default_factory=Shapes)
    """The lengths, ratios and scores of a training set."""

    @property
    def reasons(self) -> set[str]:
        """The reasons for which pairs were dropped or noted."""
        return {*self.dropped.counts, *self.noted.counts}

    def add(self, block: CleanBlock) -> None:
        """Add the counts of a cleaned block."""
        self.kept += len(block.numbers)
        self.dropped.merge(block.dropped)
        self.noted.merge(block.noted)
        self.shapes.merge(block.shapes)

    def state(self) -> dict[str, Any]:
        """Return all counts in types of JSON. `role`, `name` and `read` are not included."""
        return {
            "kept": self.kept,
            "dropped": self.dropped.state(),
            "noted": self.noted.state(),
            "shapes": self.shapes.state(),
        }

    def merge(self, state: Mapping[str, Any]) -> None:
        """Add the counts in `state`, which is the `state()` of another report of the same input."""
        self.kept += state["kept"]
        self.dropped.merge(Tally.of(state["dropped"]))
        self.noted.merge(Tally.of(state["noted"]))
        self.shapes.merge(Shapes.of(state["shapes"]))


@dataclass(slots=True)
class FilterReport:
    """The reports of all inputs of `nmt preprocess`."""

    corpora: list[CorpusReport] = field(default_factory=list)

    def of_role(self, role: str) -> list[CorpusReport]:
        """Return the reports of all inputs with this role: "train", "valid" or "test"."""
        return [corpus for corpus in self.corpora if corpus.role == role]

    def reasons(self) -> str:
        """Return a text with the number of dropped training pairs by reason, the most frequent first."""
        counts: Counter[str] = Counter()
        for corpus in self.of_role("train"):
            counts += corpus.dropped.counts
        return ", ".join(f"{reason}: {count:,}" for reason, count in counts.most_common())

    def as_json(self) -> str:
        """Return the content of `filter-report.json`: a list with an object for each input."""
        return json.dumps([described(corpus) for corpus in self.corpora], indent=1, ensure_ascii=False) + "\n"


def described(corpus: CorpusReport) -> dict[str, Any]:
    """Return the object of one input in the report: role, name, read and kept pairs, and counts and samples
    by reason."""
    tallies = {"dropped": corpus.dropped, "noted": corpus.noted}
    return {
        "role": corpus.role,
        "name": corpus.name,
        "read": corpus.read,
        "kept": corpus.kept,
        **{
            name: {
                reason: {
                    "pairs": count,
                    "samples": [
                        {"number": sample.number, "source": sample.source, "target": sample.target}
                        for sample in tally.samples.get(reason, [])
                    ],
                }
                for reason, count in sorted(tally.counts.items())
            }
            for name, tally in tallies.items()
        },
    }


def filter_page(report: FilterReport, config: FilterConfig, source_lang: str, target_lang: str) -> str:
    """Return the HTML page of a report.

    Training corpora also have histograms, with the thresholds in `config`. The page has no time and no path,
    so that equal datasets have equal pages.
    """
    content = {
        "languages": [source_lang, target_lang],
        "corpora": [
            described(corpus) | ({"shapes": corpus.shapes.described()} if corpus.role == "train" else {})
            for corpus in report.corpora
        ],
        "reasons": in_order(reason for corpus in report.corpora for reason in corpus.reasons),
        "most_words": MOST_WORDS,
        "most_ratio": MOST_RATIO,
        "ratio_step": RATIO_STEP,
        "settings": {
            "max_words": config.max_words,
            "max_ratio": config.max_ratio,
            "min_score": config.min_score,
        },
    }
    return compose("nmt preprocess", resources.files("nmt_cli.data.cleaning") / "page", SCRIPTS, content)
