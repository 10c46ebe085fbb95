"""direct_launch: the text of launches that go straight to compiled kernels, and of what is remembered around them.

Triton finds out at each launch for which kinds of arguments a kernel has to be compiled, and a launcher works out sizes,
strides and the grid from its tensors: together some 40 microseconds of the host. A kernel is wrapped so that a launch with
arguments of a kind that it has seen goes to what was compiled for it, by Triton's own `compiled[grid](*arguments)`. Stages
in a row that make views, memory and launches and nothing else are a *stretch* (`mtmc.rewrite.stretches`): what it did for
tensors of one kind is noted, and done again without working anything out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

CLASS, STRETCH, COPIED = "DirectLaunches", "Stretch", "copied"
HELPER = '''\
def fresh(tensor, notes):
    """Memory that was just made, noted where somebody notes."""
    if notes is not None:
        notes.memory.append(tensor)
    return tensor


def copied(found, x, notes):
    """What was made of x in order in memory, noted where somebody notes and it is a copy."""
    if notes is not None and found.untyped_storage().data_ptr() != x.untyped_storage().data_ptr():
        notes.memory.append(found)
        notes.launches.append((None, None, (found, x), ()))
    return found


class DirectLaunches:
    """Launches of one kernel. Triton compiles for types, for addresses that are multiples of 16 or not, and for some
    numbers; a launch whose arguments are alike in these goes straight to what was compiled for an earlier one."""

    MOST = 256  # kinds of arguments that are remembered

    def __init__(self, launched, constants):
        """launched: launches the kernel. constants: names of what is compiled into it and given by name, in order."""
        self.launched, self.constants, self.known = launched, constants, {}

    def __getitem__(self, where):
        grid, notes = where

        def launch(*given, **options):
            device = getattr(given[0], "base", given[0]).get_device()
            key = (device, *map(self.kind, given), *options.values())
            found = self.known.get(key)
            if found is not None:
                compiled, constants = found
                if notes is not None:
                    notes.launches.append((compiled, (*grid, 1, 1)[:3], given, constants))
                return compiled[(*grid, 1, 1)[:3]](*given, *constants)
            compiled = self.launched(grid, *given, **options)
            loaded = getattr(compiled, "module", None) is not None  # there is a GPU
            constants = [options[name] for name in self.constants] if loaded else []
            if loaded:
                if len(self.known) == self.MOST:
                    self.known.clear()
                self.known[key] = compiled, constants
            if notes is not None:
                notes.launches.append((compiled, (*grid, 1, 1)[:3], given, constants) if loaded else None)
            return compiled

        return launch

    @staticmethod
    def kind(x):
        if isinstance(x, torch.Tensor):
            return x.dtype, x.data_ptr() % 16
        return (x.base.dtype, *x.block_shape) if hasattr(x, "block_shape") else x  # a tensor descriptor, or a number
'''
STRETCHES = '''\
class Notes:
    """What a stretch did: the memory that it made, and its launches in order."""

    def __init__(self):
        self.memory, self.launches = [], []


class Stretch:
    """A function that makes views, copies, memory and launches, and nothing else. What it did for arguments of one kind is
    remembered: then memory is made and kernels are launched as they were, and nothing is worked out."""

    MOST = 256  # kinds of arguments that are remembered
    TRIES = 3  # for arguments of one kind, of which it may not be known what is to be done

    def __init__(self, function):
        self.function, self.known, self.tries = function, {}, {}

    def __call__(self, *given):
        key = tuple([self.kind(x) for x in given])
        found = self.known.get(key)
        if found is None:
            return self.first(key, given) if self.tries.get(key, 0) < self.TRIES else self.function(*given)
        launches, results, several = found
        tensors = {at: x for at, x in enumerate([x for x in given if isinstance(x, torch.Tensor)])}
        places = {at: x.data_ptr() for at, x in tensors.items()}
        for run, arguments, pointers, made, done in launches:
            for at, shape, stride, dtype, device in made:
                tensors[at] = torch.empty_strided(shape, stride, dtype=dtype, device=device)
                places[at] = tensors[at].data_ptr()
            if run is None:  # a copy
                (_, tensor, _), (_, of, offset) = pointers
                x, (shape, stride) = tensors[of], arguments
                x = x.as_strided(shape, stride, x.storage_offset() + offset // x.element_size())
                tensors[tensor].view(shape).copy_(x)
            else:
                arguments = arguments.copy()
                for at, tensor, offset in pointers:
                    arguments[at] = places[tensor] + offset
                run(*arguments)
            for at in done:
                del tensors[at]
        found = []
        for tensor, view in results:
            x = tensors[tensor]
            if view is not None:
                shape, stride, offset = view
                x = x.as_strided(shape, stride, x.storage_offset() + offset)
            found.append(x)
        return tuple(found) if several else found[0]

    @staticmethod
    def kind(x):
        if isinstance(x, torch.Tensor):
            return x.dtype, x.device, x.shape, x.stride(), x.data_ptr() % 16
        return isinstance(x, float), isinstance(x, bool), x  # 1, 1.0 and True are equal

    def first(self, key, given):
        notes = Notes()
        result = self.function(*given, notes)
        again = self.again(notes, [x for x in given if isinstance(x, torch.Tensor)], result)
        if again is None:
            if len(self.tries) == self.MOST:
                self.tries.clear()
            self.tries[key] = self.tries.get(key, 0) + 1
        else:
            if len(self.known) == self.MOST:
                self.known.clear()
            self.known[key] = again
        return result

    def again(self, notes, given, result):
        """What is to be done for arguments of this kind; None where that is not known: memory was made that is not noted,
        two tensors share memory, a launch takes more than tensors and numbers, or there is no GPU."""
        tensors = [*given, *notes.memory]
        ends = [(x.data_ptr(), x.data_ptr() + self.length(x)) for x in tensors]
        ordered = sorted(ends)
        if any(start >= end for start, end in ends) or any(a[1] > b[0] for a, b in zip(ordered, ordered[1:])):
            return None
        launches, results = [], []
        for noted in notes.launches:
            if noted is None:
                return None
            compiled, grid, given_to, constants = noted
            arguments, pointers = [*given_to, *constants], []
            for at, x in enumerate(given_to):
                if isinstance(x, torch.Tensor):
                    home = self.home(x, ends)
                    if home is None:
                        return None
                    pointers.append((at, home, x.data_ptr() - ends[home][0]))
                    arguments[at] = 0
                elif not isinstance(x, (int, float)):
                    return None
            if compiled is None:
                if given_to[1].dtype != tensors[pointers[1][1]].dtype or pointers[0][1] == pointers[1][1]:
                    return None
                arguments = given_to[1].shape, given_to[1].stride()
            launches.append((compiled and compiled[grid], arguments, pointers, [], []))
        for x in result if isinstance(result, tuple) else (result,):
            home = self.home(x, ends)
            if home is None or x.dtype != tensors[home].dtype:
                return None
            base, offset = tensors[home], (x.data_ptr() - ends[home][0]) // x.element_size()
            same = offset == 0 and x.shape == base.shape and x.stride() == base.stride()
            results.append((home, None if same else (x.shape, x.stride(), offset)))
        kept = {home for home, _ in results}
        for at, x in enumerate(notes.memory, len(given)):  # each lives from the first launch that takes it to the last
            users = [each for each in launches if any(home == at for _, home, _ in each[2])] or launches[:1]
            if not users:
                return None
            users[0][3].append((at, x.shape, x.stride(), x.dtype, x.device))
            if at not in kept:
                users[-1][4].append(at)
        return launches, results, isinstance(result, tuple)

    @staticmethod
    def length(x):
        """Bytes from a tensor's first element to behind its last one."""
        if x.numel() == 0:
            return 0
        return (1 + sum((size - 1) * step for size, step in zip(x.shape, x.stride()))) * x.element_size()

    def home(self, x, ends):
        """Which memory a tensor lies in."""
        start, end = x.data_ptr(), x.data_ptr() + self.length(x)
        inside = [at for at, (first, last) in enumerate(ends) if first <= start < end <= last]
        return inside[0] if len(inside) == 1 else None
