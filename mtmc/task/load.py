"""Task: a reference in KernelBench's format (`Model`, `get_inputs()`, `get_init_inputs()`), at several sets of shapes.

A task comes from a built-in name, a path, a source string (`load_task`) or a live module (`task_from_module`). The file
is read by its syntax tree first, and a user's file is then run in a child process (`mtmc.task.first_run`). The shapes
besides the full ones are what the file declares (see `mtmc.builtin_tasks`) or, for what it leaves out, what
`mtmc.task.shapes` derives from trial runs.
"""

from __future__ import annotations

import ast
import difflib
import functools
import hashlib
import re
import tokenize
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.errors import TaskError
from mtmc.syntax import parse
from mtmc.task.base import DECLARATION, Task, Variant, under_cuda_graph
from mtmc.task.bundling import bundle
from mtmc.task.constants import integer_constants
from mtmc.task.tolerance import Declared, declaration, declared

if TYPE_CHECKING:
    import torch

    from mtmc.task.capture import Capture, KnownShapes

BUILTIN_FOLDER = Path(__file__).parents[1] / "builtin_tasks"

_LABEL = re.compile(r"small|odd[1-9][0-9]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
LIBRARY = "Library"
"""The class by which a file says how a known library does what its `Model` does, see `Task.library`."""
_REQUIRED = {"get_inputs": "return the list of forward's arguments", "get_init_inputs": "return [] if it has none"}
_FORMAT = "a task defines `class Model(nn.Module)`, `get_inputs()` and `get_init_inputs()`"


def builtin_names() -> list[str]:
    """Names of the built-in tasks, sorted."""
    return sorted(path.stem for path in BUILTIN_FOLDER.glob("*.py") if not path.stem.startswith("_"))


def load_task(what: Task | str | Path) -> Task:
    """The task that `what` names.

    what: a Task (returned as it is), a built-in name ("softmax"), the path of a file (a Path, or a string that ends in
        ".py" or has a "/"), or a file's whole text (a string with a line break). A built-in task needs no torch to
        load; any other file is run in a child process, at its full shapes without data and on the CPU at small ones, which
        takes up to a few seconds.
    Raises: TaskError if there is no such task, or its file is not one, with what is wrong (`mtmc.task.first_run`).
    """
    if isinstance(what, Task):
        return what
    if isinstance(what, Path):
        return _task_from_path(what)
    if "\n" in what:
        digest = hashlib.sha256(what.encode()).hexdigest()
        return task_from_source(what, f"source-{digest[:8]}")
    if what in builtin_names():
        path = BUILTIN_FOLDER / f"{what}.py"
        return _task(path.read_text(encoding="utf-8"), what, trusted=True)
    if what.endswith(".py") or "/" in what:
        return _task_from_path(Path(what))
    near = difflib.get_close_matches(what, builtin_names(), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise TaskError(
        f"there is no task {what!r}: {hint}give the path of a .py file or one of {', '.join(builtin_names())}"
    )


def task_from_source(source: str, name: str, trusted: bool = False) -> Task:
    """A task from a file's text in KernelBench's format. name: usable as a folder's name. trusted: the shapes that it
    declares are known to work, so nothing is run.

    Raises: TaskError if the name or the text cannot be used, or no small shapes can be found.
    """
    _check_name(name)
    return _task(source.replace("\r\n", "\n").replace("\r", "\n"), name, trusted)


def task_from_module(
    module: torch.nn.Module,
    example_inputs: Sequence[Any] | torch.Tensor,
    example_kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
    tolerance: Declared = None,
) -> Task:
    """A task from a live module: its graph printed as a file, its weights in `Task.state`. See `capture_module`."""
    return capture_module(module, example_inputs, example_kwargs, name, tolerance=tolerance).task


def capture_module(
    module: torch.nn.Module,
    example_inputs: Sequence[Any] | torch.Tensor,
    example_kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
    known: KnownShapes | None = None,
    tolerance: Declared = None,
) -> Capture:
    """A live module and one call of it as a task, and where the task's tensors are in the module. See `mtmc.task.live`.

    example_inputs: the positional arguments of one call (or the only one, a tensor). example_kwargs: its keyword
    arguments. Sizes of 1 in them are fixed; the others are varied where the module allows it. name: by default the name
    of the module's class. known: asked once the module is printed; where it gives small and odd shapes, none are derived,
    and what is printed is not compared with the module. tolerance: how far outputs may be from the module's, as a file would
    declare it (`mtmc.task.tolerance`): {"atol": 1e-3, "rtol": 1e-2}, {"steps": 1} or "kernelbench".
    Raises: TaskError if the module cannot be exported or printed, naming the op and the line where they are known, or if the
        tolerance is none.
    """
    from mtmc.task.live import build_capture

    if name is not None:
        _check_name(name)
    line = declaration(tolerance)
    return build_capture(module, example_inputs, example_kwargs or {}, name, known, line)


def check_source(source: str, name: str) -> ast.Module:
    """The syntax tree of a task's file, found to be one without running it.

    Raises: TaskError if it is not Python, or lacks `Model`, `get_inputs` or `get_init_inputs`.
    """
    try:
        tree = parse(source)
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        raise TaskError(f"task {name}: {where}{error.msg}: fix the syntax there") from error
    except ValueError as error:
        raise TaskError(f"task {name}: {error}: give the text of a Python file") from error
    if "Model" not in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}:
        raise TaskError(f"task {name} defines no class `Model`: {_FORMAT}")
    functions = _functions(tree)
    for required, fix in _REQUIRED.items():
        if required not in functions:
            raise TaskError(f"task {name} defines no function `{required}()`: add it and {fix}; {_FORMAT}")
    return tree


def declared_variants(tree: ast.Module, name: str) -> dict[str, Variant]:
    """The shapes that a task's file declares, by label: VARIANTS, and "small" from `get_small_inputs()`.

    Raises: TaskError if VARIANTS is not {"small" or "oddN": {name of a module-level integer: positive integer}}.
    """
    variants = {}
    for label, constants in _declaration(tree, name).items():
        if not isinstance(label, str) or not _LABEL.fullmatch(label):
            raise TaskError(f"task {name}: {DECLARATION} has the label {label!r}: use 'small', 'odd1', 'odd2', ...")
        variants[label] = Variant(label, _constants(constants, tree, f"task {name}: {DECLARATION}[{label!r}]"))
    functions = _functions(tree)
    if "get_small_inputs" in functions:
        if "small" in variants:
            raise TaskError(f"task {name} has both get_small_inputs() and {DECLARATION}['small']: remove one of them")
        init = "get_small_init_inputs" if "get_small_init_inputs" in functions else "get_init_inputs"
        variants["small"] = Variant("small", inputs="get_small_inputs", init_inputs=init)
    return variants


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise TaskError(f"the task name {name!r} cannot name a folder: use letters, digits, '.', '_' and '-'")


def _task_from_path(path: Path) -> Task:
    try:
        if not path.exists():
            raise TaskError(f"there is no file {str(path)!r}: give the path of a task's .py file or a built-in name")
        if not path.is_file():
            raise TaskError(f"{str(path)!r} is not a file: give the path of a task's .py file")
        with tokenize.open(path) as file:
            source = file.read()
    except (OSError, SyntaxError, ValueError) as error:
        raise TaskError(f"{str(path)!r} cannot be read ({error}): give the path of a Python file") from error
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", path.stem).lstrip("._-")
    name = name or "task"
    return task_from_source(bundle(source.replace("\r\n", "\n").replace("\r", "\n"), path, name), name)


@functools.lru_cache(maxsize=256)
def _task(source: str, name: str, trusted: bool) -> Task:
    """The task of a checked text. trusted: its declared shapes are known to work (built-in), so nothing is run."""
    tree = check_source(source, name)
    source, library = without_library(source, tree)
    if library:
        tree = check_source(source, name)
    under_cuda_graph(source, name)
    declared(source, name)
    variants = declared_variants(tree, name)
    small = variants.pop("small", None)
    held_out = tuple(variants[label] for label in sorted(variants, key=lambda label: int(label.removeprefix("odd"))))
    if not trusted:
        from mtmc.task.first_run import tried

        small, held_out = tried(source, name, lambda: _derived(source, name, small, held_out))
    if small is None:
        raise TaskError(f"task {name} declares no small shapes: add them to {DECLARATION}")
    return Task(name, source, Variant("full"), small, held_out, library=library)


def without_library(source: str, tree: ast.Module) -> tuple[str, str]:
    """A file without its class `Library`, and that class; "" where it has none."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == LIBRARY]
    found = next((each for each in classes if [ast.unparse(base) for base in each.bases] == ["Model"]), None)
    if found is None:  # another class of that name is the file's own affair
        return source, ""
    lines = source.split("\n")
    first = min([found.lineno, *(each.lineno for each in found.decorator_list)]) - 1
    end = found.end_lineno or found.lineno
    before, after = "\n".join(lines[:first]).rstrip("\n"), "\n".join(lines[end:]).lstrip("\n")
    return f"{before}\n\n\n{after}", "\n".join(lines[first:end]) + "\n"


def _derived(
    source: str, name: str, small: Variant | None, held_out: tuple[Variant, ...]
) -> tuple[Variant, tuple[Variant, ...]]:
    """The shapes of a user's file: those that it declares, run once, and derived ones for what it leaves out."""
    from mtmc.task import shapes

    for variant in (small, *held_out) if small else held_out:
        shapes.check_runs(source, variant, name)
    small = small or shapes.derive_small(source, name)
    return small, held_out or shapes.derive_held_out(source, small, name)


def _functions(tree: ast.Module) -> set[str]:
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def _declaration(tree: ast.Module, name: str) -> dict[Any, Any]:
    """The value of VARIANTS, {} where the file has none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == DECLARATION for t in node.targets):
            try:
                value = ast.literal_eval(node.value)
            except ValueError as error:
                where = f"task {name}: line {node.lineno}"
                raise TaskError(f"{where}: {DECLARATION} must be a literal: write the integers out") from error
            if not isinstance(value, dict):
                raise TaskError(f"task {name}: line {node.lineno}: {DECLARATION} must be a dict, not {value!r}")
            return value
    return {}


def _constants(values: object, tree: ast.Module, where: str) -> tuple[tuple[str, int], ...]:
    """Checked (name, value) pairs of one declared set of shapes."""
    if not isinstance(values, dict):
        raise TaskError(f"{where} must be a dict of integers, not {values!r}")
    known = integer_constants(tree)
    for constant, value in values.items():
        if constant not in known:
            raise TaskError(f"{where} sets {constant!r}, which is no module-level integer: use {', '.join(known)}")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise TaskError(f"{where} sets {constant} to {value!r}: use a positive integer")
    return tuple(values.items())
