"""Fixtures for all tests: generated corpora, datasets, models, and `nmt` in this or another process."""

import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess, Popen
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from nmt_cli import config as settings
from nmt_cli.cli.main import main
from nmt_cli.data.config import PreprocessConfig
from nmt_cli.data.preprocessing.job import PreprocessJob
from nmt_cli.data.preprocessing.pipeline import Outcome, preprocess
from nmt_cli.text.vocabulary import Vocabulary
from tests.forked import Forked, script, served

if TYPE_CHECKING:
    from nmt_cli.decoding.search.hypotheses import Sentence
    from nmt_cli.model.config import ModelConfig
    from nmt_cli.model.transformer import Transformer
    from nmt_cli.text.tokenizers import Tokenizers

hypothesis.settings.register_profile(
    "nmt",
    max_examples=40,
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # depends on the time
)
hypothesis.settings.register_profile("quick", hypothesis.settings.get_profile("nmt"), max_examples=10)
hypothesis.settings.load_profile("nmt")

# Processes that tests start print this only if no kernels are compiled yet.
os.environ.setdefault("PYTHONWARNINGS", "ignore:Compiling CPU kernels")

# Background jobs of a shell ignore SIGINT, those of nohup SIGHUP. Child processes inherit that, and the tests
# send both signals.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

LOADED = "location.href !== 'about:blank' && document.readyState === 'complete'"

Pairs = Sequence[tuple[str, str]]

LANGUAGES = ("--source-lang", "en", "--target-lang", "de")

LARGE = 25_000
"""Number of pairs of the large corpus, which has several blocks and a last one that is not full."""


SLOW = (
    *("end_to_end/", "recipes/", "interop/", "serving/", "attention/test_gpu_attention.py"),
    *("loss/test_cross_entropy.py", "data/batching/test_resegment.py", "model/test_cache.py"),
    *("model/test_oracles.py", "decoding/search/test_search.py", "decoding/search/test_constraints.py"),
    *("translation/test_stream.py", "cli/commands/test_average_checkpoints.py", "training/test_loop.py"),
    *("training/step/test_trainer.py", "training/step/test_ema.py", "training/setup/", "test_api.py"),
    *("cli/commands/test_score_model.py", "text/test_sampling.py", "text/test_normalize.py"),
    *("text/subword_models/test_learn.py", "training/validation/", "model/test_torch_compile.py"),
    *(
        "training/test_compiled.py",
        "loss/test_gpu_row_losses.py",
        "model/pointwise/test_gpu_relu_and_dropout.py",
    ),
    *("decoding/search/test_search_on_a_gpu.py", "model/kernels/", "engine/test_search.py"),
    *("data/preprocessing/", "data/batching/test_plans_of_old_runs.py", "translation/workers/"),
    *("data/batching/test_links_follow_the_text.py", "translation/text/test_ranking.py", "cli/test_main.py"),
    *("cli/commands/test_score.py", "cli/commands/test_train.py", "training/test_guided_alignment.py"),
    *("training/step/test_no_waiting.py", "scoring/neural/", "scoring/test_command.py", "test_prose.py"),
    *("checkpoints/test_average.py", "test_other_toolkits.py", "text/languages/"),
)
"""Folders and files in which all tests are slow. Other slow tests have a mark."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files of slow tests in `make quick`, since their imports take a third of its time."""
    return (config.option.markexpr == "not slow" and _is_slow(collection_path)) or None


