"""The paper's protocol: the rules of each step, and a comparison of all steps with the Perl scripts."""

import importlib.util
import math
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacremoses.corpus import NonbreakingPrefixes

from nmt_cli.scoring.measures import score
from nmt_cli.scoring.paper import (
    LANGUAGES,
    PaperProtocol,
    replace_punctuation,
    split_compounds,
    straighten_quotes,
)

needs_perl = pytest.mark.skipif(shutil.which("perl") is None, reason="there is no perl")

COMPOUNDS_IN_PERL = r"s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g"


def multi_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Compute BLEU by definition: clipped n-grams of whole texts, closest reference length, no smoothing."""
    correct, total = Counter[int](), Counter[int]()
    length, reference_length = 0, 0
    for number, line in enumerate(hypotheses):
        words = line.split()
        others = [reference[number].split() for reference in references]
        length += len(words)
        reference_length += min((abs(len(other) - len(words)), len(other)) for other in others)[1]
        for n in range(1, 5):
            most = Counter[tuple[str, ...]]()
            for other in others:
                most |= ngrams(other, n)
            correct[n] += (ngrams(words, n) & most).total()
            total[n] += ngrams(words, n).total()
    if not all(correct[n] for n in range(1, 5)):
        return 0.0
    precision = math.exp(sum(math.log(correct[n] / total[n]) for n in range(1, 5)) / 4)
    return 100 * precision * min(1.0, math.exp(1 - reference_length / length))


def ngrams(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))


@pytest.mark.parametrize(
    ("written", "replaced"),
    [
        *zip("，、∶：？！（）；～", ",,::?!();~", strict=True),
        *zip("“”《》「」’━〈〉【】％", '""""""\'-<>[]%', strict=True),
        *zip("０１２３４５６７８９", "0123456789", strict=True),
        ("…", "..."),
        ("a。b", "a. b"),
        ("a．   b", "a. b"),
        ("a。\u00a0b", "a. \u00a0b"),
        ("a。", "a. "),
        ("„a‘ «b» – 1 ﹪ Ａ", "„a‘ «b» – 1 ﹪ Ａ"),
    ],
)
def test_unicode_punctuation_is_replaced_by_these_rules_and_no_others(written: str, replaced: str) -> None:
    assert replace_punctuation(written) == replaced


@pytest.mark.parametrize(
    ("written", "straight"),
    [("„Ja“ ”x‟", '"Ja" "x"'), ("‚so‘ it’s ‛x", "'so' it's 'x"), ("«x» ‹y› … –", "«x» ‹y› … –")],
)
def test_low_and_curly_quotes_of_a_reference_become_straight(written: str, straight: str) -> None:
    assert straighten_quotes(written) == straight


@pytest.mark.parametrize(
    ("words", "split"),
    [
        ("rich-text format", "rich ##AT##-##AT## text format"),
        ("a - b", "a - b"),
        ("-x x-", "-x x-"),
        ("aa-bb-cc", "aa ##AT##-##AT## bb ##AT##-##AT## cc"),
        ("a-b-c", "a ##AT##-##AT## b-c"),
        ("x-a-b-c-y", "x ##AT##-##AT## a-b ##AT##-##AT## c-y"),
        ("a--b", "a ##AT##-##AT## -b"),
        ("a---b", "a ##AT##-##AT## --b"),
        ("a-ä-c", "a ##AT##-##AT## ä ##AT##-##AT## c"),
        ("ä-ö", "ä ##AT##-##AT## ö"),
        ("", ""),
    ],
)
def test_compounds_are_split_at_hyphens_between_letters_without_overlap(words: str, split: str) -> None:
    assert split_compounds(words) == split


@needs_perl
def test_compounds_are_split_as_perl_splits_them() -> None:
    pieces = ["-", "a", "ä", "了", " ", "\u00a0", "\t", "\x0b", "\x85", "bc", "&quot;", "##AT##"]
    draw = st.lists(st.sampled_from(pieces), max_size=14).map("".join)
    lines: list[str] = []

    @given(draw)
    def collect(line: str) -> None:
        lines.append(line)

    collect()
    text = "".join(f"{line}\n" for line in lines).encode()
    perl = subprocess.run(["perl", "-ple", COMPOUNDS_IN_PERL], input=text, capture_output=True, check=True)
    assert "".join(f"{split_compounds(line)}\n" for line in lines).encode() == perl.stdout


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "Die U-Bahn, „neu“ … (sog. „S-Bahn“).",
            'Die U ##AT##-##AT## Bahn , „ neu " ... ( sog. „ S ##AT##-##AT## Bahn " ) .',
        ),
        ("z.B. am 3. Mai", "z.B. am 3. Mai"),
        ("", ""),
    ],
)
def test_a_hypothesis_gets_ascii_punctuation_is_tokenised_and_then_split(line: str, words: str) -> None:
    assert PaperProtocol("de").hypothesis(line) == words


def test_quotes_are_the_only_punctuation_replaced_in_a_reference() -> None:
    assert PaperProtocol("de").reference("„S-Bahn“ …") == '" S ##AT##-##AT## Bahn " …'


def test_the_languages_are_those_that_the_moses_tokeniser_splits_into_words() -> None:
    unsplit = {"yue", "zh"}
    assert set(NonbreakingPrefixes().available_langs.values()) - unsplit == LANGUAGES


WORDS = st.lists(st.sampled_from("a b c d e".split()), max_size=9).map(" ".join)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=6))
def test_the_score_is_that_of_multi_bleu(lines: list[tuple[str, str, str]]) -> None:
    hypotheses, *references = ([line[side] for line in lines] for side in range(3))
    (result,) = score(hypotheses, references, ["paper-bleu"], lang="en")
    assert result.value == pytest.approx(multi_bleu(hypotheses, references), abs=1e-9)


@needs_perl
@pytest.mark.skipif(
    importlib.util.find_spec("mosestokenizer") is None,
    reason="the package mosestokenizer, which carries the Perl original, is not installed",
)
@pytest.mark.skipif("NMT_DATA" not in os.environ, reason="NMT_DATA names no folder of corpora")
@pytest.mark.parametrize("lang", ["de", "en", "fr"])
def test_multi30k_has_the_score_of_the_perl_originals(lang: str) -> None:
    folder = Path(os.environ["NMT_DATA"]) / "multi30k"
    lines = [
        line
        for name in ("valid", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
        for line in (folder / f"{name}.{lang}").read_text(encoding="utf-8").split("\n")[:-1]
    ]
    others = [" ".join(line.split(" ")[1:]) for line in lines]
    references = perl_chain([straighten_quotes(line) for line in lines], lang)
    hypotheses = perl_chain([replace_punctuation(line) for line in others], lang)
    (result,) = score(others, [lines], ["paper-bleu"], lang=lang)
    assert result.value == pytest.approx(multi_bleu(hypotheses, [references]), abs=1e-9)


def perl_chain(lines: Sequence[str], lang: str) -> list[str]:
    """Return lines after tokenizer.perl and the splitting of compounds."""
    spec = importlib.util.find_spec("mosestokenizer")
    assert spec and spec.origin
    script = Path(spec.origin).parent / "tokenizer-v1.1.perl"
    text = "".join(f"{line}\n" for line in lines).encode()
    for command in (["perl", str(script), "-q", "-l", lang], ["perl", "-ple", COMPOUNDS_IN_PERL]):
        text = subprocess.run(command, input=text, capture_output=True, check=True).stdout
    return text.decode().split("\n")[:-1]
