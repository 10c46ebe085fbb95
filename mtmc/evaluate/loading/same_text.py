"""What Triton compiles and interprets is the function that was audited and executed.

Triton takes a kernel's text from its file by line numbers, indentation and a search for `def`, its interpreter by another
search. Here both are held to the syntax tree of the text that was executed, for every function of a file that
`load_module` has executed. Runs in worker processes only.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mtmc.errors import MtmcError
from mtmc.syntax import KEPT_TEXTS, tree_of

_executed: dict[str, str] = {}
"""By path of a file: its text. It is parsed where something is held to it: most files have no kernels."""


class OtherText(MtmcError):
    """A kernel whose text, as Triton reads it, is not the function that stands in the file."""


def remember(path: Path, text: str) -> None:
    """Let `inspect` and Triton read a file's text from here, whatever becomes of the file, and be held to it."""
    linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
    hold(path, text)


def hold(path: Path, text: str) -> None:
    """Hold whatever Triton reads from the file to a text, which is executed there."""
    _executed[str(path)] = text
    if "triton" in text:
        _watch()


def function_of(code: types.CodeType) -> ast.FunctionDef | None:
    """The function of a remembered file that a code object was made of; None for one of no such file."""
    text = _executed.get(code.co_filename)
    return None if text is None else _functions_of(text).get((code.co_name, code.co_firstlineno))


@functools.lru_cache(maxsize=KEPT_TEXTS)
def _functions_of(text: str) -> dict[tuple[str, int], ast.FunctionDef]:
    """Of a text that is executed; they stay as they are."""
    return functions_in(tree_of(text))


def functions_in(tree: ast.Module) -> dict[tuple[str, int], ast.FunctionDef]:
    """The functions of a file, wherever they stand, by name and first line, as code objects have them."""
    found: dict[tuple[str, int], ast.FunctionDef] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found[node.name, first] = node
    return found


@functools.cache
def _watch() -> None:
    """Compare from now on whatever Triton reads in this process, once."""
    from triton.runtime.jit import JITCallable

    original = JITCallable.__init__

    @functools.wraps(original)
    def made(self: Any, fn: Any, *rest: Any, **named: Any) -> None:
        original(self, fn, *rest, **named)
        _compare(fn, self.src)

    @functools.wraps(JITCallable.parse)
    def parsed(self: Any, parse: Callable[[Any], Any] = JITCallable.parse) -> Any:
        _compare(self.fn, self.src)  # once more where it is compiled: what a kernel keeps can be changed by then
        return parse(self)

    JITCallable.__init__, JITCallable.parse = made, parsed
    if os.environ.get("TRITON_INTERPRET") == "1" or "triton.runtime.interpreter" in sys.modules:
        from triton.runtime.interpreter import FunctionRewriter

        FunctionRewriter._transform_ast = _comparing(FunctionRewriter._transform_ast)


def _comparing(original: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    @functools.wraps(original)
    def _transform_ast(self: Any, src: str) -> Any:
        _compare(self.fn, src)
        return original(self, src)

    return _transform_ast


def _compare(function: Any, text: str) -> None:
    """Raises: OtherText if a text is not that of a function of a remembered file."""
    if not isinstance(function, types.FunctionType):
        raise OtherText(f"{function!r} is made a kernel, and is no function; write `@triton.jit` over a function")
    code = function.__code__
    if code.co_filename not in _executed:  # Triton's own
        return
    node = function_of(code)
    found = ast.parse(text).body
    if node is None or len(found) != 1 or _shape(found[0]) != _shape_of_held(node):
        raise OtherText(
            f"the text that Triton takes for the kernel {code.co_name} is not the function in line {code.co_firstlineno}; "
            "write it as a plain function with its decorators over it, and no line of a string that begins with `def`"
        )


@functools.lru_cache(maxsize=512)
def _shape_of_held(node: ast.FunctionDef) -> str:
    return _shape(node)


def _shape(node: ast.AST) -> str:
    """A function as text without its decorators; what indentation a string of it has, which Triton changes, aside."""
    if not isinstance(node, ast.FunctionDef):
        return ast.dump(node)
    plain = ast.FunctionDef(**{name: getattr(node, name) for name in node._fields if name != "decorator_list"})
    plain.decorator_list = []
    return re.sub(r"\\n[ ]*(\\t)*[ ]*", r"\\n", ast.dump(plain))
