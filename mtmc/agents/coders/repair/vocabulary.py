"""Vocabulary: how a kernel writes a function that torch, numpy, C or Python have under another name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from mtmc.agents.coders.repair.edits import argument, imported
from mtmc.agents.coders.repair.program import New, Program, number

_ELEMENTWISE = """
    abs ceil cos erf exp exp2 fdiv floor fma log log2 maximum minimum rsqrt sigmoid sin sqrt sqrt_rn where
    """
ELEMENTWISE = frozenset(_ELEMENTWISE.split())
"""Functions of triton.language that work number by number."""
_LIBRARY = """
    acos acosh asin asinh atan atan2 atanh cbrt copysign cosh erfc erfinv exp10 expm1 fmod hypot isinf isnan lgamma
    log10 log1p nearbyint pow rint round sinh tan tanh tgamma trunc
    """
LIBRARY = frozenset(_LIBRARY.split())
"""Functions that only libdevice has."""
_LANGUAGE = """
    arange argmax argmin associative_scan atomic_add atomic_cas atomic_max atomic_min atomic_xchg broadcast
    broadcast_to cast cat cdiv clamp cumprod cumsum debug_barrier div_rn dot expand_dims full histogram join load
    make_block_ptr max max_contiguous min multiple_of num_programs permute program_id rand randn range ravel reduce
    reshape softmax sort split static_assert static_print static_range store sum swizzle2d trans umulhi view xor_sum
    zeros zeros_like float16 float32 float64 bfloat16 int8 int16 int32 int64 uint8 constexpr
    """
LANGUAGE = ELEMENTWISE | frozenset(_LANGUAGE.split())
"""Names of triton.language that rules may name."""
HOME = "triton.language.extra.libdevice"
TYPES = {
    "float": "float32", "half": "float16", "double": "float64", "long": "int64", "int": "int32", "short": "int16",
    "fp16": "float16", "fp32": "float32", "fp64": "float64", "bf16": "bfloat16", "f16": "float16", "f32": "float32",
    "f64": "float64", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "bool": "int1", "bool_": "int1",
    **{name: name for name in ("float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8")},
}  # fmt: skip
"""Type of torch, numpy or LLVM -> triton.language's."""
REDUCTIONS = {"sum": "sum", "max": "max", "min": "min", "amax": "max", "amin": "min", "argmax": "argmax",
              "argmin": "argmin", "cumsum": "cumsum"}  # fmt: skip
"""Reduction of torch or numpy -> triton.language's, which takes the axis in the same place."""
_PAIRS = {"max": "maximum", "min": "minimum", "amax": "maximum", "amin": "minimum"}
_SPELT = {
    "power": "pow", "arctan": "atan", "arctan2": "atan2", "arccos": "acos", "arcsin": "asin", "absolute": "abs",
    "fabs": "abs", "ln": "log", "fmax": "maximum", "fmin": "minimum", "expit": "sigmoid",
}  # fmt: skip
_EXPRESSIONS = {
    "relu": (1, "{tl}.maximum({0}, 0.0)"),
    "silu": (1, "({0} * {tl}.sigmoid({0}))"),
    "square": (1, "({0} * {0})"),
    "reciprocal": (1, "(1.0 / {0})"),
    "negative": (1, "(-{0})"),
    "neg": (1, "(-{0})"),
    "add": (2, "({0} + {1})"),
    "sub": (2, "({0} - {1})"),
    "subtract": (2, "({0} - {1})"),
    "mul": (2, "({0} * {1})"),
    "multiply": (2, "({0} * {1})"),
    "div": (2, "({0} / {1})"),
    "divide": (2, "({0} / {1})"),
    "clip": (3, "{tl}.minimum({tl}.maximum({0}, {1}), {2})"),
    "clamp": (3, "{tl}.minimum({tl}.maximum({0}, {1}), {2})"),
    "matmul": (2, "{tl}.dot({0}, {1})"),
    "mm": (2, "{tl}.dot({0}, {1})"),
    "transpose": (1, "{tl}.trans({0})"),
    "t": (1, "{tl}.trans({0})"),
    "unsqueeze": (2, "{tl}.expand_dims({0}, {1})"),
}
"""Function -> number of arguments and what computes the same."""
_SWAPS = ("transpose", "swapaxes")
_SIMPLE = cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.Integer | cst.Float


@dataclass(frozen=True)
class Written:
    """text: an expression. changes: of the program's imports, that the text needs."""

    text: str
    changes: dict[cst.CSTNode, New] = field(default_factory=dict)


