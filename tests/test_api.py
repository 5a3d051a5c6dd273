"""The Python library: translation in threads and event loops, and no side effects on the process."""

import asyncio
import doctest
import gc
import inspect
import os
import pydoc
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt_cli import api, config
from nmt_cli.api import InputConfig, Model, SearchConfig, TrainConfig, TranslateConfig, UserError, load
from nmt_cli.checkpoints.model_folder import Identity, read_model, weights, write_model
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.decoding.search.hypotheses import Sentence
from nmt_cli.engine.search import EngineSearch
from nmt_cli.model.config import ModelConfig

PATIENCE = 60.0
linux = pytest.mark.skipif(sys.platform != "linux", reason="threads have their own processes only on Linux")


@pytest.fixture(scope="module")
def small_window() -> Iterator[None]:
    """Let models read at most 40 lines ahead."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nmt_cli.translation.stream.WINDOW", 40)
        yield


@pytest.fixture(scope="module")
def folder(made_models: Path) -> Path:
    """Return the folder of a model that returns its input."""
    return made_models / "copies"


@pytest.fixture(scope="module", params=[1, 2], ids=["one thread", "two processes"])
def model(folder: Path, request: pytest.FixtureRequest, small_window: None) -> Iterator[Model]:
    with load(folder, device="cpu", threads=request.param) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def copier(folder: Path) -> Iterator[Model]:
    with load(folder, device="cpu", threads=1, config=TranslateConfig(search=SearchConfig(beam=1))) as loaded:
        yield loaded


def random_lines(count: int, seed: int) -> list[str]:
    """Return lines of 0 to 30 random letters."""
    draws = random.Random(seed)
    return ["".join(draws.choices("abcdefgh", k=draws.choice([0, 1, 4, 9, 30]))) for _ in range(count)]


def examples() -> list[doctest.DocTest]:
    """Return the examples in the docstrings of the library."""
    modules = (api.model, api.commands, api.module)
    results = (doctest.DocTestFinder().find(module) for module in modules)
    return [test for tests in results for test in tests if test.examples]


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_the_examples_in_docstrings_work(
    example: doctest.DocTest, folder: Path, toy: str, toy_dataset: Path, tmp_path: Path
) -> None:
    small = ["model.width=16", "model.feed_forward=16", "model.heads=2", "model.encoder_layers=1"]
    small += ["model.decoder_layers=1", "training.max_steps=1", "validation.every_steps=0"]
    example.globs |= {
        "asyncio": asyncio,
        "folder": folder,
        "corpus": toy,
        "load": load,
        "read_model": api.read_model,
        "write_model": api.write_model,
        "dataset": toy_dataset if "train" in example.name else tmp_path / "dataset",
        "run": tmp_path / "run",
        "tiny": config.read(TrainConfig, assignments=small),
        "characters": config.read(PreprocessConfig, assignments=["tokenizer.kind=char"]),
    }
    with load(folder, device="cpu", threads=1) as model:
        example.globs.setdefault("model", model)
        assert doctest.DocTestRunner(verbose=False).run(example).failed == 0


@pytest.fixture(scope="module")
def tagged(made_models: Path) -> Iterator[Model]:
    """Yield a model of three targets, whose translations show the symbol of the target language."""
    with load(made_models / "tagged", device="cpu", threads=1) as loaded:
        yield loaded


def test_a_call_chooses_the_target_language(tagged: Model) -> None:
    assert tagged.directions == [("en", "de"), ("en", "fr"), ("en", "es")]
    assert tagged.translate(["abc", "", "de"], target="fr") == ["<2fr> abc", "", "<2fr> de"]
    spanish = tagged.direction("es", source="en")
    assert spanish.languages == ("en", "es") and repr(spanish) == "<Model en-es>"
    assert spanish.translate_text("One is.  Two is.") == "<2es> One is.  <2es> Two is."
    assert [*spanish.stream(["abc"])] == asyncio.run(spanish.atranslate(["abc"])) == ["<2es> abc"]
    assert spanish.translate(["abc"], target="de") == ["<2de> abc"]
    assert tagged.translate(["abc", "<2fr> abc"]) == ["abc", "<2fr> abc"]
    same, other = spanish.score([("abc", "<2es> abc"), ("abc", "<2de> abc")])
    assert same > other
    (aligned,) = spanish.translations(["abc de"], aligned=True)
    assert len(aligned.shares) == len("<2es> abc de".split()) + 2  # < and > are units
    for target, message in (("french", r"did you mean fr\?"), ("ja", "it has de, fr, es")):
        with pytest.raises(UserError, match=message):
            tagged.translate(["abc"], target=target)
    with pytest.raises(UserError, match="does not translate from it: it has en"):
        tagged.direction("de", "it")


def test_directions_of_a_model_share_its_workers(made_models: Path) -> None:
    with load(made_models / "tagged", device="cpu", threads=1) as model:
        french = model.direction("fr")
        french.translate(["abc"])
        assert french._workers is model._workers is not None
        model.close()
        with pytest.raises(RuntimeError, match="is closed"):
            french.translate(["abc"])


def test_a_batch_of_several_languages_translates_as_one_language_at_a_time(tagged: Model) -> None:
    """Tokens and scores have the same bits."""
    lines = random_lines(30, seed=9)
    views = [tagged.direction(target) for target in ("de", "fr", "es")]
    apart = [[*view.translations(lines)] for view in views]

    async def together() -> list[list[api.Translation]]:
        async def one(view: Model) -> list[api.Translation]:
            return [translation async for translation in view.atranslations(lines)]

        return await asyncio.gather(*map(one, views))

    for alone, mixed in zip(apart, asyncio.run(together()), strict=True):
        for first, second in zip(alone, mixed, strict=True):
            assert [one.tokens for one in first.candidates] == [one.tokens for one in second.candidates]
            scores = [[one.token_scores for one in each.candidates] for each in (first, second)]
            assert scores[0] == scores[1]


def test_every_method_has_an_example() -> None:
    methods = (
        "translate stream translations translate_text translate_html translate_document atranslate astream "
        "atranslations atranslate_text score token_scores align attention_maps sentences joined queued "
        "languages directions direction tokenizers glossary"
    )
    names = {f"nmt_cli.api.model.Model.{name}" for name in methods.split()} | {"nmt_cli.api.model.load"}
    functions = {f"nmt_cli.api.commands.{name}" for name in ("preprocess", "train", "preset", "average")}
    functions |= {
        f"nmt_cli.api.module.{name}" for name in ("read_model", "write_model", "TrainableModel.batch")
    }
    assert names | functions == {example.name for example in examples()}


def forbid_b(log_probs: torch.Tensor, history: Any, end: int) -> None:
    """Forbid "b" in the models of `copies`, but only after "a"."""
    for row, path in enumerate(history.paths()):
        item = history.items_R[row]
        a, b = item.sentence.tokens[:2]
        if path and path[-1] == a:
            log_probs[row, b] = -torch.inf


def test_a_rule_forbids_tokens_of_its_own_call_only(model: Model) -> None:
    search = SearchConfig(beam=2)
    assert model.translate(["abc"], search) == ["abc"]
    with ThreadPoolExecutor(2) as pool:
        free = pool.submit(model.translate, ["abc"] * 40, search)
        (first, *others) = model.translate(["abc"] * 40, search, rule=forbid_b)
        assert free.result() == ["abc"] * 40
    assert "ab" not in first and set(others) == {first}
    greedy = model.translate(["abc"], SearchConfig(beam=1), rule=forbid_b)
    assert "ab" not in greedy[0] and greedy[0].startswith("a")


def test_a_rule_that_forbids_all_tokens_ends_the_translation(model: Model) -> None:
    assert model.translate(["abc"], rule=forbid_all) == [""]


def forbid_all(log_probs: torch.Tensor, history: Any, end: int) -> None:
    log_probs[:] = -torch.inf


def test_the_library_exports_what_it_takes_and_returns() -> None:
    assert all(getattr(api, name) for name in api.__all__)
    assert api.preset_names() and not hasattr(api, "nothing")
    (bleu,) = api.score_texts(["the cat sat on the mat"], [["the cat sat on the mat"]], ["bleu"])
    assert isinstance(bleu, api.Score) and bleu.value == pytest.approx(100)


def test_help_gives_the_meaning_of_each_setting() -> None:
    for name in (name for name in api.__all__ if name.endswith("Config")):
        section = getattr(api, name)
        text = inspect.getdoc(section)
        assert text
        for setting in fields(section):
            if not is_dataclass(setting.default_factory):
                assert f"\n{setting.name}: " in text, (name, setting.name)
    assert "\nbeam: Beam size" in pydoc.plain(pydoc.render_doc(SearchConfig)).replace(" |  ", "")


@pytest.mark.parametrize("call", ["translate", "stream", "translations"])
def test_one_text_instead_of_a_list_is_refused(model: Model, call: str) -> None:
    with pytest.raises(TypeError, match=r"lines must be a list of texts .*. Use \[text\] or translate_text"):
        list(getattr(model, call)("abc"))
    with pytest.raises(TypeError, match=r"each line must be a text \(got 3"):
        list(getattr(model, call)(["abc", 3]))
    with pytest.raises(TypeError, match="lines must be a list of texts"):
        asyncio.run(model.atranslate("abc"))


@pytest.mark.parametrize("call", ["score", "token_scores", "align", "attention_maps"])
@pytest.mark.parametrize("pairs", [["ab", "cd"], [("a", "b", "c")], [("a", None)], "ab", [1]], ids=repr)
def test_an_invalid_pair_is_named(model: Model, call: str, pairs: object) -> None:
    with pytest.raises(TypeError, match="each pair must be a source and its translation"):
        getattr(model, call)(pairs)


@pytest.mark.parametrize("call", ["score", "align", "attention_maps"])
def test_a_pair_with_more_tokens_than_positions_is_named(copier: Model, call: str) -> None:
    longest = "a" * 63  # and the end token
    assert len(getattr(copier, call)([(longest, "b"), ("b", longest)])) == 2
    for pair in [(longest + "a", "b"), *([] if call == "attention_maps" else [("b", longest + "a")])]:
        with pytest.raises(UserError, match=r"line 2 has a side of 65 tokens, .* only 64 positions .* Leave"):
            getattr(copier, call)([("a", "b"), pair])


@pytest.mark.parametrize("device", ["cpu", "cpu:0", torch.device("cpu")], ids=repr)
def test_a_device_is_named_as_for_pytorch(folder: Path, device: Any) -> None:
    with load(folder, device=device, threads=1) as model:
        assert model.translate(["abc"]) == ["abc"]


@pytest.mark.parametrize("device", ["gpu", "mps", "CPU", None], ids=repr)
def test_a_device_that_pytorch_or_nmt_does_not_know_is_refused(
    folder: Path, toy_dataset: Path, tmp_path: Path, device: Any
) -> None:
    with pytest.raises(UserError, match="must be auto, cpu, cuda or cuda:N"):
        load(folder, device=device)
    with pytest.raises(UserError, match="must be auto, cpu, cuda or cuda:N"):
        api.train(toy_dataset, tmp_path / "run", device=device)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("count", [-1, 0, "2", 1.5, True], ids=repr)
def test_a_count_is_a_whole_number_from_one(folder: Path, tmp_path: Path, count: Any) -> None:
    problem = rf"must be a whole number, at least 1 \(got {count!r}\)"
    with pytest.raises(UserError, match=f"^threads {problem}"):
        load(folder, device="cpu", threads=count)
    with pytest.raises(UserError, match=f"^devices {problem}"):
        load(folder, device="cpu", devices=count)
    with pytest.raises(UserError, match=f"^threads {problem}"):
        api.train(folder, tmp_path / "run", threads=count)
    with pytest.raises(UserError, match=f"^workers {problem}"):
        api.preprocess("en", "de", ["train"], tmp_path / "dataset", workers=count)


@pytest.mark.parametrize("paths", [(), ([],), (["a", "b"],), (3,)], ids=repr)
def test_load_without_a_folder_is_refused(paths: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match="load needs folders"):
        load(*paths)


@pytest.mark.usefixtures("cramped")
def test_a_line_that_does_not_fit_into_memory_raises(copier: Model) -> None:
    lines, message = ["de", "abcdef"], r"line 2 \(6 tokens\) does not fit into memory\."
    with pytest.raises(UserError, match=message):
        copier.translate(lines)
    with pytest.raises(UserError, match=message):
        list(copier.stream(lines))
    with pytest.raises(UserError, match=message):
        asyncio.run(copier.atranslate(lines))
    assert [(item.failed, item.text) for item in copier.translations(lines)] == [(False, "de"), (True, "")]


@pytest.mark.slow
def test_eight_threads_get_the_same_results_as_one(model: Model) -> None:
    """Test it with two search settings, scoring and alignment at the same time."""
    texts = [random_lines(20, seed) for seed in range(8)]
    searches = [SearchConfig(beam=1), SearchConfig(beam=3, n_best=2)]
    pairs = [("abc", "abd"), ("", "a"), ("defgh", "")]
    together = threading.Barrier(8, timeout=PATIENCE)

    def work(number: int) -> tuple[list[str], list[float], list[list[int]]]:
        together.wait()
        results = model.translate(texts[number], searches[number % 2])
        return results, model.score(pairs), [list(alignment.links) for alignment in model.align(pairs)]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, range(8)))
    together = threading.Barrier(1)
    assert results == [work(number) for number in range(8)]
    assert [lines for lines, _, _ in results] == texts


@pytest.fixture(scope="module")
def undecided(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """Return a model with random weights, whose hypotheses have similar scores."""
    tokenizers = read_model(folder).identity.tokenizers
    shape = ModelConfig(encoder_layers=2, decoder_layers=2, width=32, feed_forward=64, heads=4)
    identity = Identity(shape, tokenizers, {})
    with torch.random.fork_rng():
        torch.manual_seed(1)
        drawn = identity.build().eval()
    out = tmp_path_factory.mktemp("undecided") / "model"
    out.mkdir()
    write_model(out, identity, weights(drawn), {"step": 1})
    with load(out, device="cpu", threads=2) as loaded:
        yield loaded


def test_results_do_not_depend_on_other_requests(undecided: Model) -> None:
    """Compare token ids in eight threads with four settings, while other requests are abandoned."""
    searches = [
        SearchConfig(beam=1),
        SearchConfig(beam=3, n_best=2),
        SearchConfig(beam=4, length_penalty=1.0, max_length=20),
        SearchConfig(sample=True, n_best=2, top_k=5, seed=3),
    ]

    def results(number: int) -> list[list[Sequence[int]]]:
        together.wait()
        translations = undecided.translations(texts[number], searches[number % 4])
        return [
            [part.tokens for candidate in translation.candidates for part in candidate.parts]
            for translation in translations
        ]

    def abandon_streams() -> None:
        together.wait()
        for _ in range(3):
            stream = undecided.stream(texts[0] * 5, searches[1])
            next(stream)
            stream.close()  # type: ignore[attr-defined]  # it is a generator

    texts = [random_lines(8, seed) for seed in range(8)]
    together = threading.Barrier(9, timeout=PATIENCE)
    with ThreadPoolExecutor(9) as pool:
        abandoned = pool.submit(abandon_streams)
        concurrent = list(pool.map(results, range(8)))
        abandoned.result(PATIENCE)
    together = threading.Barrier(1)
    assert concurrent == [results(number) for number in range(8)]


def test_long_requests_do_not_delay_short_ones(model: Model) -> None:
    def endless() -> Iterator[str]:
        while not is_done.is_set():
            has_begun.set()
            yield "abcdefgh" * 3

    has_begun, is_done = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(lambda: sum(1 for _ in model.stream(endless())))
        assert has_begun.wait(PATIENCE)
        assert model.translate(["abc"]) == ["abc"]
        assert model.translate(["abc"], SearchConfig(beam=1)) == ["abc"]
        is_done.set()
        assert pending.result(PATIENCE)


def test_a_line_is_translated_before_the_next_one_is_read(model: Model) -> None:
    translated = threading.Semaphore(0)

    def lines() -> Iterator[str]:
        for line in ("abc", "", "de"):
            yield line
            assert translated.acquire(timeout=PATIENCE)

    translations = []
    for text in model.stream(lines()):
        translations.append(text)
        translated.release()
    assert translations == ["abc", "", "de"]


def test_an_abandoned_stream_leaves_the_model_usable(model: Model) -> None:
    stream = model.stream(iter(random_lines(500, seed=1)))
    next(stream)
    stream.close()  # type: ignore[attr-defined]  # it is a generator
    assert model.translate(["abc"]) == ["abc"]


def test_an_error_of_the_input_reaches_only_its_caller(model: Model) -> None:
    def lines() -> Iterator[str]:
        yield "abc"
        raise ValueError("the disk was removed")

    with pytest.raises(ValueError, match="the disk was removed"):
        model.translate(lines())
    assert model.translate(["abc"]) == ["abc"]


def test_a_stream_keeps_its_model_alive(folder: Path) -> None:
    assert list(load(folder, device="cpu", threads=1).stream(["abc", "de"])) == ["abc", "de"]


def test_a_closed_model_raises(folder: Path) -> None:
    with load(folder, device="cpu", threads=1) as model:
        stream = model.stream(iter("abc"))
        assert next(stream) == "a"
    for late in (lambda: next(stream), lambda: model.translate(["abc"])):
        with pytest.raises(RuntimeError, match=r"closed\. Load it again"):
            late()


def test_settings_that_do_not_fit_the_model_are_refused_at_once(model: Model, folder: Path) -> None:
    with pytest.raises(UserError, match=r"search\.mbr=comet needs scorer"):
        model.translate(["abc"], SearchConfig(mbr="comet"))
    with pytest.raises(UserError, match="different vocabularies"):
        load(folder, folder.parent / "other", device="cpu")


def test_several_models_are_an_ensemble_in_search_and_in_scores(folder: Path) -> None:
    paths = folder, folder.parent / "loops"
    with load(*paths, device="cpu", threads=1) as ensemble:
        single = [load(path, device="cpu", threads=1).token_scores([("ba", "ba")])[0] for path in paths]
        (mixed,) = ensemble.token_scores([("ba", "ba")])
        expected = torch.tensor([scores.token_scores for scores in single]).exp().mean(0).log().tolist()
        assert list(mixed.token_scores) == pytest.approx(expected, abs=1e-5)


def test_load_accepts_settings_of_the_input(folder: Path) -> None:
    settings = TranslateConfig(input=InputConfig(prefix=True))
    with load(folder, device="cpu", threads=1, config=settings) as model:
        assert [text[0] for text in model.translate(["abc\tx", "abc\ty"])] == ["x", "y"]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_state_of_the_process_does_not_change(folder: Path, threads: int) -> None:
    def state() -> tuple[object, ...]:
        new = ThreadPoolExecutor(1).submit(torch.get_num_threads).result()
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        seeds = torch.get_rng_state().tolist(), random.getstate()
        return torch.get_num_threads(), new, handlers, seeds, dict(os.environ), sys.argv[:]

    threads_before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        before = state()
        with load(folder, device="cpu", threads=threads) as model:
            model.translate(random_lines(5, seed=1), SearchConfig(sample=True, n_best=2))
            model.score([("abc", "abc")])
            assert state() == before
        assert state() == before
    finally:
        torch.set_num_threads(threads_before)


PROGRAM = """
import os, sys, torch
from nmt_cli.api import load
torch.set_num_threads(4)
x = torch.randn(500, 500) @ torch.randn(500, 500)  # starts a pool of threads, which a fork lacks
model = load(sys.argv[1], device="cpu", threads=2)
if child := os.fork():  # as web servers do, after loading
    print(*model.translate(["abc", "de"]), flush=True)
    os.waitpid(child, 0)
    print(*model.translate(["gh"]))