def _is_slow(path: Path) -> bool:
    """Return whether all tests of a file or folder are slow."""
    return f"{path}/".removeprefix(f"{Path(__file__).parent}/").startswith(SLOW)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out slow tests in `make quick`. In `make test`, run slow tests first, so that all workers end
    together."""
    for item in items:
        if _is_slow(item.path):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: not _is_slow(item.path))


def vocabulary_of(size: int) -> Vocabulary:
    """Return a vocabulary with `size` entries without text."""
    return Vocabulary(("",) * size, end=0, start=0, unknown=1)


def _random_pairs(count: int, seed: int) -> Pairs:
    """Return `count` sentences of random words, paired with the reversed words. Some occur twice."""
    draws = random.Random(seed)
    words = ["".join(draws.choices("abcdefgäßñ", k=draws.randint(1, 6))) for _ in range(200)]
    sources = [draws.choices(words, k=draws.randint(1, 8)) for _ in range(count)]
    return [(" ".join(source), " ".join(word[::-1] for word in source)) for source in sources]


def _write_pairs(prefix: Path, pairs: Pairs) -> str:
    """Write PREFIX.en and PREFIX.de, and return PREFIX."""
    for ending, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        Path(f"{prefix}.{ending}").write_bytes("".join(f"{line}\n" for line in lines).encode())
    return str(prefix)


@pytest.fixture(scope="session")
def write_pairs() -> Callable[[Path, Pairs], str]:
    """Return a function that writes PREFIX.en and PREFIX.de and returns PREFIX."""
    return _write_pairs


@pytest.fixture(scope="session")
def toy_pairs() -> Pairs:
    """Return the 300 pairs in `toy`."""
    return _random_pairs(300, seed=1)


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory, toy_pairs: Pairs) -> str:
    """Return the prefix of a small corpus, `toy_pairs` in PREFIX.en and PREFIX.de."""
    return _write_pairs(tmp_path_factory.mktemp("toy") / "toy", toy_pairs)


@pytest.fixture(scope="session")
def dev(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the prefix of a set of twenty pairs."""
    return _write_pairs(tmp_path_factory.mktemp("dev") / "dev", _random_pairs(20, seed=2))


@pytest.fixture(scope="session")
def large_arguments(tmp_path_factory: pytest.TempPathFactory, dev: str) -> list[str]:
    """Return arguments of `nmt preprocess` for a corpus of several blocks, without --out and --workers."""
    train = _write_pairs(tmp_path_factory.mktemp("large") / "large", _random_pairs(LARGE, seed=3))
    assignments = ("tokenizer.sample_lines=4000", "filter.duplicates=true", "filter.max_subwords=24")
    return [
        *("preprocess", *LANGUAGES, "--train", train, "--valid", dev, "--vocab-size", "64"),
        *(word for assignment in assignments for word in ("--set", assignment)),
    ]


@pytest.fixture(scope="session")
def large_dataset(tmp_path_factory: pytest.TempPathFactory, large_arguments: list[str]) -> Path:
    """Return the dataset of `large_arguments`, made with one worker. Tests only read it."""
    out = tmp_path_factory.mktemp("large-dataset") / "out"
    command = [sys.executable, "-m", "nmt_cli", *large_arguments, "--workers", "1", "--quiet"]
    subprocess.run([*command, "--out", str(out)], check=True)
    return out


@pytest.fixture(scope="session")
def make() -> Callable[..., Outcome]:
    """Return a function that writes a dataset: `make(out, [corpus], "section.key=value", ...)`."""

    def make(
        out: Path,
        train: Sequence[str],
        *assignments: str,
        valid: Sequence[str] = (),
        reuse: object = None,
        overwrite: bool = False,
    ) -> Outcome:
        kind = [] if reuse else ["tokenizer.kind=char"]
        config = settings.read(PreprocessConfig, assignments=[*kind, *assignments])
        request = PreprocessJob("en", "de", train, valid, (), str(reuse) if reuse else None, config)
        return preprocess(request, out, 1, overwrite, lambda stage, done, total: None)

    return make


@pytest.fixture(scope="session")
def toy_dataset(
    tmp_path_factory: pytest.TempPathFactory, make: Callable[..., Outcome], toy: str, dev: str
) -> Path:
    """Return a dataset of `toy` and `dev` in characters. Tests only read it."""
    out = tmp_path_factory.mktemp("toy-dataset") / "out"
    make(out, [toy], valid=[dev])
    return out


