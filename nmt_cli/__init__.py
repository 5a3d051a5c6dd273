"""Neural machine translation from raw text to scored translations."""

__version__ = "0.2.0"