else:
    print(*model.translate(["abc", "de"]), flush=True)
"""
"""A script without `if __name__ == "__main__"` that does not close its model."""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="threads have their own processes only on Linux")
def test_a_script_with_threads_ends_and_may_fork(folder: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", PROGRAM, str(folder)],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "abc de\nabc de\ngh\n", "")


@linux
def test_lines_of_a_killed_worker_are_translated_by_another(folder: Path) -> None:
    lines = random_lines(300, seed=3)
    with load(folder, device="cpu", threads=2) as model:
        model.start()
        assert model._workers
        results = []
        for number, text in enumerate(model.stream(lines)):
            results.append(text)
            if number in (0, 50):  # not three times, which would make a line fail
                pid = model._workers.processes[number // 50].process.pid
                assert pid
                os.kill(pid, signal.SIGKILL)
        assert results == lines
        assert model.restarts > 0
        assert model.translate(["abc"]) == ["abc"]


def test_a_short_request_of_an_event_loop_starts_no_thread(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: threading.Thread) -> None:
        raise AssertionError("a thread was started")

    with load(folder, device="cpu", threads=1) as model:
        assert model.translate(["abc"]) == ["abc"]  # the worker is initialised now
        monkeypatch.setattr(threading.Thread, "start", refused)
        assert asyncio.run(model.atranslate(["abc", "", "de"])) == ["abc", "", "de"]
        monkeypatch.undo()
        long = ["ab " * 900] * 3
        assert asyncio.run(model.atranslate(long)) == model.translate(long)


@linux
def test_a_killed_idle_worker_is_replaced(folder: Path) -> None:
    with load(folder, device="cpu", threads=2) as model:
        for _ in range(2):  # a third death before a process asks for work counts as a fault of the machine
            assert model.translate(["abc", "de"] * 20) == ["abc", "de"] * 20
            assert model._workers
            for process in model._workers.processes:
                process.process.kill()
        assert model.translate(["abc"]) == ["abc"]


@linux
def test_only_the_request_with_a_sentence_that_kills_workers_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join = EngineSearch.join

    def deadly(search: EngineSearch, sentences: Sequence[Sentence]) -> None:
        if 39 in [len(sentence.tokens) for sentence in sentences]:
            os.kill(os.getpid(), signal.SIGKILL)
        join(search, sentences)

    monkeypatch.setattr(EngineSearch, "join", deadly)
    lines = random_lines(60, seed=4)
    with load(folder, device="cpu", threads=2) as model, ThreadPoolExecutor(3) as pool:
        bad = pool.submit(model.translate, ["abc", "a" * 39, "de"])
        good = [pool.submit(model.translate, lines) for _ in range(2)]
        with pytest.raises(UserError, match=r"line 2, 3 times in a row: .* was killed"):
            bad.result(PATIENCE)
        assert [request.result(PATIENCE) for request in good] == [lines] * 2
        assert model.restarts == 3


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds. Fail after `PATIENCE` seconds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_sentences_of_an_abandoned_request_leave_the_queue(model: Model) -> None:
    for _ in range(20):  # on a busy machine, all sentences may be done before this thread continues
        # The first sentence is done after 2 steps, all others after 57.
        stream = model.stream(iter(["a", *["abcdefgh" * 7] * 35]))
        next(stream)
        queued = model.queued
        stream.close()  # type: ignore[attr-defined]  # it is a generator
        assert model.queued == 0
        if queued:
            return
    pytest.fail("no request was abandoned before its end")


def test_an_event_loop_is_not_blocked_and_no_thread_remains(model: Model) -> None:
    texts = [random_lines(15, seed) for seed in range(20)]
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0.001)

    async def streamed(lines: Sequence[str]) -> list[str]:
        return [text async for text in model.astream(lines, SearchConfig(beam=2))]

    async def main() -> list[list[str]]:
        beating = asyncio.create_task(beat())
        results = await asyncio.gather(
            *map(model.atranslate, texts), *map(streamed, texts), model.atranslate([])
        )
        beating.cancel()
        return results

    model.start()
    before = set(threading.enumerate())
    assert asyncio.run(main()) == [*texts, *texts, []]
    assert beats > 5
    wait_until(lambda: set(threading.enumerate()) <= before)


def test_a_cancelled_task_removes_its_sentences(model: Model) -> None:
    def endless() -> Iterator[str]:
        while True:
            yield "abcdefgh" * 7

    async def main() -> None:
        task = asyncio.create_task(model.atranslate(endless()))
        while not model.queued:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(wait_until, lambda: model.queued == 0)
        assert await model.atranslate(["abc"]) == ["abc"]

    before = set(threading.enumerate())
    model.start()
    asyncio.run(main())
    wait_until(
        lambda: (
            not any(thread.name.endswith("(read_lines)") for thread in set(threading.enumerate()) - before)
        )
    )


def test_errors_reach_the_awaiting_task(model: Model) -> None:
    def lines() -> Iterator[str]:
        yield "abc"
        raise ValueError("the disk was removed")

    with pytest.raises(ValueError, match="the disk was removed"):
        asyncio.run(model.atranslate(lines()))
    with pytest.raises(UserError, match=r"search\.mbr=comet needs scorer"):
        asyncio.run(model.atranslate(["abc"], SearchConfig(mbr="comet")))


def test_an_error_of_the_lines_follows_the_translations_before_it(model: Model) -> None:
    def lines() -> Iterator[str]:
        yield from ["abc", "de", "f"]
        raise ValueError("the disk was removed")

    async def main() -> None:
        async for text in model.astream(lines()):
            seen.append(text)

    seen: list[str] = []
    with pytest.raises(ValueError, match="the disk was removed"):
        asyncio.run(main())
    assert seen == ["abc", "de", "f"]


def test_the_garbage_collector_closes_a_model_in_a_thread_that_holds_the_lock_of_its_queue(
    folder: Path,
) -> None:
    model = load(folder, device="cpu", threads=2)
    translations = model.translations(iter(lambda: "abc", ""))
    next(translations)
    workers = model._workers
    assert workers
    garbage: list[object] = [model, translations]
    garbage.append(garbage)
    del model, translations, garbage
    # The last argument is called under the lock.
    request = workers.queue.open(SearchConfig(), 1, lambda: [gc.collect()].clear())
    collecting = threading.Thread(target=workers.queue.end, args=(request,), daemon=True)
    collecting.start()
    threads = [*workers._threads, collecting]
    wait_until(lambda: not any(thread.is_alive() for thread in threads))
    assert workers.queue.closed


SENTENCES = st.sampled_from(["Ab cd.", "A", "So a!", "Is it?", "So... a", "3.5 b"])
SPACES = st.text(" \n\r\u2028\t", min_size=1, max_size=4).filter(lambda spaces: spaces != "\t")


@settings(max_examples=15)
@given(start=st.text(" \n", max_size=4), parts=st.lists(st.tuples(SENTENCES, SPACES), max_size=6))
def test_texts_keep_their_whitespace_and_line_breaks(
    copier: Model, start: str, parts: Sequence[tuple[str, str]]
) -> None:
    """Use a model that returns its input. Spaces within a sentence become one."""
    text = start + "".join(sentence + spaces for sentence, spaces in parts)
    expected = "".join(
        " ".join(sentence.split()) + spaces for sentence, spaces in zip(*copier.sentences(text), strict=True)
    )
    assert copier.translate_text(text) == expected
    for line_break in "\n\r\u2028":
        assert expected.count(line_break) == text.count(line_break)


def test_importing_the_api_loads_nothing_heavy() -> None:
    script = "import sys, nmt_cli.api; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert not set(result.stdout.split()) & {"torch", "numpy", "click", "rich", "sentencepiece"}


@pytest.mark.usefixtures("small_window")
def test_alignments_are_right_while_the_same_weights_translate(folder: Path) -> None:
    """Use one thread: its worker shares the modules of this process."""
    done = threading.Event()

    def endless() -> Iterator[str]:
        while not done.is_set():
            yield "hgfedcba" * 4

    with load(folder, device="cpu", threads=1) as model, ThreadPoolExecutor(1) as pool:
        pending = pool.submit(lambda: sum(1 for _ in model.stream(endless())))
        results = [model.align([("abcd", "abcd")])[0].links for _ in range(20)]
        done.set()
        pending.result(PATIENCE)
    assert results == [[0, 1, 2, 3]] * 20


@pytest.mark.parametrize(
    "search", [{"beam": 2}, "beam=2", TranslateConfig()], ids=lambda search: type(search).__name__
)
def test_settings_of_another_type_are_refused(
    folder: Path, toy_dataset: Path, tmp_path: Path, search: Any
) -> None:
    with load(folder, device="cpu", threads=1) as model:
        with pytest.raises(TypeError, match=r"^search must be a SearchConfig") as caught:
            model.translate(["abc"], search)
        assert ("Use SearchConfig(**search)." in str(caught.value)) == isinstance(search, dict)
        with pytest.raises(TypeError, match=r"^search must be a SearchConfig"):
            asyncio.run(model.atranslate(["abc"], search))
    config: Any = search if isinstance(search, dict) else SearchConfig()
    with pytest.raises(TypeError, match=r"^config must be a TranslateConfig"):
        load(folder, device="cpu", config=config)
    with pytest.raises(TypeError, match=r"^config\.search must be a SearchConfig"):
        load(folder, device="cpu", config=TranslateConfig(search=search))
    with pytest.raises(TypeError, match=r"^config must be a TrainConfig"):
        api.train(toy_dataset, tmp_path / "run", config)
    with pytest.raises(TypeError, match=r"^config must be a PreprocessConfig"):
        api.preprocess("en", "de", ["train"], tmp_path / "dataset", config=config)
    with pytest.raises(TypeError, match=r"^config must be a ScoreConfig"):
        api.score_texts(["a"], [["a"]], config=config)


def test_results_have_a_short_repr(copier: Model) -> None:
    (translation,) = copier.translations(["abc"])
    assert re.fullmatch(r"<Translation 'abc', confidence [01]\.\d\d>", repr(replace(translation, flags=())))
    assert repr(replace(translation, flags=("copied", "short"))).endswith(", copied, short>")
    assert re.fullmatch(r"<Candidate 'abc', score -?\d\.\d{3}>", repr(translation.candidates[0]))
    manifest = {"splits": {"train": {"pairs": 1234}, "valid": {"pairs": 5}}}
    assert repr(api.Outcome(manifest, None)) == "<Outcome, pairs: train 1,234, valid 5>"
