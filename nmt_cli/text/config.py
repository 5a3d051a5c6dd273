"""What the text room needs to be told."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import ClassVar, Literal

from nmt_cli.config import Gone, changed, check, setting
from nmt_cli.errors import UserError
from nmt_cli.text.placeholders import OURS, family

Kind = Literal["sentencepiece", "bpe", "char", "word"]

LEAST_COVERAGE = 0.98
"""Of SentencePiece; it learns from no text in which more characters are unknown."""


def refuse_no_symbol(what: str, symbol: str) -> None:
    """`UserError`, which begins with `what`, if this can't be a symbol."""
    if symbol.split() != [symbol] or symbol in ("</s>", "<unk>"):
        raise UserError(f"{what} {symbol!r}; a symbol is one word, and not </s> or <unk>.")
    if OURS.fullmatch(symbol):
        raise UserError(f"{what} {symbol}, which placeholders are written with; set tokenizer.placeholders.")


@dataclass(frozen=True, kw_only=True, slots=True)
class TextConfig:
    """How a raw line becomes the text that is segmented into subwords.

    Always: control characters out, every run of blanks of any kind folded into one space, none at the ends.
    """

    unicode: Literal["nfc", "nfkc", "none"] = setting("nfc", everyday=True)
    """Unicode normalisation form."""

    zero_width: Literal["keep", "remove"] = "keep"
    """Invisible characters: zero-width spaces and joiners, soft hyphens, byte-order and direction marks."""

    quotes: bool = False
    """Turn typographic quotes of any language into " and '."""

    punctuation: bool = False
    """Turn typographic dashes, ellipses and full-width punctuation into their ASCII forms."""

    lowercase: bool = setting(False, everyday=True)
    """Lower-case everything; output stays lower-cased."""

    words: Literal["auto", "raw", "moses"] = setting("auto", everyday=True)
    """What a word is: "moses" tokenises, and detokenises output; "raw" takes what stands between blanks, so
    text that is tokenised already comes out tokenised. "auto" is "moses" for bpe and word, else "raw"."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerConfig:
    """How subwords are learnt."""

    kind: Kind = "sentencepiece"
    """The subword model: sentencepiece on raw text, bpe (subword-nmt) on words, characters, or words."""

    joint: bool = True
    """One subword model and vocabulary for both languages, or one for each."""

    vocab_size: int = setting(32000, least=8)
    """Entries of the whole vocabulary, marks included; for char and word the most there may be. Unused
    entries round it up to a multiple of 8."""

    sentencepiece_model: Literal["unigram", "bpe"] = "unigram"
    """How SentencePiece learns (for kind = "sentencepiece")."""

    merges: int = setting(0, least=0, needs="tokenizer.kind=bpe")
    """For bpe: learn this many merges, whatever vocabulary follows; 0 for what vocab_size leaves room for."""

    min_count: int = setting(0, least=0)
    """A subword seen less often than this on a side of the sample is split further there, never into unknowns
    (for sentencepiece and bpe); for char and word the least count of an entry."""

    byte_fallback: bool = setting(False, everyday=True)
    """256 entries for bytes, so that characters outside the vocabulary are spelt and nothing is unknown."""

    character_coverage: float = setting(1.0, least=0.9, most=1)
    """Share of the sample's characters that get an entry of their own (not for word)."""

    symbols: tuple[str, ...] = setting((), everyday=True)
    """Words such as "<2de>" or "<BT>" that get one entry each and are never segmented or normalised."""

    placeholders: int = setting(0, least=0, most=64, everyday=True)
    """So many symbols that stand for {{name}}, {0}, %s, addresses of pages and of people, which the model
    then copies and never spells; 8 as a rule, 0 for none. A text's further ones are spelt."""

    sample_lines: int = setting(400_000, least=1)
    """Lines that subwords are learnt from, both sides together, drawn evenly over the corpus. SentencePiece
    needs about 25 bytes of memory for each of their characters."""

    gone: ClassVar[Mapping[str, Gone]] = {
        "seed": Gone("the sample of lines is always the same for a corpus; shuffle the corpus for another", 1)
    }

    def __post_init__(self) -> None:
        check(self)
        if self.kind == "sentencepiece" and self.character_coverage < LEAST_COVERAGE:
            raise UserError(
                f"character_coverage is {self.character_coverage}, but SentencePiece needs at least "
                f"{LEAST_COVERAGE}; raise it, or choose kind = bpe or char."
            )
        for symbol in self.symbols:
            refuse_no_symbol("symbols holds", symbol)
        if len(set(self.symbols)) < len(self.symbols):
            raise UserError("symbols names one of them twice; give each once.")
        self._refuse_what_has_no_effect()

    @property
    def all_symbols(self) -> tuple[str, ...]:
        """Those of placeholders among them."""
        return (*self.symbols, *family(self.placeholders))

    def _refuse_what_has_no_effect(self) -> None:
        serves = {
            "sentencepiece_model": ["sentencepiece"],
            "merges": ["bpe"],
            "character_coverage": ["sentencepiece", "bpe", "char"],
        }
        for name in changed(self, *serves):
            if self.kind not in serves[name]:
                raise UserError(
                    f"{name} has no effect with kind = {self.kind}; leave it out, "
                    f"or choose kind = {' or '.join(serves[name])}."
                )
        if self.merges and changed(self, "vocab_size"):
            raise UserError("merges and vocab_size both say how large the vocabulary gets; give one of them.")


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingConfig:
    """How train is segmented anew for each epoch; validation and translation never are."""

    source_dropout: float = setting(0.0, least=0, below=1, kind="whole run")
    """BPE-dropout: probability that a merge is left out on the source side, 0.1 as a rule; 0 for none. For
    bpe, and SentencePiece's bpe models."""

    target_dropout: float = setting(0.0, least=0, below=1, kind="whole run")
    """The same for the target side."""

    source_alpha: float = setting(0.0, least=0, kind="whole run")
    """Sampling: the source side's segmentations are drawn by their probability to the power of this, 0.2 as a
    rule, smaller ones draw more evenly; 0 for none. For SentencePiece's unigram models."""

    target_alpha: float = setting(0.0, least=0, kind="whole run")
    """The same for the target side."""

    gone: ClassVar[Mapping[str, Gone]] = {
        "nbest": Gone("all segmentations of a line are drawn from; a larger alpha prefers the likeliest", 0)
    }

    def __post_init__(self) -> None:
        check(self)

    def wants(self, side: str) -> bool:
        """Whether a side is segmented anew."""
        return bool(getattr(self, f"{side}_dropout") or getattr(self, f"{side}_alpha"))

    @property
    def wanted(self) -> bool:
        """Whether any side is."""
        return self.wants("source") or self.wants("target")


