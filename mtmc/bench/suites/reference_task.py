"""reference_task: a competition's `reference.py` -> a task in KernelBench's format. Pure, runs nothing.

What belongs to the competition's own machinery is taken out: imports of its modules (`utils`, `task`), contexts that
set flags, annotations, the check of an answer. So is what puts inputs on a device or seeds their numbers, for a task's
inputs are drawn anew for every check, wherever they are needed; room for results is zeros at first. Integers of the
shape become module-level numbers, from which small shapes are derived. A tolerance that the check states becomes the
task's.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from mtmc.errors import TaskError
from mtmc.syntax import parse

MACHINERY = ("utils", "task")
"""Modules of a competition beside `reference.py`."""
_DRAW, _REFERENCE, _CHECK, _SEED = "generate_input", "ref_kernel", "check_implementation", "seed"

_MODEL = """\
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, {names}):
        return ref_kernel({data})
"""
_INPUTS = """\
def get_inputs():
    data = generate_input({arguments})
    return list(data) if isinstance(data, (list, tuple)) else [data]


def get_init_inputs():
    return []
"""


def reference_task(text: str, shape: Mapping[str, Any], name: str) -> str:
    """The task's text. shape: arguments of `generate_input`; name: of the problem.

    Raises: TaskError with what cannot be taken over.
    """
    try:
        tree = parse(text)
    except (SyntaxError, ValueError) as error:
        raise TaskError(f"{name}: reference.py is no Python ({error})") from error
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for wanted in (_DRAW, _REFERENCE):
        if wanted not in functions:
            raise TaskError(f"{name}: reference.py defines no function {wanted}()")
    numbers, arguments = _arguments(functions[_DRAW], shape, name)
    defined = {each for node in tree.body for each in _bound(node)}
    if clash := sorted(set(numbers) & defined):
        raise TaskError(f"{name}: its shapes and its reference.py both define {clash[0]!r}")
    tolerance = _tolerance(tree)
    machinery = _Machinery()
    body = [each for node in tree.body for each in _kept(machinery.visit(node))]
    left = {node.id for each in body for node in ast.walk(each) if isinstance(node, ast.Name)} & machinery.names
    if left:
        raise TaskError(f"{name}: reference.py needs {sorted(left)[0]!r} of the competition's own modules")
    head = [] if "torch" in defined else ["import torch"]
    stated = [f"{key} = {value!r}" for key, value in numbers.items()]
    stated += [f"TOLERANCE = {tolerance!r}"] if tolerance else []
    own = ast.unparse(ast.fix_missing_locations(ast.Module(body, [])))
    names = [f"data_{index}" for index in range(_parts(functions[_DRAW]))]
    data = names[0] if len(names) == 1 else f"({', '.join(names)})"
    model = _MODEL.format(names=", ".join(names), data=data)
    parts = ["\n".join(head), own, "\n".join(stated), model, _INPUTS.format(arguments=", ".join(arguments))]
    return "\n\n\n".join(part.strip() for part in parts if part) + "\n"


def _arguments(draw: ast.FunctionDef, shape: Mapping[str, Any], name: str) -> tuple[dict[str, int], list[str]]:
    """The module-level numbers, and how `generate_input` is called. Raises: TaskError for an argument without a value."""
    listed = [each.arg for each in (*draw.args.posonlyargs, *draw.args.args, *draw.args.kwonlyargs)]
    optional = len(draw.args.defaults) + len(draw.args.kw_defaults)
    lacking = [each for each in listed[: len(listed) - optional] if each not in shape and each != _SEED]
    if lacking:
        raise TaskError(f"{name}: its shapes have no {lacking[0]!r}, which generate_input() needs")
    if extra := [each for each in shape if each not in listed]:
        raise TaskError(f"{name}: its shapes have {extra[0]!r}, which generate_input() does not take")
    numbers, arguments = dict[str, int](), list[str]()
    for key, value in shape.items():
        if key == _SEED:
            continue
        if isinstance(value, int) and not isinstance(value, bool):
            numbers[key] = value
            arguments.append(f"{key}={key}")
        else:
            arguments.append(f"{key}={value!r}")
    if _SEED in listed:
        arguments.append(f"{_SEED}=0")  # nothing is seeded by it
    return numbers, arguments


def _parts(draw: ast.FunctionDef) -> int:
    """How many parts the data has that `generate_input` returns: those of a tuple, also of one that has a name first."""
    returned = [each.value for each in ast.walk(draw) if isinstance(each, ast.Return) and each.value is not None]
    made = {_bound(each)[0]: each.value for each in ast.walk(draw) if isinstance(each, ast.Assign) and _bound(each)}
    last = returned[-1] if returned else None
    if isinstance(last, ast.Name):
        last = made.get(last.id, last)
    return max(len(last.elts), 1) if isinstance(last, ast.Tuple | ast.List) else 1


def _tolerance(tree: ast.Module) -> dict[str, float]:
    """What the check of answers states: atol and rtol of `make_match_reference(ref_kernel, rtol=, atol=)`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _CHECK in _bound(node):
            stated = {each.arg: each.value for each in node.value.keywords if each.arg in ("atol", "rtol")}
            values = {key: value.value for key, value in stated.items() if isinstance(value, ast.Constant)}
            return {str(key): float(value) for key, value in values.items() if isinstance(value, int | float)}
    return {}


def _bound(node: ast.stmt) -> list[str]:
    """The names that a statement at module level binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign):
        return [each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)]
    return []


def _kept(node: ast.AST | list[ast.AST] | None) -> list[ast.stmt]:
    found = node if isinstance(node, list) else [node]
    return [each for each in found if isinstance(each, ast.stmt)]


class _Machinery(ast.NodeTransformer):
    """Takes out what belongs to the competition and to a device. names: what its modules had given."""

    def __init__(self) -> None:
        self.names = set[str]()
        self._draws = False

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        if node.module not in MACHINERY:
            return node
        self.names |= {alias.asname or alias.name for alias in node.names}
        return None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        if node.name == _CHECK:
            return None
        node.returns = None
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            argument.annotation = None
        self._draws = node.name == _DRAW
        self.generic_visit(node)
        self._draws = False
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and "manual_seed" in call.func.attr:
            return None
        self.generic_visit(node)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]  # a data class is made of them
        node.body = [each for one in node.body for each in ([one] if one in fields else _kept(self.visit(one)))]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        if _CHECK in _bound(node):
            return None
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self.generic_visit(node)
        return None if node.value is None else ast.Assign([node.target], node.value, lineno=node.lineno)

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        calls = [each.context_expr for each in node.items if each.optional_vars is None]
        own = [
            each for each in calls if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
            and each.func.id in self.names
        ]  # fmt: skip
        return node.body if len(own) == len(node.items) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        node.keywords = [each for each in node.keywords if each.arg not in ("device", "generator")]
        if not isinstance(node.func, ast.Attribute):
            return node
        if self._draws and node.func.attr in ("empty", "empty_like"):
            node.func.attr = node.func.attr.replace("empty", "zeros")
        if node.func.attr in ("to", "cuda"):
            node.args = [each for each in node.args if not _is_device(each)]
            if not node.args and not node.keywords:
                return node.func.value
        return node


def _is_device(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "device"
    return isinstance(node, ast.Constant) and str(node.value).partition(":")[0] in ("cuda", "cpu")
