"""The candidate's side of the check: a process of its own that never sees an expected value.

Forked by the check (`mtmc.evaluate.check.check`) before the reference is even loaded. It is handed one case after another
over a socket, pickled (the check is trusted): shapes, constructor arguments, and where inputs lie in the shared
buffer (`mtmc.evaluate.check.shared_input`). It answers with a JSON header and raw bytes (the candidate is not trusted, so
nothing it made is unpickled).
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import secrets
import socket
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from mtmc.evaluate.audit.diagnosis import diagnose_exception
from mtmc.evaluate.check.answers import MISSING, OutOfMemory, Packed, Raised, Result, Text
from mtmc.evaluate.check.shared_input import SharedInputBuffer
from mtmc.evaluate.compiling.pretended import pretended_gpu, settle
from mtmc.evaluate.interpreter.bounds import bounded_memory
from mtmc.evaluate.interpreter.interleaving import interleaved_programs
from mtmc.evaluate.loading.modules import candidate_text, construct, load_module
from mtmc.evaluate.pool.messages import read_message, write_message
from mtmc.evaluate.pool.server import out_of_memory
from mtmc.evaluate.reference.blocks import differ
from mtmc.evaluate.reference.effects import Remembered, changed_buffers, find, values
from mtmc.evaluate.reference.effects import parameters as named_parameters
from mtmc.evaluate.reference.returned import describe, flatten, is_plain, tensors_in, undisturbed
from mtmc.evaluate.sandbox.lockdown import lock_down
from mtmc.task.seeding import seed_torch


@dataclass(frozen=True)
class Case:
    """One forward that is asked of a candidate.

    variant: serial number of the model; a candidate is loaded and constructed once for each.
    constants: module-level integers to replace in its source. arguments: of the constructor.
    model_seed, forward_seed: set before construction and before the forward. state: see `Task.state`.
    inputs: as `SharedInputBuffer.put` returns them.
    moved: whether its degenerate weights are moved, see `construct`.
    kept: paths of what the reference changes and untouched: of what it does not, see `ExpectedOutputs`.
    first: whether what is kept is to be what it was when the model was constructed.
    """

    variant: int
    constants: tuple[tuple[str, int], ...]
    arguments: list[Any]
    state: bytes | None
    model_seed: int
    forward_seed: int
    inputs: list[Any]
    moved: bool = False
    kept: tuple[str, ...] = ()
    untouched: tuple[str, ...] = ()
    first: bool = True


@dataclass(frozen=True)
class Answer:
    """What a candidate's forward gave.

    outputs: leaves of its result; a tensor, or the text of what is no plain tensor. structure: see `flatten`.
    changed_inputs: positions of tensors among the inputs that it changed. changed_parameters: their names.
    The candidate's process says of its inputs only which are other tensors now; the check adds what has changed in memory.
    changed_buffers: of those that the reference leaves alone. state: what is kept under the paths that were asked for.
    left_inputs: what lies now in the memory of the inputs that the reference changes, by position.
    """

    outputs: list[torch.Tensor | str]
    structure: str
    changed_inputs: list[int]
    changed_parameters: list[str]
    changed_buffers: list[str] = field(default_factory=list)
    state: list[torch.Tensor | str] = field(default_factory=list)
    left_inputs: Mapping[int, torch.Tensor] = field(default_factory=dict)


def serve(connection: socket.socket, source: str, buffer: SharedInputBuffer) -> None:
    """In the forked process: answer cases until the other side closes. Never returns."""
    try:
        lock_down("candidate", [Path.cwd()])
        models: dict[int, tuple[Any, Remembered]] = {}
        backwards_first = bool(secrets.randbits(1))
        while True:
            case = pickle.loads(read_message(connection))
            said, body = _answer(case, source, models, buffer, backwards_first)
            backwards_first = not backwards_first  # a coin for each forward would leave a launch out now and then
            write_message(connection, json.dumps(asdict(said)).encode())
            write_message(connection, body)
    except EOFError:
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _answer(
    case: Case,
    source: str,
    models: dict[int, tuple[Any, Remembered]],
    buffer: SharedInputBuffer,
    backwards_first: bool,
) -> tuple[Result | Raised | OutOfMemory, bytes]:
    path = Path.cwd() / f"mtmc_candidate_{case.variant}.py"
    text = source
    try:
        if case.variant not in models:
            text = candidate_text(source, case.constants)
            with pretended_gpu():
                module = load_module(text, path)
            with pretended_gpu(constructing=True):
                model = construct(module, "ModelNew", case.arguments, case.model_seed, case.state, moved=case.moved)
            settle(model)
            models[case.variant] = model, Remembered(model)
        model, remembered = models[case.variant]
        if case.first:
            remembered.restore(case.kept)
        return _forward(model, buffer.take(case.inputs), case, backwards_first)
    except Exception as error:
        if out_of_memory(error):
            return OutOfMemory(str(error)[:2000]), b""
        diagnosis = diagnose_exception("check", error, str(path), path.read_text() if path.exists() else text)
        return Raised(diagnosis), b""


def _forward(model: Any, inputs: list[Any], case: Case, backwards_first: bool) -> tuple[Result, bytes]:
    tensors = tensors_in(inputs)
    shown = [_shown(tensor) for tensor in tensors]
    parameters = {name: (value, value.detach().clone()) for name, value in named_parameters(model).items()}
    buffers = values(model, case.untouched)
    seed_torch(case.forward_seed)
    order = interleaved_programs(secrets.randbits(62), backwards_first)
    with torch.no_grad(), poisoned_memory(), bounded_memory(), order, pretended_gpu():
        result = model(*inputs)
    with undisturbed():
        outputs, structure = flatten(result)
        packed = [_pack(output) for output in outputs]
        kept = [_pack(at) if (at := find(model, path)) is not None else (Text(MISSING), b"") for path in case.kept]
    others = [at for at, (tensor, before) in enumerate(zip(tensors, shown, strict=True)) if _shown(tensor) != before]
    changed = [name for name, (now, before) in parameters.items() if differ(now.detach(), before)]
    said = Result(
        tuple(header for header, _ in packed),
        structure,
        tuple(others),
        tuple(changed),
        changed_buffers(model, buffers),
        tuple(header for header, _ in kept),
    )
    return said, b"".join(body for _, body in (*packed, *kept))


@contextlib.contextmanager
def poisoned_memory() -> Iterator[None]:
    """While open, `torch.empty` and its kin give NaN (integers: the largest value) instead of whatever was there."""
    enabled = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(enabled)


def _shown(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What memory a tensor shows, and as what."""
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _pack(output: Any) -> tuple[Packed | Text, bytes]:
    """Header and bytes of one output. Only plain tensors are tensors: a subclass could compute while it is compared."""
    if not is_plain(output):
        return Text(describe(output)), b""
    bare = torch.resolve_neg(torch.resolve_conj(torch.Tensor.detach(output)))  # as whoever reads it sees it
    plain = torch.Tensor.contiguous(bare).reshape(-1)
    body = torch.Tensor.view(plain, torch.uint8).numpy().tobytes() if plain.numel() else b""
    return Packed(str(output.dtype).removeprefix("torch."), tuple(output.shape), len(body)), body


def unpack(result: Result, body: bytes) -> Answer:
    """Inverse of what `serve` sends. Raises: AttributeError, TypeError, ValueError or RuntimeError on a forged result."""
    found: list[torch.Tensor | str] = []
    at = 0
    for item in (*result.outputs, *result.state):
        if isinstance(item, Text):
            found.append(item.text)
            continue
        dtype = getattr(torch, item.dtype)
        data = bytearray(body[at : at + item.bytes])
        at += item.bytes
        flat = torch.frombuffer(data, dtype=dtype) if item.bytes else torch.empty(0, dtype=dtype)
        found.append(flat.reshape(item.shape))
    count = len(result.outputs)
    changed = list(result.changed_inputs), list(result.changed_parameters), list(result.changed_buffers)
    return Answer(found[:count], result.structure, *changed, found[count:])
