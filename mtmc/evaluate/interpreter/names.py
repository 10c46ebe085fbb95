"""A kernel's module keeps its own names when the kernel is interpreted.

Triton's interpreter rewrites a kernel and adds all names of its own module to those of the kernel's file, where they do not
exist yet: a file that lacks an import would find it there once a kernel has run, and `inspect` besides.
"""

from __future__ import annotations

import ast
import functools
import types
from typing import Any


def keep_names_out(interpreter: types.ModuleType) -> None:
    """Let a rewritten kernel's file get those names only that the rewriting itself brought into its text."""
    rewriter = interpreter.FunctionRewriter
    original = rewriter._compile_and_exec

    @functools.wraps(original)
    def _compile_and_exec(self: Any, tree: ast.AST) -> Any:
        names = self.fn.__globals__
        before = set(names)
        brought = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - _named(self.fn.__code__)
        rewritten = original(self, tree)
        for name in set(names) - before - brought:
            del names[name]
        return rewritten

    rewriter._compile_and_exec = _compile_and_exec


def _named(code: types.CodeType) -> set[str]:
    """All names in a function as it was written."""
    found = {*code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _named(constant)
    return found
