"""Preparation of raw lines for the search, and conversion of hypotheses back to text.

A line is cut into sentences. The search returns hypotheses of each sentence. One hypothesis of each sentence,
joined, is a candidate: a translation of the line.
"""

import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import torch

from nmt_cli.decoding.batch import ListQueue
from nmt_cli.decoding.config import SearchConfig, TooLong, TranslateConfig
from nmt_cli.decoding.ensemble import limit_of
from nmt_cli.decoding.search.hypotheses import Hypothesis, PlaceholdersWanted, Scored, Sentence
from nmt_cli.engine.decoder import Decoder
from nmt_cli.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.scoring.confidence import Calibration
from nmt_cli.text.placeholders import JOINED, MASKED, Values, masked, restored, values_of
from nmt_cli.text.tag_placement import Shares
from nmt_cli.text.tokenizer import Tokenizer
from nmt_cli.text.tokenizers import Tokenizers
from nmt_cli.translation.checks.output_checks import Flag, check_finite, flags, terms_flag
from nmt_cli.translation.text.consensus import Choice
from nmt_cli.translation.text.glossary import Glossary
from nmt_cli.translation.text.long_lines import joined, longest_source, parts, split
from nmt_cli.translation.text.lost_placeholders import with_placeholders
from nmt_cli.translation.text.ranking import Scorer, check_scorer, rank, searched
from nmt_cli.translation.text.unit_shares import unit_shares

MAX_PARTS = 1 << 20
"""Maximum number of sentences per line. The key of a sentence is `line number * MAX_PARTS + index`."""

PARTS: Mapping[TooLong, int | None] = {"split": None, "cut": 1, "skip": 0}
"""Maximum number of parts of a too long sentence to translate, by `input.too_long`."""

LINE_ENDS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
"""Characters that some programs treat as the end of a line."""


def line_number(sentence: Sentence) -> int:
    """Return the number of the line, from 1, that `sentence` is part of."""
    return sentence.key // MAX_PARTS


class Prepared(NamedTuple):
    """A sentence ready for the search: prepared `text` with placeholder symbols, and its tokens `ids`."""

    text: str
    ids: list[int]
    spaces: str
    """The whitespace after the sentence."""

    values: Values
    """The text that each placeholder symbol represents in this sentence."""

    raw: str
    """The text as in the line, but prepared if it is only a part of a sentence."""


@dataclass(frozen=True, slots=True, repr=False)
class Candidate(Scored):
    """A translation of a complete line, joined from one hypothesis per sentence."""

    text: str
    score: float
    """The sum of the scores of `parts`. A score is the log-probability divided by the length penalty."""

    parts: Sequence[Hypothesis]
    """One hypothesis for each sentence of the line, in order."""

    def __repr__(self) -> str:
        return f"<Candidate {self.text!r}, score {self.score:.3f}>"

    @property
    def rank_score(self) -> float | None:
        """The mean of the scores that ranked `parts`, or None if `score` did."""
        scores = [part.rank_score for part in self.parts if part.rank_score is not None]
        return sum(scores) / len(scores) if scores else None


@dataclass(frozen=True, slots=True)
class Line:
    """A line of input, cut into the sentences to translate."""

    number: int
    """From 1."""

    raw: str
    sentences: Sequence[Sentence]
    """Empty for a line without words. Several if the line is too long or `input.sentences` is "split"."""

    pieces: int
    """Number of subword tokens of the complete line, without end tokens."""

    too_long: bool
    """Whether some sentence had more tokens than the model accepts, and was split, cut or skipped."""

    prefix_unknown: bool
    """Whether the required beginning of the translation contains an unknown token."""

    prepared: Sequence[Prepared] = ()
    """The text of each of `sentences`."""


Done = tuple[Line, Sequence[Sequence[Hypothesis] | None]]
"""A line and the hypotheses of each of its sentences. None means that a sentence did not fit into memory."""


