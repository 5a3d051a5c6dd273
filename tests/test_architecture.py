"""Check the architecture of `nmt_cli`: levels of imports, and owners of libraries."""

import ast
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

import pytest

import nmt_cli
from nmt_cli.runtime.kernels import loading as kernels

PACKAGE = Path(nmt_cli.__file__).parent
ROOT = PACKAGE.parent

LEVELS = {
    "__main__": 11,
    "cli": 10,
    "serving": 9,
    "api": 8,
    "training": 7,
    "translation": 6,
    "engine": 5,
    "decoding": 4,
    "interop": 4,
    "checkpoints": 3,
    "model": 2,
    "data": 2,
    "scoring": 2,
    "attention": 1,
    "loss": 1,
    "text": 1,
    "corpus": 1,
    "demo": 1,
}
LOWEST = (
    *("__init__", "config", "errors", "html", "language", "named_values"),
    *("other_toolkits", "ragged", "removed_settings", "runtime", "setting_values", "units"),
)

LEVELS_INSIDE = {
    "cli": ({"options"}, {"reports"}, {"commands"}, {"main"}),
    "training": ({"config", "settings"}, {"step"}, {"validation"}, {"tracking"}, {"loop"}, {"setup"}),
    "decoding": ({"config", "ensemble", "forced", "attention_maps"}, {"search"}, {"batch"}),
    "engine": ({"kernels"}, {"packing"}, {"state"}, {"search"}, {"decoder"}),
    "data": (set[str](), {"cleaning", "batching"}, {"preprocessing"}),
    "text": (
        set[str](),
        {"subword_models"},
        {"tokenizer"},
        {"sampling", "tokenizers", "variation"},
        {"changed_tokenizers"},
    ),
    "runtime": ({"kernels"},),
}
"""The levels inside a subpackage, lowest first. A part that is not listed is on the lowest level."""

COMPILED = ("*.cpu_*", "*.compiled", "nmt_cli.engine.kernels.*")
"""The modules that Numba compiles."""

OWNERS: Mapping[str, str | tuple[str, ...]] = {
    "click": "nmt_cli.cli.*",
    "rich": "nmt_cli.cli.*",
    "triton": "*.gpu_*",
    "numba": COMPILED,
    "llvmlite": COMPILED,
    "torch.distributed": "nmt_cli.training.step.distributed",
    "sentencepiece": "nmt_cli.text.*",
    "subword_nmt": "nmt_cli.text.*",
    "sacremoses": "nmt_cli.text.*",
    "sacrebleu": "nmt_cli.scoring.*",
    "safetensors": "nmt_cli.checkpoints.*",
    "yaml": "nmt_cli.training.foreign_recipes",
    "wandb": "nmt_cli.training.tracking.trackers",
    "transformers": "nmt_cli.interop.*",
    "ctranslate2": "nmt_cli.interop.*",
    "huggingface_hub": "nmt_cli.interop.hub",
    "starlette": "nmt_cli.serving.*",
    "h11": "nmt_cli.serving.connections",
    "uvicorn": "nmt_cli.serving.*",
    "prometheus_client": "nmt_cli.serving.metrics",
    "py3langid": "nmt_cli.text.languages.identify",
    "pyarrow": "nmt_cli.corpus.arrow",
}
WITHOUT_TORCH, WITH_TORCH = ("text", "corpus", "scoring"), "nmt_cli.scoring.neural."
FORBIDDEN_NAMES = ("utils", "helpers", "common")

TOP_LEVEL = {"nmt_cli", "recipes", "tests", "Makefile", "pyproject.toml", "README.md", "LICENSE"}

Sources = Mapping[str, str]
"""Source text by module name. The key of an `__init__` file is the name of its package."""


def package_sources() -> Sources:
    return {_module_name(path): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}


def climbing(sources: Sources) -> Iterator[str]:
    """Yield a message for each import that does not go to a lower level."""
    for module, source in sources.items():
        if _level(_subpackage(module)) is None:
            yield f"{module} has no level"
        for imported in _imports(source):
            if imported.startswith("."):
                yield f"{module} imports {imported} relatively"
            if imported.split(".")[0] != "nmt_cli":
                continue
            source_package, target_package = _subpackage(module), _subpackage(imported)
            level, target = _level(source_package), _level(target_package)
            if level is not None and target is not None and target > level:
                yield f"{module} imports a higher level: {imported}"
            elif level == target and source_package != target_package:
                yield f"{module} imports its own level: {imported}"


def climbing_inside(sources: Sources) -> Iterator[str]:
    """Yield a message for each import inside a subpackage that does not go to a lower level of it."""
    for module, source in sources.items():
        for imported in _imports(source):
            subpackage = _subpackage(module)
            if subpackage != _subpackage(imported) or subpackage not in LEVELS_INSIDE:
                continue
            part, target_part = _part(module), _part(imported)
            level, target = _level_inside(subpackage, part), _level_inside(subpackage, target_part)
            if target > level:
                yield f"{module} imports a higher level: {imported}"
            elif target == level > 0 and part != target_part:
                yield f"{module} imports its own level: {imported}"


