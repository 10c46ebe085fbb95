"""load_inline: a file in the form of `torch.utils.cpp_extension.load_inline` as one with `mtmc.cuda.RawKernel`. Pure.

KernelBench's answers in CUDA C++ have this form: kernels, and C++ functions that launch them. A C++ function would be native
code in the process of a version, where nothing that is said of host time holds. So its few kinds of statements are written
in Python, the kernels stay as they are, and the file that comes out is the version: it is audited, run and handed out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from mtmc.evaluate.audit.cuda_text import HEADERS, OPTIONS
from mtmc.source.inline_host import Translator
from mtmc.source.inline_words import Host, NotPlain, python_name
from mtmc.syntax import parse

NAME = "load_inline"
_WHOLE_DEFINE = re.compile(r"#\s*define\s+(\w+)\s+\(?(\d+)\)?\s*$")
_WHOLE_CONSTANT = re.compile(r"^(?:static )?(?:const|constexpr) (?:unsigned )?(?:int|size_t|auto) (\w+) ?= ?(.*);$")
_INCLUDE = re.compile(r"#\s*include\s*[<\"]([^>\"]+)[>\"]")
_FUNCTION = re.compile(r"([A-Za-z_]\w*)\s*\((.*)\)\s*(?:const\s*)?$", re.DOTALL)
_HOST_WORDS = re.compile(r"\b(torch|at|c10)\s*::|\bTensor\b")


@dataclass
class _Parts:
    """What the sources have. device: items that stay CUDA C++. hosts: parameters and body by name. constants: by name."""

    device: list[str] = field(default_factory=list)
    hosts: dict[str, tuple[str, str]] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    kernels: set[str] = field(default_factory=set)


def uses_load_inline(source: str) -> bool:
    """Whether a file has the form that `translated` reads."""
    return NAME in source


def translated(source: str) -> str:
    """The file with kernels of `mtmc.cuda.RawKernel` in place of `load_inline`; any other file as it is.

    Raises: NotPlain where its host functions do more than sizes, memory and launches, or its sources are computed.
    """
    if not uses_load_inline(source):
        return source
    try:
        tree = parse(source)
    except (SyntaxError, ValueError):
        return source
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_load(node.func)]
    if not calls:
        return source
    constants = _constants(tree)
    used: set[str] = set()
    head: list[str] = []
    for number, call in enumerate(calls):
        suffix = f"_{number}" if number else ""
        head += _module(call, constants, used, suffix)
        call.func, call.args, call.keywords = ast.Name(f"HostFunctions{suffix}", ast.Load()), [], []
    body = [node for node in tree.body if not _is_source(node, used) and not _imports_load(node)]
    last = max((at for at, node in enumerate(body) if isinstance(node, ast.Import | ast.ImportFrom)), default=-1) + 1
    before, after = (ast.unparse(ast.Module(part, [])) for part in (body[:last], body[last:]))
    imports = ["import math", "import torch"]
    missing = [line for line in imports if line not in before.split("\n")]
    return "\n".join([before, *missing, "from mtmc.cuda import RawKernel", "", *head, "", after]).strip() + "\n"


def _module(call: ast.Call, constants: dict[str, str], used: set[str], suffix: str) -> list[str]:
    """Lines with the kernels and the host functions of one call."""
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    names = ("name", "cpp_sources", "cuda_sources", "functions")
    given |= dict(zip(names, call.args, strict=False))
    parts = _Parts()
    for source in ("cpp_sources", "cuda_sources"):
        for text in _texts(given.get(source), constants, used):
            _read(text, parts)
    if not parts.kernels or not parts.hosts:
        raise NotPlain(
            "load_inline without kernels and functions that launch them: they must stand in the file as texts"
        )
    host = Host(frozenset(parts.kernels), frozenset(parts.constants), frozenset(parts.hosts))
    functions = list[str]()
    for name, (parameters, body) in parts.hosts.items():
        kinds = dict(_parameters(parameters))
        lines = Translator(body, _of_class(host, suffix), kinds).lines()
        functions += [
            "    @staticmethod",
            f"    def {name}({', '.join(kinds)}):",
            *(f"        {line}" for line in lines),
            "",
        ]
    code = "\n".join([*_given_by_torch(parts, host), *parts.device])
    if '"""' in code:
        raise NotPlain('a CUDA text with three quotation marks in a row (""")')
    options = _options(given.get("extra_cuda_cflags"))
    kernels = [f'{python} = RawKernel(CUDA_CODE{suffix}, "{full}"{options})' for full, python in host.made.items()]
    values = [f"{name} = {value}" for name, value in parts.constants.items()]
    header = [f'CUDA_CODE{suffix} = r"""', code, '"""', *kernels, *values, "", ""]
    return [*header, f"class HostFunctions{suffix}:", '    """What launches them."""', "", *functions]


def _given_by_torch(parts: _Parts, host: Host) -> list[str]:
    """Headers that torch's own include, as far as the kernels name what they have."""
    text = "\n".join([*parts.device, *host.made])
    words = {
        "stdint.h": r"int\d+_t",
        "float.h": r"FLT_|DBL_",
        "math.h": r"INFINITY|NAN|M_",
        "limits.h": r"INT_M|LLONG_M",
    }
    words |= {"limits": r"numeric_limits", "algorithm": r"std::(max|min)"}
    words |= {"cuda_fp16.h": r"half", "cuda_bf16.h": r"bfloat16"}
    there = {found[1] for found in map(_INCLUDE.search, parts.device) if found is not None}
    return [f"#include <{name}>" for name, word in words.items() if name not in there and re.search(word, text)]


