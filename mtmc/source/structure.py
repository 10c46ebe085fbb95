"""structure: the parts of a version's file by its syntax tree: kernels, launches, classes, what their attributes are."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Function = ast.FunctionDef

_MAKER_WORDS = (
    "empty zeros ones full tensor as_tensor arange linspace eye rand randn randint empty_like zeros_like ones_like "
    "full_like rand_like randn_like empty_strided new_empty new_zeros new_ones new_full"
)
MAKERS = frozenset(_MAKER_WORDS.split())
"""Functions that make a tensor and compute nothing worth a kernel."""


@dataclass(frozen=True)
class Structure:
    """What stands at the top level of a file. paths: local name of an import -> its dotted path. kernel_names: by which
    kernels are launched, those of objects that are made of a kernel (`name = Class(kernel)`) among them."""

    tree: ast.Module
    kernels: tuple[Function, ...]
    classes: dict[str, ast.ClassDef]
    functions: dict[str, Function]
    paths: dict[str, str]
    kernel_names: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, tree: ast.Module) -> Structure:
        """The structure of a file."""
        found = kernels(tree)
        return cls(
            tree=tree,
            kernels=found,
            classes={node.name: node for node in tree.body if isinstance(node, ast.ClassDef)},
            functions={node.name: node for node in tree.body if isinstance(node, Function)},
            paths=import_paths(tree),
            kernel_names=frozenset([*(each.name for each in found), *_wrapped(tree, found)]),
        )

    def named(self, name: str) -> ast.ClassDef | None:
        """The class of this name, or the one that the name is assigned from."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and name in _names(node.targets):
                return self.classes.get(node.value.id)
        return self.classes.get(name)

    def method(self, owner: ast.ClassDef, name: str) -> Function | None:
        """A method of a class or of its bases in this file."""
        for node in owner.body:
            if isinstance(node, Function) and node.name == name:
                return node
        bases = [self.classes.get(base.id) for base in owner.bases if isinstance(base, ast.Name)]
        found = [self.method(base, name) for base in bases if base is not None and base is not owner]
        return next((each for each in found if each is not None), None)

    def launches(self, node: ast.AST) -> bool:
        """Whether code launches a kernel of the file: kernel[grid](...)."""
        return any(name in self.kernel_names for name in launched(node))

    def class_of(self, owner: ast.ClassDef, attribute: str) -> ast.ClassDef | None:
        """The class in this file of which a module's attribute is an object; None where the text does not say."""
        for node in ast.walk(owner):
            if not (isinstance(node, ast.Assign) and attribute in _own_attributes(node.targets)):
                continue
            if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
                return self.classes.get(node.value.func.id)
        return None


def kernels(tree: ast.Module) -> tuple[Function, ...]:
    """The functions that are launched as Triton kernels; helpers that only other kernels call are left out."""
    jitted = [node for node in ast.walk(tree) if isinstance(node, Function) and _is_jitted(node)]
    names = {node.name for node in jitted} - set(launched(tree))
    calls = [call for owner in jitted for call in ast.walk(owner) if isinstance(call, ast.Call)]
    helpers = {call.func.id for call in calls if isinstance(call.func, ast.Name) and call.func.id in names}
    return tuple(node for node in jitted if node.name not in helpers)


def _wrapped(tree: ast.Module, found: Sequence[Function]) -> Iterator[str]:
    """Names at the top level that are bound to a call with a kernel as its argument."""
    names = {function.name for function in found}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            given = [each.id for each in node.value.args if isinstance(each, ast.Name)]
            yield from _names(node.targets) if names & set(given) else ()


def launched(node: ast.AST) -> list[str]:
    """Names in calls like name[grid](...)."""
    calls = [
        each.func.value
        for each in ast.walk(node)
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Subscript)
    ]
    return [value.id for value in calls if isinstance(value, ast.Name)]


def import_paths(tree: ast.Module) -> dict[str, str]:
    """Local name -> dotted path of everything that is imported."""
    paths: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".")[0]
                paths[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom) and node.module:
            paths |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return paths


def parameters(owner: ast.ClassDef) -> set[str]:
    """Attributes of a module that are parameters, buffers, or tensors made in one of its methods."""
    names: set[str] = set()
    for node in ast.walk(owner):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if ast.unparse(node.value.func).split(".")[-1] in MAKERS | {"Parameter", "Buffer"}:
                names |= _own_attributes(node.targets)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "self.register_buffer",
            "self.register_parameter",
        ):
            names |= {str(each.value) for each in node.args[:1] if isinstance(each, ast.Constant)}
    return names


def tensor_arguments(forward: Function) -> set[str]:
    """forward's arguments but those that are annotated or given by default as plain numbers or texts."""
    arguments = forward.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: dict[str, ast.expr | None] = {}
    for each, value in zip(positional[::-1], arguments.defaults[::-1], strict=False):
        defaults[each.arg] = value
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        defaults[each.arg] = default
    tensors = set()
    for each in [*positional, *arguments.kwonlyargs][1:]:
        given = defaults.get(each.arg)
        plain = isinstance(given, ast.Constant) and given.value is not None
        annotated = each.annotation is not None and ast.unparse(each.annotation) in ("int", "float", "bool", "str")
        if not plain and not annotated:
            tensors.add(each.arg)
    return tensors


def passed(function: Function, tensors: list[bool], node: ast.Call) -> set[str]:
    """The parameters of a function that a call gives tensors. tensors: of its arguments, the positional ones first."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    count = len(tensors) - len(node.keywords)
    given = [*zip(names, tensors[:count], strict=False)]
    given += [(keyword.arg or "", held) for keyword, held in zip(node.keywords, tensors[count:], strict=True)]
    return {name for name, is_tensor in given if is_tensor}


def is_self(node: ast.expr) -> bool:
    """Whether an expression is `self`."""
    return isinstance(node, ast.Name) and node.id == "self"


def span(function: Function) -> tuple[int, int]:
    """First and last line of a function, decorators included."""
    first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
    return first, function.end_lineno or function.lineno


def _is_jitted(function: Function) -> bool:
    decorators = [each.func if isinstance(each, ast.Call) else each for each in function.decorator_list]
    return any(ast.unparse(each).split(".")[-1] == "jit" for each in decorators)


def _names(targets: list[ast.expr]) -> Iterator[str]:
    return (each.id for each in targets if isinstance(each, ast.Name))


def _own_attributes(targets: list[ast.expr]) -> set[str]:
    return {each.attr for each in targets if isinstance(each, ast.Attribute) and is_self(each.value)}
