"""Functions in a kernel that Triton has not, or has under another name."""

from __future__ import annotations

import re
from collections.abc import Callable

import libcst as cst

from mtmc.agents.coders.repair.edits import imported, operand
from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import given, is_constexpr, kernel_at, launches
from mtmc.agents.coders.repair.program import New, Program, parameters
from mtmc.agents.coders.repair.spelling import near
from mtmc.outcome import Diagnosis

_MATH = "abs ceil cos erf exp exp2 fdiv floor fma log log2 maximum minimum rsqrt sigmoid sin sqrt sqrt_rn where"
LANGUAGE = frozenset(
    f"""
    {_MATH} arange argmax argmin associative_scan atomic_add atomic_cas atomic_max atomic_min atomic_xchg broadcast
    broadcast_to cast cat cdiv clamp cumprod cumsum debug_barrier div_rn dot expand_dims full histogram join load
    make_block_ptr max max_contiguous min multiple_of num_programs permute program_id rand randn range ravel reduce
    reshape softmax sort split static_assert static_print static_range store sum swizzle2d trans umulhi view xor_sum
    zeros zeros_like float16 float32 float64 bfloat16 int8 int16 int32 int64 uint8 constexpr
    """.split()
)
"""Names of triton.language that rules may name."""
_LIBRARY = """
    acos acosh asin asinh atan atan2 atanh cbrt copysign cosh erfc erfinv exp10 expm1 fmod hypot isinf isnan lgamma
    log10 log1p nearbyint pow rint round sinh tan tanh tgamma trunc
    """
_LIBDEVICE = frozenset(_LIBRARY.split())
_NAMES = {"max": "maximum", "min": "minimum", "fmax": "maximum", "fmin": "minimum", "matmul": "dot"}
_EXPRESSIONS = {
    "fabs": "{tl}.abs({x})",
    "relu": "{tl}.maximum({x}, 0.0)",
    "silu": "{x} * {tl}.sigmoid({x})",
    "square": "{x} * {x}",
}
_LIBRARIES = {"power": "pow", "arctan": "atan", "arctan2": "atan2"}
_HOME = "triton.language.extra.libdevice"
_ELEMENTWISE = frozenset(_MATH.split())
_TYPES = {
    "float": "float32", "half": "float16", "double": "float64", "long": "int64", "int": "int32", "short": "int16",
    **{name: name for name in ("float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8")},
}  # fmt: skip
_REDUCTIONS = ("sum", "argmax", "argmin", "cumsum")
_MISSING = re.compile(r"module 'triton\.language[\w.]*' has no attribute '(\w+)'")
_NOT_TRITON = re.compile(
    r"Unsupported function referenced|torch\.dtype|must be real number, not tensor|global variable (torch|math) "
)


