"""Compare the confidence of translations with their quality. Print a table.

python -m recipes.benchmarks.confidence --model MODEL --source test.en --reference test.de

MODEL is a model that `nmt average-checkpoints --select` wrote. The lines must not be in its validation set.
"""

from pathlib import Path

import click
import numpy as np
from sacrebleu.metrics.chrf import CHRF

from nmt_cli.api import load
from nmt_cli.scoring.confidence import GOOD_CHRF
from recipes.benchmarks.machine import method, print_head, print_row

BINS = 10


@click.command(help=method(__doc__))
@click.option("--model", "folder", type=Path, required=True)
@click.option("--source", type=Path, required=True)
@click.option("--reference", type=Path, required=True)
@click.option("--threads", default=2)
def main(folder: Path, source: Path, reference: Path, threads: int) -> None:
    """Print a row for each bin of confidence, then the calibration error and the area under the curve."""
    sources, references = (path.read_text("utf-8").splitlines() for path in (source, reference))
    with load(folder, device="cpu", threads=threads) as model:
        translations = list(model.translations(sources))
    metric = CHRF()
    scores = [
        metric.sentence_score(one.text, [text]).score
        for one, text in zip(translations, references, strict=True)
    ]
    good = np.array(scores) >= GOOD_CHRF
    confidences = np.array([one.confidence for one in translations])
    bins = np.minimum((confidences * BINS).astype(int), BINS - 1)
    print_head("confidence", "lines", "mean confidence", f"chrF2 of {GOOD_CHRF:g} or more")
    error = 0.0
    for number in range(BINS):
        inside = bins == number
        if inside.any():
            mean, share = confidences[inside].mean(), good[inside].mean()
            error += abs(mean - share) * inside.mean()
            print_row(
                f"{number / BINS:g} to {(number + 1) / BINS:g}", inside.sum(), f"{mean:.3f}", f"{share:.3f}"
            )
    print(f"\nCalibration error {error:.3f}, area under the curve {_area(confidences, good):.3f}")


def _area(confidences: np.ndarray, good: np.ndarray) -> float:
    """Return the probability that a good line has more confidence than a bad one. Equal values count half."""
    above, below = confidences[good][:, None], confidences[~good][None]
    return float(((above > below) + 0.5 * (above == below)).mean()) if above.size and below.size else 1.0


if __name__ == "__main__":
    main()
