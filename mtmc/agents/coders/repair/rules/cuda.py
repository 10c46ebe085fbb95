"""Kernels in CUDA C++ that do not compile or are not launched: headers, names of other versions and of the host, launches.

Lines of a diagnosis of NVRTC are those of the file (`mtmc.evaluate.compiling.cuda_kernels`): a rule changes that line.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import libcst as cst

from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.program import Program
from mtmc.outcome import Diagnosis

_UNKNOWN = re.compile(r'line (\d+): identifier "(\w+)"')
_SPACE = re.compile(r'line (\d+): name (followed by "::"|must be a namespace)')
_ERROR = re.compile(r"line (\d+): ([^;]*)")
_HEADERS = {
    r"half\d?|__half\w*|__(?:float|int|low|high|floats)2half\w*|__h(?:add|mul|fma|sub|max|min|div)\w*|h(?:exp|log|sqrt|rsqrt)2?":
        "cuda_fp16.h",
    r"__nv_bfloat16\w*|nv_bfloat16\w*|__float2bfloat16\w*|__bfloat16\w*|__bfloat1622\w*": "cuda_bf16.h",
    r"__nv_fp8\w*": "cuda_fp8.h",
    r"nvcuda|wmma": "mma.h",
    r"CUDART_\w+": "math_constants.h",
    r"FLT_\w+|DBL_\w+": "float.h",
    r"INFINITY|NAN|M_\w+": "math.h",
    r"U?INT_M\w+|LLONG_M\w+": "limits.h",
    r"u?int(?:8|16|32|64)_t|u?intptr_t": "stdint.h",
    r"cooperative_groups|cg": "cooperative_groups.h",
}  # fmt: skip
"""Names by pattern -> the header that has them."""
_NEW_NAMES = {
    "__shfl": "__shfl_sync", "__shfl_up": "__shfl_up_sync", "__shfl_down": "__shfl_down_sync",
    "__shfl_xor": "__shfl_xor_sync", "__ballot": "__ballot_sync", "__any": "__any_sync", "__all": "__all_sync",
}  # fmt: skip
"""Functions of a warp that were given a mask of its threads."""
_MISSPELT = {
    "syncthreads": "__syncthreads", "__syncthread": "__syncthreads", "_syncthreads": "__syncthreads",
    "__sync_threads": "__syncthreads", "syncwarp": "__syncwarp", "float2half": "__float2half", "half2float": "__half2float",
}  # fmt: skip
_STD = ("max", "min", "abs", "sqrt", "exp", "log", "pow", "tanh", "fabs", "floor", "ceil", "isnan", "isinf", "erf")
_INDICES = re.compile(r"\b(blockIdx|blockDim|threadIdx|gridDim)\b(?!\s*\.)")


def header(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A header that is not included."""
    unknown = [(int(line), name) for line, name in _UNKNOWN.findall(_said(diagnosis))]
    for line, _ in _SPACE.findall(_said(diagnosis)):
        text = program.source.split("\n")[int(line) - 1]
        unknown += [(int(line), name) for name in re.findall(r"\b(nvcuda|wmma|cooperative_groups)\b", text)]
    for at, name in unknown:
        for pattern, file in _HEADERS.items():
            if re.fullmatch(pattern, name):
                return _included(program, at, file)
    return None


