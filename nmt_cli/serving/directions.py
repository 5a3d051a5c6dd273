"""The translation directions of the server, each with one model, or with two through a pivot language."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nmt_cli.errors import UserError
from nmt_cli.language import iso_code, language_in
from nmt_cli.serving.models import Served


@dataclass(frozen=True, slots=True)
class Direction:
    """A pair of languages, and how to translate between them."""

    source: str
    target: str
    models: Sequence[Served]
    """One model, or two in the order of use. The first of two translates into the pivot language."""

    @property
    def name(self) -> str:
        """The languages with a hyphen between them, for example "en-de"."""
        return f"{self.source}-{self.target}"


class Directions:
    """All directions of the server. `named` has each direction by a name such as "en-de", and by the name of
    its model. A language in a request may have a region that no model has, such as "EN-US" for "en"."""

    def __init__(self, models: Mapping[str, Served], pivot: str = "") -> None:
        """Add the direction of each of `models`, by name.

        With a `pivot` language, also add each missing direction that two models make through it. Raise
        `UserError` if two models have the same direction.
        """
        self.models = list(models.values())
        self.named: dict[str, Direction] = {}
        self._all: dict[tuple[str, str], Direction] = {}
        for name, model in models.items():
            pair = model.languages
            if pair in self._all:
                raise UserError(
                    f"{name} translates from {pair[0]} to {pair[1]}, and so does another model. Use only one."
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
        """All source and target languages without repetitions, in the order of the models, source first."""
        return list(dict.fromkeys(language for pair in self._all for language in pair))

    @property
    def sources(self) -> list[str]:
        """All source languages without repetitions, in the order of the models."""
        return list(dict.fromkeys(source for source, _ in self._all))

    def targets(self, source: str) -> list[str]:
        """Return the languages that `source` can be translated into, in the order of the models. `source`
        must be the exact name of a model's language. For other names, return an empty list."""
        return [target for one, target in self._all if one == source]

    def offered(self, source: str) -> str:
        """Return a sentence with the languages that `source` can be translated into. If there are none, it
        has all languages to translate from and into."""
        sources = [one for one in (self.resolve(source),) if one and self.targets(one)] or self.sources
        targets = dict.fromkeys(target for one in sources for target in self.targets(one))
        return f"The server translates from {', '.join(sources)} into {', '.join(targets)}."

    def resolve(self, language: str) -> str | None:
        """Return the name that a model has for `language`, such as "en" for "EN-US", or None if there is
        none."""
        return language_in(self.languages, language)

    def find(self, source: str, target: str) -> Direction | None:
        """Return the direction from `source` to `target`, or None.

        The direction between the names of `resolve` comes first. Otherwise it is the first one between the
        two languages with any regions, unless they are the same language.
        """
        if exact := self._all.get((self.resolve(source) or "", self.resolve(target) or "")):
            return exact
        # With models from en to pt_BR and from pt to en, each language resolves to the name of the other
        # model.
        wanted = (iso_code(source), iso_code(target))
        directions = (one for pair, one in self._all.items() if tuple(map(iso_code, pair)) == wanted)
        return next(directions, None) if wanted[0] != wanted[1] else None
