"""Settings of text processing: normalisation, tokenisation, sampling and augmentation."""

from dataclasses import astuple, dataclass
from typing import Literal

from nmt_cli.config import Section, changed, check, setting
from nmt_cli.errors import UserError
from nmt_cli.setting_values import Bounds
from nmt_cli.text.placeholders import OURS, family

Kind = Literal["sentencepiece", "bpe", "char", "word"]


def refuse_invalid_symbol(subject: str, symbol: str) -> None:
    """Raise `UserError`, beginning with `subject`, if `symbol` is "", has whitespace, or is "</s>", "<unk>"
    or a placeholder symbol such as ⟦1⟧."""
    if symbol.split() != [symbol] or symbol in ("</s>", "<unk>"):
        raise UserError(f"{subject} {symbol!r}. A symbol is one word, and not </s> or <unk>.")
    if OURS.fullmatch(symbol):
        raise UserError(f"{subject} {symbol}, which is reserved. Set tokenizer.placeholders instead.")


@dataclass(frozen=True, kw_only=True, slots=True)
class TextConfig(Section):
    """How raw text is normalised and split into words.

    Control characters are always removed, and each run of whitespace becomes one space.
    """

    section = "text"

    unicode: Literal["nfc", "nfkc", "none"] = setting("nfc", everyday=True)
    """Unicode normalisation form."""

    zero_width: Literal["keep", "remove"] = "keep"
    """Keep or remove invisible characters. These are zero-width spaces and joiners, soft hyphens, byte-order
    marks and direction marks."""

    quotes: bool = False
    """Replace typographic quotes by " and '."""

    punctuation: bool = False
    """Replace typographic punctuation by ASCII. This covers dashes, ellipses and full-width punctuation."""

    lowercase: bool = setting(False, everyday=True)
    """Lower-case all text. Translations are lower case too."""

    words: Literal["auto", "raw", "moses", "moses_escaped"] = setting("auto", everyday=True)
    """Word splitting. "moses" tokenises input and detokenises output. "moses_escaped" also escapes special
    characters, such as ' as &apos;, inside the model. "raw" splits at spaces, for text that is already
    tokenised. "auto" is "moses" for bpe and word, otherwise "raw"."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerConfig(Section):
    """The subword model and how it is learnt."""

    section = "tokenizer"

    kind: Kind = "sentencepiece"
    """Kind of subword model. SentencePiece on raw text, BPE (subword-nmt) on words, characters, or words."""

    joint: bool = True
    """Share one subword model and vocabulary. Otherwise each language has its own."""

    vocab_size: int = setting(32000, Bounds(least=8))
    """Vocabulary size, including special tokens. It is the maximum for char and word. The vocabulary is
    padded to a multiple of 8."""

    sentencepiece_model: Literal["unigram", "bpe"] = "unigram"
    """Algorithm of SentencePiece. Only for kind = "sentencepiece"."""

    merges: int = setting(0, Bounds(least=0), needs="tokenizer.kind=bpe")
    """Number of BPE merges. 0 learns up to the size of vocab_size. Otherwise the merges decide the size of
    the vocabulary."""

    byte_fallback: bool = setting(False, everyday=True)
    """Spell unknown characters in bytes. This adds 256 entries, and nothing is unknown."""

    split_digits: bool = setting(False)
    """Make each digit a token, from 0 to 9 and full-width. Only for kind = "sentencepiece"."""

    symbols: tuple[str, ...] = setting((), everyday=True)
    """Words that are never segmented or normalised. Each gets one entry, for example "<2de>" or "<BT>"."""

    placeholders: int = setting(0, Bounds(least=0, most=64), everyday=True)
    """Number of symbols for placeholders, usually 8. 0 disables them. Symbols replace {{name}}, {0}, %s, URLs
    and e-mail addresses, so that the model copies them. Further placeholders in a text are spelt."""

    terms: bool = setting(False, needs="tokenizer.joint=true")
    """Add symbols for terms. augment.terms of nmt train needs them."""

    sample_lines: int = setting(400_000, Bounds(least=1))
    """Lines to learn subwords from, both sides together. They are spread evenly over the corpus.
    SentencePiece needs about 25 bytes of memory for each of their characters."""

    def __post_init__(self) -> None:
        """Raise `UserError` for a value out of bounds, an invalid or repeated symbol, or a setting without
        effect."""
        check(self)
        for symbol in self.symbols:
            refuse_invalid_symbol("symbols holds", symbol)
        if len(set(self.symbols)) < len(self.symbols):
            raise UserError("symbols contains a word twice. Give each once.")
        self._refuse_without_effect()

    @property
    def all_symbols(self) -> tuple[str, ...]:
        """All symbols: first `symbols`, then the symbols of placeholders and terms."""
        return (*self.symbols, *family(self.placeholders, self.terms))

    def _refuse_without_effect(self) -> None:
        """Raise `UserError` if `sentencepiece_model`, `split_digits` or `merges` is changed but the kind
        ignores it. Also raise `UserError` for `vocab_size` together with `merges`."""
        kind_of = {"sentencepiece_model": "sentencepiece", "split_digits": "sentencepiece", "merges": "bpe"}
        for name in changed(self, *kind_of):
            if self.kind != kind_of[name]:
                raise UserError(
                    f"{name} has no effect with kind = {self.kind}. Leave it out, "
                    f"or choose kind = {kind_of[name]}."
                )
        if self.terms and not self.joint:
            raise UserError("terms needs joint = true. Set it, or leave terms out.")
        if self.merges and changed(self, "vocab_size"):
            raise UserError("merges and vocab_size both decide the size of the vocabulary. Give one of them.")


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingConfig(Section):
    """Subword regularisation: random segmentation of the training pairs in each epoch."""

    section = "sampling"

    source: float = setting(0.0, Bounds(least=0), kind="whole run")
    """Random segmentation of the source. 0 disables it. The subword model of the dataset decides its kind.
    Models with merges have BPE-dropout: each merge is omitted with this probability, usually 0.1. With
    SentencePiece's unigram models, a segmentation is drawn by its probability to this power, usually 0.2. A
    smaller power is more even."""

    target: float = setting(0.0, Bounds(least=0), kind="whole run")
    """Random segmentation of the target."""

    @property
    def enabled(self) -> bool:
        """True if the source or the target is segmented at random."""
        return bool(self.source or self.target)


@dataclass(frozen=True, kw_only=True, slots=True)
class AugmentConfig(Section):
    """Shares of the training pairs that are changed, drawn again in each epoch.

    Each pair gets at most one change. Validation pairs are never changed.
    """

    section = "augment"

    upper: float = setting(0.0, Bounds(least=0, most=1), kind="whole run")
    """Share of pairs in capitals, usually 0.05."""

    title: float = setting(0.0, Bounds(least=0, most=1), kind="whole run")
    """Share of pairs with a capital at each word."""

    unended: float = setting(0.0, Bounds(least=0, most=1), kind="whole run")
    """Share of pairs without final punctuation. Pairs in which a side has none do not change."""

    typos: float = setting(0.0, Bounds(least=0, most=1), kind="whole run")
    """Share of pairs with typos in the source. One word in eight, and at least one, has a letter that is
    dropped, doubled, swapped or replaced."""

    placeholders: float = setting(0.0, Bounds(least=0, most=1), kind="whole run")
    """Share of pairs with more placeholders. The dataset needs tokenizer.placeholders."""

    noise: float = setting(0.0, Bounds(least=0, most=1), kind="whole run")
    """Share of pairs with emoji or other scripts in both texts. This teaches the model to copy unknown
    signs. Usually 0.1 for a small corpus, 0.005 for millions of pairs. The dataset needs
    tokenizer.byte_fallback."""

    terms: float = setting(0.0, Bounds(least=0, most=1), kind="whole run")
    """Share of pairs with suggested terms, usually 0.2. This teaches search.glossary=soft. Pairs without
    terms of terms_file do not change. The dataset needs tokenizer.terms."""

    terms_file: str = setting("", needs="augment.terms=0.2")
    """Terms for augment.terms, as for nmt translate --glossary. A large dictionary teaches most."""

    def __post_init__(self) -> None:
        """Raise `UserError` for a share out of bounds, a sum over 1, or `terms` without `terms_file`."""
        check(self)
        if bool(self.terms) != bool(self.terms_file):
            raise UserError("terms and terms_file need each other. Give both, or neither.")
        if sum(self.shares) > 1:
            raise UserError(f"the shares add up to {sum(self.shares):.6g}. Together they can be 1 at most.")

    @property
    def shares(self) -> tuple[float, ...]:
        """All shares: in the order of `VARIATIONS` of `nmt_cli.text.variation`, then terms."""
        return astuple(self)[:-1]

    @property
    def enabled(self) -> bool:
        """True if any share is above 0."""
        return any(self.shares)
