"""The CUDA C++ of a version: which texts its file makes kernels of, and what they must not have. Pure.

What is compiled for a GPU is taken from the syntax tree and not from what runs: `RawKernel(CODE, "name")` with a text that
stands in the file as it is. The text itself may do what device code can do to the memory of its own process, as a Triton
kernel may, but for what no kernel needs: other files than CUDA's own headers, and (in the machine code, see
`mtmc.evaluate.compiling.cubin`) state that outlives a launch, printing, and clocks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MODULE, CLASS = "mtmc.cuda", "RawKernel"
PATH = f"{MODULE}.{CLASS}"
"""What a version may import of mtmc: nothing else."""
_HEADERS = """
    cuda_runtime.h cuda_fp16.h cuda_bf16.h cuda_fp8.h mma.h math_constants.h cuda_pipeline.h cooperative_groups.h
    cooperative_groups/reduce.h cuda_awbarrier.h vector_types.h device_launch_parameters.h
    stdint.h cstdint limits.h climits float.h cfloat math.h cmath limits algorithm
    cuda/std/type_traits cuda/std/limits cuda/std/cstdint cuda/std/array cuda/std/utility cuda/std/cmath cuda/barrier
    cuda/pipeline cuda/ptx cub/cub.cuh cub/block/block_reduce.cuh cub/warp/warp_reduce.cuh cub/block/block_scan.cuh
    """
HEADERS = frozenset(_HEADERS.split())
"""What a CUDA text may include."""
OPTIONS = re.compile(
    r"(-D|--define-macro=)[A-Za-z_]\w*(=[\w.+-]*)?|(-use_fast_math|--use_fast_math)|--?maxrregcount=\d+|--?fmad=(true|false)"
    r"|--?ftz=(true|false)|--?prec-(div|sqrt)=(true|false)|--?std=c\+\+(14|17|20)|--extra-device-vectorization|--restrict"
)
"""What NVRTC may be told."""
_SPLICE = re.compile(r"\\[ \t]*\r?\n")
"""Where two lines are one to a compiler."""
_DIRECTIVE = re.compile(r"(?:#|%:|\?\?=)(?:\s|/\*.*?\*/)*(include\w*|import|embed)\b(.*)", re.DOTALL)
_FILE = re.compile(r"(?:\s|/\*.*?\*/)*[<\"]([^>\"\n]+)[>\"]", re.DOTALL)
_FORBIDDEN = ("__has_include", "__has_include_next", "__has_embed", "__TIME__", "__DATE__", "__TIMESTAMP__", "__FILE__")


@dataclass(frozen=True)
class CudaText:
    """One kernel that a file makes. line: of the call. first: of the file's line in which the text begins, None where the
    text's lines are not those of the file."""

    code: str
    name: str
    options: tuple[str, ...]
    line: int
    first: int | None = None

    @property
    def key(self) -> tuple[str, str, tuple[str, ...]]:
        """What a kernel is made of."""
        return self.code, self.name, self.options

    def line_of(self, line: int) -> int:
        """Line of the file for one of the text."""
        return self.line if self.first is None else self.first + line - 1


def uses_cuda(tree: ast.Module) -> bool:
    """Whether a file imports the class that makes kernels of CUDA C++."""
    return any(
        isinstance(node, ast.ImportFrom) and node.module == MODULE and any(a.name == CLASS for a in node.names)
        for node in ast.walk(tree)
    )


def cuda_texts(tree: ast.Module, source: str) -> tuple[list[CudaText], list[tuple[int, str]]]:
    """The kernels of a file, and (line, what is refused) of the rest. Both are empty for a file without CUDA C++."""
    if not uses_cuda(tree):
        return [], []
    constants = _constants(tree)
    found, refused, called = list[CudaText](), list[tuple[int, str]](), set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == CLASS:
            called.add(id(node.func))
            made = _text(node, constants, source)
            if isinstance(made, str):
                refused.append((node.lineno, made))
            else:
                found.append(made)
                refused += [(made.line_of(at), what) for at, what in refusals(made.code)]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == MODULE and not _alone(node, tree):
            refused.append((node.lineno, f"import of {PATH} other than in a line of its own at the top level"))
        if isinstance(node, ast.Name) and node.id == CLASS and id(node) not in called:
            refused.append((node.lineno, f"use of {CLASS} other than to make a kernel of a text"))
    return found, refused


