"""What a version may use of Gluon, Triton's language of layouts and asynchronous copies (`triton.experimental.gluon`). Data.

Nothing of `triton.experimental` is allowed but these names, in every release from 3.6 on that has them. Left out are
assembly, printing, pointers made of integers, other makers of GPUs, and all that is not Gluon.
"""

from __future__ import annotations

import re

ROOT = "triton.experimental"
GLUON = f"{ROOT}.gluon"
LANGUAGE = f"{GLUON}.language"
JIT = f"{GLUON}.jit"
_AMPERE, _HOPPER = f"{LANGUAGE}.nvidia.ampere", f"{LANGUAGE}.nvidia.hopper"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


DTYPES = _words(
    """
    int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 float8e5 float8e5b16 float8e4nv float8e4b8 float8e4b15
    float16 bfloat16 float32 float64
    """
)
_COPIES = _words("async_load async_copy_global_to_shared mbarrier_arrive commit_group wait_group")
_BARRIERS = _words("allocate_mbarrier arrive expect init invalidate MBarrierLayout wait")
NAMES: dict[str, frozenset[str]] = {
    GLUON: _words("jit constexpr_function aggregate must_use_result"),
    f"{GLUON}.nvidia.hopper": _words("TensorDescriptor TensorDescriptorIm2Col"),
    LANGUAGE: DTYPES
    | _words(
        """
        constexpr tensor tuple shared_memory_descriptor dtype void CachePolicy
        add allocate_shared_memory arange associative_scan assume atomic_add atomic_and atomic_cas atomic_load atomic_max
        atomic_min atomic_or atomic_store atomic_xchg atomic_xor barrier broadcast cast clamp convert_layout device_assert
        dot_fma expand_dims fp4_to_fp full gather histogram join load map_elementwise max_constancy max_contiguous maximum
        minimum mul multiple_of num_ctas num_programs num_warps permute program_id reduce reshape set_auto_layout split
        static_assert static_range store sub thread_barrier to_linear_layout to_tensor warp_specialize where
        AutoLayout BlockedLayout CoalescedLayout DistributedLinearLayout DotOperandLayout NVMMADistributedLayout
        NVMMASharedLayout PaddedSharedLayout SharedLinearLayout SliceLayout SwizzledSharedLayout
        abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi
        cdiv cumprod cumsum full_like max min ravel reduce_or sum xor_sum zeros zeros_like
        """
    ),
    _AMPERE: _words("CachePolicy FractionalEvictionPolicy mma_v2"),
    f"{_AMPERE}.async_copy": _COPIES,
    f"{_AMPERE}.mbarrier": _BARRIERS,
    _HOPPER: _words(
        """
        CachePolicy FractionalEvictionPolicy async_store fence_async_shared mma_v2 warpgroup_mma warpgroup_mma_accumulator
        warpgroup_mma_init warpgroup_mma_wait
        """
    ),
    f"{_HOPPER}.async_copy": _COPIES,
    f"{_HOPPER}.cluster": _words("barrier"),
    f"{_HOPPER}.mbarrier": _BARRIERS,
    f"{_HOPPER}.tma": _words(
        """
        async_atomic_add async_atomic_and async_atomic_max async_atomic_min async_atomic_or async_atomic_xor
        async_copy_global_to_shared async_copy_global_to_shared_im2col async_copy_shared_to_global async_load
        async_load_im2col async_store make_tensor_descriptor store_wait tensor_descriptor tensor_descriptor_im2col
        """
    ),
}
"""Names by the module in which a version finds them."""
_LIBDEVICE = re.compile(rf"{re.escape(LANGUAGE)}\.extra\.libdevice\.(?!core$)[a-z]\w*")
_OF_CLASSES = _words("get_default_for with_dim from_tensor")
"""What is looked up in a class."""
_TYPES = frozenset(f"{LANGUAGE}.{name}" for name in DTYPES)
_OF_TYPES = re.compile(r"primitive_bitwidth|itemsize|name|is_[a-z]\w*")
_ALLOWED = frozenset(f"{module}.{name}" for module, names in NAMES.items() for name in names)
MODULES = frozenset(
    ".".join(parts[:count])
    for parts in (module.split(".") for module in (*NAMES, f"{LANGUAGE}.extra.libdevice"))
    for count in range(2, len(parts) + 1)
)
"""Modules on the way to a name, which must not be handed around."""
ONLY_HOPPER = _words("warpgroup_mma warpgroup_mma_accumulator warpgroup_mma_init warpgroup_mma_wait")
"""Instructions that later GPUs do not have."""
LATEST = 1000


def is_of_experimental(path: str) -> bool:
    """Whether a dotted path leads into `triton.experimental`."""
    return path == ROOT or path.startswith(ROOT + ".")


def refused_gluon(path: str) -> str | None:
    """Why a path into `triton.experimental` is refused; None where it is not."""
    owner, _, name = path.rpartition(".")
    if path in MODULES or path in _ALLOWED or _LIBDEVICE.fullmatch(path):
        return None
    if owner in _ALLOWED and (name in _OF_CLASSES or (owner in _TYPES and _OF_TYPES.fullmatch(name))):
        return None
    return f"use of {path}{', which is not in the list of Gluon names' if path.startswith(GLUON) else ''}"


def chips(path: str) -> tuple[int, int]:
    """The least and the greatest compute capability of GPUs that have what a path of Gluon names: 90 is Hopper."""
    if path.startswith((_HOPPER, f"{GLUON}.nvidia")) or path == f"{LANGUAGE}.warp_specialize":
        return 90, 90 if path.rpartition(".")[2] in ONLY_HOPPER else LATEST
    return (80 if path.startswith(f"{LANGUAGE}.nvidia") else 0), LATEST
