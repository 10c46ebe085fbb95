"""Loops of interpreted kernels: their variables are numbers that can be cast, as they can where a kernel is compiled.

To Triton's compiler the variable of a loop is a tensor, and `tile.to(tl.int64)` keeps an offset from overflowing. Its
interpreter goes through Python's numbers, which have no such method. And the rounds are counted: how far a loop has come
stands in none of a program's variables.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterable, Iterator
from typing import Any

NAME = "_InterpreterLoop"
"""What stands around a loop's range in a rewritten kernel; no version may use the name."""


_rounds = threading.local()


class Number(int):
    """A number that a loop goes through."""

    def to(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        """See `tl.tensor.to`."""
        from triton.runtime import interpreter

        return interpreter.interpreter_semantic.to_tensor(int(self)).to(dtype, *args, **kwargs)


def numbers(values: Iterable[Any]) -> Iterator[Any]:
    """The values of a loop, numbers among them as `Number`."""
    for value in values:
        _rounds.made = steps() + 1
        yield Number(value) if type(value) is int else value


def steps() -> int:
    """Rounds of all loops that this thread's programs have made."""
    return int(getattr(_rounds, "made", 0))


def cast_loop_variables(interpreter: Any) -> None:
    """Let every loop of a kernel that is rewritten from now on go through `numbers`."""

    class Transformer(interpreter.ASTTransformer):
        def visit_For(self, node: ast.For) -> ast.AST:  # noqa: N802
            self.generic_visit(node)
            node.iter = ast.copy_location(ast.Call(ast.Name(NAME, ast.Load()), [node.iter], []), node.iter)
            return ast.fix_missing_locations(node)

        def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
            self.generic_visit(node)
            node.iter = ast.copy_location(ast.Call(ast.Name(NAME, ast.Load()), [node.iter], []), node.iter)
            return ast.fix_missing_locations(node)

    setattr(interpreter, NAME, numbers)
    interpreter.FunctionRewriter.ast_transformer = Transformer()
