"""What the text room needs to be told."""

from dataclasses import dataclass, fields
from typing import Literal

from nmt_cli.errors import UserError

Kind = Literal["sentencepiece", "bpe", "char", "word"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TextConfig:
    """How a raw line becomes the text that is segmented into subwords.

    Always: control characters out, every run of blanks of any kind folded into one space, none at the ends.
    """

    unicode: Literal["nfc", "nfkc", "none"] = "nfc"
    """Unicode normalisation form."""

    zero_width: Literal["keep", "remove"] = "keep"
    """Invisible characters: zero-width spaces and joiners, soft hyphens, byte-order and direction marks."""

    quotes: bool = False
    """Turn typographic quotes of any language into " and '."""

    punctuation: bool = False
    """Turn typographic dashes, ellipses and full-width punctuation into their ASCII forms."""

    lowercase: bool = False
    """Lower-case everything; output stays lower-cased."""

    words: Literal["auto", "raw", "moses"] = "auto"
    """What a word is: "moses" tokenises, and detokenises output; "raw" takes what stands between blanks, so
    text that is tokenised already comes out tokenised. "auto" is "moses" for bpe and word, else "raw"."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerConfig:
    """How subwords are learnt."""

    kind: Kind = "sentencepiece"
    """The subword model: sentencepiece on raw text, bpe (subword-nmt) on words, characters, or words."""

    joint: bool = True
    """One subword model and vocabulary for both languages, or one for each."""

    vocab_size: int = 32000
    """Entries of the whole vocabulary, marks included; for char and word the most there may be. Unused
    entries round it up to a multiple of 8."""

    sentencepiece_model: Literal["unigram", "bpe"] = "unigram"
    """How SentencePiece learns (for kind = "sentencepiece")."""

    merges: int = 0
    """For bpe: learn this many merges, whatever vocabulary follows; 0 for what vocab_size leaves room for."""

    min_count: int = 0
    """A subword seen less often than this on a side of the sample is split further there, never into unknowns
    (for sentencepiece and bpe); for char and word the least count of an entry."""

    byte_fallback: bool = False
    """256 entries for bytes, so that characters outside the vocabulary are spelt and nothing is unknown."""

    character_coverage: float = 1.0
    """Share of the sample's characters that get an entry of their own (not for word)."""

    symbols: tuple[str, ...] = ()
    """Words such as "<2de>" or "<BT>" that get one entry each and are never segmented or normalised."""

    sample_lines: int = 400_000
    """Lines that subwords are learnt from, both sides together, drawn evenly over the corpus. SentencePiece
    needs about 25 bytes of memory for each of their characters."""

    seed: int = 1
    """Which sample is drawn."""

    def __post_init__(self) -> None:
        if self.vocab_size < 8:
            raise UserError(f"vocab_size is {self.vocab_size}, but the least useful one is 8.")
        least = 0.98 if self.kind == "sentencepiece" else 0.9
        if not least <= self.character_coverage <= 1:
            raise UserError(f"character_coverage is {self.character_coverage}; take one from {least} to 1.0.")
        for name in ("merges", "min_count"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} is {getattr(self, name)}; take a positive number, or 0 for none.")
        if self.sample_lines < 1:
            raise UserError(f"sample_lines is {self.sample_lines}; take at least 1.")
        for symbol in self.symbols:
            if symbol.split() != [symbol] or symbol in ("</s>", "<unk>"):
                raise UserError(f"symbols holds {symbol!r}; a symbol is one word, and not </s> or <unk>.")
        if len(set(self.symbols)) < len(self.symbols):
            raise UserError("symbols names one of them twice; give each once.")
        self._refuse_what_has_no_effect()

    def _refuse_what_has_no_effect(self) -> None:
        serves = {
            "sentencepiece_model": ["sentencepiece"],
            "merges": ["bpe"],
            "character_coverage": ["sentencepiece", "bpe", "char"],
        }
        for field in fields(self):
            kinds = serves.get(field.name, [self.kind])
            if getattr(self, field.name) != field.default and self.kind not in kinds:
                raise UserError(
                    f"{field.name} has no effect with kind = {self.kind}; leave it out, "
                    f"or choose kind = {' or '.join(kinds)}."
                )
        if self.merges and self.vocab_size != type(self).__dataclass_fields__["vocab_size"].default:
            raise UserError("merges and vocab_size both say how large the vocabulary gets; give one of them.")


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingConfig:
    """How train is segmented anew for each epoch; validation and translation never are."""

    source_dropout: float = 0.0
    """BPE-dropout: probability that a merge is left out on the source side, 0.1 as a rule; 0 for none. For
    bpe, and SentencePiece's bpe models."""

    target_dropout: float = 0.0
    """The same for the target side."""

    source_alpha: float = 0.0
    """Sampling: the source side's segmentations are drawn by their probability to the power of this, 0.2 as a
    rule, smaller ones draw more evenly; 0 for none. For SentencePiece's unigram models."""

    target_alpha: float = 0.0
    """The same for the target side."""

    nbest: int = 0
    """Draw from this many of a line's likeliest segmentations, at most 512; 0 for all there are."""

    def __post_init__(self) -> None:
        for side in ("source", "target"):
            dropout, alpha = getattr(self, f"{side}_dropout"), getattr(self, f"{side}_alpha")
            if not 0 <= dropout < 1:
                raise UserError(f"{side}_dropout is {dropout}; it is a share, from 0.0 to less than 1.0.")
            if not alpha >= 0:
                raise UserError(f"{side}_alpha is {alpha}; take a positive number, or 0 for none.")
        if self.nbest and not 2 <= self.nbest <= 512:
            raise UserError(f"nbest is {self.nbest}; take one from 2 to 512, or 0 for all.")
        if self.nbest and not (self.source_alpha or self.target_alpha):
            raise UserError("nbest has no effect without source_alpha or target_alpha; set one of them.")

    def wants(self, side: str) -> bool:
        """Whether a side is segmented anew."""
        return bool(getattr(self, f"{side}_dropout") or getattr(self, f"{side}_alpha"))

    @property
    def wanted(self) -> bool:
        """Whether any side is."""
        return self.wants("source") or self.wants("target")