@dataclass(frozen=True, slots=True, repr=False)
class Translation:
    """A line, its translations, and signs that the best translation is wrong."""

    line: Line
    candidates: Sequence[Candidate]
    """Best first. Empty for a line without words and for a line that failed."""

    flags: Sequence[Flag]
    """Signs that the best candidate is wrong, such as "looping"."""

    failed: bool
    """Whether some sentence of the line did not fit into memory, even alone. Then there are no candidates."""

    shares: Shares = ()
    """The alignment of the best candidate, if requested."""

    confidence: float = 0.0
    """From 0 to 1: the probability that the best candidate is good, if the model is calibrated. Otherwise the
    geometric mean of its token probabilities. 1 for a line without words, 0 without a candidate."""

    def __repr__(self) -> str:
        signs = ", ".join(("failed", *self.flags) if self.failed else self.flags)
        return f"<Translation {self.text!r}, confidence {self.confidence:.2f}{signs and f', {signs}'}>"

    @property
    def text(self) -> str:
        """The text of the best candidate, or "" if there is none."""
        return self.candidates[0].text if self.candidates else ""

    @property
    def checked_text(self) -> str:
        """The text of the best candidate, or "". Raise `UserError` if the line did not fit into memory."""
        if self.failed:
            raise UserError(
                f"line {self.line.number:,} ({self.line.pieces:,} tokens) does not fit into memory. "
                "Shorten it, or use a smaller beam."
            )
        return self.text