def written(program: Program, name: str, values: Sequence[cst.BaseExpression]) -> Written | None:
    """How a kernel applies a function to values; None where Triton has nothing that surely computes the same.

    name: as torch, numpy, math, C or libdevice have it.
    """
    language = program.module_name("triton.language")
    if language is None:
        return None
    name = _spelt(name)
    if name in _SWAPS and len(values) == 3 and {number(value) for value in values[1:]} in ({0.0, 1.0}, {-1.0, -2.0}):
        name, values = "transpose", values[:1]
    texts = [operand_text(program, value) for value in values]
    if name == "pow" and len(values) == 2:
        return power(program, values[0], values[1])
    if name in _EXPRESSIONS and _EXPRESSIONS[name][0] == len(values):
        pattern = _EXPRESSIONS[name][1]
        if pattern.count("{0}") > 1 and not repeatable(program, values[0]):
            return None
        return Written(pattern.format(*texts, tl=language))
    plain = ", ".join(program.code(value) for value in values)
    if name in ELEMENTWISE and values:
        return Written(f"{language}.{name}({plain})")
    return library(program, name, plain) if name in LIBRARY and values else None


def library(program: Program, name: str, arguments: str) -> Written:
    """The call of a function of libdevice, and its import where there is none."""
    known = program.module_name(HOME)
    changes = {} if known is not None else imported(program, "from triton.language.extra import libdevice")
    return Written(f"{known or 'libdevice'}.{name}({arguments})", changes)


def power(program: Program, base: cst.BaseExpression, exponent: cst.BaseExpression) -> Written | None:
    """A power: a product or a root where the exponent says so, or libdevice's, which takes floats."""
    language = program.module_name("triton.language")
    value, text = number(exponent), operand_text(program, base)
    if value in (2.0, 3.0) and repeatable(program, base):
        return Written("(" + " * ".join([text] * int(value or 0)) + ")")
    if value == 0.5:
        return Written(f"{language}.sqrt({program.code(base)})")
    if value is None:
        return None
    return library(program, "pow", f"{program.code(base)}, {value!r}")


def reduced(program: Program, name: str, call: cst.Call, own: bool) -> str | None:
    """The name of Triton's function for `max(x)`, `max(x, 0)`, `torch.max(x, dim=1)` or `max(x, y)`: a reduction, or the
    larger of two. own: whether it is Python's, whose second argument is never an axis."""
    plain = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
    named = {arg.keyword.value for arg in call.args if arg.keyword is not None}
    if len(plain) + len(named) != len(call.args) or not plain:
        return None
    whole = len(plain) == 2 and isinstance(plain[1], cst.Integer | cst.UnaryOperation) and not own
    if len(plain) == 2 and not whole:
        return _PAIRS.get(name) if not named else None
    if len(plain) > 2 or named - {"axis", "dim", "keepdim", "keep_dims", "keepdims"}:
        return None
    above = program.parent(call)
    taken = isinstance(above, cst.Attribute | cst.Subscript) and above.value is call
    if isinstance(above, cst.Attribute) and above.attr.value == "values":
        taken = False
    return None if taken else REDUCTIONS.get(name)


def renamed_keywords(call: cst.Call) -> cst.Call:
    """The call with torch's `dim` and `keepdim` as Triton spells them."""
    names = {"dim": "axis", "keepdim": "keep_dims", "keepdims": "keep_dims"}
    args = [
        arg.with_changes(keyword=cst.Name(names[arg.keyword.value]))
        if arg.keyword is not None and arg.keyword.value in names
        else arg
        for arg in call.args
    ]
    return call.with_changes(args=args)


def bounds(call: cst.Call) -> list[cst.BaseExpression] | None:
    """The three arguments of `clamp(x, low, high)`, however they are given."""
    keywords = {"min": 1, "max": 2, "a_min": 1, "a_max": 2, "low": 1, "high": 2}
    found: dict[int, cst.BaseExpression] = {}
    for at, arg in enumerate(call.args):
        place = at if arg.keyword is None else keywords.get(arg.keyword.value)
        if place is None or arg.star:
            return None
        found[place] = arg.value
    return [found[at] for at in range(3)] if sorted(found) == [0, 1, 2] else None


def positional(call: cst.Call) -> list[cst.BaseExpression] | None:
    """The arguments of a call that has no others than by position."""
    if any(arg.keyword is not None or arg.star for arg in call.args):
        return None
    return [arg.value for arg in call.args]


def operand_text(program: Program, node: cst.BaseExpression) -> str:
    """A node's text, in parentheses where an operator beside it could take it apart."""
    code = program.code(node)
    return code if isinstance(node, _SIMPLE) or node.lpar else f"({code})"


def repeatable(program: Program, node: cst.BaseExpression) -> bool:
    """Whether a value may be written twice: nothing in it reads memory or draws numbers."""
    calls = [program.path(call.func) or "" for call in program.find(cst.Call, node)]
    return all(path.rpartition(".")[2] in ELEMENTWISE for path in calls)


def axis_of(call: cst.Call) -> cst.Arg | None:
    """The argument that says along which axis a call reduces, by either name."""
    return argument(call, "axis") or argument(call, "dim")


def _spelt(name: str) -> str:
    name = _SPELT.get(name, name)
    if name.endswith("_") and name[:-1] in ELEMENTWISE | LIBRARY | _EXPRESSIONS.keys():
        return name[:-1]
    if name.endswith("f") and name not in ELEMENTWISE and name[:-1] in ELEMENTWISE | LIBRARY:
        return name[:-1]
    return name
