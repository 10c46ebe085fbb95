"""The class ModelNew: its name, and what its methods must begin with."""

from __future__ import annotations

import re

import libcst as cst

from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.modules import forward_of
from mtmc.agents.coders.repair.program import New, Program
from mtmc.outcome import Diagnosis

_BEFORE = re.compile(r"cannot assign (?:parameters?|modules?|buffers?) before Module\.__init__\(\) call")
_ONE_MORE = re.compile(r"forward\(\) takes \d+ positional arguments? but \d+ were given")

_MODULES = ("torch.nn.Module", "torch.nn.modules.module.Module")


def class_name(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """No class ModelNew, but exactly one module, or one besides the reference's Model."""
    if diagnosis.kind != "MissingModelNew":
        return None
    modules = [n for n in program.find(cst.ClassDef) if any(program.path(base.value) in _MODULES for base in n.bases)]
    if len(modules) > 1:  # the reference beside what is to take its place
        modules = [node for node in modules if node.name.value != "Model"]
    if len(modules) != 1 or "ModelNew" in program.bound_in_module():
        return None
    name = modules[0].name.value
    uses = [node for node in program.find(cst.Name) if node.value == name and _use(program, node)]
    changes: dict[cst.CSTNode, New] = {node: cst.Name("ModelNew") for node in (modules[0].name, *uses)}
    return Fixed(program.changed(changes), "named the module ModelNew")


def super_class(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`super(Model, self)` in another class, or no call of it at all: that class's own."""
    before = _BEFORE.search(diagnosis.message)
    undefined = re.search(r"name '(\w+)' is not defined", diagnosis.message)
    if undefined is not None:
        for call in program.at(cst.Call, diagnosis.line):
            owner = program.around(call, cst.ClassDef)
            named = call.args[0].value if call.args else None
            called = isinstance(call.func, cst.Name) and call.func.value == "super" and isinstance(named, cst.Name)
            if called and isinstance(named, cst.Name) and named.value == undefined[1] and owner is not None:
                source = program.changed({named: cst.Name(owner.name.value)})
                return Fixed(source, f"super of {owner.name.value}, the class that it stands in")
        return None
    function = program.function_at(diagnosis.line) if before is not None else None
    body = function.body if function is not None and function.name.value == "__init__" else None
    if function is None or not isinstance(body, cst.IndentedBlock) or "super(" in program.code(function):
        return None
    lines = [cst.parse_statement("super().__init__()"), *body.body]
    changed = function.with_changes(body=body.with_changes(body=lines))
    return Fixed(program.changed({function: changed}), "super().__init__() before a module's parameters")


def without_self(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A forward whose first parameter is not `self`, and which is given one argument more than it takes."""
    forward = forward_of(program)
    if forward is None or _ONE_MORE.search(diagnosis.message) is None:
        return None
    own = forward.params.params
    if not own or own[0].name.value == "self" or forward.decorators:
        return None
    model = cst.ensure_type(cst.parse_statement("def f(self, x): pass"), cst.FunctionDef).params.params[0]
    changed = forward.with_changes(params=forward.params.with_changes(params=[model, *own]))
    return Fixed(program.changed({forward: changed}), "self as the first parameter of forward")


def _use(program: Program, node: cst.Name) -> bool:
    above = program.parent(node)
    if isinstance(above, cst.Attribute):
        return above.value is node
    return not (isinstance(above, cst.Arg) and above.keyword is node)
