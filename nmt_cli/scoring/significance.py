"""Significance tests of sacrebleu, which compare each system with the first one, the baseline."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from nmt_cli.scoring.config import Test
from nmt_cli.scoring.measures import Counts, Measure


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a test for one system, in one metric."""

    p_value: float | None
    """The p-value of the difference from the first system. None for the first system itself.

    With randomization, it is the probability of a difference at least this large if both systems were equally
    good. The bootstrap is sacrebleu's, whose p-value is too small: of two equally good systems, p is below
    0.05 in 14 % of tests. It subtracts the mean from absolute differences, not from differences with their
    sign.
    """

    mean: float
    margin: float
    """Half of the width of the 95 % confidence interval around `mean`."""

    signature: str


def compare(
    measure: Measure, counts: Sequence[Sequence[Counts]], test: Test, samples: int = 0
) -> list[Finding]:
    """Return the result of a significance test for each system, in the same order.

    - `measure`: the metric that is tested.
    - `counts`: for each line, the counts of each system, as `Measure.counts` yields them.
    - `samples`: the number of resamples or trials, or 0 for sacrebleu's default.
    """
    from sacrebleu.significance import PairedTest

    counter = copy(measure.counter)
    # The hypotheses passed below are already counts.
    vars(counter)["_extract_corpus_statistics"] = lambda system, _: system
    named: list[tuple[str, Any]] = [
        (str(number), system) for number, system in enumerate(zip(*counts, strict=True))
    ]
    paired = PairedTest(
        named,
        {measure.metric: counter},
        references=None,
        test_type="bs" if test == "bootstrap" else "ar",
        n_samples=samples,  # 0 is sacrebleu's default
        # 0 adds confidence intervals to randomization, drawn after the trials. -1 would leave them out.
        n_ar_confidence=-1 if test == "bootstrap" else 0,
    )
    signatures, columns = paired()
    (signature,) = signatures.values()
    (results,) = (column for name, column in columns.items() if name != "System")
    return [
        _finding(result, measure.signature(signature), system == named[0][1])
        for result, (_, system) in zip(results, named, strict=True)
    ]


def _finding(result: Any, signature: str, equals_first: bool) -> Finding:
    p_value = None if result.p_value is None else float(result.p_value)
    if p_value is not None and equals_first:
        p_value = 1.0  # sacrebleu counts only differences larger than 0, so it gives the smallest p-value
    return Finding(p_value, float(result.mean), float(result.ci), signature)
