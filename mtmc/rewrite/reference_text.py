"""reference_text: what a kernel version keeps of the reference's text, by its syntax tree."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Sequence
from functools import lru_cache

from mtmc.errors import CoderError
from mtmc.syntax import parse
from mtmc.task import DECLARATION

_GLUON = {
    "from triton.experimental import gluon",
    "from triton.experimental.gluon import language as gl",
    "from triton.experimental.gluon.language.nvidia import hopper",
    "from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as TileDescriptor",
}
_INPUT_FUNCTIONS = ("get_inputs", "get_init_inputs", "get_small_inputs", "get_small_init_inputs")


def _module(source: str) -> ast.Module:
    return parse(source)


def _model_class(source: str) -> ast.ClassDef:
    for node in _module(source).body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            return node
    raise CoderError("the reference has no class Model")


def _forward_of(model: ast.ClassDef) -> ast.FunctionDef:
    for node in model.body:
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            return node
    raise CoderError("class Model has no method forward")


@lru_cache(maxsize=64)
def forward_signature(source: str) -> tuple[str, tuple[str, ...]]:
    """forward's arguments as text without annotations, and their names without the first, which is called self.

    Raises: CoderError.
    """
    arguments = _forward_of(_model_class(source)).args
    first, *others = [*arguments.posonlyargs, *arguments.args, None]
    names = [item.arg for item in (*others, *arguments.kwonlyargs) if item is not None]
    if first is None or "self" in names:
        raise CoderError("forward names no first argument of its own, or another one self: call the first one self")
    first.arg = "self"
    for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        item.annotation = None  # annotations may name what the file no longer imports
    return ast.unparse(arguments), tuple(names)


def _span(node: ast.stmt) -> tuple[int, int]:
    """First and last line of a statement, decorators included."""
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *[decorator.lineno for decorator in decorators]])
    return first, node.end_lineno or node.lineno


def _is_input_part(node: ast.stmt) -> bool:
    """Whether a statement only serves to make inputs: an input function, or the declared shapes."""
    declares = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == DECLARATION
    return declares or (isinstance(node, ast.FunctionDef) and node.name in _INPUT_FUNCTIONS)


def dropped_lines(source: str) -> list[int]:
    """Numbers of the lines that only serve to make inputs."""
    dropped: list[int] = []
    for node in _module(source).body:
        if _is_input_part(node):
            first, last = _span(node)
            dropped += range(first, last + 1)
    return dropped


def kept_lines(source: str, drop_model: bool) -> list[str]:
    """The file's lines without the input functions.

    With `drop_model` also without Model, docstring, imports, and assignments of names that Model's other methods and the
    rest of the file do not use (the sizes that only the input functions needed).
    """
    gone = set(dropped_lines(source))
    if drop_model:
        body = [node for node in _module(source).body if not _is_input_part(node)]
        unused = _unused_assignments(body)
        for index, node in enumerate(body):
            is_doc = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            is_import = isinstance(node, (ast.Import, ast.ImportFrom))
            is_model = isinstance(node, ast.ClassDef) and node.name == "Model"
            if is_doc or is_import or is_model or node in unused:
                first, last = _span(node)
                gone |= set(range(first, last + 1))
    lines = [line.rstrip() for number, line in enumerate(source.splitlines(), 1) if number not in gone]
    return _squeezed(lines) if drop_model else lines


def _unused_assignments(body: list[ast.stmt]) -> list[ast.stmt]:
    """Module-level assignments to plain names that nothing kept refers to, directly or through other assignments."""
    assignments = [node for node in body if isinstance(node, (ast.Assign, ast.AnnAssign)) and _plain_targets(node)]
    needed: set[str] = set()
    for node in body:
        if node not in assignments:
            forward = _forward_of(node) if isinstance(node, ast.ClassDef) and node.name == "Model" else None
            parts = [part for part in ast.iter_child_nodes(node) if part is not forward]
            needed |= {name for part in parts for name in _names(part)}
    for node in reversed(assignments):
        if needed & set(_plain_targets(node)):
            needed |= set(_names(node))
    return [node for node in assignments if not needed & set(_plain_targets(node))]


def _names(node: ast.AST) -> list[str]:
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]


def _plain_targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    """Names that an assignment sets, [] where it sets anything else."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    flat = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return (
        [part.id for part in flat if isinstance(part, ast.Name)] if all(isinstance(p, ast.Name) for p in flat) else []
    )


def imports(source: str, kernels: Sequence[str] = ()) -> list[str]:
    """The reference's module-level imports and those that a version with these kernels needs, each once, sorted."""
    found = {"import torch"} | ({"import triton"} if kernels else set())
    if any("tl." in text for text in kernels):
        found.add("import triton.language as tl")
    if any("TensorDescriptor(" in text for text in kernels):
        found.add("from triton.tools.tensor_descriptor import TensorDescriptor")
    if any("@gluon.jit" in text for text in kernels):
        found |= _GLUON
    for node in _module(source).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found.add(ast.unparse(node))
    return sorted(found, key=lambda line: (not line.startswith("from __future__"), line.startswith("from"), line))


def _squeezed(lines: list[str]) -> list[str]:
    """Without leading and trailing blank lines and never more than two blank lines in a row."""
    result: list[str] = []
    for line in lines:
        if line or (result and result[-2:] != ["", ""]):
            result.append(line)
    while result and not result[-1]:
        result.pop()
    return result


def model_head(source: str) -> list[str]:
    """Class Model without its forward."""
    model = _model_class(source)
    first, last = _span(model)
    cut = range(_span(_forward_of(model))[0], _span(_forward_of(model))[1] + 1)
    lines = source.splitlines()
    kept = [lines[number - 1].rstrip() for number in range(first, last + 1) if number not in cut]
    return _squeezed(kept)


def renamed(text: str) -> str:
    """The text with the name Model replaced by ModelNew (names only, not strings or comments)."""
    lines = text.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for token in reversed(tokens):
        if token.type == tokenize.NAME and token.string == "Model":
            row, column = token.start
            line = lines[row - 1]
            lines[row - 1] = line[:column] + "ModelNew" + line[column + len("Model") :]
    return "".join(lines)
