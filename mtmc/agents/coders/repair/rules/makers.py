"""Makers of tiles, and of numbers of programs, that are called as torch or numpy would have it."""

from __future__ import annotations

import re

import libcst as cst

from mtmc.agents.coders.repair.edits import argument, with_argument, with_value, without_argument
from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import is_constexpr, kernel_at
from mtmc.agents.coders.repair.program import New, Program, number, parameters
from mtmc.outcome import Diagnosis

_ONE = re.compile(r"arange\(\) missing 1 required positional argument: 'end'")
_TYPE = re.compile(r"missing (?:a|1) required (?:positional )?argument: 'dtype'")
_SHAPE = re.compile(r"'int' object is not iterable|'constexpr' object is not iterable|Shape element")
_AXIS = re.compile(r"program_id\(\) missing 1 required positional argument: 'axis'")
_FLOAT_END = re.compile(r"arange's arguments must be of type tl\.constexpr|'float' object cannot be interpreted")
_PROGRAM = re.compile(r"no attribute '(get_program_id|programid|get_pid|program_idx|pid)'")
_UNKNOWN = re.compile(r"\b(load|store|dot)\(\) got an unexpected keyword argument '(\w+)'")
_KEYWORDS = {
    "load": {"msk": "mask", "masks": "mask", "default": "other", "fill": "other", "fill_value": "other",
             "padding_value": "other", "pad": "other", "mask_value": "other"},
    "store": {"msk": "mask", "masks": "mask"},
    "dot": {"accumulator": "acc"},
}  # fmt: skip
_NOTHING = {"dot": ("trans_a", "trans_b", "transpose_a", "transpose_b")}
"""Keywords that say nothing when they are False."""


def maker(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`tl.arange(n)`, `tl.zeros((n,))`, `tl.zeros(n, t)`, `tl.ones(...)`: with what Triton has to be told."""
    kernel, language = kernel_at(program, diagnosis.line), program.module_name("triton.language")
    if kernel is None or language is None:
        return None
    changes: dict[cst.CSTNode, New] = {}
    for call in program.find(cst.Call, kernel):
        path = program.path(call.func) or ""
        name = path.removeprefix("triton.language.") if path.startswith("triton.language.") else ""
        new = _made(program, call, name, diagnosis.message, language)
        if new is not None and new is not call:
            changes[call] = new
    return (
        Fixed(program.changed(changes), "made a tile as Triton has it: all that it must be told") if changes else None
    )


def call_keyword(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A keyword of a load, a store or a product that means one of Triton's, or says nothing."""
    found = _UNKNOWN.search(diagnosis.message)
    if found is None or kernel_at(program, diagnosis.line) is None:
        return None
    function, wrong = found.groups()
    meant = _KEYWORDS[function].get(wrong)
    changes: dict[cst.CSTNode, New] = {}
    for call in program.at(cst.Call, diagnosis.line):
        given = argument(call, wrong)
        if program.path(call.func) != f"triton.language.{function}" or given is None or given.keyword is None:
            continue
        if meant is not None and argument(call, meant) is None:
            changes[given.keyword] = cst.Name(meant)
        elif wrong in _NOTHING.get(function, ()) and program.code(given.value) == "False":
            kept = [arg for arg in call.args if arg is not given]
            kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            changes[call] = call.with_changes(args=kept)
        elif function == "load" and wrong == "dtype":
            bare = program.code(without_argument(call, wrong))
            changes[call] = cst.parse_expression(f"{bare}.to({program.code(given.value)})")
    if changes and wrong == "dtype":
        return Fixed(program.changed(changes), "cast after the load, which knows no dtype")
    what = f"{meant} instead of {wrong}" if meant else f"without {wrong}=False, which Triton does not know"
    return Fixed(program.changed(changes), what) if changes else None


def pointer_offset(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`tl.load(p, offsets, mask=m)`: what stands where the mask would, beside a mask, is added to the pointer."""
    found = re.search(r"\b(load|store)\(\) got multiple values for argument '(mask|value)'", diagnosis.message)
    if found is None or kernel_at(program, diagnosis.line) is None:
        return None
    changes: dict[cst.CSTNode, New] = {}
    for call in program.at(cst.Call, diagnosis.line):
        plain = [arg for arg in call.args if arg.keyword is None]
        if program.path(call.func) == f"triton.language.{found[1]}" and len(plain) == (2 if found[1] == "load" else 3):
            pointer = f"{program.code(plain[0].value)} + {program.code(plain[1].value)}"
            kept = call.with_changes(args=[arg for arg in call.args if arg is not plain[1]])
            changes[call] = with_value(kept, plain[0], pointer)
    return Fixed(program.changed(changes), "offsets added to the pointer") if changes else None


def program_number(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`tl.program_id()` of a grid with one axis, and the names of other libraries for it."""
    kernel, language = kernel_at(program, diagnosis.line), program.module_name("triton.language")
    renamed = _PROGRAM.search(diagnosis.message)
    if kernel is None or language is None or not (renamed or _AXIS.search(diagnosis.message)):
        return None
    changes: dict[cst.CSTNode, New] = {}
    calls = [
        call for call in program.find(cst.Call, kernel) if (program.path(call.func) or "").startswith("triton.lang")
    ]
    for call in calls:
        name = (program.path(call.func) or "").rpartition(".")[2]
        if renamed is not None and name == renamed[1]:
            changes[call.func] = cst.parse_expression(f"{language}.program_id")
        elif renamed is None and name == "program_id" and not call.args:
            changes[call] = with_argument(call, "axis", "0")
    several = sum((program.path(call.func) or "").endswith(".program_id") for call in calls) > 1
    if not changes or (renamed is None and several):
        return None
    return Fixed(program.changed(changes), f"{language}.program_id of the grid's axis")


def _made(program: Program, call: cst.Call, name: str, message: str, language: str) -> cst.Call | None:
    first = call.args[0] if call.args else None
    if first is None:
        return None
    code = program.code(first.value)
    if name == "arange":
        if _ONE.search(message) and len(call.args) == 1 and first.keyword is None:
            return call.with_changes(args=[cst.Arg(cst.Integer("0"), comma=_COMMA), first])
        end = argument(call, "end", 1)
        if _FLOAT_END.search(message) and end is not None and isinstance(end.value, cst.BinaryOperation):
            text = _whole(program, end.value)
            return None if text is None else with_value(call, end, text)
    if name in ("zeros", "full"):
        if _TYPE.search(message) and argument(call, "dtype", 1 if name == "zeros" else 2) is None:
            return with_argument(call, "dtype", f"{language}.float32")
        kernel = program.around(call, cst.FunctionDef)
        sizes = {p.name.value for p in parameters(kernel) if is_constexpr(program, p)} if kernel is not None else set()
        if _SHAPE.search(message) and (code.strip("()") in sizes or isinstance(first.value, cst.Integer)):
            return with_value(call, first, f"({code.strip('()')},)")
    if name == "ones" and re.search(r"has no attribute 'ones'", message):
        kind = argument(call, "dtype", 1)
        text = program.code(kind.value) if kind is not None else f"{language}.float32"
        return cst.ensure_type(cst.parse_expression(f"{language}.full({code}, 1, dtype={text})"), cst.Call)
    return None


def _whole(program: Program, node: cst.BinaryOperation) -> str | None:
    """A division that is a whole number, as one: n / 1, or n // m."""
    if not isinstance(node.operator, cst.Divide):
        return None
    if number(node.right) == 1:
        return program.code(node.left)
    return f"{program.code(node.left)} // {program.code(node.right)}"


_COMMA = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
