"""Before and after the search: a raw line becomes sentences of ids, and hypotheses become a line of text."""

import re
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

from nmt_cli.decoding.config import SearchConfig, TranslateConfig
from nmt_cli.decoding.engine import ListQueue, translated
from nmt_cli.decoding.ensemble import Ensemble
from nmt_cli.decoding.search.hypotheses import Hypothesis, PlaceholdersWanted, Scored, Sentence
from nmt_cli.decoding.search.tree_rules import TreeWanted
from nmt_cli.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.text.placeholders import JOINED, Values, masked, restored, values_of
from nmt_cli.text.tokenizer import Tokenizer
from nmt_cli.text.tokenizers import Tokenizers
from nmt_cli.translation.checks.output_checks import Flag, flags
from nmt_cli.translation.text.consensus import agreed
from nmt_cli.translation.text.long_lines import joined, longest_source, shortened, split
from nmt_cli.translation.text.parses import tree_symbols, written_out

PARTS = 1 << 20
"""A sentence's key is its line's number times this, plus its own number in the line: no line has so many."""

Prepared = tuple[str, list[int], str, Values]
"""A sentence as text and ids, the blanks behind it, and what its symbols stand for."""

LINE_ENDS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
"""Characters that some program takes for the end of a line; a translation is one line for all of them."""


@dataclass(frozen=True, slots=True)
class Candidate(Scored):
    """One translation of a line, as the search found it."""

    text: str
    score: float
    """The hypothesis' score: log-probability divided by length penalty; the sum for a line in parts."""

    parts: Sequence[Hypothesis]
    """One hypothesis for each of the line's sentences; together they are the translation."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of input, cut into the sentences that are searched for."""

    number: int
    """From 1."""

    raw: str
    sentences: Sequence[Sentence]
    """Empty for a line without words; several for a line that is too long, or split into its own."""

    pieces: int
    """Of the whole line, end mark not counted."""

    too_long: bool
    """It has more pieces than the model takes, so that `sentences` are parts of it."""

    prefix_unknown: bool
    """The translation's given beginning has an unknown in it."""

    blanks: Sequence[str] = ("",)
    """What stands behind each of `sentences`, nothing behind the last."""

    values: Sequence[Values] = ()
    """What the placeholders' symbols stand for in each of `sentences`."""


@dataclass(frozen=True, slots=True)
class Translation:
    """A line and its translations."""

    line: Line
    candidates: Sequence[Candidate]
    """Best first; none for a line without words, or one that failed."""

    flags: Sequence[Flag]
    """What is wrong with the best candidate, as far as can be seen."""

    failed: bool
    """Some sentence of the line did not fit into memory, even alone."""

    @property
    def text(self) -> str:
        """The text of the best candidate; empty if there is none, as for a line that `failed`."""
        return self.candidates[0].text if self.candidates else ""

    @property
    def checked_text(self) -> str:
        """As `text`; raises `UserError` if the line failed."""
        if self.failed:
            raise UserError(
                f"line {self.line.number:,} ({self.line.pieces:,} pieces) does not fit into memory; "
                "shorten it, or take a smaller beam."
            )
        return self.text

    @property
    def placeholders(self) -> tuple[int, int]:
        """How many of the source were masked, and how many of these the best candidate has exactly once."""
        each = [one.placeholders.wanted if one.placeholders else () for one in self.line.sentences]
        parts = [part.tokens for part in self.candidates[0].parts] if self.candidates else []
        kept = sum(
            part.count(i) == 1 for wanted, part in zip(each, map(list, parts), strict=False) for i in wanted
        )
        return sum(map(len, each)), kept


