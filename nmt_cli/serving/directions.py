"""From which languages into which: by a model, or by two of them with a language between."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nmt_cli.api import Model
from nmt_cli.errors import UserError
from nmt_cli.language import without_region

NAMES = dict(
    entry.split(" ", 1)
    for entry in (
        "af Afrikaans, ar Arabic, az Azerbaijani, be Belarusian, bg Bulgarian, bn Bengali, bs Bosnian, ca "
        "Catalan, cs Czech, cy Welsh, da Danish, de German, el Greek, en English, eo Esperanto, es "
        "Spanish, et Estonian, eu Basque, fa Persian, fi Finnish, fr French, ga Irish, gl Galician, gu "
        "Gujarati, he Hebrew, hi Hindi, hr Croatian, hu Hungarian, hy Armenian, id Indonesian, is "
        "Icelandic, it Italian, ja Japanese, ka Georgian, kk Kazakh, km Khmer, kn Kannada, ko Korean, la "
        "Latin, lo Lao, lt Lithuanian, lv Latvian, mk Macedonian, ml Malayalam, mn Mongolian, mr Marathi, "
        "ms Malay, mt Maltese, my Burmese, nb Norwegian Bokmål, ne Nepali, nl Dutch, nn Norwegian "
        "Nynorsk, no Norwegian, pa Punjabi, pl Polish, ps Pashto, pt Portuguese, ro Romanian, ru Russian, "
        "si Sinhala, sk Slovak, sl Slovenian, sq Albanian, sr Serbian, sv Swedish, sw Swahili, ta Tamil, "
        "te Telugu, th Thai, tl Tagalog, tr Turkish, uk Ukrainian, ur Urdu, uz Uzbek, vi Vietnamese, xh "
        "Xhosa, yi Yiddish, zh Chinese, zu Zulu"
    ).split(", ")
)


@dataclass(frozen=True, slots=True)
class Direction:
    """From one language into another."""

    source: str
    target: str
    models: Sequence[Model]
    """One, or two, the first of which translates into the language between."""

    @property
    def name(self) -> str:
        """Such as "en-de"."""
        return f"{self.source}-{self.target}"


class Directions:
    """All that is served, by languages; a language may be asked for with a region that no model has."""

    def __init__(self, models: Mapping[str, Model], pivot: str = "") -> None:
        """`models` have names to be asked for by; `pivot` is the language between two."""
        self.models = list(models.values())
        self.named: dict[str, Direction] = {}
        self._all: dict[tuple[str, str], Direction] = {}
        for name, model in models.items():
            pair = model.languages
            if pair in self._all:
                raise UserError(
                    f"{name} translates from {pair[0]} to {pair[1]}, as another model does; name only one."
                )
            self._all[pair] = self.named[name] = Direction(*pair, [model])
        into = [one for one in self._all.values() if one.target == pivot]
        out = [one for one in self._all.values() if one.source == pivot]
        for first in into:
            for second in out:
                pair = (first.source, second.target)
                if first.source != second.target and pair not in self._all:
                    self._all[pair] = Direction(*pair, [*first.models, *second.models])
        self.named |= {one.name: one for one in self._all.values()}

    @property
    def languages(self) -> list[str]:
        """Each that is translated from or into, in the order of the models."""
        return list(dict.fromkeys(language for pair in self._all for language in pair))

    @property
    def sources(self) -> list[str]:
        """Each that is translated from."""
        return list(dict.fromkeys(source for source, _ in self._all))

    @property
    def first(self) -> Direction:
        """That of the first model."""
        return next(iter(self._all.values()))

    def targets(self, source: str) -> list[str]:
        """What `source` is translated into."""
        return [target for one, target in self._all if one == source]

    def into(self, target: str) -> list[str]:
        """What is translated into `target`."""
        return [source for source, one in self._all if one == self.known(target)]

    def known(self, language: str) -> str | None:
        """The language as the models call it: en for EN-US, where no model tells regions apart."""
        called = {one.lower().replace("_", "-"): one for one in self.languages}
        wanted = language.lower().replace("_", "-")
        alike = (one for one in self.languages if without_region(one) == without_region(wanted))
        return called.get(wanted) or next(alike, None)

    def find(self, source: str, target: str) -> Direction | None:
        """How to come from `source` to `target`."""
        return self._all.get((self.known(source) or "", self.known(target) or ""))


def name_of(language: str) -> str:
    """What people call a language; its code where that is not known."""
    return NAMES.get(without_region(language), language)
