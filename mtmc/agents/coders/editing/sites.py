"""sites: what may be done to a version without a plan, by its syntax tree.

The rewriter says what is legal on its own plans. A file that a model wrote has none; here its kernels and the calls of its
forward are found, and each gets the kinds of optimization that make sense there. How is left to the model.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import chain

from mtmc.action import STOP, Action, Region, Scalar
from mtmc.agents.coders.editing.calls import Call, forward_calls
from mtmc.agents.coders.editing.structure import Function, Structure, span
from mtmc.syntax import parse

LONGEST = 4
"""Calls in a row that are offered as one fusion, besides the whole row."""

WHOLE = 8
"""Calls of the longest row that is offered as one fusion."""

STAGES = 3
"""Slices in flight that a pipeline is offered with: what does well on most GPUs."""

_REDUCTIONS = frozenset(("sum", "max", "min", "argmax", "argmin", "reduce", "xor_sum"))


def site_actions(source: str) -> list[Action]:
    """Actions on any version: fusions and lowerings of forward's calls, then kernel by kernel; `STOP` last, keys unique.

    The order depends on the text alone. Only `STOP` for a text that does not parse.
    """
    try:
        structure = Structure.of(parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [STOP]
    calls = forward_calls(structure)
    found = chain(_fusions(calls), _lowerings(calls), _kernel_actions(structure.kernels))
    unique: dict[str, Action] = {}
    for action in found:
        unique.setdefault(action.key, action)
    return [*unique.values(), STOP]


def _fusions(calls: Sequence[Call]) -> Iterator[Action]:
    """Two to `LONGEST` calls in a row, short ones first, and each row as a whole."""
    rows = [[call for call in calls if call.run == run] for run in dict.fromkeys(call.run for call in calls)]
    for count in range(2, LONGEST + 1):
        for row in rows:
            for start in range(len(row) - count + 1):
                yield _fuse(row[start : start + count])
    for row in rows:
        if LONGEST < len(row) <= WHOLE:
            yield _fuse(row)


def _fuse(calls: Sequence[Call]) -> Action:
    names = [call.name for call in calls]
    words = f"{', '.join(names[:-1])} and {names[-1]}"
    first, last = min(call.first_line for call in calls), max(call.last_line for call in calls)
    return _action("fuse", Region(words, first, last), f"fuse {words}")


def _lowerings(calls: Sequence[Call]) -> Iterator[Action]:
    for call in calls:
        if call.is_torch:
            region = Region(call.name, call.first_line, call.last_line)
            yield _action("lower", region, f"lower {call.name} to a Triton kernel")


def _kernel_actions(kernels: Sequence[Function]) -> Iterator[Action]:
    """Kind by kind, in the order of `mtmc.optimizations`."""
    sites = [(_region(kernel, kernels), _Traits(kernel)) for kernel in kernels]
    for region, traits in sites:
        if traits.exact_dot:
            sentence = f"compute the {region.name} kernel's product in three TF32 products"
            yield _action("precision", region, sentence, precision="tf32x3")
    for region, traits in sites:
        if traits.blocks:
            yield _action("tile", region, f"retile the {region.name} kernel")
    for region, traits in sites:
        if traits.loads_in_loop:
            sentence = f"apply a pipeline of {STAGES} stages to the {region.name} kernel"
            yield _action("pipeline", region, sentence, num_stages=STAGES)
    for region, traits in sites:
        if traits.dot:
            yield _action("reorder", region, f"reorder the {region.name} kernel's blocks for the cache")
        elif traits.loop or traits.reduction:
            yield _action("reorder", region, f"reorder the {region.name} kernel's loops")
    for region, traits in sites:
        if traits.memory:
            yield _action("vectorize", region, f"vectorize the {region.name} kernel: elements and warps a program")
    for region, traits in sites:
        if traits.loads_in_loop or traits.reduction:
            yield _action("split", region, f"split the {region.name} kernel's reduction among more programs")


class _Traits:
    """What stands in a kernel."""

    def __init__(self, kernel: Function) -> None:
        calls = list(_calls(kernel))
        names = {name for name, _ in calls}
        loops = [node for node in ast.walk(kernel) if isinstance(node, ast.For | ast.While)]
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


def _action(kind: str, region: Region, sentence: str, **params: Scalar) -> Action:
    lines = str(region).rsplit(", ", 1)[-1]
    return Action(kind, region, tuple(sorted(params.items())), f"{sentence}, {lines}")
