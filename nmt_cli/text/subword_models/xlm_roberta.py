"""The tokeniser of XLM-RoBERTa, with which COMET models read text.

It is a SentencePiece model with the ids and the normalisation of Hugging Face. Scores of COMET depend on
both.
"""

import re
from functools import lru_cache

import regex
import sentencepiece

from nmt_cli.text.subword_models.charsmap import TABLE
from nmt_cli.text.subword_models.model_file import NORMALIZER, field, replaced
from nmt_cli.text.subword_models.pieces import Pieces

START, PADDING, END, UNKNOWN = range(4)
SPECIAL = re.compile(r"(<s>|<pad>|</s>|<unk>|\s*<mask>)")

SHORT_CLUSTER = 5
"""The maximum length, in bytes, of a cluster that is normalised as a whole. A cluster is a character with its
combining marks."""


class XlmRobertaTokenizer:
    """A tokeniser that returns XLM-RoBERTa's ids of text."""

    def __init__(self, model: bytes) -> None:
        """Load the content of the file `sentencepiece.bpe.model`. Raise `UserError` if it is not a
        SentencePiece model."""
        # Text is normalised by `_normalized`, which differs from SentencePiece for some clusters.
        without_table = replaced(field(model, NORMALIZER), TABLE, b"")
        self._pieces = Pieces(replaced(model, NORMALIZER, without_table))
        self._normalize = sentencepiece.SentencePieceNormalizer(
            model_proto=model,
            add_dummy_prefix=False,
            escape_whitespaces=False,
            remove_extra_whitespaces=False,
        ).normalize
        self._cluster = lru_cache(maxsize=1 << 16)(self._normalized)
        self.largest = len(self._pieces.entries) + 1
        """The largest id."""

        self._special = {
            "<s>": START,
            "<pad>": PADDING,
            "</s>": END,
            "<unk>": UNKNOWN,
            "<mask>": self.largest,
        }

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, without start and end tokens. Where `text` has the name of a special
        token, such as "<mask>", it gets the id of that token."""
        ids: list[int] = []
        for part in SPECIAL.split(text):
            if (special := self._special.get(part.lstrip())) is not None:
                ids.append(special)
                continue
            words = "".join(map(self._cluster, regex.findall(r"\X", part))).split()
            # The vocabulary has one special token more than the model.
            ids += [piece + 1 if piece else UNKNOWN for piece in self._pieces.encode(" ".join(words))]
        return ids

    def _normalized(self, cluster: str) -> str:
        """Normalise a cluster of characters as Hugging Face does.

        A cluster of at most `SHORT_CLUSTER` bytes is replaced by the result of the shortest prefix that has a
        rule. The rest of the cluster is lost. A longer cluster, or one without such a prefix, is normalised
        character by character.
        """
        ends = range(1, len(cluster) + 1) if len(cluster.encode()) <= SHORT_CLUSTER else ()
        for start in (cluster[:end] for end in ends):
            if (normalized := str(self._normalize(start))) != start:
                return normalized
        return "".join(map(self._normalize, cluster))
