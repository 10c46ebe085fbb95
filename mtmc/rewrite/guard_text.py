"""guard_text: a kernel version's text and its guards -> the text that is handed out.

Two functions are written before class ModelNew: `why_not` with a line a guard, and `admits`, which finds the tensors,
asks `why_not` about each form of them once, and looks at torch's modes at every call. forward begins with it.
"""

from __future__ import annotations

import ast
import re

from mtmc.errors import CoderError
from mtmc.rewrite.guard_functions import ADMITS, REFUSAL, Functions, Signature
from mtmc.rewrite.guards import Guards
from mtmc.syntax import parse

_STEP = "    "


def guarded(source: str, guards: Guards) -> str:
    """The text of a version, with its guards and with what it holds for in its docstring.

    The version keeps the module's tensors under the attribute paths that the reference has; of one that may not, give
    `guards.of_inputs()`.
    Raises: CoderError where the text has no class ModelNew with a forward.
    """
    tree = parse(source)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if "ModelNew" not in classes:
        raise CoderError("the version has no class ModelNew, so nothing can be said of what it holds for")
    model = classes["ModelNew"]
    own = _forward(model)
    signature = _signature(own or _inherited(model, classes))
    words = set(re.findall(r"\w+", source))
    functions = Functions(guards, signature, words)
    lines = source.splitlines()
    if own is not None:
        _insert(lines, own, functions.check(signature.self_name))
    else:
        at = model.end_lineno or model.lineno
        lines[at:at] = ["", *(_STEP + line for line in functions.wrapper())]
    first = min([model.lineno, *[decorator.lineno for decorator in model.decorator_list]]) - 1
    lines[first:first] = [*functions.lines(), "", ""]
    _document(lines, tree, guards)
    return "\n".join(lines).rstrip() + "\n"


def is_guarded(source: str) -> bool:
    """Whether a text is one that `guarded` wrote."""
    return REFUSAL in source


def check_name(source: str) -> str:
    """What the function `admits` is called in a text of `guarded`: underscores follow where a version has the name."""
    names = [node.name for node in parse(source).body if isinstance(node, ast.FunctionDef)]
    return max((name for name in names if name.rstrip("_") == ADMITS), key=len)


def _forward(model: ast.ClassDef) -> ast.FunctionDef | None:
    return next((n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)


def _inherited(model: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> ast.FunctionDef:
    """The forward of a base in the same file. Raises: CoderError where there is none."""
    for base in model.bases:
        around = classes.get(base.id) if isinstance(base, ast.Name) else None
        found = around and (_forward(around) or _inherited(around, classes))
        if found:
            return found
    raise CoderError("ModelNew has no forward of its own, and none of a class in its file")


def _signature(forward: ast.FunctionDef) -> Signature:
    """forward's arguments without annotations, which may name what stands further down."""
    arguments = ast.parse(ast.unparse(forward)).body[0].args  # type: ignore[attr-defined]
    positional = [*arguments.posonlyargs, *arguments.args]
    for item in (*positional, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if item is not None:
            item.annotation = None
    defaults = [None] * (len(positional) - len(arguments.defaults)) + [ast.unparse(each) for each in arguments.defaults]
    defaults += [None if each is None else ast.unparse(each) for each in arguments.kw_defaults]
    names = [item.arg for item in (*positional, *arguments.kwonlyargs)]
    passed = [item.arg for item in positional[1:]]
    passed += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    passed += [f"{item.arg}={item.arg}" for item in arguments.kwonlyargs]
    passed += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    first = positional[0].arg
    text = ast.unparse(arguments).partition(first)[2].removeprefix(", ")
    return Signature(
        self_name=first,
        names=tuple(names[1:]),
        defaults=tuple(defaults[1:]),
        several=arguments.vararg.arg if arguments.vararg else None,
        positional=len(positional) - 1,
        text=text,
        passed=", ".join(passed),
    )


def _insert(lines: list[str], forward: ast.FunctionDef, check: list[str]) -> None:
    """Write the check before the first statement of forward that is no docstring."""
    body = forward.body
    documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1
    first = body[1 if documented else 0]
    at = first.lineno - 1
    before = lines[at].encode()[: first.col_offset].decode()
    if before.strip():  # forward and its body in one line
        indent = re.match(r"\s*", lines[forward.lineno - 1])[0] + _STEP  # type: ignore[index]
        lines[at : at + 1] = [before.rstrip().rstrip(";"), indent + lines[at].encode()[first.col_offset :].decode()]
        at, before = at + 1, indent
    decorators = getattr(first, "decorator_list", [])
    at = min([at, *[decorator.lineno - 1 for decorator in decorators]])
    lines[at:at] = [before + line for line in check]


def _document(lines: list[str], tree: ast.Module, guards: Guards) -> None:
    """Say in the file's docstring what it holds for."""
    said = [
        "Holds for the following alone; forward raises ValueError else.",
        *(f"- {each}" for each in guards.sentences()),
    ]
    first = tree.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        text = [*first.value.value.rstrip().splitlines(), "", *said, ""]
        start, stop = first.lineno - 1, first.end_lineno or first.lineno
    else:
        text, start, stop = [*said, ""], 0, 0
        while start < len(lines) and lines[start].startswith("#"):
            start = stop = start + 1
    written = '"""' + "\n".join(text).replace("\\", "\\\\").replace('"""', '\\"""') + '"""'
    lines[start:stop] = [*written.splitlines(), *([""] if stop == start else [])]
