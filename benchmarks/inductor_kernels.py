"""The kernels that Inductor makes of each block of `suite=blocks`, found without a GPU and without compiling any.

    PYTHONPATH=. python benchmarks/inductor_kernels.py [BLOCK...] > kernels.json

The export of a block goes through Inductor up to its scheduler, which says which operations share a kernel; then it is
stopped. Tensors are without data. What asks for the GPU is answered as an H100 would (`_stand_in`), so this is a process
of its own. Attention is one call that Inductor leaves to the library. Prints, for each block, `launches`, `products`
(calls of a library), `bytes` (of what each kernel reads and writes) and `kernels`: the calls of the export in each. A
block that does not come so far has `error` instead.
"""

from __future__ import annotations

import json
import sys
import types
from typing import Any

import torch
from torch._inductor import compile_fx, config, ir, scheduler
from torch._inductor.fx_passes import joint_graph

from mtmc.bench import open_suite
from mtmc.bench.loading import load_problem
from mtmc.rewrite.export import export_reference
from mtmc.task import Task

CUDA = torch.device("cuda:0")
ATTENTION = "aten.scaled_dot_product_attention.default"
_H100 = types.SimpleNamespace(
    name="NVIDIA H100 80GB HBM3", major=9, minor=0, multi_processor_count=132, total_memory=80 << 30, warp_size=32,
    regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024,
    shared_memory_per_block=49152, shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472,
    L2_cache_size=50 << 20, gcnArchName="",
)  # fmt: skip


class _Scheduled(BaseException):
    """Inductor has come as far as it should. No Exception, so that nothing on the way takes it for a failure."""

    def __init__(self, kernels: list[tuple[bool, int, list[str]]]) -> None:
        self.kernels = kernels


def _stand_in() -> None:
    """Let this process answer for a GPU, and Inductor end with its schedule."""
    from torch._dynamo.device_interface import CudaInterface

    for where in (CudaInterface, CudaInterface.Worker):
        where.get_device_properties = staticmethod(lambda device=None: _H100)
    CudaInterface.get_compute_capability = staticmethod(lambda device=None: 90)
    CudaInterface.is_available = staticmethod(lambda: True)
    CudaInterface.current_device = staticmethod(lambda: 0)
    CudaInterface.is_bf16_supported = staticmethod(lambda including_emulation=False: True)
    torch.cuda.get_device_properties = lambda device=None: _H100
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    torch.cuda.current_device = lambda: 0
    scheduler.Scheduler.codegen = _stop
    config.shape_padding = config.joint_graph_constant_folding = False  # both would run kernels
    config.force_disable_caches = True
    original = joint_graph.lazy_init
    joint_graph.lazy_init = lambda device=None: original(torch.device("cpu"))  # patterns are traced with real tensors


def _stop(self: Any) -> None:
    kernels = [node for node in self.nodes if not _launches_nothing(node)]
    raise _Scheduled([(node.is_extern(), int(node.get_read_write_buffers_sizes()), _calls(node)) for node in kernels])


def _launches_nothing(node: Any) -> bool:
    """Whether it is memory without work, or one result of a call that gives several."""
    return isinstance(node, scheduler.NopKernelSchedulerNode) or isinstance(node.node, ir.MultiOutput)


def _calls(node: Any) -> list[str]:
    """The export's calls of which a kernel has something, as far as Inductor remembers."""
    parts = [part.node for part in node.get_nodes() if part.node is not None]
    traces = {origin.meta.get("stack_trace") or "" for part in parts for origin in part.get_origins()}
    return sorted({trace.rpartition(" in ")[2].strip() for trace in traces if trace})


def _attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """The library's result, without data: heads lie behind rows."""
    if q.dim() < 4:
        return q.new_empty((*q.shape[:-1], v.shape[-1]))
    return q.new_empty((*q.shape[:-3], q.shape[-2], q.shape[-3], v.shape[-1])).transpose(-3, -2)


def _there(item: Any) -> Any:
    """Tensors and devices as if they were on a GPU, also inside of tuples and lists."""
    if isinstance(item, torch.Tensor):
        return torch.empty_strided(item.shape, item.stride(), dtype=item.dtype, device=CUDA)
    if isinstance(item, torch.device):
        return CUDA
    return type(item)(map(_there, item)) if type(item) in (tuple, list) else item


def _compiled_there(module: torch.fx.GraphModule, inputs: Any, **more: Any) -> Any:
    """Inductor's own compilation of a traced graph, moved to the GPU."""
    mode = torch._guards.detect_fake_mode(inputs)
    assert mode is not None
    with mode:
        for node in module.graph.nodes:
            node.meta["val"] = _there(node.meta.get("val"))
            node.meta.pop("tensor_meta", None)
            if node.op == "call_function":
                node.args = _there(tuple(node.args))
                node.kwargs = {key: _there(value) for key, value in node.kwargs.items()}
        module.recompile()
        moved = [_there(item) for item in inputs]
    return compile_fx.compile_fx_inner(module, moved, **more)


def scheduled(task: Task) -> list[tuple[bool, int, list[str]]]:
    """Of each kernel: whether a library makes it, bytes that it reads and writes, and the calls of which it has something.

    Raises: whatever Inductor raises before it has a schedule.
    """
    program = export_reference(task, task.full).program
    module = torch.fx.GraphModule(torch.nn.Module(), program.graph)
    inputs = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
    mode = torch._guards.detect_fake_mode(inputs)
    for node in module.graph.nodes:
        node.meta["stack_trace"] = f'File "export", line 1, in {node.name}\n'
        if str(node.target) == ATTENTION:
            mask = node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")
            node.target, node.kwargs = torch.ops.mtmc_blocks.attention.default, {}
            node.args = (*node.args[:3], mask)
    module.recompile()
    torch._dynamo.reset()
    try:
        with mode, torch.no_grad():  # type: ignore[union-attr]
            compile_fx.compile_fx(module, inputs, inner_compile=_compiled_there)(*inputs)
    except _Scheduled as found:
        return found.kernels
    raise AssertionError("Inductor made no schedule")


def main() -> None:
    """Print what is found of the blocks that are named, of all where none is."""
    _stand_in()
    library = torch.library.Library("mtmc_blocks", "DEF")
    library.define("attention(Tensor q, Tensor k, Tensor v, Tensor? mask=None) -> Tensor")
    torch.library.register_fake("mtmc_blocks::attention", _attention, lib=library)
    suite, found = open_suite("blocks", ""), dict[str, Any]()
    for problem in suite.problems():
        if len(sys.argv) > 1 and problem.id not in sys.argv[1:]:
            continue
        try:
            kernels = scheduled(load_problem(suite, problem, "fp32"))
        except Exception as error:
            found[problem.id] = {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
            continue
        found[problem.id] = {
            "launches": len(kernels),
            "products": sum(extern for extern, _, _ in kernels),
            "bytes": sum(moved for _, moved, _ in kernels),
            "kernels": [calls for _, _, calls in kernels],
        }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
