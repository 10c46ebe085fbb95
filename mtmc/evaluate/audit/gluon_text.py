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
from mtmc.syntax import canonical_text, tree_of

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
    """The same of a version that the audit has let pass. Raises: SyntaxError as `tree_of` does."""
    text = canonical_text(source)
    if "gluon" not in text:
        return frozenset()
    tree = tree_of(text)
    return gluon_paths(tree, _tracking(tree))


def refusals(tree: ast.Module, names: Tracking) -> Iterator[tuple[int, str]]:
    """(line, what is refused). Nothing for a file without Gluon."""
    if not _mentioned(tree) or not gluon_paths(tree, names):
        return
    nodes = list(ast.walk(tree))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    triton = [node for node in functions if any(map(_is_triton, _decorators(node, names)))]
    theirs, inside = {node.name for node in triton}, {id(part) for node in triton for part in ast.walk(node)}
    methods = {part.name for node in nodes if isinstance(node, ast.ClassDef) for part in node.body if part in triton}
    leading = {id(node.value) for node in nodes if isinstance(node, ast.Subscript | ast.Attribute)}
    decorators = [part for node in nodes for part in getattr(node, "decorator_list", ())]
    yield from (each for part in decorators if isinstance(part, ast.Call) for each in _told(part, names))
    inner = [
        node.decorator_list[-1] for node in functions if node.decorator_list
    ]  # under another one is another function
    makers = {id(part.func if isinstance(part, ast.Call) else part) for part in inner}
    for node in nodes:
        if not isinstance(node, ast.Name | ast.Attribute | ast.Call):
            continue
        path = _by_name(node, names) or ""
        if path.endswith("."):
            yield node.lineno, f"getattr of {path[:-1]} by a computed name, in a file with Gluon"
        if _makes(path) and id(node) not in makers and not names.is_alias(node):
            yield node.lineno, f"use of {path} other than as a function's innermost decorator, in a file with Gluon"
        if id(node) in inside or id(node) in leading:
            continue
        if path.startswith(_TRITON_LANGUAGE + ".") and path.rpartition(".")[2] not in _OF_TRITON:
            yield node.lineno, f"use of {path} outside of a function under triton.jit, in a file with Gluon"
        elif _loads(node) in theirs if isinstance(node, ast.Name) else _loads(node) in methods and not path:
            yield (
                node.lineno,
                f"use of the Triton function {_loads(node)} other than to launch it, in a file with Gluon",
            )


def _loads(node: ast.AST) -> str:
    """The name or attribute that a node looks up; "": another one."""
    if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
        return ""
    return node.id if isinstance(node, ast.Name) else node.attr


def _by_name(node: ast.AST, names: Tracking) -> str | None:
    """The dotted path that a node looks up, be it by `getattr`: then it ends with a dot where the name is computed, of what
    belongs to Triton."""
    if _loads(node):
        return names.path(node)
    if (
        not isinstance(node, ast.Call)
        or not isinstance(node.func, ast.Name)
        or node.func.id != "getattr"
        or not node.args
    ):
        return None
    owner = names.path(node.args[0]) or ""
    name = node.args[1] if len(node.args) > 1 else None
    constant = name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else ""
    return f"{owner}.{constant}" if owner.split(".")[0] == "triton" else None


def _mentioned(tree: ast.Module) -> bool:
    """Whether a file has the word, without which it has no path into Gluon: most have not."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "gluon")
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
