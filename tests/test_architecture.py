"""Check the architecture of `nmt_cli`: levels of imports, owners of libraries, and budgets of size."""

import ast
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

import pytest

import nmt_cli
from nmt_cli.runtime.kernels import loading as kernels

PACKAGE = Path(nmt_cli.__file__).parent
ROOT = PACKAGE.parent

LEVELS = {
    "__main__": 10,
    "cli": 9,
    "serving": 8,
    "api": 7,
    "training": 6,
    "translation": 5,
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
    *("__init__", "config", "errors", "html", "language", "other_toolkits", "ragged", "runtime"),
    *("setting_values", "units"),
)

LEVELS_INSIDE = {
    "cli": ({"options"}, {"reports"}, {"commands"}, {"main"}),
    "training": ({"config", "settings"}, {"step"}, {"validation"}, {"tracking"}, {"loop"}, {"setup"}),
    "decoding": ({"config", "ensemble", "forced", "attention_maps"}, {"fast"}, {"search"}, {"engine"}),
    "data": (set[str](), {"cleaning", "batching"}, {"preprocessing"}),
    "text": (set[str](), {"subword_models"}, {"tokenizer"}, {"sampling", "tokenizers", "variation"}),
    "runtime": ({"kernels"},),
}
"""The levels inside a subpackage, lowest first. A part that is not listed is on the lowest level."""

OWNERS = {
    "click": "nmt_cli.cli.*",
    "rich": "nmt_cli.cli.*",
    "triton": "*.fused",
    "numba": "*.compiled",
    "llvmlite": "*.compiled",
    "torch.distributed": "nmt_cli.training.step.distributed",
    "sentencepiece": "nmt_cli.text.*",
    "subword_nmt": "nmt_cli.text.*",
    "sacremoses": "nmt_cli.text.*",
    "sacrebleu": "nmt_cli.scoring.*",
    "safetensors": "nmt_cli.checkpoints.*",
    "wandb": "nmt_cli.training.tracking.trackers",
    "transformers": "nmt_cli.interop.*",
    "ctranslate2": "nmt_cli.interop.*",
    "starlette": "nmt_cli.serving.*",
    "h11": "nmt_cli.serving.connections",
    "uvicorn": "nmt_cli.serving.*",
    "py3langid": "nmt_cli.text.languages.identify",
    "pyarrow": "nmt_cli.corpus.arrow",
}
WITHOUT_TORCH = ("text", "corpus", "scoring")
FORBIDDEN_NAMES = ("utils", "helpers", "common")

FILE_BUDGET = 400
FUNCTION_BUDGET, KERNEL_BUDGET = 50, 90
FOLDER_BUDGET = 12
NESTING_BUDGET = 3
CLASS_BUDGET, FIELD_BUDGET = 150, 10

OVER_BUDGET = {
    "nmt_cli.api.model.Model",
    "nmt_cli.decoding.search.beams.Beams",
    "nmt_cli.decoding.search.compiled.BeamState",
    "nmt_cli.training.tracking.events.Progress",
    "nmt_cli.translation.workers.queue.RequestQueue",
    "nmt_cli.translation.workers.request.Request",
}
"""Functions and classes that exceed the budget of nesting, lines or fields. This set may only shrink."""

BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)

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
                if f"{imported}.".startswith(f"{library}.") and not fnmatch(module, owner):
                    yield f"{module} imports {imported}, which belongs to {owner}"
            if imported.split(".")[0] == "torch" and _subpackage(module) in WITHOUT_TORCH:
                yield f"{module} imports torch"


def oversized(sources: Sources) -> Iterator[str]:
    """Yield a message for each file and function that is longer than its budget."""
    for module, source in sources.items():
        lines = len(source.splitlines())
        if lines > FILE_BUDGET:
            yield f"{module} has {lines} lines"
        budget = KERNEL_BUDGET if module.endswith(".fused") else FUNCTION_BUDGET
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > budget:
                    yield f"{module}.{node.name} has {length} lines"


def nested_or_large(sources: Sources) -> Iterator[str]:
    """Yield the functions and classes that exceed a budget, and the entries of OVER_BUDGET that do not.

    Settings, whose classes end in `Config`, may have any number of fields.
    """
    exceeding = set()
    for module, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                exceeds = _nesting(node) > NESTING_BUDGET
            elif isinstance(node, ast.ClassDef):
                fields = sum(isinstance(child, ast.AnnAssign) for child in node.body)
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                exceeds = lines > CLASS_BUDGET or (fields > FIELD_BUDGET and not node.name.endswith("Config"))
            else:
                continue
            if exceeds:
                exceeding.add(f"{module}.{node.name}")
    yield from exceeding - OVER_BUDGET
    yield from (f"{name} keeps its budget: remove it" for name in OVER_BUDGET - exceeding if len(sources) > 1)


