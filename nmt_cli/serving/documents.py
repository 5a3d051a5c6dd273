"""The texts of a request, cut into sentences and put together from their translations."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

from nmt_cli.api import Model
from nmt_cli.serving.directions import Direction
from nmt_cli.text.formats import XML_FORMS, Format, blocks_of
from nmt_cli.text.html_language import with_language
from nmt_cli.text.markup import Block
from nmt_cli.text.tag_placement import UNIT, Shares
from nmt_cli.translation.document import Document, Join, Split
from nmt_cli.translation.document import cut as cut_document
from nmt_cli.translation.lines import Translation
from nmt_cli.translation.text.model_glossary import Glossary
from nmt_cli.translation.text.unit_shares import links

LINE_BREAKS = re.compile(r"(\s*\n\s*)")


@dataclass(frozen=True, slots=True)
class TranslationRequest:
    """The texts of a request, and how to translate them."""

    direction: Direction
    texts: Sequence[str]
    alternatives: int = 0
    """Number of further translations per text."""

    markup: Format | None = None
    """The format of the texts. None is plain text."""

    ignored: frozenset[str] = frozenset()
    """Names of elements that are not translated."""

    alignment: bool = False
    """Whether to align the words of each sentence with those of its translation."""

    glossary: Glossary | None = None
    """Terms that the translations have. The direction must have one model."""

    are_fragments: bool = False
    """Whether texts of XML may be parts of documents, which need not be well-formed."""


class WordAlignment(NamedTuple):
    """The words and punctuation marks of a sentence and of its translation."""

    source: Sequence[str]
    target: Sequence[str]
    links: Sequence[Sequence[int]]
    """Sorted pairs of a source word and a target word, counted from 0."""


@dataclass(frozen=True, slots=True)
class TranslatedText:
    """The translation of a text."""

    text: str
    alternatives: Sequence[str] = ()
    """Other translations of the text, best first, without repetitions. Empty for markup."""

    confidence: float = 1.0
    """The mean confidence of its sentences, from 0 to 1. Long sentences count more."""

    alignments: Sequence[WordAlignment] = ()
    """The alignment of each sentence, if requested."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The texts of a request, cut into sentences."""

    request: TranslationRequest
    join: Join
    """Joins the translations of sentences."""

    texts: Sequence[Document]
    sentences: Sequence[str]
    """The sentences of all texts, in order."""

    spaces: Sequence[str]
    """The whitespace after each sentence."""

    @property
    def aligned(self) -> bool:
        """Whether the alignment of words is needed."""
        return self.request.alignment or any(text.has_tags for text in self.texts)

    def translated(self, translations: Sequence[Translation]) -> list[TranslatedText]:
        """Return the translation of each text. `translations` has one for each sentence.

        Alternative n of a text joins candidate n of each sentence, or the last candidate if the sentence has
        fewer. Texts with markup have no alternatives.
        """
        ranks = range(1 if self.request.markup else self.request.alternatives + 1)
        results, left = list[TranslatedText](), iter(translations)
        for text in self.texts:
            own = [*islice(left, len(text.sentences))]
            best, *others = (text.translated([_ranked(one, n) for one in own], self.join) for n in ranks)
            # Otherwise a translated page would still declare the language of its source.
            if self.request.markup in ("html", "xhtml", "xml") and own:
                best = with_language(best, self.request.direction.target)
            alternatives = [other for other in dict.fromkeys(others) if other not in ("", best)]
            aligned = map(alignment, text.sentences, own) if self.request.alignment else ()
            results.append(TranslatedText(best, alternatives, _mean_confidence(own), [*aligned]))
        return results

    def added(self, translations: Sequence[str]) -> str:
        """Return the text that the last of `translations` adds to the translation: the separator before it,
        and itself. After the last sentence, it is followed by the whitespace at the end.

        The request must have one text without markup.
        """
        number = len(translations) - 1
        before = translations[max(0, number - 1) : number]
        spaces = [*self.spaces[number - len(before) : number], ""]
        joined = self.join([*before, translations[-1]], spaces)
        end = self.spaces[number] if number == len(self.spaces) - 1 else ""
        return joined[sum(map(len, before)) :] + end


def cut(request: TranslationRequest, models: Sequence[Model], check: Callable[[int], None]) -> Documents:
    """Cut each text of a request into sentences.

    models: those of the direction. If the first has `input.sentences=keep`, texts are cut into lines
        instead, and the whitespace between lines stays. Otherwise, the target language decides about single
        spaces.
    check: often gets the number of sentences so far. It may raise an error to stop the work.
    """
    by_line = models[0].config.input.sentences == "keep"
    split = _checked(_lines if by_line else models[0].sentences, check)
    join: Join = _joined_lines if by_line else models[-1].joined
    texts = [
        cut_document(
            blocks_of(text, request.markup, request.ignored, request.are_fragments)
            if request.markup
            else [Block(text, text)],
            split,
            is_xml=request.markup in XML_FORMS,
        )
        for text in request.texts
    ]
    sentences = [sentence for text in texts for sentence in text.sentences]
    return Documents(request, join, texts, sentences, [spaces for text in texts for spaces in text.spaces])


def _checked(split: Split, check: Callable[[int], None]) -> Split:
    """Return `split`, followed by a call of `check` with the number of sentences of all texts so far."""
    count = 0

    def checked(text: str) -> tuple[list[str], list[str]]:
        nonlocal count
        sentences, spaces = split(text)
        check(count := count + len(sentences))
        return sentences, spaces

    return checked


def alignment(sentence: str, translation: Translation) -> WordAlignment:
    """Return the alignment of a sentence with its `translation`, which has `shares`."""
    return WordAlignment(UNIT.findall(sentence), UNIT.findall(translation.text), links(translation.shares))


def _lines(text: str) -> tuple[list[str], list[str]]:
    """Return the lines of `text`, and the whitespace after each, blank lines included. The last has ""."""
    parts = [*LINE_BREAKS.split(text), ""]
    return parts[::2], parts[1::2]


def _joined_lines(lines: Sequence[str], spaces: Sequence[str]) -> str:
    return "".join(chain.from_iterable(zip(lines, spaces, strict=True)))


def _ranked(translation: Translation, rank: int) -> tuple[str, Shares]:
    """Return the text of candidate `rank`, from 0, and the alignment of the best candidate. If there are
    fewer candidates, it is the last, and without any the text is empty."""
    candidates = translation.candidates
    return candidates[min(rank, len(candidates) - 1)].text if candidates else "", translation.shares


def _mean_confidence(translations: Sequence[Translation]) -> float:
    """Return the mean confidence of `translations`, weighted by source tokens. Return 1 without tokens."""
    weights = [translation.line.pieces for translation in translations]
    total = sum(one.confidence * weight for one, weight in zip(translations, weights, strict=True))
    return total / sum(weights) if any(weights) else 1.0
