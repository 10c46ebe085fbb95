"""The first gate: what a candidate's text says about it, before any of it runs.

Refuses outright what no kernel needs: processes, network, files, ctypes, frames, the garbage collector, threads,
`sys`, `os`, executing strings, patching torch or triton, and any import but

    torch, triton, math, typing, typing_extensions, __future__, functools, dataclasses, collections, itertools, enum,
    operator, abc, copy, warnings, numpy

(numpy for its constants and shape arithmetic: references of KernelBench use it; its file and ctypes doors are shut),
and whatever else the task's own reference imports, unless it is one of the doors above. Lines under
`if __name__ == "__main__":` are never run and not read.

This is advisory, not a wall: Python offers endless aliases (`getattr` with a computed name, attributes reached through
other modules), and no reading of text catches them all. The walls are the worker's limits and the gates that follow.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator, Sequence

from mtmc.evaluate.gates.diagnosis import diagnose
from mtmc.outcome import Diagnosis, Outcome
from mtmc.syntax import parse


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALLOWED_MODULES = _words(
    """
    torch triton math typing typing_extensions __future__ functools dataclasses collections itertools enum
    operator abc copy warnings numpy
    """
)
FORBIDDEN_MODULES = _words(
    """
    os sys subprocess socket ctypes cffi gc inspect threading _thread multiprocessing concurrent asyncio signal
    importlib imp builtins io pathlib shutil tempfile pickle marshal shelve pty fcntl mmap resource select ssl
    http urllib requests ftplib smtplib code codeop runpy pkgutil zipimport atexit faulthandler tracemalloc
    traceback linecache weakref site platform posix nt psutil glob fileinput dis types
    """
)
"""Never importable, whatever the reference imports."""
REACHED_MODULES = _words(
    """
    os sys subprocess socket ctypes gc inspect threading _thread multiprocessing importlib builtins io pathlib
    shutil tempfile pickle traceback linecache atexit cpp_extension ctypeslib
    """
)
"""Refused as a part of a dotted path that starts at an allowed module: torch itself imports os. (Some forbidden
modules share their name with honest functions, such as torch.select.)"""

FORBIDDEN_PATHS = {
    "torch.multiprocessing": "processes",
    "torch.distributed": "processes and network",
    "torch.hub": "the network",
    "torch.package": "files",
    "torch.load": "files",
    "torch.save": "files",
    "torch.from_file": "files",
    "torch.jit": "code that the evaluator does not see",
    "torch.ops.load_library": "binaries",
    "torch.classes": "binaries",
    "torch.utils.cpp_extension": "binaries",
    "torch.utils.model_zoo": "the network",
    "torch.utils.data": "processes",
    "torch._C": "torch's inside",
    "torch._inductor": "torch's inside",
    "torch._dynamo": "torch's inside",
    "torch.compile": "another compiler: a version must stand on torch and triton alone",
    "triton.compiler": "triton's inside",
    "triton.backends": "triton's inside",
    "triton.knobs": "triton's inside",
    "numpy.load": "files",
    "numpy.save": "files",
    "numpy.savez": "files",
    "numpy.memmap": "files",
    "numpy.fromfile": "files",
    "numpy.loadtxt": "files",
    "numpy.savetxt": "files",
    "numpy.genfromtxt": "files",
    "numpy.lib": "files",
    "numpy.f2py": "binaries",
}
FORBIDDEN_NAMES = _words(
    """
    exec eval compile __import__ open breakpoint globals __builtins__ __loader__ __spec__ load_inline
    """
)
FORBIDDEN_ATTRIBUTES = _words(
    """
    __globals__ __builtins__ __subclasses__ __bases__ __base__ __mro__ __code__ __closure__ __getattribute__
    __reduce__ __reduce_ex__ __import__ __loader__ __spec__ f_back f_globals f_locals f_builtins gi_frame
    cr_frame tb_frame tb_next __traceback__ tofile load_inline
    """
)
SOURCE_LIMIT = 1 << 20

_log = logging.getLogger(__name__)


def audit(source: str, reference: str = "") -> Outcome | None:
    """What the text alone rules out; None where it may go on to the build.

    reference: source of the task, whose own imports are allowed to the candidate too.
    Returns: an outcome "build_error" (does not parse, defines no ModelNew) or "rejected" (asks for what no kernel
    needs), with a diagnosis of stage "audit" and its line.
    """
    if len(source) > SOURCE_LIMIT:
        message = f"the file has {len(source)} characters; a kernel version may have {SOURCE_LIMIT}"
        return Outcome("rejected", diagnosis=Diagnosis("audit", "TooLong", message))
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        message = getattr(error, "msg", None) or str(error)
        return Outcome("build_error", diagnosis=diagnose("audit", type(error).__name__, message, source, line))
    if not _defines(tree, "ModelNew"):
        message = "the file defines no class ModelNew at its top level; add `class ModelNew(torch.nn.Module)`"
        return Outcome("build_error", diagnosis=Diagnosis("audit", "MissingModelNew", message))
    for line, what in _Refusals(ALLOWED_MODULES | _imported_roots(reference)).find(tree):
        message = f"{what}: no kernel needs it, so the version is refused without being run"
        return Outcome("rejected", diagnosis=diagnose("audit", "Forbidden", message, source, line))
    return None


def _defines(tree: ast.Module, name: str) -> bool:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return True
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return True
    return False


def _imported_roots(source: str) -> frozenset[str]:
    """First components of all modules that a source imports; of a source that does not parse, none."""
    try:
        tree = parse(source)
    except (SyntaxError, ValueError):
        return frozenset()
    roots = {path.split(".")[0] for node in ast.walk(tree) for path, _ in _imports(node)}
    return frozenset(roots - FORBIDDEN_MODULES)


def _imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    """(dotted path, local name) of what one statement imports."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, alias.asname or alias.name.split(".")[0]
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield f"{'.' * node.level}{node.module or ''}.{alias.name}", alias.asname or alias.name