class Translator:
    """Converts raw lines to sentences and hypotheses to text, for models that share their tokenizers."""

    def __init__(
        self,
        tokenizers: Tokenizers,
        models: Sequence[Transformer],
        config: TranslateConfig,
        trained: int | None = None,
        length_ratio: float = 1.0,
        calibration: Calibration | None = None,
        scorer: Scorer | None = None,
    ) -> None:
        """`trained` is the maximum number of tokens of training sentences, with the end token, None if
        unknown. `length_ratio` is the mean number of target tokens per source token in training.
        `calibration` gives the confidence of translations, and `scorer` ranks them."""
        self.tokenizers, self.config, self._length_ratio = tokenizers, config, length_ratio
        self._calibration, self.scorer = calibration, scorer
        self.longest = min(longest_source(config.input, model.config, trained) for model in models)
        self.limit = limit_of(models)
        self.banned = _banned(tokenizers.target, config.search.ban)
        self._placeholders, self._aligned = tokenizers.recipe.placeholders, False
        self.in_fp16 = models[0].output_matrix.dtype == torch.float16
        self._masks = JOINED in tokenizers.recipe.symbols
        self._code = tokenizers.source.encode(tokenizers.source.begin)
        self._glossary: Glossary | None = None

    def searching(
        self, search: SearchConfig, aligned: bool = False, glossary: Glossary | None = None
    ) -> "Translator":
        """Return a copy with the settings `search`, whose translations have the terms of `glossary`. If
        `aligned`, the hypotheses of each sentence have their attention to the source. Raise `UserError` if
        the settings do not suit the scorer."""
        check_scorer(search, self.scorer)
        other = copy(self)
        other.config, other._aligned = replace(self.config, search=search), aligned
        other._glossary, other.banned = glossary, _banned(self.tokenizers.target, search.ban)
        return other

    def line(self, number: int, raw: str) -> Line:
        """Cut raw text, as line `number` from 1, into sentences for the search. With `input.prefix`, the text
        after the first tab starts the translation. Raise `UserError` for more than `MAX_PARTS` sentences, and
        as `_can_write` does."""
        source, _, prefix = raw.partition("\t") if self.config.input.prefix else (raw, "", "")
        target = self.tokenizers.target
        cut = self.split(source) if self.config.input.sentences == "split" else [(source, "")]
        sentences = [one for text, spaces in cut for one in self._encoded(text, spaces)]
        pieces = sum(len(one.ids) for one in sentences)
        if too_long := any(len(one.ids) > self.longest for one in sentences):
            sentences = [part for one in sentences for part in _fitting(one, self)]
        if (count := len(sentences)) > MAX_PARTS:
            raise UserError(f"line {number:,} has {count:,} sentences, more than {MAX_PARTS:,}. Split it.")
        prefix = self._masked(prefix, sentences[0].values) if sentences else prefix
        # Without symbols for placeholders, lost ones are put back by the alignment of words.
        lossy = not self._placeholders and MASKED.search(source) is not None
        begins = target.encode(target.prepare(prefix) or target.begin)
        certain, used, search = 1 if target.begin else 0, self._glossary, self.config.search
        keyed = [
            Sentence(
                key=number * MAX_PARTS + part,
                tokens=(used and used.annotated(one.text, self.longest, search)) or one.ids,
                prefix=begins[:certain] if part else begins,
                certain=certain,
                banned=self.banned,
                placeholders=_required(self.tokenizers, one.ids),
                aligned=self._aligned or lossy,
                terms=used.wanted(number, one.text, self.longest, search) if used else (),
            )
            for part, one in enumerate(sentences)
        ]
        if not _can_write(self, number, keyed):
            keyed, sentences, too_long = [], [], True
        return Line(number, source, keyed, pieces, too_long, target.vocabulary.unknown in begins, sentences)

    def _encoded(self, raw: str, spaces: str) -> list[Prepared]:
        """Return a sentence with placeholders masked, prepared and encoded, as a list of one item. Return an
        empty list if no text is left. `spaces`, the whitespace after the sentence, is passed on."""
        tokenizer = self.tokenizers.source
        values = values_of(raw, self._placeholders) if self._placeholders else {}
        text = tokenizer.prepare(self._masked(raw, values))
        # The normaliser of an imported model may leave nothing of a text, such as a byte order mark.
        ids = tokenizer.encode(text) if text else self._code
        return [] if ids == self._code else [Prepared(text, ids, spaces, values, raw)]

    def _masked(self, text: str, values: Values) -> str:
        """Return `text` with the symbols in `values` for its placeholders. Split text that looks like one."""
        return masked(text, values) if self._masks else text

    def split(self, text: str) -> list[tuple[str, str]]:
        """Split a raw text in the source language into pairs of a sentence and the whitespace after it."""
        return split(text, self.tokenizers.source.symbols, self.tokenizers.recipe.source_lang)

    def joined(self, translations: Sequence[str], spaces: Sequence[str]) -> str:
        """Join translations of sentences. `spaces` is the whitespace after each source sentence."""
        return joined(translations, spaces, self.tokenizers.recipe.target_lang)

    def translations(self, lines: Sequence[Done]) -> list[Translation]:
        """Build the translations of `lines`. Rank the hypotheses of all by `search.mbr` or the scorer, if
        set. Raise `UserError` if the scorer fails, or if log-probabilities overflow in fp16."""
        if self.scorer or self.config.search.mbr != "off":
            lines = _ranked(self, lines)
        return [self._translation(*one) for one in lines]

    def _translation(self, line: Line, hypotheses: Sequence[Sequence[Hypothesis] | None]) -> Translation:
        """Build the translation of `line`. `hypotheses` has a list per sentence, best first, or None if the
        sentence did not fit into memory. With a None, the line fails, without candidates or flags."""
        ranked = [part for part in hypotheses if part is not None]
        check_finite(line.number, all(ranked), self.in_fp16)  # a search drops hypotheses that are not finite
        failed = len(ranked) < len(hypotheses)
        # Candidate n of a line consists of hypothesis n of each part. Some parts may have fewer hypotheses.
        best = [] if failed or not ranked else list(zip(*ranked, strict=False))
        candidates = [_candidate(self, line, parts) for parts in best]
        shares: Shares = ()
        if candidates and line.sentences[0].aligned:
            values = [one.values for one in line.prepared]
            whole = not line.too_long or self.config.input.too_long == "split"
            for number, one in reversed([*enumerate(candidates)]):  # the best comes last, and its shares stay
                shares = unit_shares(self.tokenizers, line.raw, line.sentences, values, one.text, one.parts)
                if not self._placeholders and whole:
                    text, shares = with_placeholders(line.raw, one.text, shares)
                    candidates[number] = replace(one, text=text)
        raised: Sequence[Flag] = ()
        if hypotheses and not failed:
            text = candidates[0].text if candidates else ""
            pieces = sum(len(hypothesis.tokens) for hypothesis in best[0]) if best else 0
            source_pieces = sum(len(sentence.tokens) for sentence in line.sentences)
            raised = flags(line.raw, text, source_pieces, pieces, self._length_ratio)
            parts = zip(line.sentences, best[0], strict=True) if best else ()
            forced = [score for sentence, part in parts if sentence.terms for score in part.token_scores]
            raised = (*raised, *terms_flag(forced))
        # A line without words is certain, one that was skipped is not.
        confidence = candidates[0].probability if candidates else float(not hypotheses and not line.too_long)
        if candidates and self._calibration:
            confidence = self._calibration(confidence)
        if not failed and confidence < self.config.input.least_confidence:
            raised = (*raised, "unsure")
        return Translation(line, candidates, raised, failed, shares, confidence)

    def text(self, hypothesis: Hypothesis, values: Values) -> str:
        """Return the text of a hypothesis, with `values` for symbols of placeholders."""
        target = self.tokenizers.target
        return restored(target.restore(target.decode(hypothesis.tokens)), values)

    def translate(self, decoder: Decoder, lines: Sequence[str]) -> list[Translation]:
        """Return the translation of each of `lines`, in order, in the calling thread."""
        prepared = [self.line(number, raw) for number, raw in enumerate(lines, start=1)]
        queue = ListQueue([sentence for line in prepared for sentence in line.sentences])
        search = searched(self.config.search, self.scorer)
        results = decoder.translated(search, queue, threads=lambda sentences: torch.get_num_threads())
        hypotheses = {sentence.key: ranked for sentence, ranked in results}
        return self.translations(
            [(line, [hypotheses[one.key] for one in line.sentences]) for line in prepared]
        )