def _options(node: ast.expr | None) -> str:
    """The last argument of a kernel: those of nvcc's options that NVRTC has, too."""
    listed = node.elts if isinstance(node, ast.List | ast.Tuple) else []
    texts = [str(each.value) for each in listed if isinstance(each, ast.Constant)]
    kept = [text for text in texts if OPTIONS.fullmatch(text) and "std=" not in text]
    return f", options=({', '.join(repr(text) for text in kept)},)" if kept else ""


def _of_class(host: Host, suffix: str) -> Host:
    host.own = f"HostFunctions{suffix}"
    return host


def _read(text: str, parts: _Parts) -> None:
    """Sort the items of one source. Raises: NotPlain."""
    for item in _items(text):
        plain = " ".join(_uncommented(item).split())
        if plain.startswith("#"):
            _directive(item, plain, parts)
        elif not plain or plain.startswith(("PYBIND11_MODULE", "TORCH_LIBRARY")):
            continue
        elif (constant := _WHOLE_CONSTANT.match(plain)) is not None:
            parts.device.append(item)
            if re.fullmatch(r"[\w\s+*()/-]+", constant[2]):
                parts.constants[constant[1]] = constant[2].replace("/", "//")
        elif "{" in plain and (found := _FUNCTION.search(_signature(item))) is not None:
            _function(item, found, parts)
        elif not _HOST_WORDS.search(plain):
            parts.device.append(item)


def _directive(item: str, plain: str, parts: _Parts) -> None:
    include, define = _INCLUDE.match(plain), _WHOLE_DEFINE.match(plain)
    if include is not None and include[1] not in HEADERS:
        return
    if define is not None:
        parts.constants[define[1]] = define[2]
    if not re.search(r"TORCH_CHECK|AT_ASSERT|C10_|cudaGetLastError|cudaError", plain) and not plain.startswith(
        "#pragma once"
    ):
        parts.device.append(item)


def _function(item: str, found: re.Match[str], parts: _Parts) -> None:
    signature = _signature(item)
    if "__global__" in signature:
        bounds = re.sub(r"__launch_bounds__\s*\([^)]*\)", "", signature)
        named = _FUNCTION.search(bounds)
        parts.kernels.add(named[1] if named is not None else found[1])
        parts.device.append(item)
    elif "__device__" in signature or not _HOST_WORDS.search(item):
        parts.device.append(item)
    else:
        code = _uncommented(item)
        parts.hosts[found[1]] = (found[2], code[code.index("{") + 1 : code.rindex("}")])


def _signature(item: str) -> str:
    """What stands before the body."""
    return _uncommented(item).partition("{")[0]


def _uncommented(item: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", item, flags=re.DOTALL)


def _items(text: str) -> Iterator[str]:
    """Directives, declarations and definitions at the top level, in order."""
    at = start = depth = 0
    while at < len(text):
        letter = text[at]
        if text.startswith("//", at):
            at = (text + "\n").index("\n", at)
            continue
        if text.startswith("/*", at):
            at = text.index("*/", at) + 2 if "*/" in text[at:] else len(text)
            continue
        if letter == "#" and depth == 0 and not text[start:at].strip():
            end = at
            while True:
                end = (text + "\n").index("\n", end)
                if not text[:end].endswith("\\"):
                    break
                end += 1
            yield text[at:end]
            at = start = end
            continue
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(letter, 0)
        at += 1
        if depth == 0 and letter in ";}" and not (letter == "}" and text[at:].lstrip()[:1] == ";"):
            yield text[start:at].strip("\n")
            start = at
    if text[start:].strip():
        yield text[start:].strip("\n")


def _parameters(text: str) -> Iterator[tuple[str, str]]:
    """(name, kind) of the parameters of a host function."""
    depth, parts = 0, [""]
    for letter in text:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    for part in parts if text.strip() else ():
        words = re.findall(r"\w+", part.partition("=")[0])
        if not words or "optional" in words or "vector" in words:
            raise NotPlain(f"the parameter {' '.join(part.split())!r} of a host function")
        kind = "tensor" if "Tensor" in words else "real" if {"float", "double"} & {*words} else "whole"
        yield python_name(words[-1]), kind


def _texts(node: ast.expr | None, constants: dict[str, str], used: set[str]) -> list[str]:
    """The texts of an argument. Raises: NotPlain where one does not stand in the file."""
    if node is None:
        return []
    if isinstance(node, ast.List | ast.Tuple):
        return [text for each in node.elts for text in _texts(each, constants, used)]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.Name) and node.id in constants:
        used.add(node.id)
        return [constants[node.id]]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return ["".join(_texts(node.left, constants, used) + _texts(node.right, constants, used))]
    raise NotPlain(
        f"a source of load_inline that is computed ({ast.unparse(node)[:60]}): it must stand in the file as a text"
    )


def _constants(tree: ast.Module) -> dict[str, str]:
    """Names that are bound once in the file, to a text."""
    found: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.setdefault(node.id, []).append(None)
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and len(node.targets) == 1):
            continue
        if len(found[node.targets[0].id]) == 1:
            found[node.targets[0].id] = [node.value]
    values = {name: each[0] for name, each in found.items()}
    return {n: v.value for n, v in values.items() if isinstance(v, ast.Constant) and isinstance(v.value, str)}


def _is_load(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id == NAME) or (isinstance(node, ast.Attribute) and node.attr == NAME)


def _is_source(node: ast.stmt, used: set[str]) -> bool:
    """Whether a statement only gives a source its name."""
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in used


def _imports_load(node: ast.stmt) -> bool:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").endswith("cpp_extension") or names == ["cpp_extension"]
    return names == ["torch.utils.cpp_extension"]
