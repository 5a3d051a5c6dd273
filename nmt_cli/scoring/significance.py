"""Tests whether systems differ from the first one by more than chance, as sacrebleu does them."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

from nmt_cli.scoring.config import Test
from nmt_cli.scoring.metrics import Counts, Measure

SEED_VARIABLE, SEED = "SACREBLEU_SEED", "12345"
"""The environment variable that sacrebleu reads its seed from, and sacrebleu's default seed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a test says of one system in one metric."""

    p_value: float | None
    """How likely chance alone gives such a difference from the first system; None for the first itself."""

    mean: float
    margin: float
    """The true score is within `margin` of `mean`, with 95 % confidence."""

    signature: str


def compare(measure: Measure, counts: Sequence[Sequence[Counts]], test: Test, samples: int) -> list[Finding]:
    """A finding for each system, the first being what the others are compared with.

    `counts` has for each line the counts of each system, by `measure`.
    """
    from sacrebleu.significance import PairedTest

    counted = copy(measure.counter)
    # What it is given as hypotheses are their counts already.
    vars(counted)["_extract_corpus_statistics"] = lambda system, _: system
    named: list[tuple[str, Any]] = [
        (str(number), system) for number, system in enumerate(zip(*counts, strict=True))
    ]
    with _default_seed():
        paired = PairedTest(
            named,
            {measure.metric: counted},
            references=None,
            test_type="bs" if test == "bootstrap" else "ar",
            n_samples=samples,  # 0 is sacrebleu's default
            # With -1 there would be no confidence intervals for randomization; with 0 they are drawn, after
            # the trials.
            n_ar_confidence=-1 if test == "bootstrap" else 0,
        )
        signatures, columns = paired()
    (signature,) = signatures.values()
    (results,) = (column for name, column in columns.items() if name != "System")
    return [_finding(result, measure.signature(signature)) for result in results]


def _finding(result: Any, signature: str) -> Finding:
    p_value = None if result.p_value is None else float(result.p_value)
    return Finding(p_value, float(result.mean), float(result.ci), signature)


@contextmanager
def _default_seed() -> Iterator[None]:
    """Set the seed in the environment, which belongs to the whole process, and restore it afterwards."""
    before = os.environ.get(SEED_VARIABLE)
    os.environ[SEED_VARIABLE] = SEED
    try:
        yield
    finally:
        if before is None:
            del os.environ[SEED_VARIABLE]
        else:
            os.environ[SEED_VARIABLE] = before
