"""The house of `nmt_cli`: who may import whom, who owns which library, and how large anything may get."""

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

FLOORS = {
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
GROUND = (
    *("__init__", "config", "errors", "html", "language", "other_toolkits", "ragged", "runtime"),
    *("setting_values", "units"),
)

FLOORS_INSIDE = {
    "cli": ({"options"}, {"reports"}, {"commands"}, {"main"}),
    "training": ({"config", "settings"}, {"step"}, {"validation"}, {"tracking"}, {"loop"}, {"setup"}),
    "decoding": ({"config", "ensemble", "forced", "attention_maps"}, {"fast"}, {"search"}, {"engine"}),
    "data": (set[str](), {"cleaning", "batching"}, {"preprocessing"}),
    "text": (set[str](), {"subword_models"}, {"tokenizer"}, {"sampling", "tokenizers", "variation"}),
    "runtime": ({"kernels"},),
}
"""The levels inside a subpackage. A part that is not named is on the lowest one."""

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
    "wandb": "nmt_cli.training.tracking.weights_and_biases",
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

TOP_LEVEL = {"nmt_cli", "recipes", "tests", "Makefile", "pyproject.toml", "README.md", "LICENSE"}

Sources = Mapping[str, str]
"""Python text by the dotted name of its module; a package's own text has the package's name."""


def package_sources() -> Sources:
    return {_module_name(path): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}


def climbing(sources: Sources) -> Iterator[str]:
    """Imports that do not go downward, each in words."""
    for module, source in sources.items():
        if _floor(_room(module)) is None:
            yield f"{module} has no floor"
        for imported in _imports(source):
            if imported.startswith("."):
                yield f"{module} imports {imported} relatively"
            if imported.split(".")[0] != "nmt_cli":
                continue
            here, there = _room(module), _room(imported)
            floor, other = _floor(here), _floor(there)
            if floor is not None and other is not None and other > floor:
                yield f"{module} climbs to {imported}"
            elif floor == other and here != there:
                yield f"{module} goes next door to {imported}"


def climbing_inside(sources: Sources) -> Iterator[str]:
    """Imports of a room's own modules that do not go downward in it, each in words."""
    for module, source in sources.items():
        for imported in _imports(source):
            here, there = _room(module), _room(imported)
            if here != there or here not in FLOORS_INSIDE:
                continue
            part, other = _part(module), _part(imported)
            floor, below = _floor_inside(here, part), _floor_inside(here, other)
            if below > floor:
                yield f"{module} climbs to {imported}"
            elif below == floor > 0 and part != other:
                yield f"{module} goes next door to {imported}"


def rings(sources: Sources) -> Iterator[str]:
    """Modules that import each other in a ring, each ring in words."""
    edges = {module: sorted(_inside(module, source, sources)) for module, source in sources.items()}
    done: set[str] = set()
    for start in edges:
        yield from _rings_from(start, edges, [], done)


def strangers(sources: Sources) -> Iterator[str]:
    """Outside libraries imported by others than their owners, each in words."""
    for module, source in sources.items():
        for imported in _imports(source):
            for library, owner in OWNERS.items():
                if f"{imported}.".startswith(f"{library}.") and not fnmatch(module, owner):
                    yield f"{module} imports {imported}, which belongs to {owner}"
            if imported.split(".")[0] == "torch" and _room(module) in WITHOUT_TORCH:
                yield f"{module} imports torch"


def oversized(sources: Sources) -> Iterator[str]:
    """Files and functions over budget, each in words."""
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


def unhashed(sources: Sources) -> Iterator[str]:
    """Imports of compiled code from files whose changes its cache ignores, each in words."""
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
    """Modules whose name says nothing."""
    return (module for module in modules if set(module.split(".")) & set(FORBIDDEN_NAMES))


@pytest.mark.parametrize(
    "rule", [climbing, climbing_inside, rings, strangers, oversized, crowded, ill_named, unhashed]
)
def test_the_package_keeps_to_the_rule(rule: Callable[[Sources], Iterator[str]]) -> None:
    assert list(rule(package_sources())) == []


def test_every_module_of_the_package_is_looked_at() -> None:
    assert {"nmt_cli", "nmt_cli.__main__", "nmt_cli.cli.main", "nmt_cli.data"} <= set(package_sources())


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ({"nmt_cli.text.tokenizer": "import nmt_cli.model.layers"}, "nmt_cli.text.tokenizer climbs to"),
        ({"nmt_cli.config": "from nmt_cli.text import bpe"}, "nmt_cli.config climbs to"),
        ({"nmt_cli": "from nmt_cli import cli"}, "nmt_cli climbs to nmt_cli.cli"),
        ({"nmt_cli.data.a": "def f():\n    from nmt_cli.cli import main"}, "nmt_cli.data.a climbs to"),
        ({"nmt_cli.data.a": "if x:\n    from nmt_cli import training"}, "climbs to nmt_cli.training"),
        ({"nmt_cli.data.a": "from nmt_cli.model.layers import Layer"}, "nmt_cli.data.a goes next door to"),
        ({"nmt_cli.text.a": "import os, nmt_cli.corpus.files as f"}, "next door to nmt_cli.corpus.files"),
        ({"nmt_cli.text.a": "from ..data import arrays"}, "imports ..data.arrays relatively"),
        ({"nmt_cli.kitchen.a": ""}, "nmt_cli.kitchen.a has no floor"),
        ({"nmt_cli.tools": ""}, "nmt_cli.tools has no floor"),
    ],
)
def test_an_import_that_does_not_go_downward_is_found(sources: Sources, expected: str) -> None:
    assert [expected in found for found in climbing(sources)] == [True]


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
def test_an_import_that_climbs_inside_a_room_is_found(module: str, imported: str, count: int) -> None:
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
def test_rings_of_imports_are_found(sources: Sources, expected: list[str]) -> None:
    assert list(rings(sources)) == expected


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
def test_a_library_imported_by_another_than_its_owner_is_found(module: str, source: str, count: int) -> None:
    assert len(list(strangers({module: source}))) == count


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
def test_files_and_functions_over_budget_are_found(module: str, lines: int, expected: list[str]) -> None:
    body = "    x = 1\n" * (lines - 1)
    assert list(oversized({module: f"def f():\n{body}"})) == expected


