"""From a raw line to sentences for the search: split, masked, encoded, cut if too long, and numbered."""

from collections.abc import Sequence
from dataclasses import replace

from nmt_cli.decoding.config import InputConfig
from nmt_cli.decoding.search.hypotheses import PlaceholdersWanted, Sentence
from nmt_cli.errors import UserError
from nmt_cli.text.placeholders import JOINED, MASKED, Values, masked, restored, values_of
from nmt_cli.text.tokenizers import Tokenizers
from nmt_cli.translation.call_options import CallOptions
from nmt_cli.translation.lines import MAX_PARTS, Line
from nmt_cli.translation.text.long_lines import parts, split


class Segmenter:
    """Cuts raw lines into numbered sentences for models that share their tokenizers."""

    def __init__(self, tokenizers: Tokenizers, config: InputConfig, longest: int, limit: int) -> None:
        """Prepare for models with `tokenizers`.

        longest: maximum number of source tokens of a sentence, without the end token.
        limit: maximum number of target tokens, with the end token. 0 is no limit.
        """
        self._tokenizers, self._config, self._limit = tokenizers, config, limit
        self.longest = longest
        self._placeholders = tokenizers.recipe.placeholders
        self._has_symbols = JOINED in tokenizers.recipe.symbols
        self._code = tokenizers.source.encode(tokenizers.source.begin)
        """The tokens of an empty source: a language code, or none."""

    def directed(self, tokenizers: Tokenizers) -> "Segmenter":
        """Return a segmenter for the same models with the `tokenizers` of another direction."""
        return Segmenter(tokenizers, self._config, self.longest, self._limit)

    def split(self, text: str) -> list[tuple[str, str]]:
        """Split a raw text in the source language into pairs of a sentence and the whitespace after it."""
        return split(text, self._tokenizers.source.symbols, self._tokenizers.recipe.source_lang)

    def line(self, number: int, raw: str, options: CallOptions) -> Line:
        """Cut raw text, as line `number` from 1, into sentences for the search.

        With `input.prefix`, the text after the first tab starts the translation. Raise `UserError` for more
        than `MAX_PARTS` sentences, and for a translation that has to be longer than the model can write.
        """
        source, _, prefix = raw.partition("\t") if self._config.prefix else (raw, "", "")
        texts = self.split(source) if self._config.sentences == "split" else [(source, "")]
        cut = [self._cut(number, text, spaces, options) for text, spaces in texts]
        sentences = [sentence for own, _ in cut for sentence in own]
        if (count := len(sentences)) > MAX_PARTS:
            raise UserError(f"line {number:,} has {count:,} sentences, more than {MAX_PARTS:,}. Split it.")
        too_long = any(tokens > self.longest for _, tokens in cut)
        target = self._tokenizers.target
        begin = target.prepare(self._masked(prefix, sentences[0].values) if sentences else prefix)
        begins = target.encode(begin or target.begin)
        certain = 1 if target.begin else 0  # the language code, which the model need not guess
        # Without symbols for placeholders, lost ones are put back by the alignment of words.
        lossy = not self._placeholders and MASKED.search(source) is not None
        sentences = [
            replace(
                sentence,
                # Unique, because no line has more sentences than `MAX_PARTS`.
                key=number * MAX_PARTS + index,
                # Each sentence begins with the language code, but only the first has the prefix.
                prefix=begins[:certain] if index else begins,
                certain=certain,
                aligned=options.aligned or lossy,
            )
            for index, sentence in enumerate(sentences)
        ]
        # Checked here, because an error in the search would end all requests and name no line.
        self._refuse_unwritable(number, sentences)
        pieces = sum(tokens for _, tokens in cut)
        return Line(number, source, sentences, pieces, too_long, target.vocabulary.unknown in begins)

    def _cut(self, number: int, raw: str, spaces: str, options: CallOptions) -> tuple[list[Sentence], int]:
        """Encode `raw`, a text of line `number`, as sentences for the search. Return them and the number of
        tokens of the whole text.

        `spaces` is the whitespace after the text. A text without tokens has no sentence. If it is too long,
        it becomes several. The caller sets the key and the beginning of the translation (prefix) of each
        sentence.
        """
        tokenizer, glossary = self._tokenizers.source, options.glossary
        values = values_of(raw, self._placeholders) if self._placeholders else {}
        text = tokenizer.prepare(self._masked(raw, values))
        # The normaliser of an imported model may leave nothing of a text, such as a byte order mark.
        ids = tokenizer.encode(text) if text else self._code
        if ids == self._code:
            return [], 0

        def sentence(text: str, ids: list[int], raw: str, spaces: str) -> Sentence:
            annotated = glossary.annotated(text, self.longest, options.search) if glossary else []
            return Sentence(
                key=0,
                tokens=annotated or ids,
                banned=options.banned,
                placeholders=self._required(ids),
                terms=glossary.wanted(number, text, self.longest, options.search) if glossary else (),
                rule=options.rule,
                raw=raw,
                values=values,
                spaces=spaces,
            )

        if len(ids) <= self.longest:
            return [sentence(text, ids, raw, spaces)], len(ids)
        cut = [*parts(text, self.longest, tokenizer)]
        after = [*(" " for _ in cut[1:]), spaces]
        own = [
            sentence(part, tokenizer.encode(part), restored(tokenizer.restore(part), values), blank)
            for part, blank in zip(cut, after, strict=False)
        ]
        return own, len(ids)

    def _masked(self, text: str, values: Values) -> str:
        """Return `text` with the symbols in `values` in place of its placeholders. Text that looks like a
        symbol is split, so that it is not taken for one."""
        return masked(text, values) if self._has_symbols else text

    def _required(self, ids: Sequence[int]) -> PlaceholdersWanted | None:
        """Return the rules for placeholders in a translation of the source tokens `ids`, or None if the model
        has no placeholders."""
        if not self._placeholders:
            return None
        source, target = (
            side.numbering.symbols for side in (self._tokenizers.source, self._tokenizers.target)
        )
        symbols = {source[symbol]: target[symbol] for symbol in self._placeholders}
        return PlaceholdersWanted(
            symbols=(*symbols.values(),),
            wanted=tuple(symbols[i] for i in ids if i in symbols),
            join=target[JOINED],
            joins=ids.count(source[JOINED]),
        )

    def _refuse_unwritable(self, number: int, sentences: Sequence[Sentence]) -> None:
        """Raise `UserError` if the model lacks positions for all tokens that a translation of `sentences`
        must have. They are those of line `number`."""
        required = max((one.least_tokens for one in sentences), default=0)
        if self._limit and required >= self._limit:
            raise UserError(
                f"line {number:,} requires a translation of {required:,} tokens (prefix, terms, "
                f"placeholders), but the model writes at most {self._limit - 1:,}. Shorten it."
            )
