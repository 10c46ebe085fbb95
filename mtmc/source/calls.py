"""calls: what a version's forward computes, call by call, by its syntax tree.

Nothing is run, so what is a tensor is inferred: forward's arguments and the module's parameters are, and so is what calls
of torch, of submodules, and arithmetic make of them. Methods of the module, functions of the file and submodules whose
class is in the file are followed; a function that launches a kernel is one call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from mtmc.action import Region
from mtmc.source.structure import MAKERS, Function, Structure, is_self, parameters, passed, tensor_arguments

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
}
_VIEW_WORDS = (
    "view reshape permute transpose t unsqueeze squeeze expand expand_as flatten unflatten unbind chunk split view_as "
    "narrow select detach contiguous clone to float half double bfloat16 type_as cuda swapaxes movedim broadcast_to T mT "
    "data"
)
_VIEWS = frozenset(_VIEW_WORDS.split())
"""Functions, methods and attributes that give a tensor but compute nothing worth a kernel."""
_FACT_WORDS = (
    "size dim stride numel item is_contiguous element_size data_ptr storage_offset tolist get_device nelement ndimension "
    "is_floating_point record_stream is_cuda"
)
_FACTS = frozenset(_FACT_WORDS.split())
"""Methods of a tensor that give no tensor."""
_NO_COMPUTE = ("torch.cuda", "torch.no_grad", "torch.device", "torch.is_", "torch.Size", "torch.finfo", "torch.iinfo")
_PLAIN = ("len", "int", "float", "bool", "range", "isinstance", "print")
_DEEPEST = 8
"""Functions inside of functions that are followed."""


@dataclass(frozen=True)
class Call:
    """One computation in forward. name: unique in its forward, "linear", "softmax", "softmax_1".

    first_line, last_line: 1-based, inclusive. is_torch: a torch call or a submodule; else a function that launches
    kernels, or a launch. run: calls with the same number stand in one straight line of code.
    """

    name: str
    first_line: int
    last_line: int
    is_torch: bool
    run: int

    @property
    def region(self) -> Region:
        """Its lines, under its name."""
        return Region(self.name, self.first_line, self.last_line)


def forward_calls(structure: Structure) -> list[Call]:
    """The calls of ModelNew's forward in the order in which they run; none where there is no such forward."""
    owner = structure.named("ModelNew")
    forward = structure.method(owner, "forward") if owner is not None else None
    if forward is None:
        return []
    walk = _Walk(structure)
    walk.enter(forward, owner, tensor_arguments(forward))
    return walk.calls


