"""speed_task: a gold function and what its speed test does -> a task in KernelBench's format. Pure, runs no torch.

The gold function's file stays as it is. The numbers that the speed test computes become module-level numbers, from which
other shapes can be derived; what makes tensors becomes `get_inputs`; the body of `call_op` becomes `forward`.
"""

from __future__ import annotations

import ast
import copy
import json
import keyword
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from mtmc.bench.suites.numbers import UNKNOWN, Env, is_size, value_of
from mtmc.bench.suites.speed_reading import Inputs, needed, read_speed_test
from mtmc.errors import TaskError
from mtmc.syntax import names_in, parse
from mtmc.task import DECLARATION

_SIZES = 4
"""Of a speed test's least sizes at most so many become small and held-out shapes."""


def task_text(gold: str, speed_test: str, name: str, own_sizes: bool = False) -> str:
    """The task's text. gold: the function's file without its test. name: of the problem.

    own_sizes: declare the least sizes of the speed test as the task's small and held-out shapes.
    Raises: TaskError with what cannot be read, or taken over.
    """
    test = read_speed_test(speed_test, name)
    inputs, call = test.inputs, test.call
    model = _Model(inputs, call, name)
    constants = _constants(inputs.numbers, [*model.statements, *model.sizes.values(), *model.tensors.values()])
    clash = sorted(set(constants) & _defined(gold, name))
    if clash:
        raise TaskError(f"{name}: its speed test and its gold file both define {clash[0]!r}")
    used = {each for node in (*model.statements, *model.tensors.values(), call) for each in names_in(node)} | {"torch"}
    wanted = {**test.imports, "torch": "import torch"}
    imports = [line for bound, line in wanted.items() if bound in used and line not in gold.splitlines()]
    numbers = [f"{each} = {value!r}" for each, value in constants.items()]
    if own_sizes:
        numbers += ["", _declared(constants, speed_test, name)]
    blocks = ["\n".join(imports), gold.strip(), "\n".join(numbers).strip(), model.text(), model.input_functions()]
    return "\n\n\n".join(block for block in blocks if block) + "\n"


def _declared(constants: Env, speed_test: str, name: str) -> str:
    """The task's declaration of its shapes: those at the first sizes of the speed test, where integers alone change.

    Raises: TaskError where there are none.
    """
    found: dict[str, dict[str, int]] = {}
    for step in range(_SIZES):
        try:
            numbers = read_speed_test(speed_test, name, step).inputs.numbers
        except TaskError:  # there are no more
            break
        changed = _changes(constants, numbers)
        if changed and changed not in found.values():
            found["small" if not found else f"odd{len(found)}"] = changed
    if not found:
        raise TaskError(f"the speed test of {name} has no smaller sizes that differ in integers alone")
    lines = [f'    "{label}": {json.dumps(values)},' for label, values in found.items()]
    return "\n".join([f"{DECLARATION} = {{", *lines, "}"])


def _changes(constants: Env, numbers: Env) -> dict[str, int] | None:
    """What differs from the constants, in the names of `mtmc.task.constants`; None where that is no integer."""
    changed: dict[str, int] = {}
    for name, value in constants.items():
        other = numbers.get(name)
        parts = {name: (value, other)}
        if isinstance(value, tuple | list) and isinstance(other, tuple | list) and len(value) == len(other):
            parts = {f"{name}[{index}]": pair for index, pair in enumerate(zip(value, other, strict=True))}
        for part, (old, new) in parts.items():
            if old == new:
                continue
            if not _is_count(old) or not _is_count(new):
                return None
            changed[part] = new
    return changed


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def with_model_new(text: str, task: str, name: str) -> str:
    """A candidate's text with the task's wrapper as ModelNew; as it is where it defines one.

    Raises: TaskError where it is no Python, or lacks a function that the wrapper calls.
    """
    defined = _defined(text, name)
    if "ModelNew" in defined:
        return text
    [model] = [each for each in parse(task).body if isinstance(each, ast.ClassDef) and each.name == "Model"]
    lacking = sorted((names_in(model) & _defined(task, name)) - defined)
    if lacking:
        raise TaskError(
            f"the candidate of {name} defines neither ModelNew nor {lacking[0]!r}: it must have one of them"
        )
    wrapper = copy.copy(model)
    wrapper.name = "ModelNew"
    return f"{text.rstrip()}\n\n\nimport torch\n\n\n{ast.unparse(wrapper)}\n"


