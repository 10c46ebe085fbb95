"""cuda_graph: all launches of a forward become one CUDA graph."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from mtmc.action import Action, Region, make_action
from mtmc.errors import CoderError
from mtmc.evaluate.estimates.host_time import host_us, launch_bound, nearly_launch_bound
from mtmc.evaluate.estimates.roofline import DRAM_EFFICIENCY, GRAPHED_SHARE
from mtmc.optimizations.kind import Optimization
from mtmc.optimizations.move import Move
from mtmc.optimizations.version import Version
from mtmc.protocols import Observation
from mtmc.rewrite.cuda_graph import fits_cuda_graph
from mtmc.rewrite.forward import input_expressions
from mtmc.rewrite.graph import CONSTANT, Op, Ref, Tensor, is_number
from mtmc.task.recurrent import NAMES as RECURRENT

PAGE = """\
# cuda_graph

The forward's launches are recorded once as a CUDA graph, and replayed by one launch.

## What it does
The host gives the device the whole graph instead of one kernel after the other, and the device goes from one kernel to
the next without asking the host. The kernels stay what they are. The graph reads its inputs and writes its outputs
always at the same places, so inputs are copied in and outputs copied out: two more small kernels at least, and their
bytes twice. Parameters are read where they lie.

## When it pays
Many short kernels: small batches, recurrent loops, deep networks of small layers. An eager call costs the host some 5
to 10 us and the device some 3.5 us besides its work; inside a graph half of the latter is assumed (not timed here).
A Triton launch from Python takes the host about 40 us, so a version of five short kernels takes 0.2 ms a call however
fast they are. Where `call_ms` is above `device_ms`, that is what its time is made of. A module that is called under a
CUDA graph already (`CUDA_GRAPH = True` in its task) gains nothing.

## When it harms
- Large inputs or outputs. On an H100 the copies made the gelu of one large tensor go from 0.18 ms to 0.54, and a linear
  layer with ReLU from 0.38 to 0.42.
- Shapes that change from call to call: each form of the inputs is captured once (some 0.1 s, and memory of its own).
- What is random, or waits for the device, cannot be captured. With gradients, under autocast and on a CPU the launches
  are made one by one.
Do it last: it hides nothing that fusing would not remove altogether.
"""

LAUNCH_MS, LAUNCHING_SHARE = 3.5e-3, 0.2
"""What a launch costs, and the part of a runtime made of it from which on one CUDA graph, which halves that, is worth
trying."""

_RANDOM = (
    "rand randn randint randperm bernoulli normal uniform multinomial exponential geometric cauchy log_normal poisson "
    "random rand_like randn_like randint_like"
)
_WAITING = (
    "item _local_scalar_dense nonzero masked_select unique unique_consecutive unique_dim _unique _unique2 equal allclose "
    "is_nonzero bincount histc repeat_interleave one_hot to_dense ctc_loss linalg_inv linalg_inv_ex linalg_solve cholesky "
    "linalg_cholesky linalg_eigh linalg_eig linalg_svd svd linalg_qr linalg_lu linalg_det linalg_slogdet linalg_lstsq "
    "linalg_pinv linalg_matrix_exp inverse pinverse logdet matrix_exp tensor scalar_tensor lift_fresh lift_fresh_copy "
    "_assert_async _assert_scalar"
)
_NEVER = frozenset(f"{_RANDOM} {_WAITING}".split())
"""Names of ops that draw random numbers, or make the host wait for the device or read from its memory."""
_DROPPING = {"dropout": (1, 2), "alpha_dropout": (1, 2), "feature_dropout": (1, 2), "native_dropout": (1, 2)}
"""Where probability and training mode stand among an op's arguments."""
_MANY = 8
"""Launches of each layer of a recurrent network at least."""


class CudaGraph(Optimization):
    """The forward as one CUDA graph."""

    kind = "cuda_graph"
    page = PAGE
    weight = 0.3
    changes = ("host_ms", "call_ms")

    def legal(self, version: Version) -> Iterator[Move]:
        """The one move, where the forward can be captured and its launches cost more than the copies."""
        graph, plan = version.graph, version.plan
        if plan.cuda_graph or version.task.cuda_graph or not _has_plain_tensors(version):
            return
        if not all(_replays(version, graph.by_name[stage.ops[0]]) for stage in plan.stages if stage.is_torch):
            return
        launches = _launches(version)
        gains = (_gain_us(version, launches), _host_gain_us(version, launches), _measured_gain_us(version, launches))
        if max(gains) <= 0:
            return
        lines = [version.regions[stage] for stage in plan.stages if stage in version.regions]
        region = Region.spanning("forward", lines)
        action = make_action(self.kind, region, "capture the forward in a CUDA graph", launches=launches)
        yield Move(action, partial(replace, plan, cuda_graph=True))

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """Where launches are a good part of the runtime, above all where the device waits for them, or would on a busy
        machine."""
        launching = int(dict(action.params).get("launches", 0)) * LAUNCH_MS
        metrics = observation.outcome.metrics
        if launch_bound(metrics.get("device_ms"), metrics.get("call_ms")):
            return 4.0
        if nearly_launch_bound(metrics.get("device_ms"), metrics.get("host_ms")):
            return 3.0
        return 3.0 if launching >= LAUNCHING_SHARE * (observation.outcome.runtime_ms or math.inf) else -2.0


