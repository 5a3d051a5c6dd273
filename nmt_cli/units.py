"""Durations, sizes and numbers of things as people read them."""


def counted(count: int, noun: str) -> str:
    """Return a number with its noun. The noun gets an "s" unless the number is 1: "1 line", "2,000 lines"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return seconds in s, min, h or, from two days on, days. Below ten, add a decimal unless 0: "5.3 h"."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        # Two days are the first that read better than hours.
        if seconds >= size * (2 if unit == "days" else 1):
            return f"{_short(seconds / size)} {unit}"
    return f"{_short(seconds)} s"


def size(count: int) -> str:
    """Return a number of bytes as text in bytes, kB, MB or GB (powers of 1,000): "3.1 MB", "1,400 GB"."""
    power, unit = next(
        (10**n, unit)
        for n, unit in ((9, "GB"), (6, "MB"), (3, "kB"), (0, "bytes"))
        if count >= 10**n or not n
    )
    return f"{_short(count / power)} {unit}"


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if value < 9.95 else f"{value:,.0f}"