class _Model:
    """Class Model and the input functions.

    tensors: the arguments of forward, with what they are. sizes: those of the constructor, at the full shapes. statements:
    what makes the tensors.
    """

    def __init__(self, inputs: Inputs, call: ast.FunctionDef, name: str) -> None:
        self._inputs, self._name = inputs, name
        self.tensors: dict[str, ast.expr] = {}  # forward's arguments, with what they are made of
        self.sizes: dict[str, ast.expr] = {}
        stand_ins = [self._stand_in(item, position) for position, item in enumerate(inputs.items)]
        if not self.tensors:
            raise TaskError(f"{name}: its speed test hands no tensor to the function")
        self._body = _body(call, stand_ins, inputs.alone, name)
        if not any(isinstance(each, ast.Return) for each in ast.walk(ast.Module(self._body, []))):
            # The function changes its arguments in place: these are its result.
            self._body += ast.parse(f"return {', '.join(self.tensors)}").body
        whole = ast.Module(self._body, [])
        kept = {each.attr for each in ast.walk(whole) if _is_own(each)}
        self.sizes = {each: item for each, item in self.sizes.items() if each in kept}
        self.tensors = {each: item for each, item in self.tensors.items() if each in names_in(whole)}
        self.statements = needed(inputs.statements, list(self.tensors.values()))

    def text(self) -> str:
        """The text of class Model."""
        lines = ["class Model(torch.nn.Module):"]
        lines += [f'    """{self._name} of TritonBench, as its speed test calls it."""', ""]
        if self.sizes:
            lines += [f"    def __init__(self, {', '.join(self.sizes)}):", "        super().__init__()"]
            lines += [*(f"        self.{name} = {name}" for name in self.sizes), ""]
        lines.append(f"    def forward(self, {', '.join(self.tensors)}):")
        return "\n".join([*lines, *_lines(self._body, 8)])

    def input_functions(self) -> str:
        """The text of get_inputs and get_init_inputs."""
        tensors = ", ".join(ast.unparse(each) for each in self.tensors.values())
        sizes = ", ".join(ast.unparse(each) for each in self.sizes.values())
        lines = ["def get_inputs():", *_lines(self.statements, 4), f"    return [{tensors}]"]
        return "\n".join([*lines, "", "", "def get_init_inputs():", f"    return [{sizes}]"])

    def _stand_in(self, item: ast.expr, position: int) -> ast.expr:
        """What stands for an item in forward: an argument, a number that the model keeps, or the plain value itself."""
        own = item.id if isinstance(item, ast.Name) and not keyword.iskeyword(item.id) else f"x{position}"
        value = value_of(item, self._inputs.numbers)
        if value is not UNKNOWN and not is_size(value):
            return ast.parse(repr(value), mode="eval").body
        if value is not UNKNOWN:
            self.sizes[own] = item
            return ast.parse(f"self.{own}", mode="eval").body
        while own in self.tensors:
            own += "_"
        self.tensors[own] = item
        return ast.Name(own, ast.Load())


def _body(call: ast.FunctionDef, stand_ins: Sequence[ast.expr], alone: bool, name: str) -> list[ast.stmt]:
    """The body of `call_op`, in which what stands for the items replaces its parameter and what that is unpacked into."""
    parameter = call.args.args[1].arg
    bound: dict[str, ast.expr] = {parameter: stand_ins[0]} if alone else {}
    rest = []
    for statement in call.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.value) == parameter:
            target = statement.targets[0]
            parts = [each.id for each in getattr(target, "elts", [target]) if isinstance(each, ast.Name)]
            if len(parts) != len(stand_ins):
                raise TaskError(f"{name}: its speed test unpacks its inputs in another way than it packs them")
            bound |= zip(parts, stand_ins, strict=True)
        else:
            rest.append(statement)
    substitute = _Substitute(parameter, bound, stand_ins)
    body = [ast.fix_missing_locations(substitute.visit(copy.deepcopy(each))) for each in rest]
    kept = {each.attr for each in stand_ins if isinstance(each, ast.Attribute)}
    others = {each.attr for node in body for each in ast.walk(node) if _is_own(each)} - kept
    if others or substitute.left:
        raise TaskError(f"{name}: its speed test calls the function in a way that cannot be taken over")
    return body


class _Substitute(ast.NodeTransformer):
    """Names bound to items become what stands for these; so do `inputs[1]` and `*inputs`."""

    def __init__(self, parameter: str, bound: Mapping[str, ast.expr], stand_ins: Sequence[ast.expr]) -> None:
        self._parameter, self._bound, self._items = parameter, bound, stand_ins
        self.left = False  # whether all items together were used in another way

    def visit_Name(self, node: ast.Name) -> ast.AST:
        self.left |= self._is_all(node)
        return copy.deepcopy(self._bound.get(node.id, node)) if isinstance(node.ctx, ast.Load) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        index = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if self._is_all(node.value) and isinstance(index, int) and -len(self._items) <= index < len(self._items):
            return copy.deepcopy(self._items[index])
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        arguments: list[ast.expr] = []
        for each in node.args:
            spread = isinstance(each, ast.Starred) and self._is_all(each.value)
            arguments += copy.deepcopy(list(self._items)) if spread else [self.visit(each)]
        node.args = arguments
        node.func = self.visit(node.func)
        node.keywords = [self.visit(each) for each in node.keywords]
        return node

    def _is_all(self, node: ast.expr) -> bool:
        """Whether this is all items together."""
        return isinstance(node, ast.Name) and node.id == self._parameter and node.id not in self._bound


def _constants(numbers: Env, nodes: Sequence[ast.AST]) -> Env:
    """The numbers that some text uses, in their own order."""
    used = {name for node in nodes for name in names_in(node)}
    return {name: value for name, value in numbers.items() if name in used}


def _is_own(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Whether this is an attribute of `self`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _defined(text: str, name: str) -> set[str]:
    """Names of the functions and classes of a file. Raises: TaskError where it is no Python."""
    try:
        tree = parse(text)
    except (SyntaxError, ValueError) as error:
        raise TaskError(f"a file of {name} is no Python: {error}") from error
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.ClassDef)}


def _lines(body: Sequence[ast.stmt], indent: int) -> list[str]:
    return [" " * indent + line for each in body for line in ast.unparse(each).splitlines()]
