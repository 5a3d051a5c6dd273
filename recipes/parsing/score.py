"""Compare the labelled brackets of parses with those of a treebank, like EVALB, and print bracket F1 as JSON.

    python -m recipes.parsing.score TREEBANK PARSES ...

Each line is a tree, bracketed such as (NP (DT the) (NN cat)) or linearised such as (NP DT NN )NP. The rules
are those of EVALB with its published settings (COLLINS.prm). Root brackets, punctuation, function labels and
traces with the brackets around them do not count. ADVP and PRT are equal. Sentences of punctuation only do
not count. There are two differences. EVALB skips a malformed parse, but this module repairs and counts it.
Only the reference decides which words are punctuation.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path

from nmt_cli import __version__
from recipes.parsing import trees
from recipes.parsing.trees import Tree

PUNCTUATION = frozenset({",", ":", "``", "''", "."})
LEFT_OUT = PUNCTUATION | set(trees.ROOTS)
"""Labels of brackets that do not count."""

ONE_LABEL = {"PRT": "ADVP"}
SIGNATURE = f"evalb:collins|roots:out|malformed:repaired|version:{__version__}"

Bracket = tuple[str, int, int]
"""A label, and the numbers of counted words before its start and before its end."""

Reader = Callable[[str, int | None], tuple[Tree, str]]


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of brackets in one or more sentences: matching ones, and all of each side."""

    matched: int = 0
    reference: int = 0
    hypothesis: int = 0

    @property
    def precision(self) -> float:
        """Return the precision in percent, or 0 if the hypothesis has no brackets."""
        return 100 * self.matched / self.hypothesis if self.hypothesis else 0.0

    @property
    def recall(self) -> float:
        """Return the recall in percent, or 0 if the reference has no brackets."""
        return 100 * self.matched / self.reference if self.reference else 0.0

    @property
    def f1(self) -> float:
        """Return F1 in percent, or 0 if neither side has brackets."""
        return 100 * 2 * self.matched / both if (both := self.reference + self.hypothesis) else 0.0

    @property
    def complete(self) -> bool:
        """Return whether every bracket of either side matches a bracket of the other side."""
        return self.matched == self.reference == self.hypothesis


@dataclass(frozen=True, slots=True)
class Comparison:
    """The bracket counts of all lines of a text, and their flaws."""

    lines: list[Counts | None]
    """Counts by line. None for a sentence without a word that counts."""

    flaws: dict[int, str]
    """The first flaw of each malformed line, by line number from 1."""

    @property
    def total(self) -> Counts:
        """Return the sum of the counts of all lines."""
        counted = [line for line in self.lines if line]
        return Counts(
            sum(line.matched for line in counted),
            sum(line.reference for line in counted),
            sum(line.hypothesis for line in counted),
        )

    @property
    def complete_match(self) -> float:
        """Return the percentage of counted sentences in which every bracket is right, or 0 without any."""
        counted = [line.complete for line in self.lines if line]
        return 100 * sum(counted) / len(counted) if counted else 0.0

    def scores(self) -> dict[str, float]:
        """Return F1, precision, recall, and the percentages of complete matches and malformed lines."""
        return {
            "bracket F1": self.total.f1,
            "precision": self.total.precision,
            "recall": self.total.recall,
            "complete match": self.complete_match,
            "malformed": 100 * len(self.flaws) / len(self.lines),
        }


def read_references(lines: Sequence[str], name: str) -> list[Tree]:
    """Return a tree for each line. Read all lines as bracketed if most are, else as linearised. Exit with an
    error, which names the text `name`, for a malformed tree."""
    result = []
    read = _reader(lines)
    for number, line in enumerate(lines, start=1):
        tree, flaw = read(line, None)
        if flaw:
            sys.exit(
                f"Error: {name} line {number:,}: {flaw}; a line must be one tree, bracketed such as "
                "(TOP (NP (DT the) (NN cat))) or linearised such as (NP DT NN )NP."
            )
        result.append(tree)
    return result