def cycles(sources: Sources) -> Iterator[str]:
    """Yield each import cycle as `a -> b -> a`."""
    edges = {module: sorted(_imported_modules(module, source, sources)) for module, source in sources.items()}
    done: set[str] = set()
    for start in edges:
        yield from _cycles_from(start, edges, [], done)


def foreign_imports(sources: Sources) -> Iterator[str]:
    """Yield a message for each library that a module imports without being its owner."""
    for module, source in sources.items():
        for imported in _imports(source):
            for library, owner in OWNERS.items():
                if f"{imported}.".startswith(f"{library}.") and not _fits(module, owner):
                    yield f"{module} imports {imported}, which belongs to {owner}"
            without = _subpackage(module) in WITHOUT_TORCH and not module.startswith(WITH_TORCH)
            if imported.split(".")[0] == "torch" and without:
                yield f"{module} imports torch"


def unhashed(sources: Sources) -> Iterator[str]:
    """Yield a message for each import of compiled code whose changes the kernel cache would ignore."""
    hashed = [f"nmt_cli.{path[:-3].replace('/', '.').replace('**.', '*')}.*" for path in kernels.SOURCES]
    for module, source in sources.items():
        for imported in _imports(source) if _fits(module, COMPILED) else ():
            ours = imported.startswith("nmt_cli.") and ".kernels.loading." not in imported
            if ours and not any(fnmatch(imported, pattern) for pattern in hashed):
                yield f"{module} imports {imported}, which is not in kernels.SOURCES"


def ill_named(modules: Sources) -> Iterator[str]:
    """Return the modules with a name that says nothing."""
    return (module for module in modules if set(module.split(".")) & set(FORBIDDEN_NAMES))


@pytest.mark.parametrize(
    "rule",
    [
        climbing,
        climbing_inside,
        cycles,
        foreign_imports,
        ill_named,
        unhashed,
    ],
)
def test_the_package_follows_the_rule(rule: Callable[[Sources], Iterator[str]]) -> None:
    assert list(rule(package_sources())) == []


def test_the_rules_see_every_module() -> None:
    assert {"nmt_cli", "nmt_cli.__main__", "nmt_cli.cli.main", "nmt_cli.data"} <= set(package_sources())


