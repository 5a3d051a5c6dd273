"""Ranking by a model of COMET or a command, compared with the definitions, one pair at a time."""

import asyncio
import json
import random
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.api import Model, load
from nmt_cli.decoding.config import InputConfig, SearchConfig, TranslateConfig
from nmt_cli.decoding.search.hypotheses import Hypothesis
from nmt_cli.errors import UserError
from nmt_cli.scoring.command import CommandScorer
from nmt_cli.scoring.neural.comet import Comet
from nmt_cli.scoring.neural.network import Network
from nmt_cli.translation import stream
from nmt_cli.translation.lines import FinishedLine
from nmt_cli.translation.loading import Loaded
from nmt_cli.translation.text import consensus
from nmt_cli.translation.text.consensus import Alternatives, probabilities
from nmt_cli.translation.text.ranking import Scorer, check_scorer, rank
from nmt_cli.translation.translator import Translator
from tests.cli.conftest import Nmt, assert_one_line
from tests.scoring.neural.conftest import write_comet
from tests.scoring.neural.models import OPTIONS, lines, write_encoder

SEARCH = SearchConfig(beam=4, length_penalty=1.0)
LENGTHS = shlex.join(
    [
        sys.executable,
        "-c",
        "import json, sys\n"
        "for line in sys.stdin: row = json.loads(line); print(len(row['mt']) + len(row['src']) / 9)",
    ]
)
TEXTS = ["abc de", "", "x", "One two. Three", "abc de", "fg, hi!", "Q", "zz top", "no 1", "m", "a b c"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with random COMET models of three classes, and one that needs references only."""
    folder = tmp_path_factory.mktemp("the")
    folder = folder / "comets"
    write_encoder(folder / "encoder")
    for name in ("comet-22", "comet-qe", "kiwi-22", "unified-ref"):
        write_comet(folder / name, OPTIONS[name], folder / "encoder")
    return folder


@pytest.fixture(scope="module")
def comet(folders: Path) -> Comet:
    return Comet(folders / "comet-22", "cpu")


@pytest.fixture(scope="module")
def kiwi(folders: Path) -> Comet:
    return Comet(folders / "kiwi-22", "cpu")


def translator(
    copier: Loaded,
    search: SearchConfig,
    scorer: Scorer | None = None,
    source: InputConfig | None = None,
) -> Translator:
    config = TranslateConfig(search=search, input=source or InputConfig())
    return Translator(copier.translator.tokenizers, copier.models, config, scorer=scorer)


def choices(count: int, seed: int) -> list[Alternatives]:
    """Return sources with hypotheses, of which some are equal, and some equal those of other sources."""
    chosen, made = random.Random(seed), lines(12, seed)
    rows = []
    for _ in range(count):
        texts = chosen.choices(made, k=chosen.randint(1, 9))
        scores = sorted((chosen.uniform(-3, 0) for _ in texts), reverse=True)
        hypotheses = [Hypothesis([n, n], score, [score / 3] * 3) for n, score in enumerate(scores)]
        rows.append(Alternatives(chosen.choice(made), hypotheses, texts))
    return rows


def assert_ranked(found: Sequence[Hypothesis], choice: Alternatives, expected: Sequence[float]) -> None:
    """Check that `found` has the hypotheses of `choice` in descending order of their `expected` scores."""
    score_of = {one.tokens[0]: value for one, value in zip(choice.hypotheses, expected, strict=True)}
    assert [one.rank_score for one in found] == pytest.approx(
        [score_of[one.tokens[0]] for one in found], abs=1e-5
    )
    assert [one.rank_score for one in found] == pytest.approx(sorted(expected, reverse=True), abs=1e-5)


@pytest.mark.parametrize("drawn", [False, True])
def test_expected_comet_is_the_mean_over_all_references(
    comet: Comet, monkeypatch: pytest.MonkeyPatch, drawn: bool
) -> None:
    monkeypatch.setattr(consensus, "MAX_PAIRS", 7)
    search = SearchConfig(mbr="comet", beam=9, n_best=9, sample=drawn)
    for one, found in zip(made := choices(6, seed=3), rank(made, search, comet), strict=True):
        weights = probabilities(one.hypotheses, search)
        expected = [
            sum(
                weight * comet.score([one.source], [text], [reference])[0]
                for weight, reference in zip(weights, one.texts, strict=True)
            )
            for text in one.texts
        ]
        assert_ranked(found, one, expected)


def test_aggregated_comet_compares_with_the_weighted_mean_vector(comet: Comet) -> None:
    search = SearchConfig(mbr="comet-aggregated", beam=9, n_best=9)
    for one, found in zip(made := choices(6, seed=4), rank(made, search, comet), strict=True):
        weights = probabilities(one.hypotheses, search)
        vectors = [comet.embed([text])[0] for text in one.texts]
        mean = torch.stack([v * float(w) for v, w in zip(vectors, weights, strict=True)]).sum(0)
        source = comet.embed([one.source])
        assert_ranked(found, one, [float(comet.estimate(v[None], source, mean[None])) for v in vectors])


@pytest.mark.parametrize("metric", ["comet", "comet-aggregated"])
def test_each_distinct_sentence_is_encoded_once(
    comet: Comet, monkeypatch: pytest.MonkeyPatch, metric: Any
) -> None:
    encoded, encode = Counter[tuple[int, ...]](), Network._encode

    def counted(self: Network, batch: Sequence[tuple[int, ...]]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        encoded.update(batch)
        return encode(self, batch)

    monkeypatch.setattr(Network, "_encode", counted)
    made = choices(20, seed=5)
    rank(made, SearchConfig(mbr=metric, beam=9), comet)
    assert encoded == Counter({tuple(one) for choice in made for one in comet._tokens([choice.source])}) | (
        Counter({tuple(one) for choice in made for one in comet._tokens(choice.texts)})
    )


def test_only_the_number_of_results_is_returned(comet: Comet) -> None:
    made = choices(5, seed=6)
    every = rank(made, SearchConfig(mbr="comet", beam=9, n_best=9), comet)
    assert rank(made, SearchConfig(mbr="comet", beam=9, n_best=2), comet) == [one[:2] for one in every]
    assert rank([], SearchConfig(mbr="comet", beam=9), comet) == []


@pytest.mark.parametrize("name", ["kiwi-22", "comet-qe", "a command"])
def test_the_translation_with_the_best_score_given_the_source_is_first(
    copier: Loaded, folders: Path, name: str
) -> None:
    scorer: Any = CommandScorer(LENGTHS, 60) if name == "a command" else Comet(folders / name, "cpu")
    whole = translator(copier, replace(SEARCH, n_best=4))
    found = translator(copier, replace(SEARCH, n_best=2), scorer).translate(copier.decoder, TEXTS)
    assert [one.line.raw for one in found] == TEXTS
    changed = 0
    for plain, one in zip(whole.translate(copier.decoder, TEXTS), found, strict=True):
        texts = [candidate.text for candidate in plain.candidates]
        scores = [scorer.score([one.line.raw], [text], None)[0] for text in texts]
        order = np.argsort(-np.array(scores), kind="stable")[:2]
        assert [candidate.text for candidate in one.candidates] == [texts[i] for i in order]
        values = [candidate.rank_score for candidate in one.candidates]
        assert values == pytest.approx([scores[i] for i in order], abs=1e-5)
        changed += one.text != plain.text
    assert changed


def beam_of(copier: Loaded, *texts: str) -> list[Hypothesis]:
    """Return hypotheses with these texts, best first."""
    encode = copier.translator.tokenizers.target.encode
    rows = [(encode(text), -1.0 - number) for number, text in enumerate(texts)]
    return [Hypothesis(ids, score, [score / (len(ids) + 1)] * (len(ids) + 1)) for ids, score in rows]


def test_the_sentences_of_a_line_are_ranked_separately(copier: Loaded, kiwi: Comet) -> None:
    by_sentence = translator(copier, SEARCH, kiwi, InputConfig(sentences="split"))
    sources, texts = ["One two.", "Three four.", "Five"], [("a", "bcd"), ("x y", "zz"), ("b", "u", "vw")]
    beams = [beam_of(copier, *each) for each in texts]
    options, cut = by_sentence.options(), by_sentence.segmenter.line
    (whole,) = by_sentence.translations([(cut(1, " ".join(sources), options), beams)], options)
    lines = [cut(number, text, options) for number, text in enumerate(sources, start=1)]
    finished = [(line, [beam]) for line, beam in zip(lines, beams, strict=True)]
    alone = by_sentence.translations(finished, options)
    assert whole.text == " ".join(one.text for one in alone)
    best = [
        max(kiwi.score([source] * len(each), each, None)) for source, each in zip(sources, texts, strict=True)
    ]
    assert [one.candidates[0].rank_score for one in alone] == pytest.approx(best, abs=1e-5)
    assert whole.candidates[0].rank_score == pytest.approx(sum(best) / 3, abs=1e-5)


def test_a_line_that_does_not_fit_into_memory_fails_alone(copier: Loaded, kiwi: Comet) -> None:
    reranking = translator(copier, SEARCH, kiwi)
    options, cut = reranking.options(), reranking.segmenter.line
    made = [cut(number, text, options) for number, text in enumerate(["ab", "", "cd"], start=1)]
    beam = beam_of(copier, "ab", "c")
    finished: list[FinishedLine] = [(made[0], [None]), (made[1], []), (made[2], [beam])]
    failed, empty, good = reranking.translations(finished, options)
    assert (failed.failed, failed.candidates, empty.failed, empty.text) == (True, [], False, "")
    assert good.candidates
    assert good.candidates[0].rank_score is not None


async def collected(model: Model) -> list[str]:
    return [one.text async for one in model.atranslations(TEXTS)]


def test_a_command_starts_once_for_a_window_of_lines(
    made_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "WINDOW", 100)
    command = CommandScorer(f"echo >>{shlex.quote(str(tmp_path / 'starts'))}; {LENGTHS}", 60)
    config = TranslateConfig(search=SEARCH)
    texts = [f"{number} ab" for number in range(150)]
    with load(made_models / "copies", device="cpu", threads=2, config=config, scorer=command) as model:
        assert [one.line.raw for one in model.translations(iter(texts))] == texts
        assert (tmp_path / "starts").read_text() == "\n\n"
        assert asyncio.run(collected(model)) == model.translate(TEXTS)


@pytest.mark.parametrize(
    ("search", "name", "message"),
    [
        (
            SearchConfig(mbr="comet"),
            None,
            r"search.mbr=comet needs scorer=Comet\(folder\) with .* \(got none\)",
        ),
        (
            SearchConfig(mbr="comet"),
            "kiwi-22",
            r"encodes each sentence alone, .* \(got the COMET model kiwi-22\)",
        ),
        (SearchConfig(mbr="comet"), "unified-ref", "got the COMET model unified-ref"),
        (SearchConfig(mbr="comet-aggregated"), "comet-qe", "got the COMET model comet-qe"),
        (SearchConfig(mbr="comet"), "cat", r"got a command"),
        (SearchConfig(mbr="chrf"), "kiwi-22", "search.mbr=chrf and scorer both choose"),
        (
            SearchConfig(),
            "unified-ref",
            "scorer: the COMET model unified-ref needs references. Use one",
        ),
        (SearchConfig(beam=1), "kiwi-22", "Raise search.beam to 2"),
        (SearchConfig(sample=True), "cat", "Raise search.n_best to 2"),
    ],
)
def test_a_scorer_that_does_not_suit_the_settings_is_refused_by_name(
    folders: Path, made_models: Path, search: SearchConfig, name: str | None, message: str
) -> None:
    scorer = (
        None if name is None else CommandScorer(name, 9) if name == "cat" else Comet(folders / name, "cpu")
    )
    with pytest.raises(UserError, match=message):
        check_scorer(search, scorer)
    with pytest.raises(UserError, match=message):
        load(made_models / "copies", device="cpu", config=TranslateConfig(search=search), scorer=scorer)


def test_a_model_for_mbr_may_be_loaded_before_a_search_requests_it(folders: Path, made_models: Path) -> None:
    with load(
        made_models / "copies", device="cpu", threads=1, scorer=Comet(folders / "comet-22", "cpu")
    ) as model:
        (chosen,) = model.translations(["abc"], SearchConfig(mbr="comet"))
        assert chosen.candidates[0].rank_score is not None
        message = r"scorer: the COMET model comet-22 needs references\. Set search\.mbr=comet, or"
        for search in (None, SearchConfig(beam=2)):
            with pytest.raises(UserError, match=message):
                model.translate(["abc"], search)


@pytest.fixture
def run(nmt: Nmt, made_models: Path, tmp_path: Path) -> Nmt:
    """Run `nmt translate` on the non-empty `TEXTS` with a model that copies, in one thread."""
    (tmp_path / "text").write_text("".join(f"{text}\n" for text in TEXTS if text))
    where = ("--device", "cpu", "--threads", "1", "--quiet")
    return lambda *options: nmt(
        "translate", made_models / "copies", "--input", tmp_path / "text", *where, *options
    )


@pytest.mark.parametrize(
    "options",
    [
        ("--rerank", "kiwi-22"),
        ("--rerank", LENGTHS),
        ("--set", "search.mbr=comet-aggregated", "--metric-model", "comet-22"),
    ],
    ids=["model", "command", "mbr"],
)
def test_n_best_lists_are_in_the_order_of_the_new_score(
    run: Nmt, folders: Path, options: tuple[str, ...]
) -> None:
    arguments = [folders / one if (folders / one).is_dir() else one for one in options]
    text, described, best = (
        run(*arguments, *rest).stdout.splitlines() for rest in (("--n-best", 3), ("--format", "json"), ())
    )
    lists = [[row.split(" ||| ") for row in text if row.startswith(f"{n} ")] for n in range(10)]
    for rows, line, translation in zip(lists, map(json.loads, described), best, strict=True):
        assert [float(row[3]) for row in rows] == sorted((float(row[3]) for row in rows), reverse=True)
        (only,) = line["hypotheses"]
        assert only["rank_score"] == pytest.approx(float(rows[0][3]), abs=1e-5)
        assert only["text"] == translation == rows[0][1]


def test_a_command_that_fails_leaves_one_error_and_no_output(run: Nmt, tmp_path: Path) -> None:
    failing = shlex.join([sys.executable, "-c", "print(1); print(2); raise SystemExit(3)"])
    message = "failed with exit code 3 after 2 of "
    for output in ((), ("--output", tmp_path / "out"), ("--output", tmp_path / "out.gz")):
        result = run("--rerank", failing, *output)
        assert_one_line(result, 1, "--rerank ", message)
        assert not result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--rerank", "nowhere/kiwi"), 1, "--rerank nowhere/kiwi is neither a folder nor a command."),
        (("--rerank", ""), 1, "is neither a folder nor a command"),
        (("--rerank", "COMETS"), 1, "comets has no hparams.yaml"),
        (("--rerank", "cat", "--set", "search.mbr=chrf"), 2, "--rerank and search.mbr both choose"),
        (
            ("--rerank", "COMETS/comet-22"),
            1,
            "--rerank: the COMET model comet-22 needs references. Set",
        ),
        (("--metric-model", "COMETS"), 2, "--metric-model FOLDER and search.mbr=comet work only together"),
        (("--set", "search.mbr=comet"), 2, "--metric-model FOLDER and search.mbr=comet work only together"),
        (("--set", "search.mbr=comet", "--metric-model", "COMETS/kiwi-22"), 1, "got the COMET model kiwi-22"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_options_that_do_not_fit_are_refused(
    run: Nmt, folders: Path, options: tuple[str, ...], code: int, message: str
) -> None:
    assert_one_line(run(*(one.replace("COMETS", str(folders)) for one in options)), code, message)


def test_the_server_refuses_comet_before_the_first_request(nmt: Nmt, made_models: Path) -> None:
    options = ("--set", "search.mbr=comet", "--set", "server.memory=1", "--port", "0")
    result = nmt("serve", made_models / "copies", *options)
    assert_one_line(result, 1, "search.mbr=comet works only in nmt translate")