def other_name(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A function of CUDA by an old or wrong name, or by that of the host's library."""
    for line, name in _UNKNOWN.findall(_said(diagnosis)):
        if name in _NEW_NAMES:
            new = f"{_NEW_NAMES[name]}(0xffffffff, "
            return _line(program, int(line), lambda text: re.sub(rf"\b{name}\s*\(", new, text), f"{name} takes a mask")  # noqa: B023
        if name in _MISSPELT:
            right = _MISSPELT[name]
            return _line(program, int(line), lambda text: re.sub(rf"\b{name}\b", right, text), f"{name} is {right}")  # noqa: B023
        if name == "std":
            return _without_std(program, int(line))
    found = re.search(r'line (\d+): namespace "std" has no member', _said(diagnosis))
    return None if found is None else _without_std(program, int(found[1]))


def index(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`blockIdx * blockDim + threadIdx`, which have three parts each: the first is meant."""
    for line, what in _ERROR.findall(_said(diagnosis)):
        if "uint3" in what or "dim3" in what or "no operator" in what:
            return _line(
                program, int(line), lambda text: _INDICES.sub(r"\1.x", text), "indices of blocks have a part .x"
            )
    return None


def constant(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A pointer to what may not be written, kept in one to what may."""
    for line, what in _ERROR.findall(_said(diagnosis)):
        types = re.match(
            r'a value of type "const ([^"]*)" cannot be used to initialize an entity of type "([^"]*)"', what
        )
        if types is not None and types[1] == types[2]:
            declared = re.compile(r"^(\s*)(?=[\w:]+\s*\*)")
            return _line(program, int(line), lambda text: declared.sub(r"\1const ", text), "the pointer is const")  # noqa: B023
    return None


def entry(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A kernel by another name than the only one that the text has, or one that is not marked as a kernel."""
    found = re.search(r"the CUDA text has no __global__ function '(\w+)'", diagnosis.message)
    if found is None:
        return None
    for call in program.calls("mtmc.cuda.RawKernel"):
        text, at = _code(program, call)
        if text is None or len(call.args) < 2 or program.code(call.args[1].value).strip("'\"") != found[1]:
            continue
        own = re.findall(r"__global__\b[^;{}()]*?(?:__launch_bounds__\([^)]*\)[^;{}()]*?)?\b(\w+)\s*\(", text)
        plain = re.search(rf"(?m)^([ \t]*)((?:extern \"C\" )?)(?:__device__ )?void ({found[1]})\s*\(", text)
        if plain is not None and at is not None:
            new = f"{plain[1]}{plain[2]}__global__ void {plain[3]}("
            return Fixed(program.source.replace(plain[0], new, 1), f"{found[1]} is a kernel: __global__")
        if len(own) == 1 and isinstance(call.args[1].value, cst.SimpleString):
            old = program.code(call)
            name = program.code(call.args[1].value)
            return Fixed(
                program.source.replace(old, old.replace(name, f'"{own[0]}"'), 1), f"the kernel is called {own[0]}"
            )
    return None


def arguments(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A launch with its arguments one by one: they are one tuple behind grid and block."""
    if "takes from 4 to 5 positional arguments" not in diagnosis.message:
        return None
    kernels = {name for name, value in program.bindings(program.module) if _makes(program, value)}
    for call in program.at(cst.Call, diagnosis.line):
        plain = [arg for arg in call.args if arg.keyword is None and not arg.star]
        if isinstance(call.func, cst.Name) and call.func.value in kernels and len(plain) == len(call.args) > 4:
            parts = [program.code(arg.value) for arg in plain]
            new = f"{call.func.value}({parts[0]}, {parts[1]}, ({', '.join(parts[2:])}))"
            return Fixed(program.source.replace(program.code(call), new, 1), "the arguments of a launch are one tuple")
    return None


def _said(diagnosis: Diagnosis) -> str:
    return diagnosis.message if diagnosis.kind == "NvrtcError" else ""


def _makes(program: Program, value: cst.BaseExpression | None) -> bool:
    return isinstance(value, cst.Call) and program.path(value.func) == "mtmc.cuda.RawKernel"


def _code(program: Program, call: cst.Call) -> tuple[str | None, int | None]:
    """The CUDA text of a call that makes a kernel, as it stands in the file, and its first line."""
    value: cst.BaseExpression | None = call.args[0].value if call.args else None
    if isinstance(value, cst.Name):
        value = program.value(value.value, program.module)
    if not isinstance(value, cst.SimpleString):
        return None, None
    return value.value, program.lines(value)[0]


def _text_at(program: Program, line: int) -> cst.SimpleString | None:
    """The text in several lines that a line of the file is part of."""
    return next((each for each in program.at(cst.SimpleString, line) if "\n" in each.value), None)


def _included(program: Program, line: int, file: str) -> Fixed | None:
    text = _text_at(program, line)
    if text is None or f"<{file}>" in text.value:
        return None
    opened = text.prefix + text.quote
    rest = text.value[len(opened) :]
    new = f"{opened}\n#include <{file}>\n{rest.removeprefix(chr(10))}"
    return Fixed(program.source.replace(text.value, new, 1), f"<{file}> is included")


def _without_std(program: Program, line: int) -> Fixed | None:
    names = "|".join(_STD)
    return _line(
        program, line, lambda text: re.sub(rf"\bstd::({names})\b", r"\1", text), "functions of CUDA without std::"
    )


def _line(program: Program, line: int, change: Callable[[str], str], what: str) -> Fixed | None:
    """One line of a CUDA text, changed."""
    if _text_at(program, line) is None:
        return None
    lines = program.source.split("\n")
    new = change(lines[line - 1])
    if new == lines[line - 1]:
        return None
    lines[line - 1] = new
    return Fixed("\n".join(lines), what)