@pytest.fixture(scope="session")
def digests() -> Callable[[Path], dict[str, str]]:
    """Return a function that maps each file in a folder, by relative path, to its SHA-256."""
    return lambda folder: {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _program(*names: str, remedy: str) -> str:
    """Return the path of the first program of `names` that is installed. If none is installed, skip the test
    with the `remedy`, or let the test fail if CI is set."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    if program := next(filter(None, (shutil.which(name, path=path) for name in names)), None):
        return program
    missing = f"{' or '.join(names)} is not installed: {remedy}"
    if "CI" in os.environ:
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.fixture(scope="session")
def deno() -> str:
    """Return the path of Deno, for scripts. Without Deno, skip the test, or fail if CI is set."""
    return _program("deno", remedy="pip install deno")


@pytest.fixture(scope="session")
def browser() -> str:
    """Return the path of a browser. Without a browser, skip the test, or fail if CI is set."""
    return _program("chromium", "google-chrome", remedy="apt-get install chromium")


@pytest.fixture
def shown_by_browser(browser: str, tmp_path: Path) -> Callable[..., str]:
    """Return a function that returns the HTML of a page, a file or an address, when the JavaScript expression
    `ready` is true."""

    def shown(page: Path | str, ready: str = LOADED) -> str:
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
        command = [browser, *options, f"--user-data-dir={tmp_path}/profile", "--remote-debugging-pipe"]
        in_pipes = ["sh", "-c", 'exec "$0" "$@" 3<&0 4>&1 >&2', *command]
        with Popen(in_pipes, stdin=PIPE, stdout=PIPE, stderr=DEVNULL) as process, ExitStack() as at_end:
            at_end.callback(process.terminate)
            call = partial(_called, process, time.monotonic() + 120)
            address = page if isinstance(page, str) else page.as_uri()
            target = call("Target.createTarget", url=address)["targetId"]
            session = call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            expression = f"({ready}) && document.documentElement.outerHTML"
            html = None
            while not html:
                time.sleep(0.05)
                html = call("Runtime.evaluate", session, expression=expression)["result"].get("value")
            return str(html)

    return shown


def _called(browser: "Popen[bytes]", end: float, method: str, session: str = "", **params: object) -> Any:
    """Return the result of a method of the Chrome DevTools Protocol. Fail after the time `end`."""
    assert browser.stdin and browser.stdout and time.monotonic() < end
    message = {"id": 1, "method": method, "params": params, **({"sessionId": session} if session else {})}
    browser.stdin.write(json.dumps(message).encode() + b"\0")
    browser.stdin.flush()
    read = browser.stdout.read
    answer: dict[str, Any] = {}
    while "id" not in answer:  # events of the browser have no id
        answer = json.loads(b"".join(iter(lambda: read(1) or b"\0", b"\0")))
    return answer["result"]


@contextmanager
def _full_disk(size: int) -> Iterator[None]:
    """Until the block ends, limit the size of all files to `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="session")
def full_disk() -> Callable[[int], AbstractContextManager[None]]:
    """Return a function that returns a context in which no file can grow beyond a size in bytes."""
    return _full_disk


@pytest.fixture
def nmt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., CompletedProcess[str]]]:
    """Return a function that runs `nmt` in this process, and returns its exit code, stdout and stderr."""

    def run(*arguments: object) -> CompletedProcess[str]:
        command = [str(argument) for argument in arguments]
        monkeypatch.setattr(sys, "argv", ["nmt", *command])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit:
            main()
        return CompletedProcess(command, int(exit.value.code or 0), *capsys.readouterr())

    handler = signal.getsignal(signal.SIGTERM)
    yield run
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def nmt_preprocess(nmt: Callable[..., CompletedProcess[str]]) -> Callable[..., CompletedProcess[str]]:
    """Return a function that runs `nmt preprocess` for English and German in characters."""
    return lambda *arguments: nmt(
        *("preprocess", *LANGUAGES, "--workers", "1", "--set", 'tokenizer.kind="char"'), *arguments
    )


@pytest.fixture(scope="session", autouse=True)
def _temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Put temporary files, which killed processes leave, into a folder that pytest removes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        yield


@pytest.fixture(autouse=True)
def _own_random_numbers() -> None:
    """Seed PyTorch, if it is loaded, so that a test draws the same numbers alone and after other tests."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture
def start() -> Iterator[Callable[..., Popen[str]]]:
    """Return a function that starts a command as a process group. Kill the group after the test."""

    def start(command: Sequence[object], stdin: int = subprocess.DEVNULL) -> Popen[str]:
        process = stack.enter_context(
            Popen(
                list(map(str, command)),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        stack.callback(_kill_group, process.pid)
        return process

    with ExitStack() as stack:
        yield start


@pytest.fixture(scope="session")
def fork_server() -> Iterator[Path]:
    """Yield the short path of the socket of a server that forks processes with loaded modules."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, served(Path(folder)) as path:
        yield path


@pytest.fixture(scope="session")
def nmt_script(tmp_path_factory: pytest.TempPathFactory, fork_server: Path) -> Path:
    """Return an executable `nmt` for the PATH of shells, which starts without loading torch."""
    path = tmp_path_factory.mktemp("bin") / "nmt"
    path.write_text(script(fork_server))
    path.chmod(0o755)
    return path


@pytest.fixture(scope="session")
def forked_nmt(fork_server: Path) -> Callable[..., Popen[bytes]]:
    """Return a function that runs `nmt` in a fork: `forked_nmt(*arguments, ...)`, with options of `Popen`."""

    def forked_nmt(*arguments: object, **streams: Any) -> Popen[bytes]:
        return Forked(fork_server, arguments, **streams)

    return forked_nmt


@pytest.fixture(scope="session")
def run_nmt(forked_nmt: Callable[..., Popen[bytes]]) -> Callable[..., bytes]:
    """Return a function that runs `nmt` in a fork, checks for exit code 0 and returns stdout."""

    def run_nmt(*arguments: object, stdin: bytes = b"") -> bytes:
        with forked_nmt(*arguments, stdin=subprocess.PIPE) as process:
            output, errors = process.communicate(stdin)
        assert process.returncode == 0, errors.decode()
        return output

    return run_nmt


@pytest.fixture
def start_nmt(start: Callable[..., Popen[str]], fork_server: Path) -> Iterator[Callable[..., Popen[str]]]:
    """Return a function that starts `nmt` in a fork, or below the command `below`. Kill it after the test."""

    def start_nmt(
        *arguments: object, below: Sequence[str] = (), stdin: int = subprocess.DEVNULL
    ) -> Popen[str]:
        if below:
            return start([*below, sys.executable, "-m", "nmt_cli", *arguments], stdin)
        process = Forked[str](fork_server, arguments, stdin, text=True, start_new_session=True)
        stack.callback(_kill_group, stack.enter_context(process).pid)
        return process

    with ExitStack() as stack:
        yield start_nmt


@pytest.fixture(scope="session")
def tiny_settings() -> str:
    """Return the lines of a settings file with which `nmt train` takes seconds."""
    return """
model.width = 8
model.feed_forward = 16
model.heads = 2
model.encoder_layers = 1
model.decoder_layers = 1
batch.tokens = 500
checkpoints.every_steps = 1
search.max_length = 12
"""


@pytest.fixture
def cramped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a memory that is too small for sentences of over three source tokens, with the end token."""
    import torch

    from nmt_cli.engine.search import EngineSearch

    join = EngineSearch.join

    def cramped(search: EngineSearch, sentences: "Sequence[Sentence]") -> None:
        if max(len(sentence.tokens) for sentence in sentences) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        join(search, sentences)

    monkeypatch.setattr(EngineSearch, "join", cramped)


@pytest.fixture(scope="session")
def made_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of untrained models that translate up to 63 characters at a time. `copies` returns its
    source. `french` copies from French into English. `silent` returns nothing. `loops` repeats "a" without
    end. `other` has another vocabulary. `masks` and `loops-masks` have symbols for four placeholders.
    `terms` has symbols of terms, as if it had learnt them. `tagged` also copies the symbol of the target
    language, German, French or Spanish, at the start of its source."""
    # Most tests need no torch, which takes seconds to load.
    from nmt_cli.checkpoints.model_folder import Identity, weights, write_model
    from nmt_cli.text.config import TextConfig, TokenizerConfig
    from nmt_cli.text.placeholders import family
    from nmt_cli.text.tokenizers import Recipe, learn_tokenizers

    def characters(alphabet: str, source: str, masks: int, terms: bool, tags: Sequence[str]) -> "Tokenizers":
        lang = "mul" if tags else "en" if source == "fr" else "de"
        symbols = (*tags, *family(masks, terms))
        recipe = Recipe("char", True, source, lang, TextConfig(), symbols)
        return learn_tokenizers(recipe, TokenizerConfig(kind="char"), {"source": [alphabet], "target": []})

    def write(
        name: str,
        alphabet: str,
        always: str | None = None,
        source: str = "en",
        masks: int = 0,
        terms: bool = False,
        tags: Sequence[str] = (),
    ) -> None:
        tokenizers = characters(alphabet, source, masks, terms, tags)
        only = None if always is None else [*tokenizers.target.encode(always), 0][0]
        config, model = _copier(len(tokenizers.source.vocabulary.entries), only)
        (folder / name).mkdir()
        trained_on = {"terms": "the hash of a file"} if terms else {}
        write_model(folder / name, Identity(config, tokenizers, trained_on), weights(model), {"step": 1})

    folder = tmp_path_factory.mktemp("made-models")
    letters = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZäöüß.,!?0123456789"
    write("copies", letters)
    write("silent", letters, always="")
    write("loops", letters, always="a")
    write("other", "abc ")
    write("french", letters, source="fr")
    write("masks", letters, masks=4)
    write("terms", f"{letters}⟦<>⟧", terms=True)
    write("loops-masks", letters, always="a", masks=4)
    write("tagged", letters, tags=["<2de>", "<2fr>", "<2es>"])
    return folder


def _copier(vocabulary: int, always: int | None) -> "tuple[ModelConfig, Transformer]":
    """Return a model that copies its source, or that outputs the token `always` at every position. The model
    attends to the source token at the target position. The first channels encode tokens, all others encode
    positions. `vocabulary` is the number of tokens."""
    import torch

    from nmt_cli.model.config import ModelConfig
    from nmt_cli.model.transformer import DecoderLayer, Transformer

    positions = 64
    config = ModelConfig(
        encoder_layers=1,
        decoder_layers=1,
        width=vocabulary + positions,
        feed_forward=8,
        heads=1,
        key_width=positions,
        value_width=vocabulary,
        norm="pre",
        positions="learned",
        longest=positions,
        tie="none",
    )
    model = Transformer(config, vocabulary_of(vocabulary), vocabulary_of(vocabulary), joint=True).eval()
    token, position = torch.split(torch.eye(config.width), [vocabulary, positions])
    decoder = model.decoder[0]
    assert isinstance(decoder, DecoderLayer) and isinstance(model.decoder_norm, torch.nn.LayerNorm)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(float("norm.weight" in name))
        for embedding in (model.source_embedding, model.target_embedding):
            assert embedding.positions
            next(embedding.positions.parameters()).copy_(config.width**0.5 * position)
        model.source_embedding.matrix.copy_(token)
        decoder.cross.query.weight.copy_(100 * position)
        decoder.cross.key_value.weight.copy_(torch.cat([position, token]))
        decoder.cross.output.weight.copy_(10 * token.T)
        model.output_matrix.copy_(100 * token)
        if always is not None:
            model.output_matrix.copy_(-token)
            model.output_matrix[always] = 0.0
            model.decoder_norm.weight.zero_()
            model.decoder_norm.bias.fill_(100.0)
    return config, model


def _kill_group(group: int) -> None:
    """Kill all processes of a group. Do nothing if there are none."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