class Translator:
    """Prepares lines for the search and turns hypotheses into text, for models that share their
    tokenisers."""

    def __init__(
        self,
        tokenizers: Tokenizers,
        models: Sequence[Transformer],
        config: TranslateConfig,
        trained: int | None = None,
        length_ratio: float = 1.0,
    ) -> None:
        """`trained` is the most tokens of a sentence in training, end mark counted, where that is known;
        `length_ratio` is how many target tokens there were for each source token."""
        self.tokenizers, self.config, self._length_ratio = tokenizers, config, length_ratio
        self.longest = min(longest_source(config.input, model.config, trained) for model in models)
        self.banned = _banned(tokenizers.target, config.search.ban)
        self.trees = tree_symbols(tokenizers.target)
        self._placeholders = tokenizers.recipe.placeholders

    def searching(self, search: SearchConfig) -> "Translator":
        """The same for another search."""
        other = copy(self)
        other.config = replace(self.config, search=search)
        other.banned = _banned(self.tokenizers.target, search.ban)
        return other

    def line(self, number: int, raw: str) -> Line:
        """Line `number` of the input, prepared, as sentences that are not too long for the models."""
        source, _, prefix = raw.partition("\t") if self.config.input.prefix else (raw, "", "")
        target = self.tokenizers.target
        cut = self.split(source) if self.config.input.sentences == "split" else [(source, "")]
        encoded = [one for each, blanks in cut for one in self._encoded(each, blanks)]
        pieces = sum(len(ids) for _, ids, *_ in encoded)
        if too_long := any(len(ids) > self.longest for _, ids, *_ in encoded):
            encoded = [part for sentence in encoded for part in self._fitting(*sentence)]
        prefix = self._masked(prefix, encoded[0][3]) if encoded else prefix
        begins = target.encode(target.prepare(prefix) or target.begin)
        certain = 1 if target.begin else 0
        parts = [
            Sentence(
                key=number * PARTS + part,
                tokens=ids,
                prefix=begins[:certain] if part else begins,
                certain=certain,
                banned=self.banned,
                tree=TreeWanted(self.trees, len(each.split())) if self.trees else None,
                placeholders=self._wanted(ids),
            )
            for part, (each, ids, *_) in enumerate(encoded)
        ]
        between = [blanks for _, _, blanks, _ in encoded[:-1]]
        unknown = target.vocabulary.unknown in begins
        values = [each for *_, each in encoded]
        return Line(number, source, parts, pieces, too_long, unknown, [*between, ""], values)

    def _encoded(self, raw: str, blanks: str) -> list[Prepared]:
        """A sentence prepared and encoded; nothing if it has no words."""
        tokenizer = self.tokenizers.source
        values = values_of(raw, self._placeholders) if self._placeholders else {}
        text = tokenizer.prepare(self._masked(raw, values))
        return [(text, tokenizer.encode(text), blanks, values)] if text else []

    def _masked(self, text: str, values: Values) -> str:
        return masked(text, values) if self._placeholders else text

    def _wanted(self, ids: Sequence[int]) -> PlaceholdersWanted | None:
        """The target's symbols for the placeholders of a source, which are in it once each."""
        if not self._placeholders:
            return None
        sides = (self.tokenizers.source.numbering.symbols, self.tokenizers.target.numbering.symbols)
        both = {sides[0][symbol]: sides[1][symbol] for symbol in self._placeholders}
        wanted = tuple(both[i] for i in ids if i in both)
        joins = ids.count(sides[0][JOINED])
        return PlaceholdersWanted((*both.values(),), wanted, sides[1][JOINED], joins)

    def split(self, text: str) -> list[tuple[str, str]]:
        """The sentences of a raw `text`, each with the blanks behind it."""
        return split(text, self.tokenizers.source.symbols, self.tokenizers.recipe.source_lang)

    def joined(self, translations: Sequence[str], blanks: Sequence[str]) -> str:
        """The translations of what `split` found, as one text."""
        return joined(translations, blanks, self.tokenizers.recipe.target_lang)

    def _fitting(self, text: str, ids: list[int], blanks: str, values: Values) -> list[Prepared]:
        """A prepared sentence, or what is to be translated of it, in parts that fit."""
        if len(ids) <= self.longest:
            return [(text, ids, blanks, values)]
        tokenizer = self.tokenizers.source
        found = shortened(text, self.longest, self.config.input.too_long, tokenizer)
        between = [*(" " for _ in found[1:]), blanks]
        return [
            (part, tokenizer.encode(part), after, values) for part, after in zip(found, between, strict=False)
        ]

    def translation(self, line: Line, found: Sequence[Sequence[Hypothesis] | None]) -> Translation:
        """The translation of `line`, from the hypotheses `found` for each of its sentences, best first.

        None stands for a sentence that did not fit into memory.
        """
        search = self.config.search
        known = [agreed(each, search, self._said) for each in found if each is not None]
        failed = len(known) < len(found)
        # The n-th candidate of a line in parts is made of each part's n-th hypothesis; some may have fewer.
        best = [] if failed or not known else list(zip(*known, strict=False))
        candidates = [self._candidate(line, parts) for parts in best]
        odd: Sequence[Flag] = ()
        if found and not failed and not self.trees:
            text = candidates[0].text if candidates else ""
            pieces = sum(len(hypothesis.tokens) for hypothesis in best[0]) if best else 0
            source_pieces = sum(len(sentence.tokens) for sentence in line.sentences)
            odd = flags(line.raw, text, source_pieces, pieces, self._length_ratio)
        return Translation(line, candidates, odd, failed)

    def _said(self, hypothesis: Hypothesis) -> str:
        return self.tokenizers.target.decode(hypothesis.tokens)

    def translate(self, models: Sequence[Transformer], lines: Sequence[str]) -> list[Translation]:
        """Translate lines that are all there, with `models`, in this thread."""
        ready = [self.line(number, raw) for number, raw in enumerate(lines, start=1)]
        queue = ListQueue([sentence for line in ready for sentence in line.sentences])
        ensemble = Ensemble.of(models, self.config.search)
        every = translated(ensemble, self.config.search, queue)
        found = {sentence.key: hypotheses for sentence, hypotheses in every}
        return [self.translation(line, [found[one.key] for one in line.sentences]) for line in ready]

    def _candidate(self, line: Line, parts: Sequence[Hypothesis]) -> Candidate:
        target = self.tokenizers.target
        ended, entries = target.vocabulary.ended, target.vocabulary.entries
        texts = (
            restored(target.restore(target.decode(part.tokens)), values)
            for part, values in zip(parts, line.values, strict=True)
        )
        said = [(text, blanks) for text, blanks in zip(texts, line.blanks, strict=True) if text]
        blanks = [blanks for _, blanks in said[:-1]] + [""] * bool(said)
        # A model may have learnt to write line ends, but a line must give a line.
        text = LINE_ENDS.sub(" ", self.joined([text for text, _ in said], blanks))
        if self.trees and self.config.output.trees == "bracketed":
            text = written_out(text, self.tokenizers.source.prepare(line.raw).split())
        return Candidate(
            text=text,
            score=sum(part.score for part in parts),
            parts=parts,
            tokens=[entries[i] for part in parts for i in ended(part.tokens)],
            token_scores=[score for part in parts for score in part.token_scores],
        )


def _banned(target: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """The pieces of each text; one that holds what the vocabulary lacks can't be written anyhow."""
    codes = 1 if target.begin else 0
    found = (target.encode(target.prepare(text))[codes:] for text in texts)
    return [ids for ids in found if ids and target.vocabulary.unknown not in ids]
