"""What a file with kernels in Gluon must not do besides what no kernel may: reach what Gluon's list of names leaves out.

A Gluon function is compiled with whatever functions it is given, by name in a partition of `gl.warp_specialize`, or as an
argument of a launch. So each one is read by its decorator, which is the only way to make one, and in a file that has any, no
function of `triton.language` and none under `triton.jit` is handed around: those may do what Gluon's names leave out, and
nothing here interprets what becomes of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mtmc.evaluate.audit.gluon_names import DTYPES, GLUON, JIT
from mtmc.evaluate.audit.tracking import Tracking, executed, imports
from mtmc.syntax import canonical_text, parse

_TRITON_LANGUAGE = "triton.language"
_MAKERS = frozenset({"jit", "JITFunction", "JITCallable", "InterpretedFunction"})
_OF_TRITON = DTYPES | {"constexpr", "dtype"}
_TOLD = frozenset({"do_not_specialize", "do_not_specialize_on_alignment", "noinline"})
"""What the decorator may be told: the others are functions that a launch would call, or change what is compiled."""


def gluon_paths(tree: ast.Module, names: Tracking) -> frozenset[str]:
    """Every dotted path into Gluon that a file names, and what it imports of it."""
    named = [names.path(node) or "" for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name)]
    imported = [path for node in ast.walk(tree) for path, _ in imports(node)]
    return frozenset(path for path in (*named, *imported) if path == GLUON or path.startswith(GLUON + "."))


def paths_of(source: str) -> frozenset[str]:
    """The same of a version that the audit has let pass. Raises: SyntaxError as `parse` does."""
    text = canonical_text(source)
    if "gluon" not in text:
        return frozenset()
    tree = parse(text)
    return gluon_paths(tree, _tracking(tree))


def refusals(tree: ast.Module, names: Tracking) -> Iterator[tuple[int, str]]:
    """(line, what is refused). Nothing for a file without Gluon."""
    if not _mentioned(tree) or not gluon_paths(tree, names):
        return
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    triton = [node for node in functions if any(map(_is_triton, _decorators(node, names)))]
    theirs = {node.name for node in triton}
    inside = {id(part) for node in triton for part in ast.walk(node)}
    leading = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Subscript | ast.Attribute)}
    decorators = [part for node in ast.walk(tree) for part in getattr(node, "decorator_list", ())]
    yield from (each for part in decorators if isinstance(part, ast.Call) for each in _told(part, names))
    makers = {id(part.func if isinstance(part, ast.Call) else part) for part in decorators}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute | ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        path = names.path(node) or ""
        if _makes(path) and id(node) not in makers and not names.is_alias(node):
            yield node.lineno, f"use of {path} other than as a decorator, in a file with Gluon"
        if id(node) in inside or id(node) in leading:
            continue
        if path.startswith(_TRITON_LANGUAGE + ".") and path.rpartition(".")[2] not in _OF_TRITON:
            yield node.lineno, f"use of {path} outside of a function under triton.jit, in a file with Gluon"
        elif isinstance(node, ast.Name) and node.id in theirs:
            yield node.lineno, f"use of the Triton function {node.id} other than to launch it, in a file with Gluon"


def _mentioned(tree: ast.Module) -> bool:
    """Whether a file has the word, without which it has no path into Gluon: most have not."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr in GLUON)
        or (isinstance(node, ast.Import | ast.ImportFrom) and any("gluon" in path for path, _ in imports(node)))
        for node in ast.walk(tree)
    )


def _told(decorator: ast.Call, names: Tracking) -> Iterator[tuple[int, str]]:
    """What a decorator is told that makes a Gluon function."""
    if names.path(decorator.func) != JIT:
        return
    bad = [keyword.arg or "**" for keyword in decorator.keywords if keyword.arg not in _TOLD]
    if bad or decorator.args:
        yield decorator.lineno, f"gluon.jit with {bad[0] if bad else 'a function as an argument'}"


def _makes(path: str) -> bool:
    """Whether a path makes kernels of functions."""
    return path.split(".")[0] == "triton" and path.rpartition(".")[2] in _MAKERS


def _is_triton(path: str) -> bool:
    return _makes(path) and path != JIT


def _decorators(node: ast.FunctionDef, names: Tracking) -> list[str]:
    return [names.path(each.func if isinstance(each, ast.Call) else each) or "" for each in node.decorator_list]


def _tracking(tree: ast.Module) -> Tracking:
    nodes = [node for node, _ in executed(tree)]
    paths = {}
    for node in nodes:
        for path, name in imports(node):
            paths[name] = path.split(".")[0] if isinstance(node, ast.Import) and name == path.split(".")[0] else path
    return Tracking(nodes, paths)
