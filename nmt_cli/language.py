"""What languages are called: "de", or "de-AT" with a region, or "zh_Hant_TW"."""

import re


def without_region(lang: str) -> str:
    """`lang` without its region or script, in lower case."""
    return re.split("[-_]", lang.lower())[0]
