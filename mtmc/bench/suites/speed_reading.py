"""speed_reading: what one of TritonBench's speed tests does, read from its syntax tree. Runs no torch.

A speed test is a class with `get_input_tensors`, a loop over sizes whose body makes tensors and appends them, and
`call_op`, which calls the gold function on one item. It is read at one step of the loop. What is made of numbers alone is
computed; what makes tensors is kept as it stands.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from mtmc.bench.suites.numbers import UNKNOWN, Env, run, targets, value_of
from mtmc.errors import TaskError
from mtmc.syntax import names_in, parse

STEP = 0.75
"""How far up its sizes a speed test is taken: the least ones are launches without work, the last ones fill a GPU."""
_CLASS, _LIST = "performance_metrics", "input_tensors"
_OWN_IMPORTS = ("sys", "os", "json", "performance_utils", "TorchBench_v1", "TritonBench_v1", "triton")
"""Modules that a speed test imports for itself."""


@dataclass
class Inputs:
    """What `get_input_tensors` does at one size.

    numbers: what is computed without tensors, by name, in order. statements: what makes tensors, in order.
    items: what is handed to `call_op`. alone: whether that is one value and no tuple.
    """

    numbers: Env = field(default_factory=dict)
    statements: list[ast.stmt] = field(default_factory=list)
    items: list[ast.expr] = field(default_factory=list)
    alone: bool = False


@dataclass(frozen=True)
class SpeedTest:
    """A speed test at one size. call: its `call_op`. imports: (module-level lines) by the name that each binds."""

    inputs: Inputs
    call: ast.FunctionDef
    imports: Mapping[str, str]


def read_speed_test(text: str, name: str, step: int | None = None) -> SpeedTest:
    """Read a speed test at one of its sizes.

    name: of the problem. step: which size, from 0; None: the one at `STEP`.
    Raises: TaskError with what cannot be read this way, or where there are not as many sizes.
    """
    try:
        tree = parse(text)
    except (SyntaxError, ValueError) as error:
        raise TaskError(f"the speed test of {name} is no Python: {error}") from error
    classes = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == _CLASS]
    methods = {each.name: each for each in classes[0].body if isinstance(each, ast.FunctionDef)} if classes else {}
    for wanted in ("get_input_tensors", "call_op"):
        if wanted not in methods:
            raise TaskError(f"the speed test of {name} has no {_CLASS}.{wanted}")
    fixed = _Fixed(_attributes(methods.get("__init__")))
    method, call = (fixed.visit(methods[each]) for each in ("get_input_tensors", "call_op"))
    return SpeedTest(_inputs(method, name, step), call, _imports(tree))


def _inputs(method: ast.FunctionDef, name: str, step: int | None) -> Inputs:
    """What `get_input_tensors` does at one of its sizes."""
    found = Inputs()
    loops = [each for each in method.body if isinstance(each, ast.For) and _appended(each.body) is not None]
    if len(loops) != 1:
        raise TaskError(f"the speed test of {name} has {len(loops) or 'no'} loops over sizes, where one can be read")
    for statement in method.body[: method.body.index(loops[0])]:
        _take(statement, found)
    steps = value_of(loops[0].iter, found.numbers)
    steps = list(steps) if isinstance(steps, range | list | tuple) else []
    place = int(STEP * (len(steps) - 1)) if step is None else step
    if place >= len(steps):
        raise TaskError(f"the speed test of {name} has {len(steps)} sizes that can be read, not {place + 1}")
    run(ast.Assign([loops[0].target], ast.parse(repr(steps[place]), mode="eval").body), found.numbers)
    for statement in loops[0].body:
        item = _appended([statement])
        if item is not None:
            found.items, found.alone = _items(item, found.statements)
            break
        _take(statement, found)
    return found


def _appended(body: Sequence[ast.stmt]) -> ast.expr | None:
    """What a body appends to `self.input_tensors`, None where it does not."""
    calls = [each.value for each in body if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)]
    for call in calls:
        if len(call.args) == 1 and ast.unparse(call.func) == f"self.{_LIST}.append":
            return call.args[0]
    return None


def _take(statement: ast.stmt, found: Inputs) -> None:
    """Compute what is about numbers only; keep what makes tensors; leave out what prints, and the test's own accounts."""
    if isinstance(statement, ast.Expr) and names_in(statement) <= {"print", *found.numbers}:
        return
    if "self" in names_in(statement) or run(statement, found.numbers):
        return
    if isinstance(statement, ast.If) and (chosen := value_of(statement.test, found.numbers)) is not UNKNOWN:
        for inner in statement.body if chosen else statement.orelse:
            _take(inner, found)
        return
    for name in targets(statement):
        found.numbers.pop(name, None)
    found.statements.append(statement)