def unhashed(sources: Sources) -> Iterator[str]:
    """Yield a message for each import of compiled code whose changes the kernel cache would ignore."""
    hashed = [f"nmt_cli.{path[:-3].replace('/', '.').replace('**.', '*')}.*" for path in kernels.SOURCES]
    for module, source in sources.items():
        for imported in _imports(source) if module.endswith(".compiled") else ():
            ours = imported.startswith("nmt_cli.") and ".kernels.loading." not in imported
            if ours and not any(fnmatch(imported, pattern) for pattern in hashed):
                yield f"{module} imports {imported}, which is not in kernels.SOURCES"


def crowded(modules: Sources) -> Iterator[str]:
    """Yield each folder with more files than the budget. Folders inside it and `__init__` do not count."""
    folders = {module.rpartition(".")[0] for module in modules}
    counts = Counter(module.rpartition(".")[0] for module in modules if module not in folders)
    for folder, count in counts.items():
        if count > FOLDER_BUDGET:
            yield f"{folder} has {count} files"


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
        oversized,
        nested_or_large,
        crowded,
        ill_named,
        unhashed,
    ],
)
def test_the_package_follows_the_rule(rule: Callable[[Sources], Iterator[str]]) -> None:
    assert list(rule(package_sources())) == []


def test_the_rules_see_every_module() -> None:
    assert {"nmt_cli", "nmt_cli.__main__", "nmt_cli.cli.main", "nmt_cli.data"} <= set(package_sources())


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (
            {"nmt_cli.text.tokenizer": "import nmt_cli.model.layers"},
            "nmt_cli.text.tokenizer imports a higher level:",
        ),
        ({"nmt_cli.config": "from nmt_cli.text import bpe"}, "nmt_cli.config imports a higher level:"),
        ({"nmt_cli": "from nmt_cli import cli"}, "nmt_cli imports a higher level: nmt_cli.cli"),
        (
            {"nmt_cli.data.a": "def f():\n    from nmt_cli.cli import main"},
            "nmt_cli.data.a imports a higher level:",
        ),
        (
            {"nmt_cli.data.a": "if x:\n    from nmt_cli import training"},
            "imports a higher level: nmt_cli.training",
        ),
        (
            {"nmt_cli.data.a": "from nmt_cli.model.layers import Layer"},
            "nmt_cli.data.a imports its own level:",
        ),
        (
            {"nmt_cli.text.a": "import os, nmt_cli.corpus.files as f"},
            "imports its own level: nmt_cli.corpus.files",
        ),
        ({"nmt_cli.text.a": "from ..data import arrays"}, "imports ..data.arrays relatively"),
        ({"nmt_cli.unlisted.a": ""}, "nmt_cli.unlisted.a has no level"),
        ({"nmt_cli.tools": ""}, "nmt_cli.tools has no level"),
    ],
)
def test_an_import_of_the_same_or_a_higher_level_is_reported(sources: Sources, expected: str) -> None:
    assert [expected in message for message in climbing(sources)] == [True]


@pytest.mark.parametrize(
    ("module", "imported", "count"),
    [
        ("nmt_cli.training.step.a", "nmt_cli.training.loop.Loop", 1),
        ("nmt_cli.training.config", "nmt_cli.training.step.a.b", 1),
        ("nmt_cli.training.tracking.a", "nmt_cli.training.validation.b.c", 0),
        ("nmt_cli.training.step.a", "nmt_cli.training.step.b.c", 0),
        ("nmt_cli.decoding.search.search", "nmt_cli.decoding.engine.b", 1),
        ("nmt_cli.decoding.engine", "nmt_cli.decoding.search.search.b", 0),
        ("nmt_cli.data.a", "nmt_cli.data.b.c", 0),
    ],
)
def test_an_import_of_a_higher_level_inside_a_subpackage_is_reported(
    module: str, imported: str, count: int
) -> None:
    package, _, name = imported.rpartition(".")
    assert len(list(climbing_inside({module: f"from {package} import {name}"}))) == count


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("nmt_cli.cli.main", "from nmt_cli.data import dataset\nfrom nmt_cli import __version__"),
        (
            "nmt_cli.data.dataset",
            "from nmt_cli.data.arrays import Array\nfrom nmt_cli.errors import UserError",
        ),
        ("nmt_cli.config", "from nmt_cli.errors import UserError\nimport model.layers"),
        ("nmt_cli.__main__", "from nmt_cli.cli.main import main"),
    ],
)
def test_an_import_that_goes_downward_is_allowed(module: str, source: str) -> None:
    assert list(climbing({module: source})) == []


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