def test_an_import_that_the_cache_of_compiled_code_ignores_is_found() -> None:
    source = "from nmt_cli.ragged import A\nfrom nmt_cli.loss.compiled import b\nimport numpy"
    assert ["nmt_cli.ragged.A" in found for found in unhashed({"nmt_cli.loss.compiled": source})] == [True]
    assert list(unhashed({"nmt_cli.loss.rows": source})) == []


def test_modules_named_for_nothing_are_found() -> None:
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


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(source: str) -> Iterator[str]:
    """Dotted names of all that is imported, wherever it is; `torch.distributed` also where it is used."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            yield from (f"{origin}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.distributed":
            yield "torch.distributed"


def _room(name: str) -> str:
    """The part of the house a dotted name is in; the ground floor is one room."""
    head = [*name.split("."), "__init__"][1]
    return "ground" if head in GROUND or head == "__version__" else head


def _part(name: str) -> str:
    """What of its room a dotted name is in."""
    return [*name.split("."), "", ""][2]


def _floor_inside(room: str, part: str) -> int:
    return next((n for n, parts in enumerate(FLOORS_INSIDE[room]) if part in parts), 0)


def _floor(room: str) -> int | None:
    return 0 if room == "ground" else FLOORS.get(room)


def _inside(module: str, source: str, sources: Sources) -> set[str]:
    """The modules that `module` imports, and the packages that this brings in."""
    found = set()
    for name in _imports(source):
        parts = name.split(".")
        known = [p for n in range(len(parts)) if (p := ".".join(parts[: n + 1])) in sources]
        found |= {p for p in known if p != module or p == known[-1]}
    return found


def _rings_from(
    module: str, edges: Mapping[str, Sequence[str]], path: list[str], done: set[str]
) -> Iterator[str]:
    if module in path:
        yield " -> ".join([*path[path.index(module) :], module])
    elif module not in done:
        for imported in edges[module]:
            yield from _rings_from(imported, edges, [*path, module], done)
        done.add(module)


def test_a_folder_over_budget_is_found() -> None:
    modules = {f"nmt_cli.data.m{number}": "" for number in range(FOLDER_BUDGET)}
    inside = {"nmt_cli.data": "", "nmt_cli.data.cleaning": "", "nmt_cli.data.cleaning.a": ""}
    assert list(crowded({**modules, **inside})) == []
    assert list(crowded({**modules, **inside, "nmt_cli.data.last": ""})) == ["nmt_cli.data has 13 files"]