def _items(item: ast.expr, statements: Sequence[ast.stmt]) -> tuple[list[ast.expr], bool]:
    """The items of what is appended, and whether it is one value alone. A name may stand for a tuple made before."""
    if isinstance(item, ast.Name):
        made = [each.value for each in statements if isinstance(each, ast.Assign) and targets(each) == [item.id]]
        item = made[-1] if made and isinstance(made[-1], ast.Tuple) else item
    return (list(item.elts), False) if isinstance(item, ast.Tuple | ast.List) else ([item], True)


def needed(statements: Sequence[ast.stmt], items: Sequence[ast.expr]) -> list[ast.stmt]:
    """The statements that the items depend on."""
    wanted = {name for item in items for name in names_in(item)}
    kept: list[ast.stmt] = []
    for statement in reversed(statements):
        if wanted & (set(targets(statement)) or names_in(statement)):
            wanted |= names_in(statement)
            kept.append(statement)
    return kept[::-1]


def _attributes(init: ast.FunctionDef | None) -> dict[str, Any]:
    """The plain values that `__init__` keeps on the object, by name. The dtype is None: torch's default."""
    holder = SimpleNamespace(dtype=None)
    if init is None:
        return vars(holder)
    arguments = init.args.args[-len(init.args.defaults) :] if init.args.defaults else []
    env: Env = {"self": holder, "kwargs": {}}
    for argument, default in zip(arguments, init.args.defaults, strict=True):
        env[argument.arg] = value_of(default, {})
    for statement in init.body:
        if "super" not in names_in(statement):
            code = compile(ast.Module([statement], []), "<speed test>", "exec")
            try:
                exec(code, {"__builtins__": {"range": range}}, env)
            except Exception:  # needs torch, say: what depends on it is missed where it is used
                continue
    return {name: value for name, value in vars(holder).items() if _is_plain(value) and name != _LIST}


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(each) for each in value)
    return value is None or isinstance(value, bool | int | float | str)


def _imports(tree: ast.Module) -> dict[str, str]:
    """Module-level imports by the name that they bind, without those that a speed test has for itself."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                origin = node.module if isinstance(node, ast.ImportFrom) else alias.name
                if (origin or "").split(".")[0] not in _OWN_IMPORTS:
                    found[alias.asname or alias.name.split(".")[0]] = ast.unparse(node)
    return found


class _Fixed(ast.NodeTransformer):
    """`self.NAME` becomes its value, and what follows from a dtype of None is simplified."""

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self._attributes = attributes

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        known = isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr in self._attributes
        if known and isinstance(node.ctx, ast.Load):
            return ast.parse(repr(self._attributes[node.attr]), mode="eval").body
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        return node.values[-1] if isinstance(node.op, ast.Or) and _is_none(node.values[0]) else node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        test = node.test
        if isinstance(test, ast.Compare) and _is_none(test.left) and _is_none(test.comparators[0]):
            return node.body if isinstance(test.ops[0], ast.Is) else node.orelse
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        node.keywords = [each for each in node.keywords if each.arg != "dtype" or not _is_none(each.value)]
        return node


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