'''
_Insert = tuple[int, int, str]
"""Line, column, and what is put in there."""
_KERNEL = re.compile(r"^@triton\.jit\ndef (\w+)\(", re.MULTILINE)
_LAUNCHER = re.compile(r"^def launch_\w+\(", re.MULTILINE)
_MAKES = ("torch.empty", "torch.empty_like", "torch.empty_strided")
_WORKS_OUT = ("triton.cdiv", "triton.next_power_of_2", "min", "max", "len", "int", "bool", "float", "abs")
_COPIES = ("torch.flatten", "torch.reshape", "torch.ops.aten.reshape.default", "torch.ops.aten.flatten.using_ints")
_OF_TENSORS = (
    "stride",
    "numel",
    "size",
    "dim",
    "element_size",
    "contiguous",
    "t",
    "transpose",
    "permute",
    "view",
    "reshape",
)


def launched_directly(text: str) -> str:
    """A stage's kernels and launcher, with launches that go to wrapped kernels. The text as it is where none is launched."""
    tree, inserts = ast.parse(text), list[_Insert]()
    arguments = {
        each.name: [one.arg for one in each.args.args] for each in tree.body if isinstance(each, ast.FunctionDef)
    }
    kernels, constants = _KERNEL.findall(text), dict[str, list[str]]()
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(where := call.func, ast.Subscript):
            continue
        if isinstance(where.value, ast.Name) and where.value.id in kernels:
            constants[where.value.id] = arguments[where.value.id][len(call.args) :]
            inserts.append((where.value.end_lineno or 0, where.value.end_col_offset or 0, "_directly"))
    wrapped = [_wrapped(name, constants[name]) for name in kernels if name in constants]
    text = _with(text, inserts)
    launcher = _LAUNCHER.search(text)
    if not wrapped or launcher is None:
        return text
    lines = "\n".join(wrapped)
    text = f"{text[: launcher.start()]}{lines}\n\n\n{text[launcher.start() :]}"
    return _noting(text)


def _wrapped(name: str, constants: Iterable[str]) -> str:
    """The launches of one kernel. What launches it is handed on, not the kernel: in a file with Gluon a function of Triton
    may be launched and nothing else, see `evaluate.audit.gluon_text`."""
    names = ", ".join(f'"{each}"' for each in constants)
    names += "," * (names.count('"') == 2)
    launch = f"lambda grid, *given, **options: {name}[grid](*given, **options)"
    return f"{name}_directly = {CLASS}(\n    {launch},\n    ({names}),\n)"


def is_noted(text: str) -> bool:
    """Whether a launcher of `launched_directly` notes all that it does: it makes memory, launches, and works out numbers."""
    tree = ast.parse(text)
    launchers = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name.startswith("launch_")]
    return len(launchers) == 1 and all(_is_plain(each) for each in launchers[0].body)


def _is_plain(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign):
        if not all(isinstance(target, ast.Name) for target in statement.targets):
            return False
    elif isinstance(statement, ast.Return):
        return isinstance(statement.value, ast.Name | ast.Tuple)
    elif not isinstance(statement, ast.Expr):
        return False
    calls = [each for each in ast.walk(statement) if isinstance(each, ast.Call)]
    return all(
        _is_launch(each) or _name(each.func) in ("fresh", COPIED, *_MAKES, *_WORKS_OUT) or _is_method(each)
        for each in calls
    )


def may_copy(call: ast.Call) -> str:
    """The name of what a call puts in order in memory, by a copy where it lies otherwise; "" of any other call."""
    if _name(call.func) in _COPIES and call.args:
        found = call.args[0]
    else:
        method = isinstance(call.func, ast.Attribute) and call.func.attr in ("contiguous", "reshape", "flatten")
        found = call.func.value if method and isinstance(call.func, ast.Attribute) else ast.Constant(None)
    return found.id if isinstance(found, ast.Name) and found.id != "torch" else ""


def _is_method(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in _OF_TENSORS and _name(call.func.value) != "torch"


def _is_launch(call: ast.Call) -> bool:
    where = call.func
    return isinstance(where, ast.Subscript) and (_name(where.value) or "").endswith("_directly")


def _name(node: ast.expr) -> str | None:
    """A dotted name as text."""
    text = ast.unparse(node)
    return text if re.fullmatch(r"[\w.]+", text) else None


def _noting(text: str) -> str:
    """With `notes` for each launcher, which hands it on to its launches, and memory that is told of."""
    inserts = list[_Insert]()
    for function in ast.parse(text).body:
        if not isinstance(function, ast.FunctionDef) or not function.name.startswith("launch_"):
            continue
        last = (function.args.defaults or function.args.args)[-1]
        inserts.append((last.end_lineno or 0, last.end_col_offset or 0, ", notes=None"))
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and _is_launch(call):
                assert isinstance(call.func, ast.Subscript)
                where = call.func.slice
                inserts.append((where.end_lineno or 0, where.end_col_offset or 0, ", notes"))
            elif isinstance(call, ast.Call) and (source := may_copy(call)):
                inserts.append((call.lineno, call.col_offset, f"{COPIED}("))
                inserts.append((call.end_lineno or 0, call.end_col_offset or 0, f", {source}, notes)"))
            elif isinstance(call, ast.Call) and _name(call.func) in _MAKES:
                inserts.append((call.lineno, call.col_offset, "fresh("))
                inserts.append((call.end_lineno or 0, call.end_col_offset or 0, ", notes)"))
    return _with(text, inserts)


def _with(text: str, inserts: Iterable[_Insert]) -> str:
    """A text with pieces put in: lines from 1, columns in bytes, as `ast` counts them."""
    lines = text.split("\n")
    for line, column, piece in sorted(inserts, reverse=True):
        row = lines[line - 1].encode()
        lines[line - 1] = (row[:column] + piece.encode() + row[column:]).decode()
    return "\n".join(lines)
