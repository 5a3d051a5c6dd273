"""The translation directions of the server, each with one model, or with two through a pivot language."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from nmt_cli.errors import UserError
from nmt_cli.language import iso_code, language_in, name_of
from nmt_cli.serving.models import Leg, Served
from nmt_cli.text.model_languages import MANY, listed


@dataclass(frozen=True, slots=True)
class Direction:
    """A pair of languages, and how to translate between them."""

    source: str
    target: str
    legs: Sequence[Leg]
    """One model with its direction, or two in the order of use. The first of two translates into the pivot
    language."""

    @property
    def name(self) -> str:
        """The languages with a hyphen between them, for example "en-de"."""
        return f"{self.source}-{self.target}"


class Directions:
    """All directions of the server. `named` has each direction by a name such as "en-de", and by the name of
    its model. A language in a request may have a region that no model has, such as "EN-US" for "en"."""

    def __init__(self, models: Mapping[str, Served], pivot: str = "") -> None:
        """Add the directions of each of `models`, by name.

        Of several models with one direction, the first translates. With a `pivot` language, also add each
        missing direction that two others make through it. Raise `UserError` for a model that adds nothing.
        """
        self.models = list(models.values())
        self.named: dict[str, Direction] = {}
        self._all: dict[tuple[str, str], Direction] = {}
        for name, model in models.items():
            if not (added := [pair for pair in model.directions if pair not in self._all]):
                source, target = model.directions[0]
                raise UserError(
                    f"{name} translates from {source} to {target}, and so does another model. Use only one."
                )
            self._all |= {pair: Direction(*pair, [Leg(model, *pair)]) for pair in added}
            if not model.needs_direction:
                # Texts may begin with the symbol of a language, such as <2fr>.
                self.named[name] = Direction(*model.languages, [Leg(model, *model.languages)])
        self._usual = {(one.source, one.target): one for one in self.named.values()}
        pivot = language_in(chain.from_iterable(self._all), pivot) or ""
        into = [one for one in self._all.values() if one.target == pivot]
        out = [one for one in self._all.values() if one.source == pivot]
        for first in into:
            for second in out:
                pair = (first.source, second.target)
                if first.source != second.target and pair not in self._all:
                    self._all[pair] = Direction(*pair, [*first.legs, *second.legs])
        self.listed = [*dict.fromkeys([*self.named, *self.pairs])]
        """The names to offer: those of models and directions, without names such as "en-mul"."""

        self.named |= {one.name: one for one in (*self.named.values(), *self._all.values())}
        self.languages = [*dict.fromkeys(chain.from_iterable(self._all))]
        """All source and target languages without repetitions, in the order of the models, source first."""

        names = Counter(map(name_of, self.languages))
        self.names = {
            one: name if names[name] == 1 else f"{name} ({one})"
            for one, name in zip(self.languages, map(name_of, self.languages), strict=True)
        }
        """The English name of each language, with its code if another language has the same name."""

        self._targets: dict[str, list[str]] = {}
        for source, target in self._all:
            self._targets.setdefault(source, []).append(target)
        self.sources = [*self._targets]
        """All source languages without repetitions, in the order of the models."""

    @property
    def pairs(self) -> list[str]:
        """The names of all directions, such as "en-de"."""
        return [one.name for one in self._all.values()]

    def targets(self, source: str) -> list[str]:
        """Return the languages that `source` can be translated into, in the order of the models. `source`
        must be the exact name of a model's language. For other names, return an empty list."""
        return self._targets.get(source, [])

    def offered(self, source: str) -> str:
        """Return a sentence with the languages that `source` can be translated into. If there are none, it
        has all languages to translate from and into. Of many languages, it has the first and their number."""
        sources = [one for one in (self.resolve(source),) if one and self.targets(one)] or self.sources
        targets = dict.fromkeys(target for one in sources for target in self.targets(one))
        return f"The server translates from {listed(sources)} into {listed(targets)}."

    def resolve(self, language: str) -> str | None:
        """Return the name that a model has for `language`, such as "en" for "EN-US", or None if there is
        none."""
        return language_in(self.languages, language)

    def find(self, source: str, target: str) -> Direction | None:
        """Return the direction from `source` to `target`, or None.

        The direction between the names of `resolve` comes first. Otherwise it is the first one between the
        two languages with any regions, unless they are the same language. A model from "mul" translates from
        languages that no model has.
        """
        if exact := self._all.get((self.resolve(source) or "", self.resolve(target) or "")):
            return exact
        # "mul" is not listed, but requests with symbols in their texts name it.
        if usual := self._usual.get((source, target)):
            return usual
        # With models from en to pt_BR and from pt to en, each language resolves to the name of the other
        # model.
        wanted = (iso_code(source), iso_code(target))
        directions = (one for pair, one in self._all.items() if tuple(map(iso_code, pair)) == wanted)
        if wanted[0] != wanted[1] and (found := next(directions, None)):
            return found
        # A model from "mul" reads languages that it does not record.
        return self._all.get((MANY, self.resolve(target) or "")) if not self.resolve(source) else None
