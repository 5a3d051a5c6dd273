"""Draw the speeds of the tables in `results.md` as bars: `python -m recipes.benchmarks.overview`."""

import re
from pathlib import Path

from recipes.benchmarks.charts import bars

HERE = Path(__file__).parent

TRAINING = {"nmt": "nmt train", "fairseq": "fairseq", "transformers": "Hugging Face Marian"}
"""The rows of the table of training speed, by the name of the bar."""


def overview(results: str) -> str:
    """Return the SVG of the speeds in the text of `results.md`."""
    base = results.split("A model of the base size")[1].split("## ")[0]
    rows = re.findall(r"^\| (\w+) (fp32|int8) \| 1 \| ([\d,]+) \|[^|]*\| ([\d.]+) \|", base, re.MULTILINE)
    lines = {f"{engine} {precision}": float(line) for engine, precision, _, line in rows}
    files = {f"{engine} {precision}": _number(words) for engine, precision, words, _ in rows}
    training = {
        name: _number(re.findall(rf"^\| base, `?{row}`? \| ([\d,]+) \|", results, re.MULTILINE)[0])
        for name, row in TRAINING.items()
    }
    return bars(
        {
            "Translation of one line, base model, one thread: milliseconds (less is better)": lines,
            "Translation of a file, base model, one thread: words per second": files,
            "Training of a base model, two cores, fp32: target tokens per second": training,
        }
    )


def _number(text: str) -> float:
    """Return a number with commas as a float."""
    return float(text.replace(",", ""))


if __name__ == "__main__":
    svg = overview((HERE / "results.md").read_text(encoding="utf-8"))
    (HERE / "overview.svg").write_text(svg, encoding="utf-8")
