"""dtypes: the same task in another floating type, said in the task's own text.

As KernelBench does it: parameters and buffers are drawn in float32 and rounded once the model is made, and so is every
floating tensor among the inputs. It stands in the text (at the end of `__init__`, in the `return` of the input functions),
so that evaluators, coders and baselines need to know nothing of it, and a version keeps it with the rest of `__init__`.
"""

from __future__ import annotations

import ast

from mtmc.errors import ConfigError, TaskError
from mtmc.syntax import parse

DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""Name of a precision level -> torch's name of the type."""
AS_IS = "fp32"
"""The level at which a text stays as it is."""
_INPUT_FUNCTIONS = ("get_inputs", "get_small_inputs")


def in_dtype(source: str, dtype: str, class_name: str = "Model") -> str:
    """A task's text (or a candidate's, with `class_name` "ModelNew") whose model and floating inputs are in `dtype`.

    dtype: a key of `DTYPES`; "fp32" gives the text as it is. A class without `__init__` has nothing to convert; tensors
    that a model keeps as plain attributes stay as they are, as in KernelBench.

    Raises: ConfigError for a dtype that is none of them; TaskError where the text cannot be changed.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"dtype cannot be {dtype!r}: use one of {', '.join(DTYPES)}")
    if dtype == AS_IS:
        return source
    try:
        tree = parse(source)
    except (SyntaxError, ValueError) as error:
        raise TaskError(f"the text cannot be put into {dtype}: it is no Python ({error})") from error
    changes = [*_in_constructor(tree, class_name, DTYPES[dtype]), *_in_returns(tree, DTYPES[dtype])]
    text = source.encode()
    starts = [0]
    for line in text.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    for row, column, insertion in sorted(changes, reverse=True):
        at = starts[row - 1] + column
        text = text[:at] + insertion.encode() + text[at:]
    return _with_torch(text.decode(), tree)


_Change = tuple[int, int, str]
"""Line (from 1), byte in it, and what is put there."""


def _in_constructor(tree: ast.Module, class_name: str, dtype: str) -> list[_Change]:
    """A loop after the last statement of `__init__` that rounds parameters and buffers."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            made = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
            if not made:
                return []
            last = made[-1].body[-1]
            if last.lineno == made[-1].lineno:
                raise TaskError(f"{class_name}.__init__ stands on one line: write its body on lines of its own")
            indent = " " * made[-1].body[0].col_offset
            lines = (
                "for tensor in (*self.parameters(), *self.buffers()):",
                "    if tensor.is_floating_point():",
                f"        tensor.data = tensor.data.to(torch.{dtype})",
            )
            assert last.end_lineno is not None and last.end_col_offset is not None
            return [(last.end_lineno, last.end_col_offset, "".join(f"\n{indent}{line}" for line in lines))]
    return []


def _in_returns(tree: ast.Module, dtype: str) -> list[_Change]:
    """Around the value of each `return` of the input functions: a list in which floating tensors are rounded."""
    changes: list[_Change] = []
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or node.name not in _INPUT_FUNCTIONS:
            continue
        for value in (each.value for each in _returns(node) if each.value is not None):
            assert value.end_lineno is not None and value.end_col_offset is not None
            left, right = ("", "") if isinstance(value, ast.List | ast.Name | ast.Call) else ("(", ")")
            rounded = f"each.to(torch.{dtype}) if torch.is_tensor(each) and each.is_floating_point() else each"
            changes.append((value.lineno, value.col_offset, f"[{rounded} for each in {left}"))
            changes.append((value.end_lineno, value.end_col_offset, f"{right}]"))
    return changes


def _returns(function: ast.FunctionDef) -> list[ast.Return]:
    """The `return` statements of a function, without those of functions inside of it."""
    found: list[ast.Return] = []
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return):
            found.append(node)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
    return found


def _with_torch(text: str, tree: ast.Module) -> str:
    """The text with `import torch`, if it has none, before its first import (a task has one)."""
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    plain = [alias for node in imports if isinstance(node, ast.Import) for alias in node.names]
    if any(alias.name == "torch" and not alias.asname for alias in plain):
        return text
    lines = text.splitlines(keepends=True)
    after = [node for node in imports if not (isinstance(node, ast.ImportFrom) and node.module == "__future__")]
    at = after[0].lineno - 1 if after else 0
    return "".join([*lines[:at], "import torch\n", *lines[at:]])
