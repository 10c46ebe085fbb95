"""The integers that give a task's file its sizes: which there are, and the same file with other values.

They stand at module level, or are written into a call in `get_inputs()` or `get_init_inputs()`.

Names: `rows = 4096` is "rows". In `height, width = 128, 256` each name stands for its own value; in `height = width =
128` both names stand for the one value, and are told apart where they get different ones. In `shape = (64, 32)` the values
are "shape[0]" and "shape[1]", and in `sizes = [1024] * 16` the one that is repeated is "sizes[0]". In `torch.rand(rows, 3,
224, 224)` inside of get_inputs() they are "get_inputs[0]", "get_inputs[1]" and "get_inputs[2]", in the order of the text. A
value is an integer or arithmetic of integers (`2048 * 2`). What is computed from other names (`groups = channels // 4`) is
no constant: it follows by itself.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from mtmc.errors import TaskError
from mtmc.syntax import KEPT_TEXTS, tree_of

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_LARGEST_EXPONENT = 62
INPUT_FUNCTIONS = ("get_inputs", "get_init_inputs")
"""Functions of a task's file whose written-out integers count as well. No kernel version has them."""


@dataclass(frozen=True)
class _Constant:
    """One integer of the text: the names it goes by, its value, and the expression that states it.

    first: the first of several names (`height` in `height = width = 128`), where they may be told apart.
    """

    names: tuple[str, ...]
    value: int
    node: ast.expr
    first: ast.expr | None = None


def integer_constants(source: str | ast.Module) -> dict[str, int]:
    """The integers of a file, name -> value, in the order of the text; of several names of one value, all.

    Raises: SyntaxError if the text is no Python.
    """
    return {name: constant.value for constant in _found(source) for name in constant.names}


def distinct_constants(source: str | ast.Module) -> dict[str, int]:
    """As `integer_constants`, but of several names of one value only the first, unless they may be told apart."""
    return {
        name: constant.value
        for constant in _found(source)
        for name in (constant.names if constant.first is not None else constant.names[:1])
    }


def apply_constants(source: str, constants: Iterable[tuple[str, int]]) -> str:
    """The text with other values for some of its integers, e.g. (("rows", 7), ("shape[0]", 33)).

    Only these values change; every line keeps its number and the rest of its text.
    Of names that share a value, those that are not given follow the last that is.
    Raises: TaskError if a name is no integer of the text, or two names of one item of a list differ.
    """
    wanted = dict(constants)
    if not wanted:
        return source
    found = _found(source)
    known = {name for constant in found for name in constant.names}
    for name in wanted:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise TaskError(f"{name!r} is no module-level integer of the file, which has {names}: use one of them")
    text = source.encode()
    starts = [0]
    for line in text.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    for constant in sorted(found, key=lambda c: (c.node.lineno, c.node.col_offset), reverse=True):
        values = {wanted[name] for name in constant.names if name in wanted}
        if len(values) > 1 and constant.first is not None:
            text = _apart(text, starts, constant, wanted)
            continue
        if len(values) > 1:
            raise TaskError(f"{' and '.join(constant.names)} are one value, but are set to {sorted(values)}: set one")
        if values:
            text = _substitute(text, starts, constant.node, values.pop())
    return text.decode()


def _apart(text: bytes, starts: list[int], constant: _Constant, wanted: dict[str, int]) -> bytes:
    """`height, width = 3, 5` for `height = width = 128`."""
    first, node = constant.first, constant.node
    assert first is not None and node.end_lineno is not None and node.end_col_offset is not None
    left, right = starts[first.lineno - 1] + first.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
    last = next(wanted[name] for name in reversed(constant.names) if name in wanted)
    values = ", ".join(str(wanted.get(name, last)) for name in constant.names)
    return text[:left] + f"{', '.join(constant.names)} = {values}".encode() + text[right:]


def _substitute(text: bytes, starts: list[int], node: ast.expr, value: int) -> bytes:
    assert node.end_lineno is not None and node.end_col_offset is not None
    first = starts[node.lineno - 1] + node.col_offset
    last = starts[node.end_lineno - 1] + node.end_col_offset
    breaks = node.end_lineno - node.lineno
    # An expression over several lines leaves its line breaks behind, so that the lines below keep their numbers.
    new = f"({value}{chr(10) * breaks})" if breaks else str(value)
    return text[:first] + new.encode() + text[last:]


def _found(source: str | ast.Module) -> tuple[_Constant, ...]:
    """Raises: SyntaxError if the text is no Python."""
    return _found_in_text(source) if isinstance(source, str) else tuple(_find(source))


@lru_cache(maxsize=KEPT_TEXTS)
def _found_in_text(source: str) -> tuple[_Constant, ...]:
    return tuple(_find(tree_of(source)))


def _find(tree: ast.Module) -> Iterator[_Constant]:
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield from _assigned(node.targets, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield from _assigned([node.target], node.value)
        elif isinstance(node, ast.FunctionDef) and node.name in INPUT_FUNCTIONS:
            for index, literal in enumerate(_in_calls(node)):
                number = _evaluate(literal)
                assert number is not None
                yield _Constant((f"{node.name}[{index}]",), number, literal)


def _in_calls(node: ast.AST, inside: bool = False) -> Iterator[ast.expr]:
    """Integers among the arguments of calls (keywords aside), also in lists of them, in the order of the text.

    Those of functions defined inside are no sizes.
    """
    if inside and isinstance(node, ast.expr) and _evaluate(node) is not None:
        yield node
    elif isinstance(node, ast.Call):
        yield from _in_calls(node.func)
        for argument in node.args:
            yield from _in_calls(argument, True)
    else:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                continue
            yield from _in_calls(child, inside and isinstance(node, ast.Tuple | ast.List | ast.Starred))


def _assigned(targets: list[ast.expr], value: ast.expr) -> Iterator[_Constant]:
    """The constants of one assignment `target = target = value`."""
    names = tuple(target.id for target in targets if isinstance(target, ast.Name))
    number = _evaluate(value)
    if number is not None:
        alone = len(targets) == len(names) > 1 and targets[0].lineno == value.end_lineno
        if names:
            yield _Constant(names, number, value, targets[0] if alone else None)
        return
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) and isinstance(value.left, ast.List | ast.Tuple):
        value = value.left  # [1024] * 16: the one item stands for all.
    if not isinstance(value, ast.Tuple | ast.List) or any(isinstance(item, ast.Starred) for item in value.elts):
        return
    for index, item in enumerate(value.elts):
        number = _evaluate(item)
        elements = [f"{name}[{index}]" for name in names]
        for target in targets:
            if isinstance(target, ast.Tuple | ast.List) and len(target.elts) == len(value.elts):
                part = target.elts[index]
                elements += [part.id] if isinstance(part, ast.Name) else []
        if number is not None and elements:
            yield _Constant(tuple(elements), number, item)


def _evaluate(node: ast.expr) -> int | None:
    """Value of an integer or of arithmetic of integers, else None."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int) and not isinstance(node.value, bool) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _evaluate(node.operand)
        return None if inner is None else -inner
    if not isinstance(node, ast.BinOp):
        return None
    left, right = _evaluate(node.left), _evaluate(node.right)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.Pow):
        return left**right if 0 <= right <= _LARGEST_EXPONENT else None
    if type(node.op) not in _OPERATORS or (isinstance(node.op, ast.FloorDiv) and right == 0):
        return None
    return _OPERATORS[type(node.op)](left, right)
