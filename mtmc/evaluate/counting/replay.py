"""A journal counted: each of its launches sampled, each of its ops recorded, from the tensors that they were given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from mtmc.evaluate.counting.compared import Found
from mtmc.evaluate.counting.intercepting import Launched
from mtmc.evaluate.counting.interpreter_parts import interpreter_parts, patched_language
from mtmc.evaluate.counting.journal import DATA, Asked, Call, Journal, Known, Op
from mtmc.evaluate.counting.kernels import Kernels
from mtmc.evaluate.counting.launches import Launches, Limits
from mtmc.evaluate.counting.storages import Storages
from mtmc.evaluate.counting.tally import Record
from mtmc.evaluate.counting.torch_ops import ROUTINES, call_record, op_record, torch_modes
from mtmc.evaluate.counting.values import Values
from mtmc.evaluate.loading.jitted import digest
from mtmc.evaluate.plain import MalformedError
from mtmc.task.tensors import flat_tensors

if TYPE_CHECKING:
    from mtmc.evaluate.counting.spots import Spots


_UNCHECKED = re.compile(r"unsafe|sparse|from_file|^set_|nested|quantize|pack|mkldnn|cslt")
"""Ops that are not run on data that others have chosen: they may take it for what it is not."""


class Replay:
    """What counts one journal.

    text, path: of the version, of which kernels are made; beside it lies the journal's data. inputs: tensors of the forward,
    fake ones of `mode`.
    Raises: MalformedError where the journal is none of such a forward.
    """

    def __init__(self, journal: Journal, text: str, path: Path, inputs: list[Any], mode: Any) -> None:
        self._journal, self._inputs, self._mode = journal, inputs, mode
        self._parts, self._storages = interpreter_parts(), Storages(fake=True)
        self._kernels = Kernels(self._parts, text, str(path), path.stem)
        self._values = Values(mode, self._storages, self._kernels.constant)
        held = {tensor.untyped_storage()._cdata: tensor for tensor in inputs}
        for tensor in held.values():
            self._values.hold(tensor)
        if self._storages.sizes != list(journal.storages[: len(held)]):
            raise MalformedError(f"inputs of {self._storages.sizes} bytes are told as {journal.storages[: len(held)]}")
        for size in journal.storages[len(held) :]:
            self._values.add(size)
        for known in journal.known:
            self._know(known, path.with_name(DATA), len(held))
        self._ops = {at: self._op(each) for at, each in enumerate(journal.entries) if not isinstance(each, Asked)}

    def counted(self, limits: Limits, spots: Sequence[Spots] = ()) -> tuple[list[Record], list[Found]]:
        """The forward's records, with {"graph": records} for a graph that is replayed, and what spot checks saw.

        Raises: UncountableError; MalformedError; whatever a kernel raises.
        """
        log: list[Record] = []
        launches = Launches(self._parts, self._storages, log, limits, False, [])
        _, addresses = torch_modes(self._storages, [], [True])
        records: dict[int, Record | None] = dict(self._ops)
        with torch.no_grad(), patched_language(self._parts), addresses:
            for at, entry in enumerate(self._journal.entries):
                if isinstance(entry, Asked):
                    records[at] = launches.sample(self._launched(entry))
            if any(number not in records for number in self._journal.before):
                raise MalformedError(f"{self._journal.before} came before, of {len(records)} entries")
            launches.before = [record for number in self._journal.before if (record := records[number]) is not None]
            for each in self._journal.log:
                numbers = (each,) if isinstance(each, int) else each
                if any(number not in records for number in numbers):
                    raise MalformedError(f"the log has {each}, of {len(records)} entries")
                found = [record for number in numbers if (record := records[number]) is not None]
                log += found if isinstance(each, int) else [{"graph": found}]
            outputs = [*map(self._values.tensor, self._journal.outputs)]
            return log, [each.look(launches, self._inputs, outputs) for each in spots]

    def _know(self, known: Known, path: Path, inputs: int) -> None:
        """Take in what lies in a storage. Raises: MalformedError where it is not there, or belongs to an input."""
        dtype = getattr(torch, known.dtype, None)
        there = inputs <= known.storage < len(self._storages.sizes)
        if (
            not there
            or not isinstance(dtype, torch.dtype)
            or known.bytes > self._storages.sizes[known.storage]
            or known.bytes < 0
            or known.start < 0
        ):
            raise MalformedError(f"{known} is nothing that can be known")
        count = known.bytes // dtype.itemsize
        if not count:
            return
        with open(path, "rb") as file:
            file.seek(known.start)
            data = bytearray(file.read(known.bytes))
        if len(data) != known.bytes:
            raise MalformedError(f"{len(data)} of {known.bytes} bytes of a storage are there")
        self._storages.real[known.storage] = torch.frombuffer(data, dtype=dtype, count=count)

    def _launched(self, asked: Asked) -> Launched:
        x, y, z = asked.grid
        if min(x, y, z) < 0:
            raise MalformedError(f"a grid of {asked.grid}")
        jitted = self._kernels.kernel(asked.kernel)
        bound = {name: self._values.value(value) for name, value in asked.arguments.items()}
        if sorted(bound) != sorted(jitted.arg_names):
            raise MalformedError(f"kernel {asked.kernel.name} takes {jitted.arg_names}, and is given {list(bound)}")
        return Launched(jitted, bound, (x, y, z), asked.num_warps, asked.num_stages, digest(asked.kernel))

    def _op(self, entry: Op | Call) -> Record | None:
        """The record of an op or a routine, from its arguments."""
        args, kwargs, result = (self._values.value(each) for each in (entry.args, entry.kwargs, entry.result))
        if isinstance(entry, Call):
            if entry.call not in ROUTINES:
                raise MalformedError(f"{entry.call[:100]!r} is no routine")
            return call_record(entry.call, args, kwargs, result, self._storages)
        space, _, name = entry.op.partition("::")
        packet = getattr(getattr(torch.ops, space, None), name, None)
        func = getattr(packet, entry.overload or "default", None)
        if not isinstance(func, torch._ops.OpOverload):
            raise MalformedError(f"{entry.op[:100]!r} is no op of torch")
        if not func._schema.is_mutable:
            with self._mode, torch.no_grad():
                _agree(func, args, kwargs, result)
        record = op_record(func, args, kwargs, result, self._storages)
        if space != "aten" or _UNCHECKED.search(name):
            self._storages.calls.pop(id(record), None)  # what it makes is not computed here
        return record


def _agree(func: Any, args: Any, kwargs: Any, result: Any) -> None:
    """Raises: MalformedError where an op makes other tensors of its arguments than it is said to."""
    try:
        made = flat_tensors(func(*args, **kwargs))
    except (DataDependentOutputException, DynamicOutputShapeException):
        return  # their shapes hang on values
    except (NotImplementedError, UnsupportedOperatorException):
        return  # it was run on weights that are there
    told = flat_tensors(result)
    if [(each.shape, each.dtype) for each in made] != [(each.shape, each.dtype) for each in told]:
        raise MalformedError(f"{func} makes {[tuple(each.shape) for each in made]}, and not what it is said to")