def refusals(code: str) -> Iterator[tuple[int, str]]:
    """(line of the text, what is refused) of a CUDA text."""
    spliced = _SPLICE.sub("", code)
    for found in re.finditer(r"(?:#|%:|\?\?=)[^\n]*(?:/\*.*?\*/[^\n]*)*", spliced, re.DOTALL):
        directive = _DIRECTIVE.match(found[0])
        if directive is not None:
            file = _FILE.match(directive[2])
            if directive[1] != "include" or file is None or file[1].strip() not in HEADERS:
                words = directive[2].split("\n")[0].rstrip()[:80]
                yield _line(code, found.start()), f"#{directive[1]}{words} in CUDA C++"
    for word in _FORBIDDEN:
        at = re.search(rf"\b{word}\b", spliced)
        if at is not None:
            yield _line(code, at.start()), f"{word} in CUDA C++"
    if "<<<" in spliced:
        what = "a launch (<<<...>>>) in CUDA C++, which is the host's business: call the RawKernel in forward"
        yield _line(code, spliced.index("<<<")), what


def _line(code: str, at: int) -> int:
    """Line of a text for a place in it that is counted without its spliced line ends."""
    for splice in _SPLICE.finditer(code):
        if splice.start() > at:
            break
        at += len(splice[0])
    return code.count("\n", 0, at) + 1


def _alone(node: ast.ImportFrom, tree: ast.Module) -> bool:
    """Whether an import can be replaced by its lines."""
    others = [each for each in tree.body if each is not node]
    shares = any(each.lineno <= node.lineno <= (each.end_lineno or 0) for each in others)
    return node in tree.body and len(node.names) == 1 and not shares


def _constants(tree: ast.Module) -> dict[str, ast.Constant]:
    """Names that the file binds once, at its top level, to a text; no function binds them too."""
    bound: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            bound.setdefault(node.id, []).append(None)
        elif isinstance(node, ast.arg):
            bound.setdefault(node.arg, []).append(None)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.setdefault(node.name, []).append(None)
        elif isinstance(node, ast.alias):
            bound.setdefault((node.asname or node.name).split(".")[0], []).append(None)
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, node.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and len(bound[name]) == 1:
                found[name] = value
    return found


def _text(call: ast.Call, constants: dict[str, ast.Constant], source: str) -> CudaText | str:
    """The kernel of one call, or why it is refused."""
    names = ("code", "name", "options")
    given: dict[str, ast.expr] = dict(zip(names, call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    starred = any(isinstance(each, ast.Starred) for each in call.args) or any(k.arg is None for k in call.keywords)
    if starred or len(call.args) + len(call.keywords) != len(given) or not {"code", "name"} <= set(given) <= set(names):
        return f"{CLASS} without its two texts: write {CLASS}(CODE, 'name'), and options=('-DBLOCK=256',) where needed"
    code, name = (_constant(given[each], constants) for each in ("code", "name"))
    if code is None or name is None:
        what = "code" if code is None else "name"
        return f"a {what} of {CLASS} that is computed: it must stand in the file as one text (options may have -DNAME=VALUE)"
    listed = given.get("options")
    options = listed.elts if isinstance(listed, ast.Tuple | ast.List) else [] if listed is None else [listed]
    values = [_constant(each, constants) for each in options]
    told = tuple(str(each.value) for each in values if each is not None)
    if len(told) != len(options) or (listed is not None and not isinstance(listed, ast.Tuple | ast.List)):
        return f"options of {CLASS} that are computed: they must stand in the file as a tuple of texts"
    bad = next((each for each in told if not OPTIONS.fullmatch(each)), None)
    if bad is not None:
        return f"the option {bad!r} of {CLASS}"
    return CudaText(str(code.value), str(name.value), told, call.lineno, _first_line(code, source))


def _constant(node: ast.expr, constants: dict[str, ast.Constant]) -> ast.Constant | None:
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    return node if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _first_line(constant: ast.Constant, source: str) -> int | None:
    """Line of the file in which a text begins, where each of its lines is one of the file."""
    lines, own = source.split("\n"), str(constant.value).split("\n")
    there = lines[constant.lineno - 1 : constant.lineno - 1 + len(own)]
    same = len(there) == len(own) and all(part in line for part, line in zip(own, there, strict=True))
    return constant.lineno if same else None


def texts_of(source: str) -> Sequence[CudaText]:
    """The kernels of a version that the audit has let pass. Raises: SyntaxError as `tree_of` does."""
    from mtmc.syntax import canonical_text, tree_of

    text = canonical_text(source)
    return cuda_texts(tree_of(text), text)[0] if MODULE in text else []
