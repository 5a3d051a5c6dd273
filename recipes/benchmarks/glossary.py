"""Measure glossaries: terms used, BLEU and speed, against translation without a glossary.

    python -m recipes.benchmarks.glossary MODEL CORPUS [hard|soft]
    python -m recipes.benchmarks.glossary CORPUS >terms.tsv

CORPUS is a folder with train.en, train.de, test.en and test.de, such as that of the quickstart. One glossary
has words of the references. Another one exchanges these words, so that the model must write other words. The
second command writes the words, as a file for augment.terms_file.
"""

import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from nmt_cli.api import Model, SearchConfig, load, score_texts

WORD = re.compile(r"\w+")
LINES, LEAST, SHARE = 20_000, 10, 0.95
Terms = Mapping[str, Sequence[str]]


def read(folder: Path, name: str) -> list[str]:
    """Return up to `LINES` lines of a file."""
    return (folder / name).read_text(encoding="utf-8").splitlines()[:LINES]


def words(text: str) -> set[str]:
    """Return the words of a text that have at least four letters."""
    return {word for word in WORD.findall(text) if len(word) > 3}


def learnt(sources: Sequence[str], targets: Sequence[str]) -> dict[str, list[str]]:
    """Return source words and all words that translate them: words that hardly occur without the source."""
    count, both = Counter[str](), defaultdict[str, Counter[str]](Counter)
    seen = Counter[str]()
    for source, target in zip(sources, targets, strict=True):
        seen.update(words(target))
        for word in sorted(words(source.lower())):
            count[word] += 1
            both[word].update(words(target))
    terms = {}
    for word, total in count.items():
        forms = [form for form, n in both[word].items() if n >= LEAST and n >= SHARE * seen[form]]
        if sum(both[word][form] for form in forms) == total:
            terms[word] = forms
    return terms


def used(terms: Terms, sources: Sequence[str], texts: Sequence[str]) -> tuple[int, int]:
    """Return how many terms of the sources the texts have, and how many there are."""
    hits = [
        any(re.search(rf"\b{re.escape(form)}\b", text) for form in terms[word])
        for source, text in zip(sources, texts, strict=True)
        for word in {*WORD.findall(source.lower())} & {*terms}
    ]
    return sum(hits), len(hits)


def exchanged(terms: Terms, seed: int) -> dict[str, list[str]]:
    """Return a glossary in which terms with one form have each other's."""
    single = [word for word, forms in terms.items() if len(forms) == 1]
    shuffled = random.Random(seed).sample(single, len(single))
    return {word: [terms[other][0]] for word, other in zip(single, shuffled, strict=True)}


def rewritten(terms: Terms, new: Terms, texts: Sequence[str]) -> list[str]:
    """Return texts with the forms of `new` instead of those of `terms`."""
    swap = {terms[word][0]: forms[0] for word, forms in new.items()}
    return [WORD.sub(lambda match: swap.get(match[0], match[0]), text) for text in texts]


def measure(
    model: Model, name: str, terms: Terms, sources: list[str], references: list[str], search: SearchConfig
) -> None:
    """Print terms used, BLEU and speed with a glossary and without one, in turns."""
    glossary = model.glossary(terms) if terms else None
    seconds = dict.fromkeys((None, glossary), 0.0)
    texts = dict[object, list[str]]()
    for one in (None, glossary) * 3:
        start = time.monotonic()
        texts[one] = model.translate(sources, search, one)
        seconds[one] += time.monotonic() - start
    for one, title in ((None, "without"), (glossary, "with")):
        hits, count = used(terms, sources, texts[one])
        bleu = score_texts(texts[one], [references], ["bleu"])[0].value
        length = sum(map(len, texts[one])) / sum(map(len, references))
        speed = seconds[None] / seconds[one]
        print(
            f"{name}, {title}: {hits}/{count} terms, BLEU {bleu:.2f}, length {length:.2f}, speed {speed:.2f}x"
        )


def main() -> None:
    """Measure both glossaries."""
    if "--help" in sys.argv or not sys.argv[1:]:
        print(__doc__)
        return
    *models, folder = map(Path, sys.argv[1:3])
    terms = learnt(read(folder, "train.en"), read(folder, "train.de"))
    if not models:
        print(*("\t".join([word, *forms]) for word, forms in terms.items()), sep="\n")
        return
    search = SearchConfig(glossary="soft" if "soft" in sys.argv[3:] else "hard")
    sources, references = read(folder, "test.en"), read(folder, "test.de")
    with load(*models, device="cpu", threads=1) as model:
        model.translate(sources[:1])
        print(f"{len(terms)} terms")
        measure(model, "words of the references", terms, sources, references, search)
        others = exchanged(terms, seed=1)
        few = {word: others[word] for word in [*others][::4]}
        backwards = {word: [terms[word][0][::-1]] for word in few}
        named = {"other words": others, "a quarter of them": few, "a quarter, spelt backwards": backwards}
        for name, new in named.items():
            measure(model, name, new, sources, rewritten(terms, new, references), search)


if __name__ == "__main__":
    main()
