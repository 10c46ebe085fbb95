"""Each package imports only from those above it in the list of ARCHITECTURE.md, nested ones within their own."""

from __future__ import annotations

import ast
import functools
import gc
import re
from collections.abc import Iterator
from pathlib import Path

import networkx
import pytest

ROOT = Path(__file__).parent.parent
ENTRY = re.compile(r"( {6,10})((?:\w+(?:\.py|/)\s+)+)")


def ranks(text: str) -> dict[str, int]:
    """Place in the list of each package and module in it. What a package has besides its nested ones comes after them."""
    found: dict[str, int] = {}
    inside = ["mtmc"]
    for number, line in enumerate(text.partition("\n    mtmc/\n")[2].split("\n\n")[0].splitlines()):
        entry = ENTRY.match(line)
        if entry is not None:
            inside[len(entry[1]) // 2 - 2 :] = []
            names = [name.removesuffix(".py").strip("/") for name in entry[2].split()]
            found |= {".".join([*inside, name]): number for name in names}
            inside.append(names[-1])
            found |= {".".join(inside[:depth]): number for depth in range(2, len(inside))}
    return found


parsed = functools.cache(ast.parse)


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """What stands in a node, but for expressions: nothing is imported in those, and most of a file are they."""
    return (node for node in ast.iter_child_nodes(tree) if not isinstance(node, ast.expr))


def imports(tree: ast.AST) -> Iterator[str]:
    """Every name that is imported, inside of functions too, but not what only a type checker reads."""
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            yield from imports(node)


def rank(name: str, listed: dict[str, int]) -> int | None:
    """The place of a module: its own, or that of the nearest package around it in the list. None outside of mtmc."""
    parts = name.split(".")
    around = (".".join(parts[:depth]) for depth in range(len(parts), 0, -1))
    return next((listed[each] for each in around if each in listed), None)


def upward(sources: dict[str, str], listed: dict[str, int]) -> list[str]:
    """The imports that break the rule, as "importer -> imported"."""
    return [
        f"{module} -> {name}"
        for module, source in sources.items()
        for name in imports(parsed(source))
        if (mine := rank(module, listed)) is not None and mine < (rank(name, listed) or 0)
    ]


def mentioned(tree: ast.AST) -> set[str]:
    """Every name that is imported, also for a type checker alone."""
    found: set[str] = set()
    for node in statements(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            found |= {f"{module}{alias.name}" for alias in node.names}
        else:
            found |= mentioned(node)
    return found


def circles(sources: dict[str, str], packages: set[str]) -> list[list[str]]:
    """Files that import each other, round about too. What is taken from a package counts for the file that it comes from."""
    names = {module: mentioned(parsed(source)) for module, source in sources.items()}
    handed_on = {f"{package}.{name.rpartition('.')[2]}": name for package in packages for name in names[package]}

    def file_of(name: str) -> str:
        for _ in handed_on:
            if name not in handed_on or name in sources.keys() - packages:
                break
            name = handed_on[name]
        return name if name in sources else name.rpartition(".")[0]

    drawn = networkx.DiGraph(
        (module, found)
        for module in sources.keys() - packages
        for name in names[module]
        if (found := file_of(name)) in sources.keys() - packages - {module}
    )
    return sorted(sorted(each) for each in networkx.strongly_connected_components(drawn) if len(each) > 1)


@pytest.fixture(scope="module", autouse=True)
def _uncollected() -> Iterator[None]:
    """The collector would go through the trees of a thousand files again and again: most of the time that parsing takes."""
    gc.disable()
    yield
    gc.enable()
    parsed.cache_clear()


@pytest.fixture(scope="module")
def there() -> tuple[dict[str, str], set[str]]:
    """The text of each module of mtmc, and which of them are packages."""
    files = {path: path.relative_to(ROOT).with_suffix("") for path in (ROOT / "mtmc").rglob("*.py")}
    sources = {".".join(name.parts).removesuffix(".__init__"): path.read_text() for path, name in files.items()}
    return sources, {
        ".".join(name.parts).removesuffix(".__init__") for name in files.values() if name.name == "__init__"
    }


@pytest.fixture(scope="module")
def listed() -> dict[str, int]:
    return ranks((ROOT / "ARCHITECTURE.md").read_text())


def test_every_package_is_in_the_list(listed: dict[str, int]) -> None:
    there = {path.stem for path in (ROOT / "mtmc").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert {f"mtmc.{name}" for name in there - {"__init__", "__main__"}} == {n for n in listed if n.count(".") == 1}
    for name in listed:
        path = ROOT / name.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").exists(), name


def test_imports_point_upward_in_the_list(listed: dict[str, int], there: tuple[dict[str, str], set[str]]) -> None:
    assert not upward(there[0], listed)


def test_no_files_import_each_other(there: tuple[dict[str, str], set[str]]) -> None:
    assert not circles(*there)


def test_a_circle_through_a_package_and_a_type_is_found() -> None:
    sources = {
        "a": "from a.one import One\nfrom a.two import Two",
        "a.one": "import os\nfrom a import Two\nimport b",
        "a.two": "if TYPE_CHECKING:\n    from a.one import One",
        "b": "from a.two import Two",
        "c": "import a.one, b",
    }
    assert circles(sources, {"a"}) == [["a.one", "a.two", "b"]]


@pytest.mark.parametrize(
    ("module", "source", "broken"),
    [
        ("mtmc.evaluate.check.cases", "from mtmc.search.run import search", ["mtmc.search.run.search"]),
        ("mtmc.task.load", "def f():\n    import mtmc.conf.schema", ["mtmc.conf.schema"]),
        ("mtmc.evaluate.audit.audit", "from mtmc.evaluate import lab", ["mtmc.evaluate.lab"]),
        ("mtmc.evaluate.reference.compare", "import mtmc.evaluate.measure.clock", ["mtmc.evaluate.measure.clock"]),
        ("mtmc.evaluate.lab", "from mtmc.evaluate.measure.clock import median", []),
        ("mtmc.task.load", "if TYPE_CHECKING:\n    from mtmc.store import Store\nimport torch, mtmc.errors", []),
    ],
)  # fmt: skip
def test_an_arrow_upward_is_found(module: str, source: str, broken: list[str], listed: dict[str, int]) -> None:
    assert upward({module: source}, listed) == [f"{module} -> {name}" for name in broken]