def compare(hypotheses: Sequence[str], references: Sequence[Tree]) -> Comparison:
    """Count the brackets of each hypothesis against its reference. Repair malformed hypotheses. Read all
    lines as bracketed if most are, else as linearised. Raise `ValueError` if the numbers of lines differ."""
    lines: list[Counts | None] = []
    flaws: dict[int, str] = {}
    read = _reader(hypotheses)
    for number, (line, reference) in enumerate(zip(hypotheses, references, strict=True), start=1):
        tags = reference.tags
        tree, flaw = read(line, len(tags))
        if not flaw and tree.words and reference.words and tree.words != reference.words:
            pairs = zip(tree.words, reference.words, strict=True)
            flaw = "it has {} instead of {}".format(*next(pair for pair in pairs if pair[0] != pair[1]))
        if flaw:
            flaws[number] = flaw
        # The reference's tags count for the hypothesis too, so that positions agree.
        before = list(accumulate((tag not in PUNCTUATION for tag in tags), initial=0))
        lines.append(_counts(tree, reference, before) if before[-1] else None)
    return Comparison(lines, flaws)


def _reader(lines: Sequence[str]) -> Reader:
    """Return the reader for bracketed trees if most nonempty lines are bracketed, else for linearised."""
    # Only bracketed trees end in a bracket without a label.
    nonempty = [line for line in lines if line.strip()]
    bracketed = sum(line.rstrip().endswith(")") for line in nonempty)
    return trees.repair_bracketed if 2 * bracketed > len(nonempty) else trees.repair_linearised


def _counts(tree: Tree, reference: Tree, before: Sequence[int]) -> Counts:
    """Return the numbers of brackets: matching ones, those in `reference`, and those in the parse `tree`."""
    ours, theirs = Counter(_brackets(tree, before)), Counter(_brackets(reference, before))
    return Counts((ours & theirs).total(), theirs.total(), ours.total())


def _brackets(tree: Tree, before: Sequence[int]) -> Iterator[Bracket]:
    """Yield the brackets that count. `before[i]` is the number of counted words before word i."""
    word, starts = 0, []
    for symbol in tree.symbols:
        match symbol[0]:
            case "(":
                starts.append(before[word])
            case ")":
                # Without function labels and indices, such as NP-SBJ and NP=2.
                label = symbol[1:].split("-")[0].split("=")[0]
                start, end = starts.pop(), before[word]
                if start < end and label not in LEFT_OUT:
                    yield ONE_LABEL.get(label, label), start, end
            case _:
                word += 1


def _read_lines(path: Path) -> list[str]:
    """Return the lines of a file, which end in line feeds only. Exit with an error if it is empty."""
    lines = path.read_text(encoding="utf-8", errors="replace").removesuffix("\n").split("\n")
    return lines if any(lines) else sys.exit(f"Error: {path} has no tree; give a file with one in each line.")


def _scored(path: Path, references: Sequence[Tree]) -> dict[str, object]:
    """Return the scores of the parses in a file, and warn on stderr about malformed parses. Exit with an
    error if the numbers of lines and references differ."""
    hypotheses = _read_lines(path)
    if len(hypotheses) != len(references):
        sys.exit(
            f"Error: {path} has {len(hypotheses):,} lines and the treebank {len(references):,}: "
            "they must match line for line."
        )
    comparison = compare(hypotheses, references)
    if comparison.flaws:
        number, flaw = next(iter(comparison.flaws.items()))
        print(
            f"Warning: {path}: {len(comparison.flaws):,} of {len(hypotheses):,} lines are not a tree of "
            f"their sentence; they were repaired and counted (line {number:,}: {flaw}).",
            file=sys.stderr,
        )
    scores = [
        {"name": name, "score": score, "signature": SIGNATURE} for name, score in comparison.scores().items()
    ]
    return {"system": str(path), "scores": scores, "brackets": asdict(comparison.total)}


def main() -> None:
    """Print the scores of each file of parses as JSON, in the form of `nmt score --json`."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    treebank, *parses = map(Path, sys.argv[1:])
    references = read_references(_read_lines(treebank), str(treebank))
    print(json.dumps({"systems": [_scored(path, references) for path in parses]}, indent=1))


if __name__ == "__main__":
    main()
