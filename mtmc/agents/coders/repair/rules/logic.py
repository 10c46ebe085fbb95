"""Masks of several conditions: of tiles, Python's `and`, `or`, `not` and chains say nothing lane by lane."""

from __future__ import annotations

import re

import libcst as cst

from mtmc.agents.coders.repair.edits import operand
from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import kernels
from mtmc.agents.coders.repair.lanes import tiles
from mtmc.agents.coders.repair.program import New, Program
from mtmc.outcome import Diagnosis

_KINDS = ("WrongValues", "NaN", "Infinity", "OutOfBoundsError")
_SAID = re.compile(
    r"truth value of an array|Boolean value of Tensor|module 'triton\.runtime\.interpreter' has no attribute 'lhs'"
    r"|multiple comparison|logical|dynamic condition|boolean operators"
)
_BITWISE = cst.BitAnd | cst.BitOr


def logic(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`a < m and b < n` of tiles, `0 <= a < n`, and `a < m & b < n` without parentheses: each as (a < m) & (b < n)."""
    if diagnosis.kind not in _KINDS and _SAID.search(diagnosis.message) is None:
        return None
    changes: dict[cst.CSTNode, New] = {}
    for kernel in kernels(program):
        for node in program.find(cst.BaseExpression, kernel):  # type: ignore[type-abstract]
            change = _joined(program, node)
            if change is not None and tiles(program, kernel, node):
                changes[node] = change
    if not changes:
        return None
    return Fixed(program.changed(changes), "conditions of tiles joined lane by lane, by & and |")


def choice(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`a if mask else b` of a tile: `tl.where`."""
    language = program.module_name("triton.language")
    if "Ternary expression with dynamic condition" not in diagnosis.message or language is None:
        return None
    changes: dict[cst.CSTNode, New] = {}
    for kernel in kernels(program):
        for node in program.at(cst.IfExp, diagnosis.line):
            if tiles(program, kernel, node.test):
                parts = ", ".join(program.code(part) for part in (node.test, node.body, node.orelse))
                changes[node] = cst.parse_expression(f"{language}.where({parts})")
    return Fixed(program.changed(changes), f"{language}.where for a choice lane by lane") if len(changes) == 1 else None


def _joined(program: Program, node: cst.BaseExpression) -> New | None:
    """What a condition becomes where it is one of tiles; None for what is no condition of several."""
    if isinstance(node, cst.BooleanOperation):
        return _bitwise
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
        return _inverted
    if isinstance(node, cst.Comparison) and len(node.comparisons) > 1:
        text = _unchained(program, node)
        return None if text is None else cst.parse_expression(text)
    return None


def _bitwise(node: cst.BooleanOperation) -> cst.BaseExpression:
    sign = "&" if isinstance(node.operator, cst.And) else "|"
    text = f"{_whole(node.left)} {sign} {_whole(node.right)}"
    return cst.parse_expression(f"({text})" if node.lpar else text)


def _inverted(node: cst.UnaryOperation) -> cst.BaseExpression:
    return cst.parse_expression(f"{_whole(node.expression)} == 0")


def _whole(node: cst.BaseExpression) -> str:
    return operand(node, cst.Module([]).code_for_node(node))


def _unchained(program: Program, node: cst.Comparison) -> str | None:
    """The comparisons of a chain one by one. Between comparisons `a < m & b < n` has what `&` was meant to join."""
    sides: list[cst.BaseExpression] = [node.left, *(target.comparator for target in node.comparisons)]
    signs = [program.code(target.operator).strip() for target in node.comparisons]
    firsts, lasts, joints = [sides[0]], [], []
    for side in sides[1:-1]:
        joined = isinstance(side, cst.BinaryOperation) and isinstance(side.operator, _BITWISE) and not side.lpar
        if joined and isinstance(side, cst.BinaryOperation):
            lasts.append(side.left)
            firsts.append(side.right)
            joints.append("&" if isinstance(side.operator, cst.BitAnd) else "|")
        else:
            lasts.append(side)
            firsts.append(side)
            joints.append("&")
    lasts.append(sides[-1])
    parts = [f"({program.code(a)} {sign} {program.code(b)})" for a, sign, b in zip(firsts, signs, lasts, strict=True)]
    text = parts[0] + "".join(f" {joint} {part}" for joint, part in zip(joints, parts[1:], strict=True))
    return f"({text})" if node.lpar else text
