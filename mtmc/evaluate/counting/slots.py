"""Issue slots: what operations cost the cores of an SM outside its tensor cores."""

from __future__ import annotations

# Issue slots per element of a builder operation on an NVIDIA SM, by counting instructions of compiled kernels: a gelu
# by erf with an integer remainder has 44 per element (40 by this table), a softmax of one pass 15.8 (16).
FLOP_SLOTS: dict[str, float] = {
    **dict.fromkeys(("fadd", "fsub", "fmul", "fma", "fneg", "fabs", "minnumf", "maxnumf", "minimumf", "maximumf"), 1.0),
    **dict.fromkeys(("clampf", "floor", "ceil"), 2.0),
    **dict.fromkeys(("fdiv", "approx_divf", "exp", "log", "log2", "sqrt"), 6.0),
    **dict.fromkeys(("exp2", "rsqrt"), 4.0),
    **dict.fromkeys(("precise_divf", "precise_sqrt", "frem"), 12.0),
    **dict.fromkeys(("sin", "cos"), 14.0),
    **dict.fromkeys(("erf", "extern_elementwise", "inline_asm"), 24.0),
}
"""Of floating-point operations, which count as one flop an element each."""
_OTHER: dict[str, float] = {
    **dict.fromkeys(("sdiv", "udiv", "srem", "urem", "idiv"), 8.0),
    **dict.fromkeys(("select", "fp_trunc", "fp_ext", "fp_to_fp", "si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui"), 0.5),
    **dict.fromkeys(("add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "addptr", "umulhi"), 0.25),
}
ACCESS_SLOTS = 0.5  # a load or store moves up to 16 bytes an instruction; its address is mostly shared


def slots_of(operation: str) -> float:
    """Issue slots per element of a builder operation, e.g. "fadd": 1.0.

    Of what the tables lack, only comparisons, minima and maxima cost something.
    """
    listed = FLOP_SLOTS.get(operation, _OTHER.get(operation))
    if listed is not None:
        return listed
    return 0.25 if operation.startswith(("icmp", "fcmp", "min", "max")) else 0.0