def _can_write(translator: Translator, number: int, sentences: Sequence[Sentence]) -> bool:
    """Return whether the model has positions for all required tokens of each of `sentences`, those of line
    `number`. If not, and too long lines are not skipped, raise `UserError`."""
    required, limit = max((one.least_tokens for one in sentences), default=0), translator.limit
    if not limit or required < limit:
        return True
    if translator.config.input.too_long == "skip":
        return False
    raise UserError(
        f"line {number:,} requires a translation of {required:,} tokens (prefix, terms, placeholders), but "
        f"the model writes at most {limit - 1:,}. Shorten it, or set input.too_long=skip."
    )


def _fitting(sentence: Prepared, translator: Translator) -> list[Prepared]:
    """Return [`sentence`] if it has at most `longest` tokens. Otherwise cut parts of at most that length.
    By `input.too_long`, return all parts ("split"), the first ("cut"), or [] ("skip")."""
    longest, tokenizer = translator.longest, translator.tokenizers.source
    if len(sentence.ids) <= longest:
        return [sentence]
    cut = [*islice(parts(sentence.text, longest, tokenizer), PARTS[translator.config.input.too_long])]
    spaces = [*(" " for _ in cut[1:]), sentence.spaces]

    def raw(part: str) -> str:
        return restored(tokenizer.restore(part), sentence.values)

    return [
        sentence._replace(text=part, ids=tokenizer.encode(part), spaces=after, raw=raw(part))
        for part, after in zip(cut, spaces, strict=False)
    ]


def _ranked(translator: Translator, lines: Sequence[Done]) -> list[Done]:
    """Return `lines` with the best hypotheses of each sentence, best first, as `rank` returns them."""
    choices = [
        Choice(one.raw, part, [translator.text(each, one.values) for each in part])
        for line, parts in lines
        for one, part in zip(line.prepared, parts, strict=True)
        if part
    ]
    best = iter(rank(choices, translator.config.search, translator.scorer))
    return [(line, [next(best) if part else part for part in parts]) for line, parts in lines]


def _candidate(translator: Translator, line: Line, parts: Sequence[Hypothesis]) -> Candidate:
    """Join one hypothesis of each sentence. Restore placeholders, and replace line ends by spaces."""
    target = translator.tokenizers.target
    ended, entries = target.vocabulary.ended, target.vocabulary.entries
    pairs = zip(parts, line.prepared, strict=True)
    texts = [(translator.text(part, one.values), one.spaces) for part, one in pairs]
    written = [(text, spaces) for text, spaces in texts if text]
    spaces = [spaces for _, spaces in written[:-1]] + [""] * bool(written)
    # A model may have learnt to write line ends, but the translation of a line must be one line.
    text = LINE_ENDS.sub(" ", translator.joined([text for text, _ in written], spaces))
    return Candidate(
        text=text,
        score=sum(part.score for part in parts),
        parts=parts,
        tokens=[entries[i] for part in parts for i in ended(part.tokens)],
        token_scores=[score for part in parts for score in part.token_scores],
    )


def _banned(target: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of each text that translations must not contain. Leave out empty texts, and texts
    with unknown tokens, which translations cannot contain."""
    codes = 1 if target.begin else 0
    encoded = (target.encode(target.prepare(text))[codes:] for text in texts)
    return [ids for ids in encoded if ids and target.vocabulary.unknown not in ids]


def _required(tokenizers: Tokenizers, ids: Sequence[int]) -> PlaceholdersWanted | None:
    """Return the rules for placeholders in a translation, or None if the model has no placeholders. `ids` are
    the source tokens. The rules have the target symbols of all placeholders, those in `ids`, in order, the
    target symbol of `JOINED`, and its count in `ids`."""
    if not tokenizers.recipe.placeholders:
        return None
    source, target = tokenizers.source.numbering.symbols, tokenizers.target.numbering.symbols
    symbols = {source[symbol]: target[symbol] for symbol in tokenizers.recipe.placeholders}
    required = tuple(symbols[i] for i in ids if i in symbols)
    return PlaceholdersWanted((*symbols.values(),), required, target[JOINED], ids.count(source[JOINED]))
