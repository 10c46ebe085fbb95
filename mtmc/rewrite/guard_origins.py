"""guard_origins: what guards are about: arguments of forward, integers of a task's file, the order of a tensor in memory."""

from __future__ import annotations

import ast
import re
import symtable

from mtmc.errors import TaskError
from mtmc.rewrite.graph import Tensor
from mtmc.rewrite.reference_text import forward_signature, kept_lines
from mtmc.task import Task


def memory_order(tensor: Tensor) -> tuple[int, ...] | None:
    """The dimensions from the outermost in memory to the innermost where they lie dense at every variant."""
    rank = len(tensor.shape)
    if tensor.contiguous:
        return tuple(range(rank))
    order = tuple(sorted(range(rank), key=lambda axis: (-tensor.strides[axis][0], axis)))
    for variant in range(len(tensor.shape[0])):
        step = 1
        for axis in reversed(order):
            if tensor.shape[axis][variant] != 1 and tensor.strides[axis][variant] != step:
                return None
            step *= tensor.shape[axis][variant]
    return order


def place_of(task: Task, argument: str) -> tuple[int, int | None, str]:
    """Which argument of forward a graph's argument is, which item of a list, and what it is called.

    Raises: TaskError for one that stands deeper in a structure.
    """
    signature, names = forward_signature(task.source)
    if argument in names:
        return names.index(argument), None, argument
    base, _, index = argument.rpartition("_")
    if index.isdigit() and base in names:
        return names.index(base), int(index), f"{base}[{index}]"
    arguments = ast.parse(f"def forward({signature}): ...").body[0].args  # type: ignore[attr-defined]
    if index.isdigit() and arguments.vararg is not None and arguments.vararg.arg == base:
        return len(arguments.posonlyargs) + len(arguments.args) - 1 + int(index), None, f"{base}[{index}]"
    raise TaskError(f"forward's argument {argument!r} is a structure; pass tensors or flat lists of tensors")


def varies_outside_of_inputs(task: Task) -> bool:
    """Whether an integer that differs between the task's sets of shapes is read by more than its input functions: what is
    handed out has it as it is at the full shapes."""
    varied = {word for variant in task.variants for name, _ in variant.constants for word in re.findall(r"\w+", name)}
    table = symtable.symtable("\n".join(kept_lines(task.source, drop_model=False)), "<task>", "exec")
    return bool(varied & _globals_read(table))


def _globals_read(table: symtable.SymbolTable) -> set[str]:
    """Names of the module that a scope and those in it read."""
    outermost = table.get_type() == "module"
    found = {
        each.get_name() for each in table.get_symbols() if each.is_referenced() and (outermost or each.is_global())
    }
    return found.union(*map(_globals_read, table.get_children()))
