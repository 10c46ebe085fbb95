"""The first gate: what a candidate's text says about it, before any of it runs.

Refuses outright what no kernel needs: processes, network, files, ctypes, frames, the garbage collector, threads,
`sys`, `os`, executing strings, attributes by names made at run time, patching torch or triton, and any import but

    torch, triton, math, typing, typing_extensions, __future__, functools, dataclasses, collections, itertools, enum,
    operator, abc, copy, warnings, numpy

(numpy for its constants and shape arithmetic: references of KernelBench use it; its file and ctypes doors are shut),
and whatever else the task's own reference imports, unless it is one of the doors above; and `RawKernel` of `mtmc.cuda`, for
kernels in CUDA C++, whose texts are read by `.cuda_text`. Of Gluon there is a list of names (`.gluon_names`, `.gluon_text`).

What is read is `mtmc.syntax.canonical_text`, all of it, and that is what runs. A text that others would read in another
way, and names that the file does not define, are refused too (`.reading`).

A value has no track in a text, so modules and the classes that others use too are refused where they become values
(in containers, as arguments, under two names). What comes out of a value must not be used like a module all the same:
no attribute with a module's name, no private one, no assignment to an attribute but of the file's own objects and a few
that layers have. What is refused is listed in `mtmc.evaluate.audit.denylist`, the exceptions in `.allowlist`, and `.rules`
reads these lists; `.tracking` knows what a file's names stand for, `.places` where in it a class is only looked at,
`.kernels` what kernels must not ask.

This is advisory, not a wall: Python offers endless aliases, and no reading of text catches them all. The walls are the
worker's limits and the gates that follow.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator

from mtmc.evaluate.audit.allowlist import (
    ALLOWED_DUNDERS,
    ALLOWED_MODULES,
    ALLOWED_PRIVATE,
    INHERITED,
    WRITABLE,
)
from mtmc.evaluate.audit.cuda_text import PATH as CUDA_KERNEL
from mtmc.evaluate.audit.cuda_text import cuda_texts
from mtmc.evaluate.audit.denylist import (
    BY_NAME,
    FORBIDDEN_BUILTINS,
    FORBIDDEN_MODULES,
    FORBIDDEN_NAMES,
    FOREIGN,
    OF_KERNELS,
)
from mtmc.evaluate.audit.diagnosis import diagnose
from mtmc.evaluate.audit.gluon_text import refusals as gluon_refusals
from mtmc.evaluate.audit.kernels import questions
from mtmc.evaluate.audit.places import Places
from mtmc.evaluate.audit.reading import STARRED, doubtful_beginnings, undefined
from mtmc.evaluate.audit.rules import (
    is_module,
    is_patchable,
    leads_on,
    may_bind,
    may_define,
    may_derive,
    may_name_forbidden,
    refused_attribute,
    refused_format,
    refused_path,
    refused_text,
)
from mtmc.evaluate.audit.tracking import Tracking, executed, imports
from mtmc.outcome import Diagnosis, Outcome
from mtmc.syntax import canonical_text, tree_of

SOURCE_LIMIT = 1 << 20

_log = logging.getLogger(__name__)


def audit(source: str, reference: str = "") -> Outcome | None:
    """What the text alone rules out; None where it may go on to the build.

    reference: source of the task, whose own imports, and names that it lacks, are allowed to the candidate too.
    Returns: an outcome "build_error" (does not parse, defines no ModelNew, uses a name that it does not have) or
    "rejected" (asks for what no kernel needs), with a diagnosis of stage "audit" and its line.
    """
    if len(source) > SOURCE_LIMIT:
        message = f"the file has {len(source)} characters; a kernel version may have {SOURCE_LIMIT}"
        return Outcome("rejected", diagnosis=Diagnosis("audit", "TooLong", message))
    try:
        text = canonical_text(source)
        tree = tree_of(text)
        missing = undefined(text, tree)
        lacking = _lacking(reference) if missing else frozenset()
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        message = getattr(error, "msg", None) or str(error)
        return Outcome("build_error", diagnosis=diagnose("audit", type(error).__name__, message, source, line))
    if not _defines(tree, "ModelNew"):
        message = "the file defines no class ModelNew at its top level; add `class ModelNew(torch.nn.Module)`"
        return Outcome("build_error", diagnosis=Diagnosis("audit", "MissingModelNew", message))
    refused = _Refusals(ALLOWED_MODULES | _imported_roots(reference)).find(tree)
    for line, what in sorted([*refused, *doubtful_beginnings(text, tree), *cuda_texts(tree, text)[1]]):
        message = f"{what}: no kernel needs it, so the version is refused without being run"
        return Outcome("rejected", diagnosis=diagnose("audit", "Forbidden", message, source, line))
    for line, name in missing:
        if name in lacking:
            continue
        message = f"name {name!r} is not defined in the file: import it or define it"
        return Outcome("build_error", diagnosis=diagnose("audit", "NameError", message, source, line))
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
        tree = tree_of(source)
    except (SyntaxError, ValueError):
        return frozenset()
    roots = {path.split(".")[0] for node in ast.walk(tree) for path, _ in imports(node)}
    return frozenset(roots - FORBIDDEN_MODULES)


def _lacking(source: str) -> frozenset[str]:
    """Names that the task's own file does without, in parts that nobody calls: its copies may do so too."""
    try:
        return frozenset(name for _, name in undefined(source, tree_of(source)))
    except (SyntaxError, ValueError):
        return frozenset()


