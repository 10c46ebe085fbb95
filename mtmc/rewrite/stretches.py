"""stretches: stages in a row of forward that make views, memory and launches and nothing else, as functions of their own.

See `mtmc.rewrite.direct_launch` for what becomes of them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from mtmc.rewrite.direct_launch import COPIED, STRETCH, may_copy
from mtmc.rewrite.folding import INDENT, folded
from mtmc.rewrite.plan import Stage

Lines = list[tuple[Stage | None, str]]
_OF_TENSORS = (
    "shape",
    "dtype",
    "device",
    "stride",
    "numel",
    "size",
    "dim",
    "contiguous",
    "reshape",
    "view",
    "t",
    "transpose",
)
_MODULES = ("torch", "triton")


@dataclass(frozen=True)
class _Statement:
    """A statement of forward. stage: that it is printed for. rows: how many lines it takes."""

    node: ast.stmt
    stage: Stage | None
    lines: Lines


def in_stretches(lines: Lines, noted: Callable[[Stage], bool]) -> tuple[Lines, Lines]:
    """Forward with stretches that are called, and the functions that these are.

    lines: of forward, its head first. noted: whether a stage makes views, memory and launches alone. Of a run of such stages
    without a launch, none is made. Returns: forward as it is where no stretch is found.
    """
    text = "\n".join(line.removeprefix(INDENT) for _, line in lines)
    [function] = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    starts = [node.lineno - 1 for node in function.body]
    statements = [
        _Statement(node, lines[start][0], lines[start:end])
        for node, start, end in zip(function.body, starts, [*starts[1:], len(lines)], strict=True)
    ]
    given = function.args
    taken = {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    left, stretches = lines[: statements[0].node.lineno - 1], Lines()
    for run, fits in _runs(statements, noted):
        later = statements[statements.index(run[-1]) + 1 :]
        launches = any(each.stage is not None and not each.stage.is_torch for each in run)
        if not fits or not launches or not _results(run, later):
            left += [line for each in run for line in each.lines]
            continue
        called, functions = _stretch(run, later, taken)
        left += called
        stretches += functions
    return left, stretches


def _runs(statements: Sequence[_Statement], noted: Callable[[Stage], bool]) -> list[tuple[list[_Statement], bool]]:
    """Statements in a row that may be in one stretch, or may not."""
    runs: list[tuple[list[_Statement], bool]] = []
    for each in statements:
        fits = each.stage is not None and noted(each.stage) and _fits(each.node)
        if runs and runs[-1][1] == fits:
            runs[-1][0].append(each)
        else:
            runs.append(([each], fits))
    return runs


def _fits(node: ast.stmt) -> bool:
    """Whether a statement names what it gives, and takes tensors and numbers by plain names."""
    if not isinstance(node, ast.Assign) or any(not isinstance(x, ast.Name | ast.Tuple) for x in node.targets):
        return False
    lists = (
        each for each in ast.walk(node.value) if isinstance(each, ast.Subscript) and isinstance(each.value, ast.Name)
    )
    calls = (each for each in ast.walk(node.value) if isinstance(each, ast.Call) and isinstance(each.func, ast.Name))
    return next(lists, None) is None and all(isinstance(x.func, ast.Name) and x.func.id != "getattr" for x in calls)


def _stretch(run: Sequence[_Statement], later: Sequence[_Statement], taken: set[str]) -> tuple[Lines, Lines]:
    """The call of a stretch, and its function. later: the statements after it. taken: names of functions and of forward's
    arguments; one is added."""
    nodes = [each.node for each in run]
    results = _results(run, later)
    launched = [
        x.func.id for node in nodes for x in ast.walk(node) if isinstance(x, ast.Call) and isinstance(x.func, ast.Name)
    ]
    first = next(each for each in launched if each.startswith("launch_"))
    name, count = first.replace("launch_", "run_", 1), 1
    while name in taken or f"{name}_again" in taken:
        count += 1
        name = f"{first.replace('launch_', 'run_', 1)}_{count}"
    taken.add(name)
    inner = _Inner({*_stored(run), *launched})
    body = [ast.fix_missing_locations(inner.visit(_copy(node))) for node in nodes]
    again = f"{name}_again"
    target = ", ".join(results)
    call = f"{target} = {again}({', '.join(inner.arguments)})"
    called: Lines = [(None, row) for row in _rows(2, call)]
    functions: Lines = [(None, ""), (None, "")]
    functions += [
        (None, row) for row in _rows(0, f"def {name}({', '.join([*inner.arguments.values(), 'notes=None'])}):")
    ]
    for each, node in zip(run, body, strict=True):
        functions += [(each.stage, row) for row in _rows(1, ast.unparse(node))]
    functions += [(None, f"{INDENT}return {target}"), (None, ""), (None, ""), (None, f"{again} = {STRETCH}({name})")]
    return called, functions


def _stored(run: Sequence[_Statement]) -> list[str]:
    names = (x for each in run for x in ast.walk(each.node) if isinstance(x, ast.Name))
    return [x.id for x in names if isinstance(x.ctx, ast.Store)]


def _results(run: Sequence[_Statement], later: Sequence[_Statement]) -> list[str]:
    """What a stretch gives: names that the statements after it read."""
    read = {x.id for each in later for x in ast.walk(each.node) if isinstance(x, ast.Name)}
    return [name for name in dict.fromkeys(_stored(run)) if name in read and name != "_"]


def _rows(depth: int, text: str) -> list[str]:
    return list(folded(INDENT * depth + text))


def _copy(node: ast.stmt) -> ast.stmt:
    return ast.parse(ast.unparse(node)).body[0]


class _Inner(ast.NodeTransformer):
    """Makes a stretch's statements of forward's: what they take from outside gets a name. arguments: these, by their text
    outside."""

    def __init__(self, own: Collection[str]) -> None:
        self._own = own
        self.arguments: dict[str, str] = {}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Store) or node.id in self._own or node.id in _MODULES:
            return node
        return self._argument(node.id, node.id)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if _of_self(node):
            return self._argument(ast.unparse(node), node.attr)
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        notes = ast.Name("notes", ast.Load())
        if isinstance(node.func, ast.Name) and node.func.id.startswith("launch_"):
            node.args.append(notes)
        elif source := may_copy(node):
            return ast.Call(ast.Name(COPIED, ast.Load()), [node, ast.Name(source, ast.Load()), notes], [])
        return node

    def _argument(self, outside: str, name: str) -> ast.Name:
        if outside not in self.arguments:
            used = {*self._own, *self.arguments.values(), "notes", *_MODULES}
            while name in used:
                name += "_"
            self.arguments[outside] = name
        return ast.Name(self.arguments[outside], ast.Load())


def _of_self(node: ast.expr) -> bool:
    """Whether it is `self.a`, `self.a[0].b` and the like."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute) and node.attr in _OF_TENSORS and not isinstance(node.value, ast.Name):
            return False
        node = node.value
    return isinstance(node, ast.Name) and node.id == "self"
