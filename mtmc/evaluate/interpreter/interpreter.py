"""Triton's interpreter made to compute what a GPU computes, faster, and within the bounds of the kernel's tensors.

As it comes, the interpreter multiplies fp32 operands of `tl.dot` exactly where a GPU rounds them to TF32, treats
bfloat16 bits as integers in arithmetic, truncates when it casts to bfloat16, rounds fp8 wrongly, knows no libdevice,
takes no mask that a scalar has a part in, patches `triton.language` anew for every device function it calls (half of its
time), and reads and writes whatever address a kernel computes. `prepare` corrects the numbers and the speed in the
present process, which must run with TRITON_INTERPRET=1; `mtmc.evaluate.interpreter.bounds` watches the addresses. None of
it is public API: tests hold it to each version.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from mtmc.evaluate.interpreter import fp8, libdevice
from mtmc.evaluate.interpreter.combining import combine_as_trees
from mtmc.evaluate.interpreter.fp8 import rounds_to_nearest
from mtmc.evaluate.interpreter.kept_types import keep_types
from mtmc.evaluate.interpreter.loops import cast_loop_variables
from mtmc.evaluate.interpreter.names import keep_names_out

_Array = np.ndarray[Any, Any]


def prepare(default_precision: str = "tf32") -> None:
    """Correct the interpreter of this process, once.

    default_precision: what `tl.dot` does to fp32 operands where a kernel does not say ("tf32" on CUDA, "ieee" on AMD).
    """
    from triton.runtime import interpreter

    np.seterr(all="ignore")  # infinities and NaN are the candidate's business, not a warning's
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(
        builder.options,
        default_dot_input_precision=default_precision,
        allowed_dot_input_precisions=("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"),
        sanitize_overflow=False,  # integers wrap around on a GPU; the check takes half of the interpreter's time
    )
    _patch_language_once(interpreter)
    _take_floats(interpreter)
    keep_names_out(interpreter)
    keep_types(interpreter)
    cast_loop_variables(interpreter)
    _correct_bfloat16(interpreter)
    fp8.correct_fp8(interpreter)
    _correct_dot(interpreter.InterpreterBuilder)
    _correct_math(interpreter)
    _keep_truth(interpreter)
    combine_as_trees(interpreter)


def _take_floats(interpreter: types.ModuleType) -> None:
    """A float that a kernel is given is a number of fp32 there, with all that such have (`eps.to(tl.float32)`). As it comes,
    the interpreter hands on Python's."""
    import triton.language as tl

    original, handle = interpreter._implicit_cvt, interpreter.TensorHandle

    def convert(argument: Any) -> Any:
        if isinstance(argument, float):
            return tl.tensor(handle(np.array([argument], dtype=np.float32), tl.float32), tl.float32)
        return original(argument)

    interpreter._implicit_cvt = convert  # type: ignore[attr-defined]


# --- numbers ---------------------------------------------------------------------------------------------------------