@pytest.mark.parametrize(
    ("rule", "module", "source", "expected"),
    [
        (climbing, "text.tokenizer", "import nmt_cli.model.layers", "imports a higher level:"),
        (climbing, "config", "from nmt_cli.text import bpe", "imports a higher level:"),
        (climbing, "data.a", "def f():\n    from nmt_cli.cli import main", "imports a higher level:"),
        (climbing, "data.a", "if x:\n    from nmt_cli import training", "imports a higher level:"),
        (climbing, "data.a", "from nmt_cli.model.layers import Layer", "imports its own level:"),
        (climbing, "text.a", "import os, nmt_cli.corpus.raw_files as f", "imports its own level:"),
        (climbing, "text.a", "from ..data import arrays", "imports ..data.arrays relatively"),
        (climbing, "unlisted.a", "", "has no level"),
        (climbing, "tools", "", "has no level"),
        (climbing, "cli.main", "from nmt_cli.data import dataset\nfrom nmt_cli import __version__", ""),
        (climbing, "data.dataset", "from nmt_cli.data.array_files import Array\nimport nmt_cli.errors", ""),
        (climbing, "config", "from nmt_cli.errors import UserError\nimport model.layers", ""),
        (
            climbing_inside,
            "training.step.a",
            "from nmt_cli.training.loop import Loop",
            "nmt_cli.training.loop",
        ),
        (
            climbing_inside,
            "training.config",
            "from nmt_cli.training.step.a import b",
            "nmt_cli.training.step",
        ),
        (climbing_inside, "training.tracking.a", "from nmt_cli.training.validation.b import c", ""),
        (climbing_inside, "training.step.a", "from nmt_cli.training.step.b import c", ""),
        (climbing_inside, "data.a", "from nmt_cli.data.b import c", ""),
        (foreign_imports, "data.a", "import click", "click"),
        (foreign_imports, "cli.a", "import click\nfrom rich.table import Table", ""),
        (foreign_imports, "attention.attention", "import triton.language as tl", "triton"),
        (foreign_imports, "attention.gpu_attention", "import triton.language as tl", ""),
        (foreign_imports, "engine.search", "import numba", "numba"),
        (foreign_imports, "engine.kernels.team", "import numba", ""),
        (foreign_imports, "training.loop", "import torch\na = torch.distributed.b()", "torch.distributed"),
        (foreign_imports, "training.step.distributed", "import torch.distributed as dist", ""),
        (foreign_imports, "text.a", "def f():\n    from torch import Tensor", "torch"),
        (foreign_imports, "scoring.a", "import torch", "torch"),
        (foreign_imports, "scoring.neural.a", "import torch", ""),
        (foreign_imports, "data.a", "import torch, torchvision, clicker", ""),
        (foreign_imports, "model.a", "from sentencepiece import SentencePieceProcessor", "sentencepiece"),
        (unhashed, "loss.cpu_row_losses", "from nmt_cli.ragged import A\nimport numpy", "nmt_cli.ragged.A"),
        (unhashed, "loss.cpu_row_losses", "from nmt_cli.loss.cpu_row_losses import b", ""),
        (unhashed, "engine.kernels.a", "import nmt_cli.ragged", "nmt_cli.ragged"),
        (unhashed, "engine.kernels.a", "from nmt_cli.engine.kernels.b import c", ""),
        (unhashed, "loss.row_losses", "from nmt_cli.ragged import A", ""),
        (ill_named, "data.helpers", "", "data.helpers"),
        (ill_named, "common.a", "", "common.a"),
        (ill_named, "data.uncommon", "", ""),
    ],
)
def test_a_rule_reports_a_violation_and_nothing_else(
    rule: Callable[[Sources], Iterator[str]], module: str, source: str, expected: str
) -> None:
    messages = list(rule({f"nmt_cli.{module}": source}))
    assert [expected in message for message in messages] == [True] * bool(expected)


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ({"nmt_cli.data.a": "import nmt_cli.data.a"}, ["nmt_cli.data.a -> nmt_cli.data.a"]),
        (
            {
                "nmt_cli.data.a": "from nmt_cli.data.b import x",
                "nmt_cli.data.b": "def f():\n    from nmt_cli.data import c",
                "nmt_cli.data.c": "import nmt_cli.data.a",
            },
            ["nmt_cli.data.a -> nmt_cli.data.b -> nmt_cli.data.c -> nmt_cli.data.a"],
        ),
        (
            {"nmt_cli.data": "from nmt_cli.data.a import x", "nmt_cli.data.a": "import nmt_cli.data.b"},
            ["nmt_cli.data -> nmt_cli.data.a -> nmt_cli.data"],
        ),
        ({"nmt_cli.data.a": "from nmt_cli.data.b import x", "nmt_cli.data.b": "import nmt_cli.errors"}, []),
    ],
    ids=["itself", "three modules", "through __init__", "none"],
)
def test_import_cycles_are_reported(sources: Sources, expected: list[str]) -> None:
    assert list(cycles(sources)) == expected


def test_the_top_level_of_the_repository_stays_small() -> None:
    if not (ROOT / "pyproject.toml").exists():
        pytest.skip("the package is installed apart from its repository")
    assert {name for name in _top_level() if not name.startswith(".")} <= TOP_LEVEL


def _top_level() -> set[str]:
    command = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists():
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return {line.split("/")[0] for line in listed.stdout.splitlines()}
    built = ("build", "dist", "__pycache__")
    return {p.name for p in ROOT.iterdir() if p.name not in built and p.suffix != ".egg-info"}


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(source: str) -> Iterator[str]:
    """Yield the dotted names that a source imports at any depth, and `torch.distributed` per use."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            yield from (f"{origin}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.distributed":
            yield "torch.distributed"


def _subpackage(name: str) -> str:
    """Return the subpackage of a dotted name. All modules of the lowest level count as one, `lowest`."""
    head = [*name.split("."), "__init__"][1]
    return "lowest" if head in LOWEST or head == "__version__" else head


def _fits(module: str, patterns: str | Sequence[str]) -> bool:
    return any(
        fnmatch(module, pattern) for pattern in ([patterns] if isinstance(patterns, str) else patterns)
    )


def _part(name: str) -> str:
    """Return the part of its subpackage that a dotted name belongs to."""
    return [*name.split("."), "", ""][2]


def _level_inside(subpackage: str, part: str) -> int:
    return next((n for n, parts in enumerate(LEVELS_INSIDE[subpackage]) if part in parts), 0)


def _level(subpackage: str) -> int | None:
    return 0 if subpackage == "lowest" else LEVELS.get(subpackage)


def _imported_modules(module: str, source: str, sources: Sources) -> set[str]:
    """Return the modules of the package that `module` imports, with the packages that contain them."""
    imported = set()
    for name in _imports(source):
        parts = name.split(".")
        modules = [p for n in range(len(parts)) if (p := ".".join(parts[: n + 1])) in sources]
        imported |= {p for p in modules if p != module or p == modules[-1]}
    return imported


def _cycles_from(
    module: str, edges: Mapping[str, Sequence[str]], path: list[str], done: set[str]
) -> Iterator[str]:
    if module in path:
        yield " -> ".join([*path[path.index(module) :], module])
    elif module not in done:
        for imported in edges[module]:
            yield from _cycles_from(imported, edges, [*path, module], done)
        done.add(module)
