"""The module of a program: its forward, and the tensor that it returns."""

from __future__ import annotations

import libcst as cst

from mtmc.agents.coders.repair.program import Program

MAKERS = ("empty", "zeros", "ones", "full", "empty_like", "zeros_like", "ones_like", "full_like")


def forward_of(program: Program) -> cst.FunctionDef | None:
    """The only `forward` of the class ModelNew."""
    found = [
        function
        for function in program.functions
        if function.name.value == "forward"
        and (owner := program.around(function, cst.ClassDef)) is not None
        and owner.name.value == "ModelNew"
    ]
    return found[0] if len(found) == 1 else None


def made_by(program: Program) -> cst.Call | None:
    """The call of torch that makes what the forward returns, there or in the function that it calls; None where there
    are several."""
    forward = forward_of(program)
    values = [] if forward is None else returned_values(program, forward)
    made = values[0] if len(values) == 1 else None
    module, _, name = (program.path(made.func) or "").rpartition(".") if isinstance(made, cst.Call) else ("", "", "")
    return made if isinstance(made, cst.Call) and module == "torch" and name in MAKERS else None


def returned_values(
    program: Program, function: cst.FunctionDef, seen: frozenset[str] = frozenset()
) -> list[cst.BaseExpression]:
    """What a function returns: through names that are bound once, and through the functions of the file that it calls."""
    found: list[cst.BaseExpression] = []
    for node in program.find(cst.Return, function):
        value = node.value
        if isinstance(value, cst.Name):
            value = program.value(value.value, function)
        called = value.func.value if isinstance(value, cst.Call) and isinstance(value.func, cst.Name) else None
        inner = [one for one in program.functions if one.name.value == called and called not in seen]
        if called is not None and len(inner) == 1:
            found += returned_values(program, inner[0], seen | {called})
        elif value is not None:
            found.append(value)
    return found
