"""The process that runs a version's host code at the full shapes, and notes what it asks of a GPU.

Tensors are fake, and no kernel is run: what is noted is plain data (`mtmc.evaluate.counting.journal`), and is counted where
nothing of the version's host code ever runs (`mtmc.evaluate.counting.count`). Whatever a version does to this process, it
has a say in what it launches alone, and must have launched the same when it was built.

`note` is a job in a check worker, and knows no secret.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from mtmc.errors import EvaluatorError
from mtmc.evaluate.audit.diagnosis import Failure, diagnose_exception
from mtmc.evaluate.counting.journal import DATA, Asked, Call, Journal, Known, Op
from mtmc.evaluate.counting.storages import Storages, as_bytes, flat
from mtmc.evaluate.loading.modules import (
    candidate_text,
    construct,
    draw_inputs,
    init_inputs,
    load_module,
    load_reference,
)
from mtmc.evaluate.pool.server import out_of_memory
from mtmc.task import Task, Variant
from mtmc.task.tensors import flat_tensors, map_tensors


def note(
    task: Task, source: str, variant: Variant, autotuned: Mapping[str, int], with_data: bool = False
) -> Journal | Failure:
    """Note a candidate's forward at one set of shapes, in the present folder.

    autotuned: configuration of each autotuned kernel, as the build chose. with_data: whether its weights have values; what
        its kernels are given of them goes into the file `DATA`.
    Returns: a failure where the host code fails. Raises: TaskError if the reference fails; EvaluatorError if counting itself
    cannot work.
    """
    from mtmc.evaluate.compiling.autotune import pin_autotuners
    from mtmc.evaluate.compiling.pretended import pretended_gpu, settle
    from mtmc.evaluate.compiling.pretended_graph import prepares_itself
    from mtmc.evaluate.counting.traffic import fake_tensors

    pin_autotuners(dict(autotuned))
    folder = Path.cwd()
    path = folder / f"mtmc_candidate_{variant.label}.py"
    text = candidate_text(source, variant.constants)
    weights = _with_memory if with_data else contextlib.nullcontext
    with fake_tensors():
        reference = load_reference(task, variant, folder)
        arguments, inputs = init_inputs(reference, variant, 0), draw_inputs(reference, variant, 0)
        try:
            with weights(), pretended_gpu():
                module = load_module(text, path)
            with weights(), pretended_gpu(constructing=True):
                model = construct(module, "ModelNew", arguments, 0, task.state if with_data else None)
            settle(model)
            return _Notes().of(model, inputs, prepares_itself(text))
        except EvaluatorError:
            raise
        except Exception as error:
            if out_of_memory(error):
                raise
            return Failure("crash", diagnose_exception("estimate", error, str(path), text))


def _with_memory() -> Any:
    """What is made in here has memory, also where other tensors are fake."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    return unset_fake_temporarily()


def _other(tensor: Any) -> Any:
    """A tensor of the same form in other memory and of another version: what was made of the first one is not made of it."""
    import torch

    made = tensor.new_empty_strided(tensor.shape, tensor.stride())
    with torch.no_grad():
        for _ in range(_VERSIONS + tensor._version):
            made.zero_()
    return made


_VERSIONS = 3
"""In-place changes that tell a second input from a first one."""


def _touches(entry: Any, given: Collection[int | None]) -> bool:
    """Whether an entry has to do with one of some storages, as far as is known: what a graph launches counts as doing so."""
    from mtmc.evaluate.counting.values import storages_in

    if isinstance(entry, dict):
        return True
    values = [entry.arguments] if isinstance(entry, Asked) else [entry.args, entry.kwargs, entry.result]
    return any(number in given for value in values for number in storages_in(value))