class _Walk:
    """Follows the statements of forward and notes the calls in the order in which they run."""

    def __init__(self, structure: Structure) -> None:
        self.calls: list[Call] = []
        self._structure = structure
        self._counts: dict[str, int] = {}
        self._entered: list[Function] = []
        self._owner: ast.ClassDef | None = None
        self._tensors: set[str] = set()
        self._layers: dict[str, str] = {}  # loop variables that stand for submodules
        self._run = 0

    def enter(self, function: Function, owner: ast.ClassDef | None, tensors: set[str]) -> bool:
        """Follow a function's body; False where it is being followed already or lies too deep."""
        if function in self._entered or len(self._entered) >= _DEEPEST:
            return False
        kept = self._owner, self._tensors, self._layers
        self._owner, self._tensors, self._layers = owner, tensors, {}
        self._entered.append(function)
        self._statements(function.body)
        self._entered.pop()
        self._owner, self._tensors, self._layers = kept
        return True

    def _statements(self, body: Iterable[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.Assign):
                made = self._value(node.value)
                for target in node.targets:
                    self._bind(target, made)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self._bind(node.target, self._value(node.value))
            elif isinstance(node, ast.AugAssign):
                if self._value(node.value) | self._value(node.target):
                    self._note(_OPERATORS.get(type(node.op), "combine"), node, True)
            elif isinstance(node, ast.With):
                for item in node.items:
                    self._value(item.context_expr)
                self._statements(node.body)
            elif isinstance(node, ast.For | ast.While | ast.If | ast.Try):
                self._branches(node)
            elif isinstance(node, ast.Return | ast.Expr) and node.value is not None:
                self._value(node.value)

    def _branches(self, node: ast.For | ast.While | ast.If | ast.Try) -> None:
        """Code that runs not exactly once: no straight line with what stands around it."""
        if isinstance(node, ast.For):
            self._bind(node.target, self._value(node.iter))
            over = [
                each.attr for each in ast.walk(node.iter) if isinstance(each, ast.Attribute) and is_self(each.value)
            ]
            for name in ast.walk(node.target):
                if isinstance(name, ast.Name) and over:
                    self._layers[name.id] = over[0]
        elif isinstance(node, ast.While | ast.If):
            self._value(node.test)
        bodies = [node.body, node.orelse]
        if isinstance(node, ast.Try):
            bodies += [*(handler.body for handler in node.handlers), node.finalbody]
        for body in bodies:
            self._run += 1
            self._statements(body)
        self._run += 1

    def _bind(self, target: ast.expr, is_tensor: bool) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                (self._tensors.add if is_tensor else self._tensors.discard)(node.id)

    def _note(self, name: str, node: ast.AST, is_torch: bool) -> bool:
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        self.calls.append(Call(f"{name}_{count}" if count else name, first, last or first, is_torch, self._run))
        return True

    def _value(self, node: ast.expr) -> bool:
        """Note the calls in an expression; whether its value is a tensor, or holds some."""
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.BinOp):
            tensors = self._value(node.left) | self._value(node.right)
            matmul = isinstance(node.op, ast.MatMult)
            return (tensors or matmul) and self._note(_OPERATORS.get(type(node.op), "combine"), node, True)
        if isinstance(node, ast.Name):
            return node.id in self._tensors
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Subscript):
            holds = self._value(node.value)
            self._value(node.slice)
            return holds
        if isinstance(node, ast.Lambda):
            return False
        held = [self._value(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        return any(held)

    def _attribute(self, node: ast.Attribute) -> bool:
        if is_self(node.value):
            return self._owner is not None and node.attr in parameters(self._owner)
        holds = self._value(node.value)
        return (holds and node.attr in _VIEWS) or node.attr in ("weight", "bias")

    def _call(self, node: ast.Call) -> bool:
        func = node.func
        if (
            isinstance(func, ast.Subscript)
            and isinstance(func.value, ast.Name)
            and func.value.id in self._structure.kernel_names
        ):
            self._arguments(node)
            return self._note(func.value.id, node, False)
        path = self._path(func)
        if path is not None:
            tensors = any(self._arguments(node))
            return self._torch(path, node, tensors) if path.startswith("torch.") else False
        if isinstance(func, ast.Name):
            return self._function(func.id, node)
        layer = func.value if isinstance(func, ast.Subscript) else func
        if isinstance(layer, ast.Attribute) and is_self(layer.value):
            return self._submodule(layer.attr, node)
        if isinstance(func, ast.Attribute):
            return self._method(func, node)
        return any(self._arguments(node))

    def _arguments(self, node: ast.Call) -> list[bool]:
        return [self._value(each) for each in (*node.args, *(keyword.value for keyword in node.keywords))]

    def _path(self, func: ast.expr) -> str | None:
        """The dotted path of a function that comes from an import."""
        parts: list[str] = []
        while isinstance(func, ast.Attribute):
            parts.insert(0, func.attr)
            func = func.value
        if not isinstance(func, ast.Name) or func.id not in self._structure.paths or func.id in self._tensors:
            return None
        return ".".join([self._structure.paths[func.id], *parts])

    def _torch(self, path: str, node: ast.Call, tensors: bool) -> bool:
        name = path.rsplit(".", 1)[-1]
        if path.startswith(_NO_COMPUTE):
            return False
        return name in _VIEWS | MAKERS or self._note(name, node, True)

    def _function(self, name: str, node: ast.Call) -> bool:
        """A call by a plain name: a function of the file, or a layer that a loop goes through."""
        tensors = self._arguments(node)
        function = self._structure.functions.get(name)
        if name in self._layers:
            return self._note(self._layers[name], node, True)
        if function is None:
            return any(tensors) and name not in _PLAIN
        if self._structure.launches(function):
            return self._note(name, node, False)
        self.enter(function, None, passed(function, tensors, node))
        return any(tensors)

    def _submodule(self, name: str, node: ast.Call) -> bool:
        """A call of self.name, or of self.name[i]: a method, a module of this file, or any other module."""
        tensors = self._arguments(node)
        if self._owner is None:
            return any(tensors)
        method = self._structure.method(self._owner, name)
        if method is not None:
            self.enter(method, self._owner, passed(method, [True, *tensors], node))
            return any(tensors)
        owner = self._structure.class_of(self._owner, name)
        forward = self._structure.method(owner, "forward") if owner is not None else None
        if forward is not None and self.enter(forward, owner, passed(forward, [True, *tensors], node)):
            return True
        return self._note(name, node, True)

    def _method(self, func: ast.Attribute, node: ast.Call) -> bool:
        """A method of a value, or of a class of the file (`Function.apply`)."""
        holds = self._value(func.value)
        self._arguments(node)
        if isinstance(func.value, ast.Name) and func.value.id in self._structure.classes:
            return self._note(func.value.id, node, False)
        if not holds or func.attr in _FACTS:
            return False
        return func.attr in _VIEWS | MAKERS or self._note(func.attr, node, True)