def cut_to_tf32(values: _Array) -> _Array:
    """float32 values without the 13 bits that TF32 lacks, which is what tensor cores read of them: convolutions of ours
    erred 2.5 times as much as cuDNN's, which are rounded (H200). Infinities and NaN stay."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return np.where(
        np.isfinite(values), (bits & np.uint32(0xFFFFE000)).view(np.float32).reshape(np.shape(values)), values
    )


def bf16_to_f32(bits: _Array) -> _Array:
    """bfloat16 bit patterns (uint16) as float32 values."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(values: _Array) -> _Array:
    """float32 values as bfloat16 bit patterns (uint16), rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    special = (bits & np.uint32(0x7F800000)) == np.uint32(0x7F800000)
    rounded = bits + ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    # A NaN with only low mantissa bits must not become an infinity when they are dropped.
    kept = np.where((bits & np.uint32(0x007FFFFF)) != 0, bits | np.uint32(0x00400000), bits)
    return (np.where(special, kept, rounded) >> np.uint32(16)).astype(np.uint16).reshape(np.shape(values))


# --- tl.dot ----------------------------------------------------------------------------------------------------------


def _correct_dot(builder: Any) -> None:
    original = builder.create_dot

    def create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        kind = type(a)
        left, right = _dot_operand(a), _dot_operand(b)
        if left is None or right is None:
            return original(self, a, b, d, input_precision, max_num_imprecise_acc)
        if a.data.dtype == np.float32:
            product = _product(left, right, str(getattr(input_precision, "name", input_precision)))
        else:
            product = np.matmul(left, right)
        return kind((product + d.data).astype(d.data.dtype), d.dtype.scalar)

    builder.create_dot = create_dot


def _dot_operand(handle: Any) -> _Array | None:
    """float32 values of an fp32, fp16, bf16 or fp8 operand; None for the types that the interpreter gets right by itself."""
    name = handle.dtype.scalar.name
    if name == "bf16":
        return bf16_to_f32(handle.data)
    if fp8.is_fp8(handle.dtype.scalar):
        return fp8.decode(handle.data, name)
    return handle.data.astype(np.float32) if name in ("fp32", "fp16") else None


def _product(a: _Array, b: _Array, precision: str) -> _Array:
    """fp32 matrix product at one of Triton's input precisions."""
    precision = precision.lower()
    if precision == "tf32":
        return np.matmul(cut_to_tf32(a), cut_to_tf32(b))
    if precision in ("bf16x3", "bf16x6"):
        a_parts, b_parts = _bf16_parts(a), _bf16_parts(b)
        highest = 1 if precision == "bf16x3" else 2
        pairs = [(i, j) for i in range(3) for j in range(3) if i + j <= highest]
        return sum((np.matmul(a_parts[i], b_parts[j]) for i, j in reversed(pairs)), np.float32(0))
    return np.matmul(a, b)  # ieee; tf32x3 keeps fp32's accuracy


def _bf16_parts(values: _Array) -> list[_Array]:
    parts: list[_Array] = []
    for _ in range(3):
        part = bf16_to_f32(f32_to_bf16(values))
        parts.append(part)
        values = values - part
    return parts


# --- bfloat16 --------------------------------------------------------------------------------------------------------


def _correct_bfloat16(interpreter: types.ModuleType) -> None:
    """Arithmetic on bfloat16: through float32, rounded once at the end of each operation."""
    builder, handle_type = interpreter.InterpreterBuilder, interpreter.TensorHandle
    import triton.language as tl

    def is_bf16(value: Any) -> bool:
        return isinstance(value, handle_type) and value.dtype.scalar == tl.bfloat16

    def widen(value: Any) -> Any:
        return handle_type(bf16_to_f32(value.data), tl.float32) if is_bf16(value) else value

    def narrow(value: Any) -> Any:
        if value.data.dtype != np.float32:  # a comparison
            return value
        return handle_type(f32_to_bf16(value.data), tl.bfloat16)

    def through_f32(original: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Any, *args: Any) -> Any:
            if not is_bf16(args[0]):
                return original(self, *args)
            return narrow(original(self, *(widen(arg) for arg in args)))

        return method

    for name in ("binary_op", "unary_op", "ternary_op", "create_fma", "create_idiv", "create_clampf"):
        if hasattr(builder, name):
            setattr(builder, name, through_f32(getattr(builder, name)))
    _correct_casts(builder, widen, narrow)
    _correct_reductions(interpreter, widen, narrow)


def _correct_casts(builder: Any, widen: Callable[[Any], Any], narrow: Callable[[Any], Any]) -> None:
    """Casts from and to bfloat16, which the interpreter truncates where a GPU rounds to nearest."""
    import triton.language as tl

    original_cast, original_fp_to_fp = builder.cast_impl, builder.create_fp_to_fp

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        src = widen(src)
        if dst_type.scalar == tl.bfloat16:
            return narrow(src if src.dtype.scalar == tl.float32 else original_cast(self, src, tl.float32))
        return src if src.dtype.scalar == dst_type.scalar else original_cast(self, src, dst_type)

    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        plain = (tl.bfloat16, tl.float16, tl.float32)
        if src.dtype.scalar in plain and dst_type.scalar in plain and rounds_to_nearest(rounding_mode):
            return cast_impl(self, src, dst_type)
        return original_fp_to_fp(self, src, dst_type, rounding_mode)

    builder.cast_impl = cast_impl
    builder.create_fp_to_fp = create_fp_to_fp