class _Refusals:
    """Walks one tree and yields (line, what is refused), in the order of the text."""

    def __init__(self, allowed: frozenset[str]) -> None:
        self._allowed = allowed
        self._modules: dict[str, str] = {}  # local name -> dotted path it was imported from

    def find(self, tree: ast.Module) -> list[tuple[int, str]]:
        nodes = list(_executed(tree))
        # Imports first: they say which names are modules, wherever in the text they stand.
        found = [(getattr(node, "lineno", 1), what) for node in nodes for what in self._import(node)]
        found += [(getattr(node, "lineno", 1), what) for node in nodes if (what := self._use(node))]
        return sorted(found)

    def _import(self, node: ast.AST) -> Iterator[str]:
        for path, name in _imports(node):
            root = path.split(".")[0]
            if root in FORBIDDEN_MODULES or root not in self._allowed:
                yield f"import of {path.rstrip('.')}"
            elif reason := _refused_path(path):
                yield reason
            else:
                imported_whole = isinstance(node, ast.Import) and name == root
                self._modules[name] = root if imported_whole else path

    def _use(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Name):
            return f"use of {node.id}" if node.id in FORBIDDEN_NAMES else None
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
            return self._patching([node.target] if isinstance(node, ast.AugAssign) else node.targets)
        return None

    def _attribute(self, node: ast.Attribute) -> str | None:
        if node.attr in FORBIDDEN_ATTRIBUTES:
            return f"use of .{node.attr}"
        path = self._path(node)
        return _refused_path(path) if path else None

    def _call(self, node: ast.Call) -> str | None:
        """`getattr` and `setattr` by a name that stands in the text are read like the attribute itself."""
        if not isinstance(node.func, ast.Name) or node.func.id not in ("getattr", "setattr") or len(node.args) < 2:
            return None
        owner, name = node.args[0], node.args[1]
        if node.func.id == "setattr":
            return self._patching([ast.Attribute(owner, "", ast.Store())])
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            return self._attribute(ast.Attribute(owner, name.value, ast.Load()))
        return None

    def _patching(self, targets: Sequence[ast.expr]) -> str | None:
        for target in targets:
            path = self._path(target.value) if isinstance(target, ast.Attribute) else None
            if path and path.split(".")[0] in ("torch", "triton", "numpy", "math"):
                return f"assignment to an attribute of {path}"
        return None

    def _path(self, node: ast.expr) -> str | None:
        """Dotted path of an attribute chain that starts at an imported name, e.g. "torch.nn.functional"."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._modules:
            return None
        return ".".join([self._modules[node.id], *reversed(parts)])


def _refused_path(path: str) -> str | None:
    """Why a dotted path is refused: the path itself, or a forbidden module reached through another one."""
    for prefix, what in FORBIDDEN_PATHS.items():
        if path == prefix or path.startswith(prefix + "."):
            return f"use of {prefix} ({what})"
    for part in path.split(".")[1:]:
        if part in REACHED_MODULES:
            return f"use of {path} (reaches {part})"
    return None


def _executed(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes but those under `if __name__ == "__main__":`, which never run here."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and _is_main_guard(node.test):
            stack += node.orelse
            continue
        yield node
        stack += ast.iter_child_nodes(node)


def _is_main_guard(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Eq)
        and isinstance(test.comparators[0], ast.Constant)
        and test.comparators[0].value == "__main__"
    )