@dataclass(frozen=True, kw_only=True, slots=True)
class AugmentConfig:
    """Shares of the training pairs that each epoch sees in another form, drawn anew; validation never does.

    Each pair is changed in one way at most.
    """

    upper: float = setting(0.0, least=0, most=1, kind="whole run")
    """Both sides IN CAPITALS; 0.05 as a rule."""

    lower: float = setting(0.0, least=0, most=1, kind="whole run")
    """Both sides in lower case."""

    title: float = setting(0.0, least=0, most=1, kind="whole run")
    """Each Word of Both Sides With a Capital."""

    unended: float = setting(0.0, least=0, most=1, kind="whole run")
    """Both sides without the mark at the end, where both have one."""

    typos: float = setting(0.0, least=0, most=1, kind="whole run")
    """Letters of the source left out, doubled, swapped, replaced; one word in eight, and one at least."""

    copies: float = setting(0.0, least=0, most=1, kind="whole run")
    """The target on both sides, so that what need not be translated is copied."""

    placeholders: float = setting(0.0, least=0, most=1, kind="whole run")
    """A placeholder's symbol more on both sides, for a dataset with tokenizer.placeholders."""

    def __post_init__(self) -> None:
        check(self)
        if sum(self.shares) > 1:
            raise UserError(f"the shares add up to {sum(self.shares):.6g}; together they can be 1 at most.")

    @property
    def shares(self) -> tuple[float, ...]:
        """In the order of `VARIATIONS`."""
        return astuple(self)

    @property
    def wanted(self) -> bool:
        """Whether any pair is changed."""
        return any(self.shares)
