"""Makes `filter-report.html`, which shows the dropped pairs and the effect of other thresholds."""

from importlib import resources

from nmt_cli.data.cleaning.filters import REASONS
from nmt_cli.data.cleaning.report import FilterReport, described
from nmt_cli.data.cleaning.shapes import MOST_RATIO, MOST_WORDS, RATIO_STEP
from nmt_cli.data.config import FilterConfig
from nmt_cli.html.compose import compose

SCRIPTS = ("histograms.js", "page.js")


def filter_page(report: FilterReport, config: FilterConfig, source_lang: str, target_lang: str) -> str:
    """Return the HTML page of `report`, with histograms and the thresholds in `config` for training corpora.
    The page has no time and no path, so that equal datasets have equal pages."""
    content = {
        "languages": [source_lang, target_lang],
        "corpora": [
            described(corpus) | ({"shapes": corpus.shapes.described()} if corpus.role == "train" else {})
            for corpus in report.corpora
        ],
        "reasons": REASONS,
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