def _has_plain_tensors(version: Version) -> bool:
    """Whether forward takes and returns what the captured forward's text can copy."""
    try:
        return fits_cuda_graph(version.graph, input_expressions(version.task, version.graph))
    except CoderError:  # an argument is a structure
        return False


def _launches(version: Version) -> int:
    """Launches of the forward, at least."""
    working = [version.graph.by_name[stage.ops[0]] for stage in version.working()]
    return sum(_MANY * int(op.args[4]) if op.target.split(".")[1] in RECURRENT else 1 for op in working)


def _gain_us(version: Version, launches: int) -> float:
    """What capturing is worth by the hardware table, microseconds: shorter ways between kernels, less the copies."""
    gpu = version.hardware
    between = launches * (1 - GRAPHED_SHARE) * gpu.launch_us
    return between - (_copied(version) + 1) * gpu.launch_us - _copying_us(version)


def _host_gain_us(version: Version, launches: int) -> float:
    """What capturing is worth where the device waits for the host, microseconds: one launch and the copies for all."""
    kernels = sum(not stage.is_torch for stage in version.plan.stages)
    before = host_us(kernels, launches - kernels)
    return before - host_us(0, _copied(version), graphed=True) - _copying_us(version)


def _measured_gain_us(version: Version, launches: int) -> float:
    """What capturing is worth by the times of the version itself, microseconds; 0 where its calls do not wait for the host.

    What the host takes for an op differs by a factor of ten: an einsum is several calls of Python, an addition one.
    """
    times = version.times
    if times is None or not launch_bound(times.device_ms, times.call_ms):
        return 0.0
    device_us = times.device_ms * 1e3 - _gain_us(version, launches)
    return times.call_ms * 1e3 - max(device_us, host_us(0, _copied(version), graphed=True))


def _copied_tensors(version: Version) -> list[Tensor]:
    """Inputs, results, and what is copied back."""
    graph = version.graph
    changed = [each.target for each in graph.mutations if each.target in graph.inputs]  # are copied back
    return [graph.values[value] for value in (*graph.inputs, *graph.returned, *changed)]


def _copied(version: Version) -> int:
    return len(_copied_tensors(version))


def _copying_us(version: Version) -> float:
    """Microseconds of the device for the bytes of all copies."""
    moved = 2 * sum(tensor.numel() * tensor.element_bytes for tensor in _copied_tensors(version))
    return moved / (version.hardware.dram_gbs * DRAM_EFFICIENCY) / 1e3


def _replays(version: Version, op: Op) -> bool:
    """Whether a torch call does the same each time that a graph of it is replayed."""
    graph, name = version.graph, op.target.split(".")[1].rstrip("_")
    if op.target == CONSTANT and not is_number(op):  # several numbers come from the host's memory
        covered = {name for stage in version.kernels() for name in stage.ops}
        return not graph.results() & set(op.outputs) and covered.issuperset(graph.readers(op.outputs[0]))
    if name in _NEVER:
        return _is_sized(op)
    if name in _DROPPING:
        chance, training = (op.args[at] if at < len(op.args) else True for at in _DROPPING[name])
        return not training or chance == 0
    if name in RECURRENT:  # input, state, parameters, has_biases, layers, dropout, train, ...
        return not (op.args[6] and op.args[5]) if len(op.args) > 6 else False
    if name == "rrelu":
        return not (op.args[3] if len(op.args) > 3 else False)
    if name == "scaled_dot_product_attention":
        return not (op.args[4] if len(op.args) > 4 else op.kwargs.get("dropout_p", 0.0))
    if name in ("index", "index_put"):  # by a mask: how much comes out hangs on its values
        return not any(isinstance(ref, Ref) and _is_mask(version, ref) for ref in op.args[1] if ref is not None)
    return True


def _is_sized(op: Op) -> bool:
    """Whether one of the ops that wait is told how large its result is by a number, so that it asks the device nothing."""
    if op.target == "aten.one_hot.default":
        return (op.args[1] if len(op.args) > 1 else op.kwargs.get("num_classes", -1)) != -1
    return op.target == "aten.repeat_interleave.self_int"


def _is_mask(version: Version, ref: Ref) -> bool:
    return version.graph.values[ref.name].dtype in ("bool", "uint8")