def function(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A function of triton.language or libdevice that is not there: where it is, what computes the same, or the one
    function whose name is one letter off."""
    found = _MISSING.search(diagnosis.message)
    kernel = kernel_at(program, diagnosis.line)
    if found is None or kernel is None:
        return None
    name = found[1]
    calls = [
        call
        for call in program.find(cst.Call, kernel)
        if (path := program.path(call.func)) and path.startswith("triton.language.") and path.endswith(f".{name}")
    ]
    return _exchanged(program, calls, name, elsewhere="module 'triton.language'" not in diagnosis.message)


def torch_in_kernel(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """Types and functions of torch or math in a kernel: Triton's of the same meaning."""
    kernel = kernel_at(program, diagnosis.line)
    language = program.module_name("triton.language")
    if kernel is None or language is None or _NOT_TRITON.search(diagnosis.message) is None:
        return None
    changes: dict[cst.CSTNode, New] = {}
    here = set(program.at(cst.Attribute, diagnosis.line))  # of numbers known ahead, math is right
    for node in program.find(cst.Attribute, kernel):
        module, _, name = (program.path(node) or "").rpartition(".")
        if module not in ("torch", "math") or (module == "math" and node not in here):
            continue
        above = program.parent(node)
        called = above if isinstance(above, cst.Call) and above.func is node else None
        if called is None and module == "torch" and name in _TYPES:
            changes[node] = cst.parse_expression(f"{language}.{_TYPES[name]}")
        elif called is not None and (name in _ELEMENTWISE or name in _REDUCTIONS):
            changes[node] = cst.parse_expression(f"{language}.{name}")
            changes |= {a.keyword: cst.Name("axis") for a in called.args if a.keyword and a.keyword.value == "dim"}
    changes = changes or _handed_over(program, kernel, language)
    if not changes:
        return None
    return Fixed(program.changed(changes), "triton.language instead of torch or math in a kernel")


def float_argument(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A function that takes fp32 only, of a narrower type: its argument is cast, which loses nothing."""
    narrow = re.search(
        r"Expected dtype \['fp32', 'fp64'\] but got (fp16|bf16)|^KeyError: \(triton\.language\.b?float16",
        diagnosis.message,
    )
    language = program.module_name("triton.language")
    if narrow is None or language is None or kernel_at(program, diagnosis.line) is None:
        return None
    changes: dict[cst.CSTNode, New] = {}
    for call in program.at(cst.Call, diagnosis.line):
        path = program.path(call.func) or ""
        name = path.rpartition(".")[2]
        if not path.startswith("triton.language.") or name not in _ELEMENTWISE | _LIBDEVICE or not call.args:
            continue
        value = call.args[0].value
        code = program.code(value)
        if len(call.args) == 1 and not code.endswith("float32)"):
            changes[value] = _cast_to(language)
    return (
        Fixed(program.changed(changes), "cast to float32 what the function takes in no narrower type")
        if changes
        else None
    )


def import_from(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`from triton.language.math import tanh` of what only libdevice has."""
    found = re.search(r"cannot import name '(\w+)' from 'triton\.language[\w.]*'", diagnosis.message)
    statements = [node for node in program.at(cst.ImportFrom, diagnosis.line) if node.module is not None]
    if found is None or found[1] not in _LIBDEVICE or len(statements) != 1:
        return None
    names = statements[0].names
    if isinstance(names, cst.ImportStar) or len(names) != 1:
        return None
    module = cst.parse_expression(f"{_HOME}")
    source = program.changed({statements[0]: statements[0].with_changes(module=module)})
    return Fixed(source, f"{found[1]} from {_HOME}, which has it")


def _exchanged(program: Program, calls: list[cst.Call], name: str, elsewhere: bool) -> Fixed | None:
    """The calls of a function that is missing, exchanged for others. elsewhere: whether it was not triton.language's own."""
    language = program.module_name("triton.language")
    if language is None or not calls:
        return None
    other = _NAMES.get(name, name if elsewhere and name in LANGUAGE else None)
    if other is not None and name in _NAMES and any(len(call.args) != 2 for call in calls):
        return None  # a reduction, perhaps
    if other is not None:
        return _renamed(program, calls, f"{language}.{other}", {})
    library = _LIBRARIES.get(name, name)
    if library in _LIBDEVICE and "libdevice" not in name:
        known = program.module_name(_HOME)
        extra = {} if known is not None else imported(program, "from triton.language.extra import libdevice")
        return _renamed(program, calls, f"{known or 'libdevice'}.{library}", extra)
    if name in _EXPRESSIONS:
        return _expressed(program, calls, _EXPRESSIONS[name], language)
    meant = near(name, LANGUAGE)
    return None if meant is None else _renamed(program, calls, f"{language}.{meant}", {})


def _renamed(program: Program, calls: list[cst.Call], text: str, extra: dict[cst.CSTNode, New]) -> Fixed:
    changes: dict[cst.CSTNode, New] = {call.func: cst.parse_expression(text) for call in calls}
    return Fixed(
        program.changed(changes | extra), f"{text} instead of {program.code(calls[0].func)}, which there is not"
    )


def _expressed(program: Program, calls: list[cst.Call], pattern: str, language: str) -> Fixed | None:
    changes: dict[cst.CSTNode, New] = {}
    for call in calls:
        value = call.args[0].value if len(call.args) == 1 else None
        if value is None or (pattern.count("{x}") > 1 and not isinstance(value, cst.Name)):
            return None
        text = pattern.format(tl=language, x=program.code(value))
        changes[call] = cst.parse_expression(f"({text})" if pattern.count("{x}") > 1 else text)
    return Fixed(program.changed(changes), f"{program.code(calls[0].func)} written out, which there is not")


def _handed_over(program: Program, kernel: cst.FunctionDef, language: str) -> dict[cst.CSTNode, New]:
    """Types of torch that launches give for constexpr parameters."""
    changes: dict[cst.CSTNode, New] = {}
    for launch in launches(program, kernel.name.value):
        for parameter in parameters(kernel):
            value = given(kernel, launch.call, parameter.name.value)
            module, _, name = (program.path(value) or "" if value is not None else "").rpartition(".")
            if value is not None and is_constexpr(program, parameter) and module == "torch" and name in _TYPES:
                changes[value] = cst.parse_expression(f"{language}.{_TYPES[name]}")
    return changes


def _cast_to(language: str) -> Callable[[cst.BaseExpression], cst.BaseExpression]:
    def change(value: cst.BaseExpression) -> cst.BaseExpression:
        return cst.parse_expression(f"{operand(value, cst.Module([]).code_for_node(value))}.to({language}.float32)")

    return change