class _Notes:
    """The notes of one forward. log: entries in order, as objects, and {"graph": entries} for a replay of some. before:
    those of the first call, see `Journal`."""

    def __init__(self) -> None:
        self._storages = Storages(fake=True)
        self._log: list[Any] = []
        self._before: list[Asked | Op | Call] = []

    def of(self, model: Any, inputs: Any, prepares: bool) -> Journal:
        """Run a forward. prepares: whether its first call may do what no other one does; of it is noted then what came
        before it looked at an input.

        Raises: UncountableError for what cannot be counted; whatever the forward raises.
        """
        import torch

        from mtmc.evaluate.compiling import pretended_graph
        from mtmc.evaluate.compiling.pretended import pretended_gpu
        from mtmc.evaluate.counting.axes import output_tensors
        from mtmc.evaluate.counting.intercepting import intercepted
        from mtmc.evaluate.counting.interpreter_parts import interpreter_parts
        from mtmc.evaluate.counting.torch_ops import torch_modes
        from mtmc.evaluate.counting.traffic import shapes_alone
        from mtmc.evaluate.counting.values import placed
        from mtmc.evaluate.reference.effects import kept_tensors

        parts, storages, paused = interpreter_parts(), self._storages, list[bool]()
        journal = pretended_graph.Journal(self._log, lambda noted, graph: noted.append({"graph": graph}))
        ops, calls = torch_modes(storages, self._log, paused, self._op, self._call)
        before, inputs = inputs, map_tensors(inputs, _other) if prepares else inputs
        for tensor in flat_tensors(inputs):
            storages.number(tensor)

        def launch(jitted: Any, args: Any, kwargs: Any, grid: Any, original: Any) -> None:
            self._log.append(self._launch(parts, jitted, args, kwargs, grid))

        with shapes_alone(), torch.no_grad(), intercepted(parts, launch), ops, calls, pretended_gpu(journal=journal):
            if prepares:
                model(*before)
                given = {storages.known(tensor) for tensor in flat_tensors(before)}
                self._before = list(itertools.takewhile(lambda each: not _touches(each, given), self._log))
                self._log.clear()
            result = model(*inputs)
            for tensor in output_tensors(result):  # what it leaves to whoever reads it is work of its own
                torch.resolve_neg(torch.resolve_conj(tensor))
        paused.append(True)
        outputs = tuple(placed(tensor, storages) for tensor in output_tensors(result))
        held = {path: storages.known(tensor) for path, tensor in kept_tensors(model).items()}
        return self._journal(outputs, tuple((path, number) for path, number in held.items() if number is not None))

    def _launch(self, parts: Any, jitted: Any, args: Any, kwargs: Any, grid: Any) -> Asked:
        from mtmc.evaluate.counting.intercepting import launched_as
        from mtmc.evaluate.counting.program import UncountableError
        from mtmc.evaluate.counting.values import plain
        from mtmc.evaluate.loading.jitted import described

        launched = launched_as(parts, jitted, args, kwargs, grid)
        kernel = described(jitted)
        if kernel is None:
            raise UncountableError(
                f"kernel {jitted.__name__} is no function of the file; write it as one, with `@triton.jit` over it"
            )
        arguments = {name: plain(value, self._storages) for name, value in launched.bound.items()}
        return Asked(kernel, launched.size, launched.num_warps, launched.num_stages, arguments)

    def _op(self, func: Any, args: Any, kwargs: Any, result: Any, storages: Storages) -> Any:
        from mtmc.evaluate.counting.torch_ops import touched
        from mtmc.evaluate.counting.values import plain

        if touched(func, args, kwargs, result, storages) is None:
            return None
        values = (plain(each, storages) for each in (args, kwargs, result))
        return Op(str(func._schema.name), str(func._schema.overload_name), *values)

    def _call(self, name: str, args: Any, kwargs: Any, result: Any, storages: Storages) -> Any:
        from mtmc.evaluate.counting.values import plain

        return Call(name, *(plain(each, storages) for each in (args, kwargs, result)))

    def _journal(self, outputs: Any, kept: tuple[tuple[str, int], ...]) -> Journal:
        entries: dict[int, Any] = {}  # by identity: a graph launches the same ones again
        for each in (*self._before, *self._log):
            for entry in each["graph"] if isinstance(each, dict) else [each]:
                entries.setdefault(id(entry), entry)
        number = {key: at for at, key in enumerate(entries)}
        log = tuple(
            tuple(number[id(entry)] for entry in each["graph"]) if isinstance(each, dict) else number[id(each)]
            for each in self._log
        )
        asked = tuple(entries.values())
        before = tuple(number[id(entry)] for entry in self._before)
        return Journal(tuple(self._storages.sizes), asked, log, outputs, self._known(), kept, before)

    def _known(self) -> tuple[Known, ...]:
        """What has memory; its bytes go into the file."""
        known: list[Known] = []
        with _with_memory(), open(DATA, "wb") as file:
            for number, tensor in sorted(self._storages.real.items()):
                data, start = flat(tensor), file.tell()
                as_bytes(data).numpy().tofile(file)
                known.append(Known(number, str(data.dtype).removeprefix("torch."), start, data.numel() * data.itemsize))
        return tuple(known)
