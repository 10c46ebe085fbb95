"""sites: where a version without a plan may be changed, by its syntax tree: the calls of its forward, its kernels.

The rewriter says what is legal on its own plans. A file that a model wrote has none; each kind of optimization says what it
offers on what is found here (`Optimization.sites`). How it is done is left to the model.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mtmc.action import Region
from mtmc.source.calls import Call, forward_calls
from mtmc.source.structure import Function, Structure, span
from mtmc.syntax import parse

_REDUCTIONS = frozenset(("sum", "max", "min", "argmax", "argmin", "reduce", "xor_sum"))


@dataclass(frozen=True)
class Sites:
    """What may be changed in a file. calls: of its forward, in order. kernels: the Triton kernels, in the file's order."""

    calls: tuple[Call, ...] = ()
    kernels: tuple[Kernel, ...] = ()

    @classmethod
    def of(cls, source: str) -> Sites:
        """The sites of a file; none in a text that does not parse."""
        try:
            structure = Structure.of(parse(source))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return cls()
        kernels = structure.kernels
        return cls(tuple(forward_calls(structure)), tuple(Kernel(_region(each, kernels), each) for each in kernels))

    def rows(self) -> list[list[Call]]:
        """The calls that stand in a row each."""
        return [[call for call in self.calls if call.run == run] for run in dict.fromkeys(c.run for c in self.calls)]


class Kernel:
    """A Triton kernel of the file.

    blocks, memory, loop, loads_in_loop, dot, reduction, exact_dot: whether it makes blocks, reads or writes memory, loops,
    reads in a loop, multiplies blocks, reduces one, or multiplies in plain fp32.
    """

    def __init__(self, region: Region, function: Function) -> None:
        calls = list(_calls(function))
        names = {name for name, _ in calls}
        loops = [node for node in ast.walk(function) if isinstance(node, ast.For | ast.While)]
        self.region = region
        self.blocks = "arange" in names or bool(names & {"make_block_ptr", "make_tensor_descriptor"})
        self.memory = bool(names & {"load", "store"})
        self.loop = bool(loops)
        self.loads_in_loop = any(name == "load" for loop in loops for name, _ in _calls(loop))
        self.dot = "dot" in names
        self.reduction = bool(names & _REDUCTIONS)
        self.exact_dot = any(name == "dot" and _is_exact(call) for name, call in calls)


def _calls(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """The calls in some code, each with the last part of its name."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
            yield each.func.attr, each
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
            yield each.func.id, each


def _is_exact(dot: ast.Call) -> bool:
    """Whether a tl.dot is told to compute in plain fp32."""
    return any(
        isinstance(keyword.value, ast.Constant)
        and (keyword.arg, keyword.value.value) in (("input_precision", "ieee"), ("allow_tf32", False))
        for keyword in dot.keywords
    )


def _region(kernel: Function, kernels: Sequence[Function]) -> Region:
    """A kernel's lines under its name, which is short ("softmax" of softmax_kernel) where that is its alone."""
    short = _short(kernel.name)
    alone = sum(_short(other.name) == short for other in kernels) == 1
    first, last = span(kernel)
    return Region(short if alone else kernel.name, first, last)


def _short(name: str) -> str:
    return name.strip("_").removesuffix("_kernel").removeprefix("kernel_") or name