class _Refusals:
    """Walks one tree and yields (line, what is refused), in the order of the text."""

    def __init__(self, allowed: frozenset[str]) -> None:
        self._allowed = allowed
        self._modules: set[str] = set()  # local names of modules

    def find(self, tree: ast.Module) -> list[tuple[int, str]]:
        nodes = list(executed(tree))
        # Imports first: they say which names are modules, wherever in the text they stand.
        paths: dict[str, str] = {}
        found = [(getattr(node, "lineno", 1), what) for node, _ in nodes for what in self._import(node, paths)]
        self._names = Tracking([node for node, _ in nodes], paths)
        self._places = Places([node for node, _ in nodes], self._names)
        found += [(getattr(node, "lineno", 1), what) for node, own in nodes if (what := self._use(node, own))]
        return sorted([*found, *questions(tree, self._names), *gluon_refusals(tree, self._names)])

    def _import(self, node: ast.AST, paths: dict[str, str]) -> Iterator[str]:
        for path, name in imports(node):
            root = path.split(".")[0]
            if path == CUDA_KERNEL and isinstance(node, ast.ImportFrom) and name == path.rpartition(".")[2]:
                continue  # how it may be used is read by `cuda_texts`
            if root in FORBIDDEN_MODULES or root not in self._allowed:
                yield f"import of {path.rstrip('.')}"
            elif name == "*" and path not in [f"{module}.*" for module in STARRED]:
                yield f"import of {path} (names that the text does not show)"
            elif not may_bind(name):
                yield f"another meaning of {name}"
            elif not leads_on(path) and (reason := refused_path(path)):
                yield reason
            else:
                whole = isinstance(node, ast.Import)
                paths[name] = root if whole and name == root else path
                if whole or is_module(path):
                    self._modules.add(name)

    def _use(self, node: ast.AST, own: frozenset[str]) -> str | None:
        """Why a node is refused. own: names that the functions around it bind."""
        if isinstance(node, ast.Name):
            return self._name(node, own)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Call):
            return self._call(node, own)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return refused_text(node.value)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not may_define(node.name):
            return f"definition of {node.name}"
        if isinstance(node, ast.FunctionDef) and node.name == "__reduce__" and not self._names.makes_anew(node):
            return "definition of __reduce__ other than as `return Class, ()`"
        if isinstance(node, ast.arg) and not may_bind(node.arg):
            return f"another meaning of {node.arg}"
        if isinstance(node, ast.ClassDef):
            paths = [self._names.path(base) for base in node.bases]
            return next((f"a subclass of {path}" for path in paths if path and not may_derive(path)), None)
        if isinstance(node, ast.MatchClass) and (node.patterns or node.kwd_patterns):
            return "a class pattern with attributes"
        return None

    def _name(self, node: ast.Name, own: frozenset[str]) -> str | None:
        if node.id in FORBIDDEN_NAMES or (node.id in FORBIDDEN_BUILTINS and node.id not in own):
            return f"use of {node.id}"
        if not isinstance(node.ctx, ast.Load):
            return None if may_bind(node.id) else f"another meaning of {node.id}"
        if self._places.leads_on(node):
            return None
        if node.id in own and node.id not in self._names.aliases:
            return None
        if node.id in BY_NAME:
            return f"use of {node.id} other than to call it"
        if self._places.is_seen(node):
            return None
        if node.id == "type":
            return "use of type other than to call it"
        if node.id in self._modules:
            return f"use of the module {node.id} as a value"
        return self._handed_on(node, self._names.path(node))

    def _attribute(self, node: ast.Attribute) -> str | None:
        path = self._names.path(node)
        if path and leads_on(path) and self._places.leads_on(node):
            return None  # the path goes on: it is read as a whole
        if reason := refused_attribute(node.attr):
            return (refused_path(path) if path else None) or reason
        if not isinstance(node.ctx, ast.Load):
            return self._patching(node.value, node.attr)
        if path is None:
            return self._looked_up(node)
        if self._places.leads_on(node) or (self._names.is_alias(node) and leads_on(path)):
            return None  # the path goes on: it is read as a whole
        return refused_path(path) or self._handed_on(node, path)

    def _looked_up(self, node: ast.Attribute) -> str | None:
        """Why an attribute of what is no part of a module is refused."""
        name, known = node.attr, self._names
        maker = node.value.func if isinstance(node.value, ast.Call) else None
        on_super = isinstance(maker, ast.Name) and maker.id == "super"
        if name == "__class__" and not self._places.is_seen(node) and not known.is_own(node):
            return "use of another object's class as a value"
        if name == "__init__" and not on_super and not known.is_own(node.value):
            return "use of .__init__ of what is not the file's own (it makes anew what others use too)"
        if name.startswith("__") and name.endswith("__"):
            inherited = on_super and name in INHERITED
            honest = name in ALLOWED_DUNDERS or inherited or self._places.sets_own(node)
            return None if honest else f"use of .{name}"
        if name in ("format", "format_map") and not (name in known.methods and known.is_own_object(node.value)):
            return refused_format(known.texts(node.value))
        if known.is_own(node.value):
            return None
        if name in FOREIGN:
            return None if name in known.fields and name not in (*ALLOWED_MODULES, "obj") else f"use of .{name}"
        if not name.startswith("_") or on_super or name in ALLOWED_PRIVATE | known.fields | known.methods:
            return None
        return f"use of .{name} (a private part of what is not the file's own)"

    def _handed_on(self, node: ast.expr, path: str | None) -> str | None:
        """Why a part of a module is refused where it is a value like any other."""
        if path is None or self._names.is_alias(node) or self._places.is_seen(node):
            return None
        if is_module(path):
            return f"use of the module {path} as a value"
        return f"use of the class {path} as a value" if is_patchable(path) else None

    def _call(self, node: ast.Call, own: frozenset[str]) -> str | None:
        """`getattr` and its kin by a name that stands in the text are read like the attribute itself."""
        for keyword in node.keywords:
            if keyword.arg and (reason := refused_text(keyword.arg)):
                return reason.replace("in a string", "as a keyword")
        called = self._names.path(node.func)
        if called == "functools.wraps" and len(node.args) + len(node.keywords) > 1:
            return "use of functools.wraps with other attributes"
        if isinstance(node.func, ast.Call) and self._names.path(node.func.func) == "functools.wraps":
            return "use of functools.wraps other than as a decorator"
        if not isinstance(node.func, ast.Name) or node.func.id in own:
            return None
        if node.func.id == "type":
            return self._type(node)
        return self._by_name(node.func.id, node.args) if len(node.args) > 1 else None

    def _by_name(self, called: str, given: list[ast.expr]) -> str | None:
        """Why an attribute must not be reached, or asked after, by its name. called: `getattr` or one of its kin."""
        owner, name = given[:2]
        path = self._names.path(owner)
        hidden = path is not None and (leads_on(path) or refused_path(path) is not None)
        if called not in BY_NAME and not (called == "hasattr" and hidden):
            return None
        constant = isinstance(name, ast.Constant) and isinstance(name.value, str)
        attribute = ast.Attribute(owner, str(name.value) if isinstance(name, ast.Constant) else "", ast.Load())
        if called in ("setattr", "delattr") and (reason := self._patching(owner, attribute.attr)):
            return reason
        if constant:
            return self._attribute(attribute)
        return f"{called} by a computed name" if hidden or may_name_forbidden(_beginning(name)) else None

    def _type(self, node: ast.Call) -> str | None:
        if len(node.args) != 1:
            return "a class made at run time"
        seen = self._places.is_seen(node) or self._names.is_own(node)
        return None if seen else "use of another object's class as a value"

    def _patching(self, owner: ast.expr, name: str) -> str | None:
        """Why an assignment to the attribute `name` of `owner` is refused. name: "" where it is computed."""
        path = self._names.path(owner)
        if path:
            return f"assignment to an attribute of {path}"
        if name.startswith("__") and name.endswith("__") and name not in ("__name__", "__qualname__", "__doc__"):
            return f"assignment to .{name}"
        if self._names.is_own(owner):
            return None
        if isinstance(owner, ast.Attribute) and owner.attr == "__class__":
            return "assignment to an attribute of another object's class"
        if name in WRITABLE or name in self._names.fields - self._names.methods - OF_KERNELS:
            return None
        return f"assignment to .{name or '(a computed name)'} of what is not the file's own"


def _beginning(name: ast.expr) -> str:
    """The constant text that a computed name begins with."""
    while isinstance(name, ast.BinOp) and isinstance(name.op, ast.Add):
        name = name.left
    if isinstance(name, ast.JoinedStr) and name.values:
        name = name.values[0]
    return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else ""