@pytest.mark.parametrize(
    ("module", "source", "count"),
    [
        ("nmt_cli.data.a", "import click", 1),
        ("nmt_cli.cli.a", "import click\nfrom rich.table import Table", 0),
        ("nmt_cli.attention.dispatch", "import triton.language as tl", 1),
        ("nmt_cli.attention.fused", "import triton.language as tl", 0),
        ("nmt_cli.training.loop", "from torch import distributed", 1),
        ("nmt_cli.training.loop", "import torch\nworld = torch.distributed.get_world_size()", 1),
        ("nmt_cli.training.step.distributed", "import torch.distributed as dist", 0),
        ("nmt_cli.text.a", "def f():\n    from torch import Tensor", 1),
        ("nmt_cli.corpus.a", "import torch", 1),
        ("nmt_cli.data.a", "import torch, torchvision, clicker", 0),
        ("nmt_cli.model.a", "from sentencepiece import SentencePieceProcessor", 1),
        ("nmt_cli.cli.a", "import sacrebleu.metrics", 1),
    ],
)
def test_a_library_imported_by_another_module_than_its_owner_is_reported(
    module: str, source: str, count: int
) -> None:
    assert len(list(foreign_imports({module: source}))) == count


@pytest.mark.parametrize(
    ("module", "lines", "expected"),
    [
        ("nmt_cli.data.a", 50, []),
        ("nmt_cli.data.a", 51, ["nmt_cli.data.a.f has 51 lines"]),
        ("nmt_cli.loss.fused", 90, []),
        ("nmt_cli.loss.fused", 91, ["nmt_cli.loss.fused.f has 91 lines"]),
        (
            "nmt_cli.loss.fused",
            401,
            ["nmt_cli.loss.fused has 401 lines", "nmt_cli.loss.fused.f has 401 lines"],
        ),
    ],
)
def test_files_and_functions_over_budget_are_reported(module: str, lines: int, expected: list[str]) -> None:
    body = "    x = 1\n" * (lines - 1)
    assert list(oversized({module: f"def f():\n{body}"})) == expected


def test_an_import_that_the_kernel_cache_ignores_is_reported() -> None:
    source = "from nmt_cli.ragged import A\nfrom nmt_cli.loss.compiled import b\nimport numpy"
    assert ["nmt_cli.ragged.A" in message for message in unhashed({"nmt_cli.loss.compiled": source})] == [
        True
    ]
    assert list(unhashed({"nmt_cli.loss.rows": source})) == []


def test_modules_with_empty_names_are_reported() -> None:
    names = ("nmt_cli.utils", "nmt_cli.data.helpers", "nmt_cli.common.a", "nmt_cli.data.uncommon")
    assert list(ill_named(dict.fromkeys(names, ""))) == list(names[:3])


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


def _nesting(node: ast.AST) -> int:
    """Return the number of blocks around the most deeply nested statement. `elif` does not nest."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, _nesting(child) + (isinstance(child, BLOCKS) and not is_elif))
    return deepest


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


def test_a_folder_over_budget_is_reported() -> None:
    modules = {f"nmt_cli.data.m{number}": "" for number in range(FOLDER_BUDGET)}
    inside = {"nmt_cli.data": "", "nmt_cli.data.cleaning": "", "nmt_cli.data.cleaning.a": ""}
    assert list(crowded({**modules, **inside})) == []
    assert list(crowded({**modules, **inside, "nmt_cli.data.last": ""})) == ["nmt_cli.data has 13 files"]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f():\n for a in b:\n  if a:\n   with a:\n    c()", []),
        ("def f():\n for a in b:\n  if a:\n   with a:\n    if b: c()", ["nmt_cli.data.a.f"]),
        ("def f():\n if a: b()\n elif c: d()\n elif e: f()\n elif g: h()", []),
        ("class A:\n" + " x: int\n" * 11, ["nmt_cli.data.a.A"]),
        ("class AConfig:\n" + " x: int\n" * 11, []),
        ("class A:\n x: int\n" + "\n" * 148 + " y: int", ["nmt_cli.data.a.A"]),
    ],
)
def test_nested_functions_and_large_classes_are_reported(source: str, names: list[str]) -> None:
    assert list(nested_or_large({"nmt_cli.data.a": source})) == names