def _correct_reductions(
    interpreter: types.ModuleType, widen: Callable[[Any], Any], narrow: Callable[[Any], Any]
) -> None:
    """Sums and scans of bfloat16: accumulated in fp32, rounded once."""
    import triton.language as tl

    def tensor(value: Any, convert: Callable[[Any], Any]) -> Any:
        handle = convert(value.handle)
        kind = tl.block_type(handle.dtype, list(handle.data.shape)) if value.type.is_block() else handle.dtype
        return tl.core.tensor(handle, kind)

    for owner, names in ((interpreter.ReduceOps, ("sum",)), (interpreter.ScanOps, ("cumsum", "cumprod"))):
        for name in names:
            original = getattr(owner, name, None)
            if original is None:
                continue

            def method(self: Any, value: Any, original: Any = original) -> Any:
                if value.dtype != tl.bfloat16:
                    return original(self, value)
                result = original(self, tensor(value, widen))
                if isinstance(result, list):
                    return [tensor(item, narrow) for item in result]
                return tensor(result, narrow)

            setattr(owner, name, method)


# --- the language ----------------------------------------------------------------------------------------------------


def index_of(value: Any) -> int:
    """An interpreted scalar as a number: Triton 3.6 calls int() on an array of one element, which numpy 2.4 refuses."""
    return int(value.handle.data.squeeze())


def _patch_language_once(interpreter: Any) -> None:
    """Leave `triton.language` patched for interpretation for good, instead of once per call of a device function."""
    import triton.language as tl

    if not hasattr(interpreter, "_patch_lang"):
        return
    interpreter._patch_attr = straight(interpreter.interpreter_semantic, tl.core.builtin)
    interpreter._patch_lang(types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    tl.tensor.__index__ = index_of
    scope = types.SimpleNamespace(restore=lambda: None)
    interpreter._patch_lang = lambda fn: scope


def straight(semantic: Any, builtin: Callable[..., Any]) -> Callable[..., None]:
    """What puts the function of a builtin itself in its place, where two others stood before it at each call.

    semantic: the interpreter's, which each call is given. builtin: the decorator of builtins.
    """
    checks = builtin(index_of).__code__  # that it is called from a kernel

    def patch(obj: object, name: str, member: Any, *_: Any) -> None:
        function = member.__wrapped__ if getattr(member, "__code__", None) is checks else member

        def called(*args: Any, **kwargs: Any) -> Any:
            kwargs["_semantic"] = semantic
            return function(*args, **kwargs)

        setattr(obj, name, called)

    return patch


def _correct_math(interpreter: types.ModuleType) -> None:
    """erf of whole arrays, and libdevice."""
    builder, handle_type = interpreter.InterpreterBuilder, interpreter.TensorHandle

    def create_erf(self: Any, arg: Any) -> Any:
        return handle_type(libdevice.compute("__nv_erf", [arg.data], arg.data.dtype), arg.dtype.scalar)

    def create_extern_elementwise(
        self: Any,
        lib_name: str,
        lib_path: str,
        symbol: str,
        arguments: list[Any],
        result_type: Any,
        is_pure: bool,
    ) -> Any:
        scalar = result_type.scalar
        data = libdevice.compute(symbol, [arg.data for arg in arguments], interpreter._get_np_dtype(scalar))
        return handle_type(data, scalar)

    builder.create_erf = create_erf
    builder.create_extern_elementwise = create_extern_elementwise
    _open_libdevice(interpreter)


def _keep_truth(interpreter: types.ModuleType) -> None:
    """Comparisons give truth values. As it comes, the interpreter says of them that they have the type of what they compare:
    a cast to that type left them as they were, one byte each, for a store of eight, and spread they were no mask."""
    import triton.language as tl

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    compute = builder.binary_op

    def binary_op(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        found = compute(self, lhs, rhs, op)
        compared = found.data.dtype == np.bool_ and found.dtype.scalar != tl.int1
        return handle(found.data, tl.int1) if compared else found

    builder.binary_op = binary_op


def _open_libdevice(interpreter: types.ModuleType) -> None:
    """Make libdevice's functions callable from interpreted code: they miss the argument that the compiler adds."""
    import triton.language.extra.cuda.libdevice as cuda
    import triton.language.extra.hip.libdevice as hip
    import triton.language.extra.libdevice as common
    from triton.language import core

    def bind(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: function(*args, **{**kwargs, "_semantic": interpreter.interpreter_semantic})

    for module in (hip, cuda):
        for name, function in list(vars(module).items()):
            if core.is_builtin(function):
                setattr(module, name, bind(function))
                # The common names are stubs that the compiler maps to the target's own; CUDA's list is the longer one.
                setattr(common, name, getattr(module, name))
