"""Kernels defined from a version's text alone, to be interpreted where nothing else of the version runs.

Of the file only the functions under `@triton.jit` are made, without their decorators; what the file's names stand for that
they look up is given as plain data (`mtmc.evaluate.loading.jitted`). Triton's interpreter runs a kernel as Python, so it
could be more here than it is to the compiler: `mtmc.evaluate.counting.kernel_text` refuses that.
"""

from __future__ import annotations

import ast
import builtins
import copy
import importlib
import json
import types
from collections.abc import Mapping
from typing import Any

from mtmc.evaluate.counting.kernel_text import attribute, refuse_host_code
from mtmc.evaluate.loading.jitted import Jitted, is_module
from mtmc.evaluate.loading.same_text import functions_in
from mtmc.evaluate.plain import MalformedError, from_plain
from mtmc.syntax import names_in, parse

_BUILTINS = """
    abs all any bool divmod enumerate float int isinstance issubclass len list map max min pow print range repr reversed
    round slice sorted str sum tuple zip dict set callable ValueError TypeError AssertionError"""
_NONE = object()


class Kernels:
    """The kernels of one text.

    parts: Triton's interpreter. path: the name of the file, which tracebacks have. name: of its module.
    Raises: SyntaxError or ValueError if the text is no Python.
    """

    def __init__(self, parts: Any, text: str, path: str, name: str) -> None:
        self._parts, self._path, self._name = parts, path, name
        self._functions = functions_in(parse(text))
        self._made: dict[str, Any] = {}
        self._under_way: list[str] = []

    def kernel(self, jitted: Jitted) -> Any:
        """The interpreted function. Raises: MalformedError where the text has none such; UncountableError for host code."""
        key = json.dumps([jitted.name, jitted.line, jitted.values], sort_keys=True)
        if key not in self._made:
            if key in self._under_way:
                raise MalformedError(f"kernel {jitted.name} looks itself up")
            self._under_way.append(key)
            self._made[key] = self._interpreted(jitted)
            self._under_way.remove(key)
        return self._made[key]

    def constant(self, data: Any) -> Any:
        """Inverse of `loading.jitted.constant`, but for modules, which only names of a file stand for.

        Raises: MalformedError; as `kernel` does.
        """
        import triton.language as tl

        if data is None or type(data) in (bool, int, float, str):
            return data
        if not isinstance(data, dict) or len(data) != 1:
            raise MalformedError(f"{str(data)[:100]!r} is no constant of a kernel")
        ((kind, inner),) = data.items()
        if kind == "constexpr":
            return tl.constexpr(self.constant(inner))
        if kind in ("tuple", "list"):
            return {"tuple": tuple, "list": list}[kind](self.constant(each) for each in inner)
        if kind == "type":
            return next(each for each in (*vars(tl).values(), _NONE) if _is_type(each, inner))
        if kind == "path":
            found = _found(inner)
            if isinstance(found, types.ModuleType):
                raise MalformedError(f"the module {inner} is given as a value")
            return found
        if kind == "function":
            return self.kernel(from_plain(Jitted, inner))
        if kind == "host function":
            return self._helper(from_plain(Jitted, inner))
        raise MalformedError(f"{str(data)[:100]!r} is no constant of a kernel")

    def _interpreted(self, jitted: Jitted) -> Any:
        import triton

        node, names = self._node(jitted)
        function = self._executed(node, dict(names))
        made = triton.jit(function)
        rewritten = self._parts.FunctionRewriter.ast_transformer.visit(copy.deepcopy(node))
        # The arguments of what a chain of comparisons becomes are among them.
        added = names_in(rewritten) - names_in(node)
        brought = {each: getattr(self._parts, each) for each in added if hasattr(self._parts, each)}
        made.rewriter.rewrite_ast = lambda: self._executed(rewritten, {**names, **brought})
        return made

    def _helper(self, jitted: Jitted) -> Any:
        """What Triton's compiler calls by itself, with plain values."""
        from triton.language.core import _unwrap_if_constexpr as plain

        node, names = self._node(jitted)
        function = self._executed(node, names)

        def call(*args: Any, _semantic: Any = None, **named: Any) -> Any:
            return function(*map(plain, args), **{name: plain(value) for name, value in named.items()})

        return call

    def _node(self, jitted: Jitted) -> tuple[ast.FunctionDef, dict[str, Any]]:
        """A function's tree as it can be executed, and what its names stand for."""
        node = self._functions.get((jitted.name, jitted.line))
        if node is None:
            raise MalformedError(f"the text has no function {jitted.name} in line {jitted.line}")
        wanted = names_in(node)
        names = {name: self._named(value) for name, value in jitted.values.items() if name in wanted}
        node = copy.deepcopy(node)
        node.decorator_list, node.returns = [], None
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            fixed = argument.annotation is not None and "constexpr" in ast.unparse(argument.annotation)
            argument.annotation = ast.Constant("tl.constexpr") if fixed else None
        refuse_host_code(node, names)
        return ast.fix_missing_locations(node), names

    def _named(self, data: Any) -> Any:
        """What a name of the file stands for. Raises: MalformedError."""
        if isinstance(data, dict) and list(data) == ["numbers"]:
            return _numbers(data["numbers"])
        return _found(data["path"]) if isinstance(data, dict) and list(data) == ["path"] else self.constant(data)

    def _executed(self, node: ast.FunctionDef, names: Mapping[str, Any]) -> types.FunctionType:
        tree = ast.fix_missing_locations(ast.Module([node], []))
        space = {"__builtins__": dict(_builtins()), "__name__": self._name, **names}
        exec(compile(tree, self._path, "exec", dont_inherit=True), space)
        made: types.FunctionType = space[node.name]
        return made


def _builtins() -> Mapping[str, Any]:
    """What a kernel may use of Python."""

    def has(owner: Any, name: str) -> bool:
        return hasattr(owner, attribute(owner, name))

    def get(owner: Any, name: str, *other: Any) -> Any:
        return getattr(owner, attribute(owner, name), *other)

    return {**{name: getattr(builtins, name) for name in _BUILTINS.split()}, "hasattr": has, "getattr": get}


def _numbers(data: Any) -> types.SimpleNamespace:
    """What stands for a module of which a kernel uses numbers alone. Raises: MalformedError."""
    if not isinstance(data, dict) or not all(type(value) in (int, float, bool) for value in data.values()):
        raise MalformedError(f"{str(data)[:100]!r} are no numbers of a module")
    return types.SimpleNamespace(**data)


def _is_type(value: Any, name: Any) -> bool:
    """Whether a value is Triton's type of that name. Raises: MalformedError where the search has come to its end."""
    import triton.language as tl

    if value is _NONE:
        raise MalformedError(f"{str(name)[:100]!r} is no type of Triton")
    return type(value) is tl.dtype and value.name == name


def _found(path: Any) -> Any:
    """What a dotted name stands for. Raises: MalformedError for what kernels may not use."""
    module, _, name = str(path).rpartition(".")
    if is_module(module) and not name.startswith("_"):
        found = getattr(importlib.import_module(module), name, _NONE)
        if found is not _NONE and not isinstance(found, types.ModuleType):
            return found
    if not is_module(str(path)):
        raise MalformedError(f"{str(path)[:100]!r} is nothing that a kernel may use")
    return importlib.import_module(str(path))
