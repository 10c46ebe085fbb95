"""Modes of torch under which a call must not reach the kernels: what they would do would be lost, or be wrong."""

from __future__ import annotations

import torch
from torch.nn.modules import module as nn_module
from torch.utils._device import DeviceContext

_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_functorch = torch._C._functorch.peek_interpreter_stack
_tracing = torch._C._get_tracing_state
_autocast = torch._C._is_any_autocast_enabled


def why_not_now() -> str | None:
    """Why the original has to run in the mode that torch is in, None where kernels may."""
    if _autocast():
        return "autocast is on, and its kernels compute in the dtypes of the example"
    if nn_module._global_forward_hooks or nn_module._global_forward_pre_hooks:
        return "there are global hooks on modules, which submodules would not reach"
    if _dispatch_modes() or _functorch() is not None:
        return "the call is transformed or watched (functorch, vmap, or a dispatch mode)"
    if _function_modes() and not _only_devices():
        return "a mode that overrides torch's functions is active"
    if _tracing() is not None:
        return "the call is traced"
    return None


def _only_devices() -> bool:
    """Whether all that is on the stack of function modes is a default device, which kernels do not ask for."""
    return all(isinstance(torch._C._get_function_stack_at(index), DeviceContext) for index in range(_function_modes()))
