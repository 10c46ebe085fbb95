"""What a forward moves and computes at its full shapes, measured without a GPU and without its data.

The forward runs on fake tensors (shapes, no memory). Torch ops are counted from their own tensors. A Triton launch is
counted by running a few of its program instances in Triton's interpreter with every access to memory replaced: loads
return ones, stores are dropped, and the addresses and masks that the kernel really computed are counted and scaled to
the whole grid. Nothing here knows who wrote a kernel or what it is meant to do.

Must run in a process where kernels are interpreted (TRITON_INTERPRET=1 before they are decorated). With real tensors
and `exact=True` every program runs with its data, at small shapes: what the sampling is tested against.

The budget of a launch is counted in interpreter operations, not in seconds, so the records of a forward are the same
on every machine.

A candidate's host code runs in another process than its kernels: `noting` writes a `journal` there, and `replay` counts it
with what is here. `count_traffic` does both at once, for forwards that are trusted.

`torch_ops` and `launches` make the records; `program` runs a program instance, `meter` counts its operations into a
`tally`, `sample` says which programs run.

Records, in launch order, plain JSON. Bytes and operations are totals over the grid:

    a torch op:      {"op", "bytes_read", "bytes_written", "strided_read", "flops", "dot_flops", "dtype", "elements",
                      "priced", "kernels", "dims", "channels_last", "reads", "writes"}
    a Triton launch: {"kernel", "grid", "programs", "bytes_read", "bytes_written", "unique_read", "unique_written",
                      "sector_read", "sector_written", "hot_read", "program_read", "window_read", "trailing",
                      "trailing_read", "flops", "dot_flops", "dots", "dots_most", "dot_precision", "dot_dtype",
                      "dot_shape", "kinds", "alu_ops", "rounds", "atomics", "constexprs", "num_warps", "num_stages",
                      "arguments", "function", "sampled", "reads", "writes"}

    strided_read: bytes of inputs whose rows run across the output's, so that a warp reads scattered sectors.
    dims: [batch, M, N, K] of a matrix product, [groups, M, N, K, taps] of a convolution as one, [rows, length, stride]
        of a softmax, else []. channels_last: whether a convolution's operand or weight lies so.
    priced: whether the flops of its products are known, see `mtmc.evaluate.counting.prices`.
    unique_*: bytes counted once however often they are requested (compulsory traffic).
    sector_*: requested bytes in whole 32-byte sectors, one per load or store of a block: what L2 has to deliver.
    hot_read: requested bytes of storages so small that they stay in an SM's own cache (biases, scales).
    program_read: unique bytes that one program reads. window_read: {n: unique bytes that n neighbours read together}.
    trailing_read: bytes that programs read which those read that began `trailing` programs before them; 0 if none do.
    dots, dots_most: tensor products one program executes, and the most that one does; dot_shape: [M, N, K] of the one
        with most work. kinds: [type, precision] of every tensor product, and [type, "rounded"] of every narrower type that
        floating numbers are rounded to.
    alu_ops: issue slots outside the tensor cores, elements x the weights of `mtmc.evaluate.counting.slots`.
    arguments: of the launch, as texts, see `mtmc.evaluate.compiling.launched`.
    function: of which text it is a launch, see `mtmc.evaluate.loading.jitted.digest`.
    rounds: batches of loads that one program waits for one after another.
    reads, writes: [[storage, unique bytes]], a storage having the same number in all records of a forward.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mtmc.evaluate.counting.interpreter_parts import interpreter_parts
from mtmc.evaluate.counting.launches import Launches, Limits
from mtmc.evaluate.counting.program import UncountableError
from mtmc.evaluate.counting.storages import Storages
from mtmc.evaluate.counting.tally import Record
from mtmc.evaluate.counting.torch_ops import torch_modes


@contextlib.contextmanager
def fake_tensors() -> Iterator[Any]:
    """Make every tensor created inside fake: full shapes, no memory. Build the model and its inputs in here."""
    import torch

    from mtmc.evaluate.loading.fake import FakeMode

    with FakeMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        yield mode


def count_traffic(
    forward: Callable[..., Any],
    inputs: Sequence[Any],
    limits: Limits | None = None,
    exact: bool = False,
    log: list[Record] | None = None,
    after: Callable[[Launches], None] | None = None,
) -> list[Record]:
    """Count one call `forward(*inputs)`; the records' fields are in this module's text.

    With fake tensors, call it inside the `fake_tensors()` that made them. exact: run all programs on real tensors.
    log: an empty list that the records go into.
    after: called behind the forward, with its launches, whose programs can then be run again.
    Raises: EvaluatorError where Triton's interpreter lacks what is needed or a kernel is not interpreted;
    UncountableError where the forward reads a value that a fake tensor does not have, or one program runs beyond
    `Limits.program_work`; whatever the forward itself raises.
    """
    import torch

    parts = interpreter_parts()
    storages = Storages(fake=not exact)
    log = [] if log is None else log
    paused: list[bool] = []  # not empty while what torch runs is part of something already counted
    launches = Launches(parts, storages, log, limits or Limits(), exact, paused)
    ops = torch_modes(storages, log, paused)
    with shapes_alone(), torch.no_grad(), launches.intercept(), ops[0], ops[1]:
        forward(*inputs)
        if after is not None:
            paused.append(True)
            after(launches)
    return log


@contextlib.contextmanager
def shapes_alone() -> Iterator[None]:
    """Raises: UncountableError where what runs inside asks for a value that a fake tensor does not have."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    try:
        yield
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise UncountableError(
            f"the forward reads a tensor's values on the host ({error}), which has none when only shapes are run; "
            "compute it on the device, or pass it as an argument"
        ) from error
